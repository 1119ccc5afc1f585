//! Wrong scripts: each is refused with its place, the reason, and what to write instead.

use sptrace_script::{Checks, Script, ScriptError};

fn checks() -> Checks {
    Checks {
        event: |text| match text.split(':').next() {
            Some("call" | "time" | "slow" | "exit" | "crash") => Ok(()),
            _ => Err(format!("unknown event '{text}'")),
        },
        rule: |_| Ok(()),
        system_calls: |_| Err("no such system call".to_owned()),
    }
}

fn load(source: &str) -> Result<Script, ScriptError> {
    Script::load("test", source, &[], checks())
}

fn refused(source: &str) -> ScriptError {
    match load(source) {
        Ok(_) => panic!("accepted: {source}"),
        Err(error) => error,
    }
}

#[test]
fn wrong_scripts_are_refused_with_place_reason_and_hint() {
    let mut wrong: Vec<String> = Vec::new();
    for (source, line, column, reason, hint) in [
        ("let x = ;", 1, 9, "", ""),
        (
            "\n  strat(called(\"main\"));",
            2,
            3,
            "no function 'strat'",
            "start(event)",
        ),
        (
            "let a = 1;\ndepth(\"three\");",
            2,
            1,
            "does not take (string)",
            "depth(N)",
        ),
        ("depth(0);", 1, 1, "1 to", ""),
        ("only(nme);", 1, 6, "no 'nme'", "let nme"),
        ("loop { }", 1, 6, "too many operations", "never end"),
        (
            "fn f(n) { f(n + 1) } f(1);",
            1,
            22,
            "too deeply",
            "recursion",
        ),
        (
            "let s = \"x\"; loop { s += s; }",
            1,
            23,
            "too large",
            "keep less",
        ),
        (
            "at(\"f\").on_enter(|c| c);",
            1,
            22,
            "nothing that a payload can do",
            "later(",
        ),
        (
            "at(\"f\").on_exit(|c| c);",
            1,
            21,
            "nothing that a payload can do",
            "later(",
        ),
        (
            "at(\"f\").on_exit(|c| c.record());",
            1,
            22,
            "too late",
            "on_enter",
        ),
        (
            "let t = count(\"t\", [\"a\"]); at(\"f\").on_exit(|c| t.add(c.arg1 + c.arg2 + c.arg3 + c.arg4 + c.arg5 + c.arg6 + c.arg7));",
            1,
            36,
            "more than 6 arguments",
            "later(",
        ),
        (
            "stop(all([called(\"a\"), exit()]).every(2));",
            1,
            33,
            "not counted",
            "count each",
        ),
        ("start(\"sonn:1\");", 1, 1, "unknown event", ""),
        ("start(5);", 1, 1, "not i64", "called("),
        (
            "syscalls(\"raed\").later(|e| e);",
            1,
            1,
            "no such system call",
            "",
        ),
        (
            "let t = count(\"t\", [\"a\", \"b\"]); t.add(1);",
            1,
            35,
            "1 keys for 2",
            "list",
        ),
        (
            "let t = table(\"t\", [\"a\"]); t.add(#{});",
            1,
            30,
            "a cell is",
            "",
        ),
        ("eval(\"1\");", 1, 1, "", ""),
        ("import \"x\" as x;", 1, 1, "", ""),
        ("on_interval(1, || 1);", 1, 1, "interval", "1.s"),
    ] {
        let error = refused(source);
        let picture = error.picture();
        let caret = picture.last().and_then(|line| line.find('^'));
        let is_right = (error.line, error.column) == (line, column)
            && error.reason.contains(reason)
            && error.hint.contains(hint)
            && caret == Some(8 + column - 1);
        if !is_right {
            wrong.push(format!("{source}: {error}\n{}", picture.join("\n")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_megabyte_of_script_is_refused() {
    let error = refused(&"let a = 1;\n".repeat(100_000));
    assert!(error.reason.contains("more than"), "{error}");
    // Deep nesting does not overflow our own stack.
    refused(&format!(
        "let a = {}1{};",
        "(".repeat(5000),
        ")".repeat(5000)
    ));
}

#[test]
fn a_script_reaches_nothing_outside() {
    for source in [
        "open_file(\"/etc/passwd\")",
        "system(\"ls\")",
        "timestamp()",
    ] {
        let error = refused(source);
        assert!(error.reason.contains("there is no function"), "{error}");
    }
}

#[test]
fn options_are_given_and_refused() {
    let source = "let n = option(\"top\", 10, \"how many\"); depth(n);";
    let given = |words: &[&str]| {
        let words: Vec<_> = words.iter().map(|w| (*w).to_owned()).collect();
        Script::load("test", source, &words, checks())
    };
    assert_eq!(given(&[]).unwrap().policy.depth, Some(10));
    assert_eq!(given(&["--top=5"]).unwrap().policy.depth, Some(5));
    assert_eq!(given(&["--top", "2k"]).unwrap().policy.depth, Some(2048));
    let error = given(&["--tpo=5"]).unwrap_err();
    assert!(error.to_string().contains("--tpo") && error.hint.contains("--top"));
    assert!(
        given(&["--top=many"])
            .unwrap_err()
            .reason
            .contains("no number")
    );
    assert!(given(&["5"]).unwrap_err().reason.contains("no option"));
}
