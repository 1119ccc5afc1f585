//! The folded tree says what the whole one says: written out again, it is the same calls.

use sptrace_addr::Svma;
use sptrace_render::{Column, Columns, FoldedTree, Style};
use sptrace_trace::{
    Clock, Function, FunctionId, Header, Module, Names, Order, StreamEncoder, StreamInfo, Summary,
    TraceReader, TraceWriter, Wanted, replay,
};
use std::io::Cursor;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const A: FunctionId = FunctionId(0);
const B: FunctionId = FunctionId(1);
const C: FunctionId = FunctionId(2);

/// What the folded tree shows of a thread.
fn folded(encode: impl Fn(&mut StreamEncoder)) -> String {
    folded_at_least(0, encode)
}

fn folded_at_least(min_ticks: u64, encode: impl Fn(&mut StreamEncoder)) -> String {
    let header = Header {
        tsc_hz: 1_000_000_000,
        ..Header::default()
    };
    let mut writer = TraceWriter::create(Vec::new(), &header).unwrap();
    let module = Module {
        path: "m".into(),
        build_id: vec![],
        svma: Svma(0)..Svma(9),
    };
    let module = writer.module(&module).unwrap();
    for (svma, symbol) in NAMES.iter().enumerate() {
        let function = Function {
            module,
            svma: Svma(svma as u64),
            size_bytes: 1,
            symbol: (*symbol).into(),
        };
        writer.function(&function).unwrap();
    }
    let stream = writer.stream(&StreamInfo::default()).unwrap();
    let mut encoder = writer.encoder(stream);
    encode(&mut encoder);
    writer.write_block(&mut encoder).unwrap();
    let bytes = writer.finish(&Summary::default()).unwrap();
    let mut reader = TraceReader::new(Cursor::new(bytes)).unwrap();
    let survey = reader.survey().unwrap();
    let names = Names::new(&survey.dictionary);
    let mut out = Vec::new();
    let columns = Columns::new(&[Column::Duration], &header, Style::default());
    let clock = Clock::of(&header);
    let tree = FoldedTree::new(&mut out, (&names, clock), columns, None, Style::default());
    let wanted = Wanted {
        order: Order::Time,
        min_ticks,
        ..Wanted::default()
    };
    replay(&mut reader, &survey, &wanted, tree)
        .unwrap()
        .finish()
        .unwrap();
    let text = String::from_utf8(out).unwrap();
    let lines: Vec<_> = text
        .lines()
        .skip(1)
        .map(|line| format!("{line}\n"))
        .collect();
    lines.concat()
}

fn call(e: &mut StreamEncoder, now: &mut u64, function: FunctionId) {
    e.enter(*now, function);
    *now += 5;
    e.exit(*now);
    *now += 5;
}

#[test]
fn a_loop_is_one_line_with_the_time_of_all() {
    let shown = folded(|e| {
        e.enter(0, A);
        let mut now = 10;
        (0..1000).for_each(|_| call(e, &mut now, B));
        e.exit(now);
    });
    let expected =
        "            | a() {\n   5.000 us |   b(); /* x 1,000 */\n  10.010 us | } /* a */\n";
    assert_eq!(shown, expected);
}

