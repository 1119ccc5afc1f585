//! Payloads: closures that are read as what is compiled, and those that cannot be, each with its
//! place, the reason, and what to write instead.

use sptrace_payload::acted::{CameTo, Sums, interpret, interpret_active};
use sptrace_payload::acts::{Acts, Moment, RESULT, Step};
use sptrace_payload::interpret::{Call, Memory};
use sptrace_payload::program::{Expression, Source};
use sptrace_payload::tables::Kind;
use sptrace_payload::text;
use sptrace_script::policy::Payload;
use sptrace_script::{Checks, Script, ScriptError};

fn load(source: &str) -> Result<Script, ScriptError> {
    let checks = Checks {
        event: |_| Ok(()),
        rule: |_| Ok(()),
        system_calls: |_| Err("no such system call".to_owned()),
    };
    Script::load("test", source, &[], checks)
}

/// A table, keys, how often something was added, and values.
type Added = (u8, Vec<u64>, u64, Vec<u64>);

struct Nothing;

impl Memory for Nothing {
    fn read(&self, _: u64, _: &mut [u8]) -> usize {
        0
    }
}

/// What a payload does at calls with these arguments: what is added, and how many are recorded.
fn run(source: &str, calls: &[[u64; 6]]) -> (Vec<Added>, usize) {
    let script = load(source).unwrap();
    let kinds: Vec<Kind> = script
        .policy
        .tables
        .iter()
        .map(|table| table.kind)
        .collect();
    let [Payload { acts, .. }] = &script.policy.payloads[..] else {
        panic!("one payload");
    };
    let mut sums = Sums::new();
    let recorded = calls.iter().filter(|arguments| {
        let call = Call {
            arguments: **arguments,
            ..Call::default()
        };
        interpret(acts, &call, &Nothing, &kinds, &mut sums)
    });
    let recorded = recorded.count();
    let rows = sums.into_iter();
    let rows = rows.map(|((table, keys), row)| (table, keys, row.count, row.values));
    (rows.collect(), recorded)
}

fn calls(words: &[(u64, u64)]) -> Vec<[u64; 6]> {
    words.iter().map(|(a, b)| [*a, *b, 0, 0, 0, 0]).collect()
}

#[test]
fn conditions_variables_and_captured_values_are_read() {
    let source = r#"
        let least = 10.kb;
        let t = sum("bytes", ["kind"], ["n"]);
        at("f").on_enter(|c| {
            let size = u32(c.arg1) * 2;
            if size >= least && !(c.arg2 == 3) || c.arg2 == 9 {
                t.add(c.arg2 & 1, size - 1);
            } else if size < 4 {
                c.record();
            }
        });
    "#;
    let all = calls(&[(5120, 1), (5120, 3), (1, 9), (1, 0), (1 << 32 | 6000, 2)]);
    let (rows, recorded) = run(source, &all);
    let odd = (0, vec![1], 2, vec![10_239 + 1]);
    let even = (0, vec![0], 1, vec![11_999]);
    assert_eq!((rows, recorded), (vec![even, odd], 1));
}

#[test]
fn sheets_become_tables_with_their_keys() {
    let source = r#"
        let n = count("calls", []);
        let by = count("by two", ["a", "b"]);
        let h = histogram("sizes", [], "size_bytes");
        let most = max("most", ["a"], "b");
        at("f").on_enter(|c| { n.add([]); by.add([c.arg1, i32(c.arg2)]); h.add(c.arg2); most.add(c.arg1, c.arg2) });
    "#;
    let (rows, recorded) = run(source, &calls(&[(1, 0xffff_ffff), (1, 5), (1, 5)]));
    assert_eq!(recorded, 0);
    let of = |number: u8| rows.iter().filter(move |row| row.0 == number);
    assert_eq!(of(0).map(|row| row.2).sum::<u64>(), 3);
    let keys: Vec<_> = of(1).map(|row| (row.1.clone(), row.2)).collect();
    assert_eq!(keys, [(vec![1, 5], 2), (vec![1, u64::MAX], 1)]);
    assert_eq!(
        of(2).map(|row| (row.3[3], row.3[32])).collect::<Vec<_>>(),
        [(2, 1)]
    );
    assert_eq!(of(3).map(|row| row.3[0]).collect::<Vec<_>>(), [0xffff_ffff]);
}

