//! What scripts ask for.

use sptrace_script::ready::SCRIPTS;
use sptrace_script::{Checks, Decision, FunctionFacts, Script, reference};
use sptrace_types::calls::Selection;

fn checks() -> Checks {
    Checks {
        event: |_| Ok(()),
        rule: |_| Ok(()),
        system_calls: |text| {
            let matches = |_: &str, _: &str| Ok(true);
            Selection::parse(text, &matches).map_err(|e| e.cause)
        },
    }
}

fn load(source: &str) -> Script {
    Script::load("test", source, &[], checks()).unwrap_or_else(|e| panic!("{e}: {source}"))
}

#[test]
fn activation_and_filters_become_a_policy() {
    let policy = load(
        "start(called(\"parse*\").every(3)); stop(any([time(200.ms), \"ctl:end\"]));
         ring(16.mb); dump(slow(\"handle\", 1.5.ms)); times(4);
         between(\"draw\", \"start\", returned(\"main\"));
         module(\"libfoo*\"); only(\"f\"); leave_out(\"g\"); depth(5);
         record_syscalls(\"%file\"); string_limit(64);
         values(\"open@arg1/s\"); results(\"close\");",
    )
    .policy;
    assert_eq!(policy.values, ["open@arg1/s"]);
    assert_eq!(policy.results, ["close"]);
    assert_eq!(policy.start, ["call:parse*#3"]);
    assert_eq!(policy.stop, ["time:200000000ns", "ctl:end"]);
    assert_eq!(policy.dump, ["slow:handle>1500000ns"]);
    assert_eq!(policy.between, [["draw", "start", "return:main"]]);
    assert_eq!((policy.times, policy.ring_bytes), (Some(4), Some(16 << 20)));
    assert_eq!(
        (policy.modules, policy.only),
        (vec!["libfoo*".into()], vec!["f".into()])
    );
    assert_eq!((policy.without, policy.depth), (vec!["g".into()], Some(5)));
    assert_eq!(policy.system_calls.as_deref(), Some("%file"));
    assert_eq!(policy.string_bytes, Some(64));
    assert!(!policy.system_calls_only);
}

#[test]
fn a_limit_of_hot_functions_is_about_the_recording() {
    let policy = load("hot_limit(200000);").policy;
    assert_eq!(policy.hot_limit, Some(200_000));
    let policy = load("short_limit(2.us);").policy;
    assert_eq!(
        (policy.hot_limit, policy.short_limit_ns),
        (None, Some(2000))
    );
    assert!(policy.is_about_recording());
    assert!(!load("let s = store(\"s\");").policy.is_about_recording());
}

/// Stores give back what was kept, add numbers one by one, and keep their keys in order.
#[test]
fn stores_keep_values_by_key() {
    load(
        "let s = store(\"s\");
         s.set([1, \"a\"], 7); s.set(\"b\", [1, 2]);
         if s.get([1, \"a\"]) != 7 || type_of(s.get(2)) != \"()\" { throw \"get\"; }
         if s.increase(\"n\", 2) != 2 || s.increase(\"n\", 3) != 5 { throw \"increase\"; }
         if s.increase(\"b\", [10, -5]) != [11, -3] { throw \"increase a list\"; }
         if s.take(\"n\") != 5 || type_of(s.take(\"n\")) != \"()\" { throw \"take\"; }
         if s.size() != 2 || s.keys() != [[1, \"a\"], \"b\"] { throw \"keys\"; }",
    );
    let wrong = Script::load("t", "store(\"s\").increase(1, \"x\");", &[], checks());
    assert!(wrong.unwrap_err().reason.contains("whole numbers"));
}

fn facts(name: &str, size_bytes: u64) -> FunctionFacts {
    FunctionFacts {
        name: name.to_owned(),
        size_bytes,
        path: "/usr/lib/libx.so".to_owned(),
        ..FunctionFacts::default()
    }
}

#[test]
fn propagate_decides_about_each_function() {
    let script = load(
        "let least = 16;
         propagate(|f| {
             if f.size < least { return skip; }
             if matches(f.name, \"draw*\") && f.module == \"libx.so\" { leaf } else { record }
         });",
    );
    assert_eq!(script.decide(&facts("a", 4)), Decision::Skip);
    assert_eq!(script.decide(&facts("draw_all", 40)), Decision::Leaf);
    assert_eq!(script.decide(&facts("main", 40)), Decision::Record);
    assert_eq!(script.undecided(), None);
}

#[test]
fn a_propagate_that_fails_records_and_is_counted() {
    let script = load("propagate(|f| if f.size > 8 { f.nothing } else { skip });");
    assert_eq!(script.decide(&facts("a", 4)), Decision::Skip);
    assert_eq!(script.decide(&facts("b", 40)), Decision::Record);
    assert_eq!(script.decide(&facts("c", 4)), Decision::Record);
    let (error, missed) = script.undecided().expect("an error");
    assert!(
        error.reason.contains("nothing") && error.line == 1,
        "{error}"
    );
    assert_eq!(missed, 2);
    let script = load("propagate(|f| \"maybe\");");
    assert_eq!(script.decide(&facts("a", 4)), Decision::Record);
    assert!(
        script
            .undecided()
            .expect("an error")
            .0
            .hint
            .contains("skip")
    );
}

#[test]
fn every_ready_script_loads_and_has_its_header() {
    for (name, source) in SCRIPTS {
        let script = Script::load(name, source, &[], checks()).unwrap_or_else(|e| panic!("{e}"));
        assert!(script.has_handlers(), "{name}");
        let header = script.header();
        assert!(header.starts_with(&format!("{name}: ")), "{name}");
        for part in ["Usage:", "Cost:", "Caveat:", "Sample:"] {
            assert!(header.contains(part), "{name} has no {part}");
        }
    }
}

#[test]
fn every_word_is_in_the_manual() {
    let page = reference::page();
    let words = reference::words();
    assert!(words.len() > 70);
    for word in words {
        let form = word.form.replace('-', "\\-");
        assert!(page.contains(&form), "{form}");
        assert!(!word.name.is_empty() && !word.text.is_empty() && !word.section.is_empty());
    }
}