#[test]
fn a_sequence_repeats_as_one_and_other_calls_do_not() {
    let shown = folded(|e| {
        let mut now = 10;
        for _ in 0..3 {
            call(e, &mut now, A);
            call(e, &mut now, B);
        }
        call(e, &mut now, C);
        // Another shape: b is called inside of it.
        e.enter(now, C);
        now += 1;
        call(e, &mut now, B);
        e.exit(now);
    });
    let lines: Vec<_> = shown.lines().map(|line| &line[12..]).collect();
    let expected = [
        "| /* x 3: { */",
        "| a();",
        "| b();",
        "| /* } x 3 */",
        "| c();",
        "| c() {",
        "|   b();",
        "| } /* c */",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn calls_that_end_otherwise_are_not_the_same() {
    let shown = folded(|e| {
        e.enter(0, A);
        e.enter(1, B);
        e.exit(2);
        e.enter(3, B);
        e.unwound(4, 1);
        e.lost(5, 7);
        e.enter(6, B);
        e.unwound(7, 1);
        e.exit(8);
    });
    assert_eq!(shown.matches("b();").count(), 3, "{shown}");
    assert_eq!(shown.matches("unwound").count(), 2, "{shown}");
    assert!(shown.contains("7 events lost"), "{shown}");
}

#[test]
fn what_is_too_short_is_left_out_and_what_lies_around_is_not() {
    let shown = folded_at_least(50, |e| {
        e.enter(0, A);
        let mut now = 10;
        (0..9).for_each(|_| call(e, &mut now, B));
        e.enter(now, C);
        e.exit(now + 100);
        e.exit(now + 101);
    });
    assert!(!shown.contains("b()") && shown.contains("c();") && shown.contains("} /* a */"));
}

/// Calls by depth and name, as written out.
type Calls = Vec<(usize, char)>;

/// Reads a folded tree and writes out what it has folded.
fn unfolded(shown: &str) -> Calls {
    fn read<'a>(lines: &mut impl Iterator<Item = &'a str>, depth: usize) -> Calls {
        let mut calls = Vec::new();
        while let Some(line) = lines.next() {
            let text = line.split_once("| ").unwrap().1.trim_start();
            let count = text.split("x ").nth(1).map_or(1, |rest| {
                let digits: String = rest.chars().filter(char::is_ascii_digit).collect();
                digits.parse::<usize>().unwrap()
            });
            let name = text.chars().next().unwrap();
            let once = match () {
                () if text.starts_with("/* x") => read(lines, depth),
                () if text.starts_with('}') || text.starts_with("/* }") => return calls,
                () if text.contains('{') => {
                    let mut once = vec![(depth, name)];
                    once.extend(read(lines, depth + 1));
                    once
                }
                () => vec![(depth, name)],
            };
            (0..count).for_each(|_| calls.extend(&once));
        }
        calls
    }
    read(&mut shown.lines(), 0)
}

/// Calls that often repeat, in part with small changes; what they are goes to `calls`.
fn random_calls(e: &mut StreamEncoder, seed: u64, most: usize) -> Calls {
    let mut state = seed;
    let mut below = |bound: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % bound
    };
    let (mut calls, mut depth, mut now) = (Calls::new(), 0, 1);
    let mut pattern: Vec<u64> = Vec::new();
    while calls.len() < most {
        if below(20) == 0 || pattern.is_empty() {
            pattern = (0..=below(6)).map(|_| below(8)).collect();
        }
        for step in pattern.clone() {
            now += 1;
            match step {
                0..=3 if depth > 0 && step < 2 => {
                    e.exit(now);
                    depth -= 1;
                }
                _ if depth < 6 => {
                    let function = (step % 4) as u32;
                    e.enter(now, FunctionId(function));
                    calls.push((depth, NAMES[function as usize].chars().next().unwrap()));
                    depth += 1;
                }
                _ => {
                    e.exit(now);
                    depth -= 1;
                }
            }
        }
    }
    (0..depth).for_each(|_| e.exit(now + 1));
    calls
}

#[test]
fn written_out_again_it_is_the_same_calls() {
    let mut has_folded = 0;
    for (seed, most) in (1..200)
        .map(|seed| (seed * 7919, 300))
        .chain([(77, 40_000)])
    {
        let made = std::cell::RefCell::new(Calls::new());
        let shown = folded(|e| {
            made.replace(random_calls(e, seed, most));
        });
        assert_eq!(unfolded(&shown), made.take(), "seed {seed}:\n{shown}");
        has_folded += usize::from(shown.contains("x "));
    }
    assert!(has_folded > 100, "{has_folded}");
}
