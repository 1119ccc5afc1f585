//! Any bytes as an ELF file that names its debug file, as debug information, as a symbol file and
//! as a map of generated code: names and lines, or none, never a panic.
#![no_main]

use sptrace_addr::Svma;
use sptrace_dwarf::Lines;
use sptrace_image::DebugLinks;
use sptrace_symbols::{read_perf_map, read_symbol_file};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = DebugLinks::of(bytes);
    read_symbol_file(bytes);
    read_perf_map(bytes, &[0, 0x1000, 0x7f00_0000_0000, u64::MAX]);
    let Some(lines) = Lines::new(bytes, Some(bytes)) else {
        return;
    };
    for svma in [0, 0x1000, 0x1149, 0x40_1000, u64::MAX] {
        lines.begin(Svma(svma));
        lines.frames(Svma(svma));
    }
});
