//! `report script`: what a script's handlers make of a trace.
//!
//! Given the options; gives the exit status. Must not know the language.

use sptrace_render::Style;
use sptrace_script::{Form, Run};
use sptrace_trace::{Names, Order};

use super::{Format, ReportArgs, Session, check, open_trace, output, selection};
use crate::commands::script::{Refused, check_trace, finish, load, load_named};
use crate::exit_code::FAILURE;

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
        clock: reader.clock(),
        selection: selection(args, &names, reader.clock())?,
        names: &names,
        style,
    };
    let form = match args.format {
        Format::Text => Form::Text,
        Format::Csv => Form::Csv,
        Format::Json => Form::Json,
    };
    let out = output::open(&args.output, &args.input)?;
    let run = Run::new(&script, &survey.dictionary, session.clock, (form, out));
    let run = session.replay(reader, args.min_time, Order::Time, run)?;
    Ok(if finish(run)? { 0 } else { FAILURE })
}
