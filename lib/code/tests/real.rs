//! Invariants over real binaries, a mutation fuzz test, and a comparison with objdump.
//!
//! A binary that the machine does not have is left out; the C library, which it has, is asked for.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};
use sptrace_addr::Svma;
use sptrace_code::{Analysis, Site, SiteKind, analyze};
use sptrace_image::Object;

const LIBC: &str = "/lib/x86_64-linux-gnu/libc.so.6";
const BINARIES: [&str; 5] = [
    LIBC,
    "/lib64/ld-linux-x86-64.so.2",
    "/bin/bash",
    "/usr/bin/python3",
    "/usr/bin/git",
];

fn each_binary(check: impl Fn(&str, &Object<'_>, &Analysis)) {
    let mut seen = 0;
    for path in BINARIES {
        let Ok(bytes) = std::fs::read(path) else {
            continue;
        };
        let Ok(object) = Object::parse(&bytes) else {
            continue;
        };
        check(path, &object, &analyze(&object));
        seen += 1;
    }
    assert!(seen > 0, "none of the binaries could be read");
}

fn decode(object: &Object<'_>, svma: Svma) -> Instruction {
    let code = object.code_from(svma).unwrap();
    Decoder::with_ip(64, code, svma.0, DecoderOptions::NONE).decode()
}

fn is_of_kind(instruction: &Instruction, kind: SiteKind) -> bool {
    let flow = instruction.flow_control();
    match kind {
        SiteKind::CallDirect => instruction.is_call_near(),
        SiteKind::CallIndirect => instruction.is_call_near_indirect(),
        SiteKind::TailDirect => flow == FlowControl::UnconditionalBranch,
        SiteKind::TailConditional => flow == FlowControl::ConditionalBranch,
        SiteKind::TailIndirect => instruction.is_jmp_near_indirect(),
        SiteKind::SystemCall => instruction.mnemonic() == iced_x86::Mnemonic::Syscall,
    }
}

fn check_site(path: &str, object: &Object<'_>, site: &Site) {
    let instruction = decode(object, site.address);
    assert_eq!(
        instruction.len(),
        usize::from(site.length),
        "{path} {site:x?}"
    );
    assert!(is_of_kind(&instruction, site.kind), "{path} {site:x?}");
    assert!(
        site.address.0 - site.window_start.0 <= 15,
        "{path} {site:x?}"
    );
    let mut svma = site.window_start;
    while svma < site.address {
        let before = decode(object, svma);
        assert!(!before.is_invalid(), "{path} {site:x?}");
        let plain = matches!(
            before.flow_control(),
            FlowControl::Next | FlowControl::ConditionalBranch
        );
        assert!(plain, "{path} {site:x?}");
        svma = Svma(before.next_ip());
    }
    assert_eq!(
        svma, site.address,
        "{path}: the window is no whole instructions: {site:x?}"
    );
}

#[test]
fn sites_are_what_they_say_and_lie_in_their_functions() {
    each_binary(|path, object, analysis| {
        let mut next_site = 0;
        let mut end = Svma(0);
        for function in &analysis.functions {
            assert!(
                function.entry >= end && function.end > function.entry,
                "{path} {function:x?}"
            );
            end = function.end;
            assert_eq!(function.first_site, next_site, "{path}");
            next_site += function.site_count;
            let mut last_end = 0;
            for site in analysis.sites_of(function) {
                assert!(site.window_start.0 >= function.entry.0, "{path} {site:x?}");
                assert!(
                    site.address.0 >= last_end,
                    "{path}: sites overlap at {site:x?}"
                );
                last_end = site.address.0 + u64::from(site.length);
                assert!(last_end <= function.end.0, "{path} {site:x?}");
                check_site(path, object, &site);
            }
        }
        for site in analysis.system_calls.iter() {
            check_site(path, object, &site);
        }
        assert_eq!(next_site as usize, analysis.sites.len(), "{path}");
        let count = analysis.functions.len() as u32;
        assert!(analysis.links.iter().all(|link| *link < count), "{path}");
    });
}

/// Targets of direct branches and calls by a linear sweep, which does not share the analysis's idea
/// of what is reached.
fn swept_targets(object: &Object<'_>, start: Svma, end: Svma) -> Vec<u64> {
    let code = object.code_from(start).unwrap();
    let code = &code[..code.len().min((end.0 - start.0) as usize)];
    Decoder::with_ip(64, code, start.0, DecoderOptions::NONE)
        .into_iter()
        .map(|instruction| instruction.near_branch_target())
        .filter(|target| *target != 0)
        .collect()
}

#[test]
fn no_window_holds_the_target_of_a_jump_or_call() {
    each_binary(|path, object, analysis| {
        let mut targets: BTreeSet<u64> = object
            .unwind
            .landing_pads()
            .iter()
            .map(|p| p.pad.0)
            .collect();
        targets.extend(object.code_pointers.iter().map(|p| p.target.0));
        for function in &analysis.functions {
            targets.extend(swept_targets(object, function.entry, function.end));
        }
        for site in analysis.sites.iter().filter(|s| s.window_start < s.address) {
            let inside = targets
                .range(site.window_start.0 + 1..=site.address.0)
                .next();
            assert!(inside.is_none(), "{path} {inside:x?} in {site:x?}");
        }
    });
}

#[test]
fn analysis_does_not_depend_on_timing() {
    let bytes = std::fs::read(LIBC).unwrap();
    let object = Object::parse(&bytes).unwrap();
    assert_eq!(analyze(&object), analyze(&object));
}

/// Addresses of direct calls that objdump prints inside the ranges of unwind information.
fn objdump_calls(path: &str, object: &Object<'_>) -> Option<BTreeSet<u64>> {
    let output = Command::new("objdump")
        .args(["-d", "--no-show-raw-insn", path])
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let calls = text.lines().filter_map(|line| {
        let (address, instruction) = line.trim_start().split_once(":\t")?;
        let mut words = instruction.split_whitespace();
        let is_direct = words.next()? == "call" && !words.next()?.starts_with('*');
        let svma = Svma(u64::from_str_radix(address, 16).ok()?);
        (is_direct && object.unwind.fde_at(svma).is_some()).then_some(svma.0)
    });
    Some(calls.collect()).filter(|calls: &BTreeSet<u64>| !calls.is_empty())
}

#[test]
fn direct_calls_are_those_that_objdump_sees() {
    for (path, least) in [
        ("/bin/bash", 0.999),
        ("/usr/bin/python3", 0.999),
        (LIBC, 0.98),
    ] {
        let Ok(bytes) = std::fs::read(path) else {
            continue;
        };
        let Ok(object) = Object::parse(&bytes) else {
            continue;
        };
        let Some(expected) = objdump_calls(path, &object) else {
            continue;
        };
        let found: BTreeSet<u64> = analyze(&object)
            .sites
            .iter()
            .filter(|s| s.kind == SiteKind::CallDirect)
            .map(|s| s.address.0)
            .collect();
        let missed: Vec<_> = expected.difference(&found).collect();
        let share = 1.0 - missed.len() as f64 / expected.len() as f64;
        let first = &missed[..missed.len().min(8)];
        println!(
            "{path}: {} of {} missed, first {first:x?}",
            missed.len(),
            expected.len()
        );
        assert!(share >= least, "{path}: {share}, first missed {first:x?}");
    }
}

/// Xorshift: the same mutations on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

#[test]
fn mutated_images_give_an_error_or_an_analysis_in_time() {
    let original = std::fs::read("/bin/true").unwrap();
    let mut random = Random(0x5eed_1234_5678_9abc);
    for round in 0..300 {
        let mut bytes = original.clone();
        if round % 10 == 9 {
            bytes.truncate(random.below(original.len()));
        }
        // Headers are where the offsets and counts are; every third mutation goes anywhere.
        for number in 0..1 + random.below(12) {
            let header = if round % 2 == 0 { 0x400 } else { bytes.len() };
            let limit = if number % 3 == 0 {
                bytes.len()
            } else {
                header.min(bytes.len())
            };
            if limit > 0 {
                let at = random.below(limit);
                bytes[at] = [0, 1, 0x7f, 0x80, 0xff, random.next() as u8][random.below(6)];
            }
        }
        let start = Instant::now();
        if let Ok(object) = Object::parse(&bytes) {
            let analysis = analyze(&object);
            assert!(analysis.sites.len() < bytes.len(), "round {round}");
        }
        let took = start.elapsed();
        assert!(took < Duration::from_secs(5), "round {round} took {took:?}");
    }
}

const CALLS_A_PART: &str = "
        .globl _start
_start: .cfi_startproc
        call part
        ret
        .cfi_endproc
whole:  .cfi_startproc
        inc %eax
part:   inc %ecx
        ret
        .cfi_endproc
";

#[test]
fn assembler_may_call_a_part_of_another_function() {
    let folder = std::env::temp_dir().join(format!("sptrace-code-part-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, output) = (folder.join("a.s"), folder.join("a"));
    std::fs::write(&source, CALLS_A_PART).unwrap();
    let mut cc = std::process::Command::new("cc");
    cc.args(["-nostdlib", "-static", "-s", "-o"]);
    assert!(cc.arg(&output).arg(&source).status().unwrap().success());
    let bytes = std::fs::read(&output).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let analysis = analyze(&Object::parse(&bytes).unwrap());
    assert_eq!(analysis.summary.broken_paths, 0);
    let entries: Vec<u64> = analysis.functions.iter().map(|f| f.entry.0).collect();
    let start = entries[0];
    assert_eq!(entries, [start, start + 6, start + 8]);
    assert_eq!(analysis.sites.get(0).unwrap().target.0, start + 8);
}
