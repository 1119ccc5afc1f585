//! Compiled programs beside their interpretation: random programs over random calls, and what
//! certain programs give.

mod beside;

use beside::Seeded;
use beside::programs::{Pages, compare, compare_in_place, run};
use sptrace_payload::contract::in_place as in_place_contract;
use sptrace_payload::interpret::Call;
use sptrace_payload::program::*;
use sptrace_payload::{captured, compile};

#[test]
fn compiled_programs_do_what_they_mean() {
    let mut random = Seeded(0x5eed);
    let pages = Pages::new(&mut random);
    let (mut wanted, mut faulted, mut kept) = (0, 0, 0);
    for _ in 0..20_000 {
        let Some((program, want)) = compare(&mut random, &pages) else {
            continue;
        };
        if want.is_wanted {
            let (_, parts) = captured::words(&want.bytes, program.words.len()).unwrap();
            kept += captured::parts(parts).fold(0, |n, part| n + part.map(|_| 1).unwrap());
        }
        wanted += u32::from(want.is_wanted);
        faulted += u32::from(want.has_faulted);
    }
    // The comparison has seen something.
    assert!(
        wanted > 5_000 && faulted > 500 && kept > 5_000,
        "{wanted} {faulted} {kept}"
    );
}

#[test]
fn code_for_the_middle_of_a_routine_does_what_its_program_means() {
    let mut random = Seeded(0x11ed);
    let pages = Pages::new(&mut random);
    let decided: Vec<u32> = (0..60_000)
        .filter_map(|_| compare_in_place(&mut random, &pages))
        .collect();
    let count = |what: u32| decided.iter().filter(|given| **given == what).count();
    let wanted = count(in_place_contract::WANTED);
    let unwanted = count(in_place_contract::UNWANTED);
    let undecided = count(in_place_contract::UNDECIDED);
    // The comparison has seen something.
    assert!(
        wanted > 5_000 && unwanted > 500 && undecided > 100,
        "{wanted} {unwanted} {undecided}"
    );
}

#[test]
fn code_for_the_middle_of_a_routine_leaves_the_stack_alone() {
    let program = Program {
        wanted: Some(Expression::argument(2).with(Binary::Less, 1 << 40)),
        words: vec![Expression::argument(3), Source::Vector(2).into()],
        ..Program::default()
    };
    let code = sptrace_payload::in_place(&program, None).unwrap().unwrap();
    for code in [&code.decides, &code.writes] {
        let decoder = iced_x86::Decoder::new(64, code, iced_x86::DecoderOptions::NONE);
        for i in decoder {
            assert!(
                !i.is_stack_instruction() || i.mnemonic() == iced_x86::Mnemonic::Ret,
                "{i}"
            );
        }
    }
}

#[test]
fn a_text_at_the_end_of_memory_is_kept_up_to_there() {
    let mut random = Seeded(1);
    let pages = Pages::new(&mut random);
    // SAFETY: within the pages.
    unsafe { std::ptr::copy_nonoverlapping(b"abc".as_ptr(), (pages.end() - 3) as *mut u8, 3) };
    let program = Program {
        parts: vec![Statement::Text {
            tag: 9,
            address: Expression::argument(0),
            limit: 32,
        }],
        ..Program::default()
    };
    let call = Call {
        arguments: [pages.end() - 3, 0, 0, 0, 0, 0],
        ..Call::default()
    };
    let outcome = run(&pages, &compile(&program).unwrap(), &program, &call);
    let part = captured::parts(&outcome.bytes).next().unwrap().unwrap();
    assert_eq!((part.tag, part.bytes), (9, &b"abc"[..]));
    assert!(part.is_faulted && !part.is_cut);
}

#[test]
fn a_filter_that_is_false_costs_a_load_a_comparison_and_a_jump() {
    let program = Program {
        wanted: Some(Expression::argument(2).with(Binary::Equal, 4096)),
        words: vec![Expression::argument(0), Expression::argument(1)],
        ..Program::default()
    };
    let code = compile(&program).unwrap();
    let decoder = iced_x86::Decoder::new(64, &code, iced_x86::DecoderOptions::NONE);
    let all: Vec<String> = decoder.into_iter().map(|i| i.to_string()).collect();
    // Load, compare, jump; of one that is wanted two words more.
    assert_eq!(all.len(), 13, "{all:#?}");
    assert!(all[2].starts_with("jne"), "{all:#?}");
}
