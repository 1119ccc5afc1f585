//! Scripts on the command line: `sptrace script`, and what `run`, `attach` and `report` need of
//! them.
//!
//! Finds and loads a script, says what is wrong with it, and runs its handlers over a trace. Must
//! not know the language.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{anyhow, bail};
use clap::{Args, ValueEnum};
use sptrace_collect::event::Event;
use sptrace_collect::event::rule::Rule;
use sptrace_script::find::{self, Found};
use sptrace_script::load::header;
use sptrace_script::{Checks, Policy, Run, Script, ScriptError};
use sptrace_trace::SYSTEM_CALLS;

use super::record::RecordArgs;
use crate::commands::selection;
use crate::exit_code::WRONG_USAGE;
use crate::talk::say;

const EXAMPLES: &str = "\
Examples:
  sptrace script list                           the scripts that names find
  sptrace script explain file-io                what one asks for, and its options
  sptrace script check policy.rhai && sptrace run -S policy.rhai -- ./program

The language: man sptrace-script. Exit status: 0; 1 if the script is wrong; 2: wrong usage.";

/// Check and explain scripts
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ScriptArgs {
    /// What to do
    #[arg(value_enum)]
    action: Action,
    /// The script: a path (with a / or ending in .rhai), or a name
    #[arg(value_name = "FILE|NAME")]
    script: Option<String>,
    /// Options of the script, after --
    #[arg(value_name = "OPTION", last = true)]
    options: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Action {
    /// Say what is wrong with a script, if anything
    Check,
    /// Show what a script asks for, and its options
    Explain,
    /// List the scripts that names find
    List,
}

/// A script that cannot be used: all has been said.
#[derive(Debug)]
pub struct Refused;

fn checks() -> Checks {
    Checks {
        event: |text| {
            let event: Result<Event, _> = text.parse();
            event.map(drop).map_err(|e| e.to_string())
        },
        rule: |[glob, start, stop]| {
            let rule = Rule::parse(glob, start, stop);
            rule.map(drop).map_err(|e| e.to_string())
        },
        system_calls: selection::parse,
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Says what is wrong: the place and the reason, then the line with a caret.
pub fn complain(error: &ScriptError) {
    say(&error.to_string());
    error.picture().iter().for_each(|line| say(line));
}

fn load_text(found: &Found, options: &[String]) -> Result<Script, Refused> {
    Script::load(&found.name, &found.source, options, checks()).map_err(|error| {
        complain(&error);
        Refused
    })
}

/// The script of -S, with its options behind it, or of --eval. Where --help is among its options,
/// that is printed, and there is none.
pub fn load(script: Option<&str>, eval: Option<&str>) -> Result<Option<Script>, Refused> {
    match (script, eval) {
        (Some(script), _) if Path::new(script).is_file() => load_named(script, &[]),
        (Some(script), _) => {
            let mut words = script.split_whitespace().map(str::to_owned);
            let name = words.next().unwrap_or_default();
            load_named(&name, &words.collect::<Vec<_>>())
        }
        (None, Some(source)) => {
            let found = Found {
                name: "--eval".to_owned(),
                source: source.to_owned(),
                path: None,
            };
            load_text(&found, &[]).map(Some)
        }
        (None, None) => Ok(None),
    }
}

/// A script by its name or path. With `--help` among the options, None: it has been printed.
pub fn load_named(what: &str, options: &[String]) -> Result<Option<Script>, Refused> {
    let found = find::find(what, &variable).map_err(|error| {
        complain(&error);
        Refused
    })?;
    if options.iter().any(|option| option == "--help") {
        let script = load_text(&found, &[])?;
        println!("{}", help(&script));
        return Ok(None);
    }
    load_text(&found, options).map(Some)
}

fn help(script: &Script) -> String {
    let mut text = script.header();
    let options = &script.policy.options;
    text += match options.is_empty() {
        true => "\n\nIt has no options.",
        false => "\n\nOptions:",
    };
    for option in options {
        let (name, default) = (&option.name, &option.default);
        let head = format!("--{name}={default}");
        text += &format!("\n  {head:<24}{}", option.help);
    }
    text
}

/// `sptrace script`.
///
/// # Errors
/// One line; a script that is wrong has been complained of.
pub fn run(args: &ScriptArgs) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let written = match (args.action, &args.script) {
        (Action::List, None) => list(&mut out),
        (Action::List, Some(what)) => bail!("list takes no '{what}'; explain shows a script"),
        (_, None) => bail!("name the script (`sptrace script list` lists those that names find)"),
        (action, Some(what)) => {
            let script = load_named(what, &args.options);
            let script = script.map_err(|Refused| anyhow!("nothing can be done with {what}"))?;
            match (script, action) {
                (Some(script), Action::Explain) => write_explained(&mut out, &script),
                (Some(_), _) => writeln!(out, "{what}: right"),
                (None, _) => Ok(()),
            }
        }
    };
    match written {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

fn list(out: &mut impl Write) -> std::io::Result<()> {
    for found in find::all(&variable) {
        let header = header(&found.source);
        let first = header.lines().next().unwrap_or("");
        let first = first.split_once(": ").map_or(first, |(_, rest)| rest);
        let path = found.path.map(|p| format!(" ({})", p.display()));
        writeln!(
            out,
            "{:<18} {first}{}",
            found.name,
            path.unwrap_or_default()
        )?;
    }
    Ok(())
}

fn write_explained(out: &mut impl Write, script: &Script) -> std::io::Result<()> {
    writeln!(out, "{}\n", help(script))?;
    let lines = in_options(&script.policy);
    match lines.is_empty() {
        true => writeln!(out, "Recording: everything, from start to end")?,
        false => writeln!(out, "Recording, as options of `sptrace run`:")?,
    }
    for line in lines {
        writeln!(out, "  {line}")?;
    }
    if script.policy.decides_functions() {
        writeln!(
            out,
            "  propagate: called once for each function of a module, before it runs"
        )?;
    }
    match script.has_handlers() {
        false => writeln!(out, "Handlers: none")?,
        true => writeln!(
            out,
            "Handlers, on the host after the recording, at no cost to the program:"
        )?,
    }
    for handler in script.handlers() {
        writeln!(out, "  {handler}")?;
    }
    match script.policy.payloads.is_empty() {
        true => writeln!(out, "Inside of the traced program: nothing"),
        false => {
            writeln!(
                out,
                "Inside of the traced program, compiled to native code:"
            )?;
            for line in script.compiled() {
                writeln!(out, "  {line}")?;
            }
            Ok(())
        }
    }
}

/// What a policy is on the command line.
fn in_options(policy: &Policy) -> Vec<String> {
    let mut lines = Vec::new();
    let lists = [
        ("--start-on", &policy.start),
        ("--stop-on", &policy.stop),
        ("--dump-on", &policy.dump),
        ("-l", &policy.modules),
        ("-F", &policy.only),
        ("-N", &policy.without),
        ("-A", &policy.values),
        ("-R", &policy.results),
    ];
    for (option, list) in lists {
        lines.extend(list.iter().map(|value| format!("{option} '{value}'")));
    }
    let rules = policy.between.iter();
    lines.extend(rules.map(|words| format!("--between '{}'", words.join("' '"))));
    let levels = policy.levels.iter();
    lines.extend(levels.map(|(glob, level)| format!("level of '{glob}': {}", level.name())));
    let mut number = |option: &str, value: Option<u64>| {
        lines.extend(value.map(|value| format!("{option} {value}")));
    };
    number("--times", policy.times);
    number("-D", policy.depth.map(u64::from));
    number("--hot-limit", policy.hot_limit);
    number("--short-limit", policy.short_limit_ns);
    number("--ring", policy.ring_bytes);
    number("--max-size", policy.most_bytes);
    number("-s", policy.string_bytes.map(u64::from));
    if let Some(set) = &policy.system_calls {
        let only = if policy.system_calls_only {
            "-only"
        } else {
            ""
        };
        lines.push(format!("--syscalls{only}='{set}'"));
    }
    lines
}

/// Loads the script of a recording, if there is one, and adds what it asks for to the options and
/// to `start_on`; a running program is recorded at once, and has none. With the exit status if
/// nothing is to be started: a wrong script, or its help was asked for.
///
/// # Errors
/// The status; all has been said.
pub fn follow(
    record: &mut RecordArgs,
    start_on: Option<&mut Vec<Event>>,
) -> Result<Option<Arc<Script>>, ExitCode> {
    let wrong = ExitCode::from(WRONG_USAGE);
    let is_asked = record.script.is_some() || record.eval.is_some();
    let loaded = load(record.script.as_deref(), record.eval.as_deref());
    let script = match loaded {
        Ok(Some(script)) => Arc::new(script),
        Ok(None) if is_asked => return Err(ExitCode::SUCCESS),
        Ok(None) => return Ok(None),
        Err(Refused) => return Err(wrong),
    };
    let hint = "add --allow-active to the command line if that is wanted";
    if let Some(error) = script.refuse_changes(hint).filter(|_| !record.allow_active) {
        complain(&error);
        return Err(wrong);
    }
    if let Some(error) = record.refused_bids(&script, start_on.is_some()) {
        complain(&error);
        return Err(wrong);
    }
    script.take_early().lines().for_each(say);
    let events = record.follow(&script).map_err(|why| {
        say(&why);
        wrong
    })?;
    match start_on {
        Some(start_on) => start_on.extend(events),
        None if !events.is_empty() => {
            say(&format!(
                "{}: start(...) is for `run`; a running program is recorded at once",
                script.name
            ));
            return Err(wrong);
        }
        None => {}
    }
    Ok(Some(script))
}

/// Ends a run; false: a handler failed.
///
/// # Errors
/// The output's.
pub fn finish(run: Run<'_>) -> anyhow::Result<bool> {
    let troubles = run.finish()?;
    for trouble in &troubles {
        complain(&trouble.error);
        say(&format!(
            "this handler was not called any more: it has missed {} events",
            trouble.missed
        ));
    }
    Ok(troubles.is_empty())
}

/// Says if a script asks for system calls and the trace has none.
pub fn check_trace(script: &Script, dictionary: &sptrace_trace::Dictionary, path: &Path) {
    let has_calls = dictionary.modules.iter().any(|m| m.path == SYSTEM_CALLS);
    if script.wants_system_calls() && !has_calls {
        say(&format!(
            "{} has no system calls, and {} asks for them; record them with `sptrace run -S {}`",
            path.display(),
            script.name,
            script.name
        ));
    }
}
