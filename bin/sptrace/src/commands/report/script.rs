//! What a script's handlers make of a trace: of `report script`, and at the end of a recording.
//!
//! Given the options; gives the exit status. Must not know the language.

use std::io::Write;
use std::path::Path;

use anyhow::bail;
use sptrace_render::Style;
use sptrace_script::{Form, Run, Script};
use sptrace_trace::{Dictionary, Names, Order, Wanted, replay};

use super::{Format, ReportArgs, Session, check, explain, open_trace, output, selection, sources};
use crate::commands::script::{Refused, check_trace, complain, finish, load, load_named};
use crate::exit_code::FAILURE;
use crate::talk::say;

/// Shows it.
pub fn show(args: &ReportArgs, style: Style) -> anyhow::Result<u8> {
    check(args)?;
    let options = args.others.iter().map(|o| o.to_string_lossy().into_owned());
    let options: Vec<_> = options.collect();
    let script = match (&args.subject, &args.eval) {
        (Some(name), _) => load_named(name, &options),
        (None, eval) => load(None, eval.as_deref()),
    };
    let script = match script {
        Ok(Some(script)) => script,
        Ok(None) => return Ok(0),
        Err(Refused) => return Ok(FAILURE),
    };
    let (reader, survey) = open_trace(&args.input)?;
    check_trace(&script, &survey.dictionary, &args.input);
    let names = Names::new(&survey.dictionary);
    let session = Session {
        args,
        survey: &survey,
        snapshots: None,
        clock: reader.clock(),
        selection: selection(args, &names, reader.clock())?,
        names: &names,
        style,
    };
    let form = match args.format() {
        Format::Text | Format::Dot | Format::Svg => Form::Text,
        Format::Csv => Form::Csv,
        Format::Json => Form::Json,
    };
    let out = output::open(&args.output, &args.input, true)?;
    let files = files_of(&script, &survey.dictionary);
    let known = (&survey.dictionary, &files[..]);
    let run = Run::new(&script, known, session.clock, (form, out));
    let run = session.replay(reader, args.min_time, Order::Time, run)?;
    Ok(if finish(run)? { 0 } else { FAILURE })
}

/// In which files of the source functions begin, by their numbers, if the script asks for that.
fn files_of(script: &Script, dictionary: &Dictionary) -> Vec<Option<String>> {
    if !script.asks_for_files() {
        return Vec::new();
    }
    let lines = sources::read(dictionary, false).functions.into_iter();
    lines.map(|line| Some(line?.file)).collect()
}

/// The recording had signals blocked that end it. It has ended; handlers may take long, and the
/// user may end them: the trace stays.
fn heed_signals() {
    // SAFETY: a set of our own, what is pending of it, and the mask of this thread.
    unsafe {
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut set);
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
            libc::sigaddset(&raw mut set, signal);
        }
        // What has come already was meant for the recording.
        let now = std::mem::zeroed::<libc::timespec>();
        while libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const now) > 0 {}
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
    }
}

/// Tells the script's handlers of a recording that has ended. `output`: its trace, if one was
/// written; what lies there otherwise is an older one's.
pub fn tell(script: Option<&Script>, output: Option<&Path>) {
    let Some(script) = script else {
        return;
    };
    if script.has_handlers() {
        heed_signals();
    }
    if let Err(e) = run_handlers(script, output) {
        say(&format!("{e:#}"));
    }
}

/// Runs the handlers over a recording that has just ended; their output goes to stderr, where the
/// command's own is not.
///
/// # Errors
/// The trace cannot be read.
fn run_handlers(script: &Script, output: Option<&Path>) -> anyhow::Result<()> {
    if let Some((error, missed)) = script.undecided() {
        complain(&error);
        say(&format!(
            "propagate failed: {missed} functions were recorded as without it"
        ));
    }
    let path = output.filter(|path| path.is_file());
    if !script.has_handlers() || path.is_none() {
        // What propagate has printed; else it is the beginning of what handlers print.
        std::io::stderr().write_all(script.take_early().as_bytes())?;
    }
    if !script.has_handlers() {
        return Ok(());
    }
    let Some(path) = path else {
        bail!("the script's handlers were told of nothing: no trace was written");
    };
    let (mut reader, survey) = open_trace(path)?;
    let wanted = Wanted {
        order: Order::Time,
        ..Wanted::default()
    };
    let out = Box::new(std::io::stderr());
    let files = files_of(script, &survey.dictionary);
    let known = (&survey.dictionary, &files[..]);
    let view = Run::new(script, known, reader.clock(), (Form::Text, out));
    let run = replay(&mut reader, &survey, &wanted, view).map_err(|e| explain(path, e))?;
    finish(run)?;
    Ok(())
}
