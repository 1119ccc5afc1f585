//! Which functions may end as another, on hand-assembled code.

#[path = "../../code/tests/elf/mod.rs"]
mod elf;

use elf::{CODE, image};
use sptrace_addr::Svma;
use sptrace_code::analyze;
use sptrace_image::Object;
use sptrace_patch::build_plan;
use sptrace_patch::ends::may_end_in;
use sptrace_wire::plan::{FN_RETURN_ADDRESS, FN_TAILS, PlanView};

/// Entries of the functions below.
const DOUBLE: u64 = 26;
const SINGLE: u64 = 31;
const READER: u64 = 36;
const POINTER: u64 = 44;
const PLAIN: u64 = 46;

#[rustfmt::skip]
const CODE_BYTES: [u8; 47] = [
    // call each of the others; ret
    0xe8, 21, 0, 0, 0, 0xe8, 21, 0, 0, 0, 0xe8, 21, 0, 0, 0, 0xe8, 24, 0, 0, 0, 0xe8, 21, 0, 0, 0, 0xc3,
    // DOUBLE: jmp SINGLE
    0xe9, 0, 0, 0, 0,
    // SINGLE: jmp READER
    0xe9, 0, 0, 0, 0,
    // READER: push rbx; mov rax,[rsp+8]; pop rbx; ret
    0x53, 0x48, 0x8b, 0x44, 0x24, 8, 0x5b, 0xc3,
    // POINTER: jmp rdi
    0xff, 0xe7,
    // PLAIN: ret
    0xc3,
];

#[test]
fn chains_of_jumps_to_a_reader_and_unknown_ends_are_found() {
    let file = image(&CODE_BYTES, &[]);
    let object = Object::parse(&file).unwrap();
    let analysis = analyze(&object);
    let ends = [Svma(CODE + READER)].into_iter().collect();
    let found = may_end_in(&analysis, &ends);
    let mut entries: Vec<u64> = found
        .iter()
        .map(|i| analysis.functions[*i].entry.0 - CODE)
        .collect();
    entries.sort_unstable();
    assert_eq!(entries, [DOUBLE, SINGLE, POINTER]);

    let plan = build_plan(&object, &analysis);
    let plan = PlanView::new(&plan).unwrap();
    let flags = |entry| {
        let offset = CODE + entry - plan.header().base_svma;
        let function = plan
            .function_at(offset as u32)
            .and_then(|i| plan.function(i));
        function.unwrap().flags & (FN_RETURN_ADDRESS | FN_TAILS)
    };
    assert_eq!(flags(DOUBLE), FN_TAILS);
    assert_eq!(flags(POINTER), FN_TAILS);
    assert_eq!(flags(READER), FN_RETURN_ADDRESS);
    assert_eq!(flags(PLAIN), 0);
}