#[test]
fn the_greatest_are_kept_with_what_stands_beside_them() {
    let source = r#"
        let worst = slowest("worst", 2, ["n", "k", "odd"]);
        at("f").on_enter(|c| if c.arg2 != 9 { worst.add(c.arg1, [c.arg2, c.arg1 & 1]); });
    "#;
    let script = load(source).unwrap();
    assert_eq!(script.policy.tables[0].kind, Kind::Slowest(2));
    let (rows, _) = run(
        source,
        &calls(&[(5, 1), (8, 2), (u64::MAX, 3), (6, 4), (99, 9)]),
    );
    let mut rows: Vec<_> = rows
        .into_iter()
        .map(|row| (row.3[0] as i64, row.2))
        .collect();
    rows.sort();
    assert_eq!(rows, [(-1, 1), (5, 1), (6, 1), (8, 1)]);
    let by_caller = source.replace("at(\"f\")", "at(\"f\").called_by(\"g\")");
    let refused = load(&by_caller).unwrap_err();
    assert!(refused.hint.contains("c.caller as a column"), "{refused}");
}

#[test]
fn rows_and_lines_are_tables_of_single_calls() {
    let source = r#"
        let rows = table("rows", ["a", "b"]);
        at("f").on_enter(|c| { rows.add([c.arg2, 7]); if c.arg1 > 4 { c.print("{}: {}.", c.arg1, c.caller); } });
    "#;
    let script = load(source).unwrap();
    let kinds: Vec<_> = script
        .policy
        .tables
        .iter()
        .map(|table| (table.kind, table.keys))
        .collect();
    assert_eq!(kinds, [(Kind::Rows, 2), (Kind::Rows, 2)]);
    let (rows, recorded) = run(source, &calls(&[(5, 1), (4, 2), (6, 2)]));
    let of = |number: u8| rows.iter().filter(move |row| row.0 == number).count();
    assert_eq!((of(0), of(1), recorded), (3, 2, 0));
}

#[test]
fn names_of_arguments_are_kept_for_the_functions_prototype() {
    let script =
        load("let t = count(\"t\", [\"size\"]); at(\"libc*!mem*\").on_enter(|c| t.add(c.n));");
    let policy = script.unwrap().policy;
    let payload = &policy.payloads[0];
    assert_eq!(payload.names, ["n"]);
    assert_eq!(payload.functions.to_string(), "libc*!mem*");
    assert!(matches!(
        payload.acts.steps[..],
        [Step::Add { table: 0, .. }]
    ));
}

#[test]
fn what_cannot_be_compiled_is_refused_with_place_reason_and_hint() {
    let mut wrong = Vec::new();
    for (body, column, reason, hint) in [
        ("loop { }", 1, "loops are not compiled", "later("),
        (
            "while c.arg1 > 0 { }",
            1,
            "loops are not compiled",
            "later(",
        ),
        (
            "for i in 0..3 { t.add(i); }",
            1,
            "loops are not compiled",
            "later(",
        ),
        (
            "if c.arg1 { t.add(1); }",
            5,
            "a condition is wanted",
            "c.arg1 != 0",
        ),
        ("t.add(\"x\")", 7, "texts are not compiled", "later("),
        (
            "t.add(c.elapsed)",
            9,
            "not known when a call begins",
            "on_exit",
        ),
        ("t.add(c.caller + 1)", 8, "c.caller is a key", "e.caller"),
        ("t.add(c.stack)", 9, "how many callers", "c.stack(8)"),
        ("t.add(c.str(1) + 1)", 8, "c.str() is a key", "compared"),
        ("t.add(c.str())", 9, "one argument", "c.str(1)"),
        ("t.add(c.str(7))", 9, "an argument in a register", "c.NAME"),
        ("t.add(c.stack(0))", 9, "1 to 16 callers", "c.stack(8)"),
        (
            "t.add(c.self_time)",
            9,
            "not known when a call begins",
            "on_exit",
        ),
        ("t.add(c.name)", 9, "not compiled yet", "later("),
        ("t.add(c.arg1 / 3)", 14, "/ is not compiled", ">>"),
        (
            "t.add(c.arg1 + (c.arg2 == 1))",
            14,
            "a condition and a number",
            "numbers",
        ),
        ("t.add(c.arg(99))", 9, "no argument 99", "c.arg1"),
        ("t.add(1.5)", 7, "with a point", "whole"),
        ("t.add(1, 2, 3)", 2, "something else", "SHEET.add"),
        ("t.add([1, 2])", 2, "2 keys for 1", "list"),
        ("t.show()", 2, "cannot show()", "outside"),
        ("s.add(1, 2)", 2, "no statistics", "later("),
        ("w.add(1)", 2, "something else", "add(measure, ["),
        ("w.add(1, [2, 3])", 2, "2 cells for 1", "list"),
        ("w.add(c.caller, [2])", 8, "c.caller is a key", "e.caller"),
        ("rows.add([1])", 5, "1 cells for 2", "list"),
        ("rows.add(1, 2)", 5, "something else", "SHEET.add([cell"),
        ("c.print()", 3, "what is to be printed", "c.print("),
        (
            "c.print(c.arg1)",
            10,
            "known before the program runs",
            "c.print(",
        ),
        ("c.print(\"{} of\", 1, 2)", 3, "2 values for 1 places", "{}"),
        (
            "c.print(\"{}{}{}{}{}\", 1, 2, 3, 4, 5)",
            3,
            "more than 4 values",
            "two lines",
        ),
        ("c.print(\"{}\", 1.5)", 15, "with a point", "whole"),
        (
            "t.add(c.result_str())",
            9,
            "not known when a call begins",
            "on_exit",
        ),
        ("all.add(1, [2])", 4, "the 64 slowest", "slowest(TITLE, 10"),
        (
            "wide.add(1, [2, 3, 4, 5, 6])",
            5,
            "more than 4 columns",
            "fewer",
        ),
        ("print(1)", 1, "print() is not compiled", "closure"),
        ("x += 1", 1, "only a variable of the closure", "sheet"),
        ("f(c)", 1, "f() is not compiled", "closure"),
        (
            "if c.arg1 == 1 { return; } t.add(1)",
            18,
            "return and throw",
            "if CONDITION",
        ),
        ("t.add(nothing)", 7, "no 'nothing'", "define"),
        ("c.fail(12)", 2, "no such word", "c.deny("),
        ("c.delay(61.s)", 11, "by 60.s at most", "50.ms"),
        ("c.deny(\"EWHAT\")", 8, "no errno of this name", "EIO"),
        ("c.raise(65)", 9, "no signal 65", "SIGUSR1"),
        ("c.arg1 = 0", 2, "not changed by assignment", "c.override("),
        (
            "if c.arg(7) == \"x\" { c.record() }",
            5,
            "an argument in a register",
            "c.arg1",
        ),
        (
            "let a = 1; let b = 1; let d = 1; let e = 1; let f = 1; let g = 1",
            56,
            "variables",
            "used",
        ),
    ] {
        let head = "let t = count(\"t\", [\"k\"]); let s = stats(\"s\", [\"k\"], \"v\"); let rows = table(\"rows\", [\"a\", \"b\"]); let w = slowest(\"w\", 3, [\"n\", \"k\"]); let all = slowest(\"all\", 65, [\"n\", \"k\"]); let wide = slowest(\"wide\", 3, [\"n\", \"a\", \"b\", \"c\", \"d\", \"e\"]); let x = 1; fn f(n) { n }\nat(\"f\").on_enter(|c| {\n";
        match load(&format!("{head}{body} }});")) {
            Ok(_) => wrong.push(format!("accepted: {body}")),
            Err(error) => {
                let is_right = (error.line, error.column) == (3, column)
                    && error.reason.contains(reason)
                    && error.hint.contains(hint);
                if !is_right {
                    wrong.push(format!("{body}: {error}\n{}", error.picture().join("\n")));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_payload_of_a_return_knows_the_result() {
    let script = load(
        "let t = count(\"t\", [\"k\", \"n\"]);
         at(\"f\").on_exit(|c| if c.elapsed >= 2.us && c.errno == 2 { t.add([c.result, c.arg2]); });",
    )
    .unwrap();
    let [payload] = &script.policy.payloads[..] else {
        panic!("one payload");
    };
    let mut acts = payload.acts.clone();
    acts.resolve(&|number| (number == RESULT).then(|| Source::Result.into()))
        .unwrap();
    let kept = acts.keep().unwrap();
    assert_eq!(
        (payload.moment, kept),
        (Moment::Return, vec![Source::Argument(1)])
    );
    let mut sums = Sums::new();
    for (elapsed_ns, errno, result) in [(1999, 2, 5), (2000, 2, 6), (3000, 3, 7)] {
        let call = Call {
            result,
            errno,
            elapsed_ns,
            kept: [11, 0, 0, 0, 0, 0],
            ..Call::default()
        };
        interpret(&acts, &call, &Nothing, &[Kind::Count], &mut sums);
    }
    let rows: Vec<_> = sums.into_keys().collect();
    assert_eq!(rows, [(0, vec![6, 11])]);
}

#[test]
fn a_payload_of_a_return_reads_texts_at_what_is_kept_and_at_the_result() {
    let script = load(
        "let t = count(\"t\", [\"a\", \"b\"]);
         at(\"f\").on_exit(|c| if c.result == \"yes\" || c.order.price == 3 { t.add([c.str(2), c.result_str()]); });",
    )
    .unwrap();
    let mut acts = script.policy.payloads[0].acts.clone();
    acts.resolve(&|number| match number {
        RESULT => Some(Source::Result.into()),
        _ => Some(Source::Text(0, text::FIELDS).into()),
    })
    .unwrap();
    assert_eq!(
        acts.keep(),
        Ok(vec![Source::Argument(0), Source::Argument(1)])
    );
    let texts = [
        (text::RESULT, text::WHOLE),
        (0, text::FIELDS),
        (1, text::TOLD),
        (text::RESULT, text::TOLD),
    ];
    assert_eq!(acts.texts(), texts);
    let too_many = load(
        "let t = count(\"t\", [\"a\", \"b\", \"c\"]); at(\"f\").on_exit(|c| t.add([c.str(1), c.str(\"x\"), c.arg3 + c.arg4 + c.arg5 + c.arg6 + c.arg7]));",
    );
    assert!(
        too_many
            .unwrap_err()
            .reason
            .contains("more than 6 arguments")
    );
}

#[test]
fn a_payload_that_is_too_long_is_refused() {
    let body = "t.add(c.arg1 + 1 + c.arg2); ".repeat(1_000);
    let source = format!("let t = count(\"t\", [\"k\"]);\nat(\"f\").on_enter(|c| {{ {body} }});");
    let error = load(&source).unwrap_err();
    assert!(
        error.line == 2 && error.reason.contains("more than"),
        "{error}"
    );
}

#[test]
fn what_is_compiled_is_shown_by_instructions_and_price() {
    let source =
        "let t = count(\"t\", [\"k\"]); at(\"f\").on_enter(|c| if c.arg1 > 5 { t.add(c.arg2) });";
    let lines = load(source).unwrap().compiled();
    assert!(
        lines[0].contains("table 't': counts by 1 words, at most 1024 keys"),
        "{lines:#?}"
    );
    assert!(lines[1].contains("calls of f, not recorded") && lines[1].contains("ns a call"));
    assert!(
        lines.iter().any(|line| line.contains("cmp rax,5")),
        "{lines:#?}"
    );
}

#[test]
fn a_payload_that_changes_something_says_where() {
    let script = load(
        "at(\"malloc\").on_enter(|c| if c.nth == 3 { c.deny(\"ENOMEM\", 0); });
         at(\"open\").on_enter(|c| if c.path.starts_with(\"/etc/\") { c.delay(5.ms) });",
    )
    .unwrap();
    let [first, second] = &script.policy.payloads[..] else {
        panic!("two payloads");
    };
    assert_eq!(
        (first.changes_at, second.changes_at.is_some()),
        (Some((1, 45)), true)
    );
    let refused = script.refuse_changes("add --allow-active").unwrap();
    assert_eq!((refused.line, refused.column), (1, 45));
    assert!(first.needs_program() && second.acts.is_slow());
    // Only the third call of a process; and only what begins so.
    let mut sums = Sums::new();
    let done = |acts: &Acts, call: &Call, sums: &mut Sums| {
        interpret_active(acts, call, &Nothing, (&[], sums))
    };
    assert_eq!(
        done(&first.acts, &Call::default(), &mut sums),
        CameTo::default()
    );
    let Some(Step::If(condition, then, _)) = first.acts.steps.get(1) else {
        panic!("{:?}", first.acts);
    };
    assert!(matches!(condition, Expression::Binary(..)));
    let always = Acts {
        steps: then.clone(),
        records: false,
    };
    let came = done(&always, &Call::default(), &mut sums);
    assert_eq!(
        (came.is_recorded, came.done),
        (true, [Some(0), Some(12), None, None])
    );
}
