//! What is kept beside a trace: its sums, and snapshots from which a range of time begins.
//!
//! Given the options and a survey; gives both, from the index if there is one, else from the
//! events. What is chosen of a trace is added up anew each time. An index that cannot be used is
//! passed over, said and made anew.

use super::progress::Progress;
use super::{Reader, ReportArgs, Session, explain};
use crate::commands::duration::parse_time_ns;
use crate::talk::say;
use clap::ValueEnum;
use sptrace_trace::index::{self, NoIndex};
use sptrace_trace::{EVENTS_APART, Ending, Snapshots, Stats, Survey, TraceReader, replay_and_keep};
use std::sync::Arc;

/// Blocks from which on reading a trace takes long enough that its sums are kept: ten million
/// events.
const LARGE_BLOCKS: usize = 320;

/// For which traces sums are kept and used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum When {
    /// For large ones
    Auto,
    /// For all
    Always,
    /// For none
    Never,
}

/// The sums of what is shown.
///
/// # Errors
/// A sentence for the user: the trace cannot be read.
pub fn stats(session: &Session<'_>, reader: Reader) -> anyhow::Result<Stats> {
    let args = session.args;
    let is_all = session.selection.is_everything()
        && args.min_time == 0
        && args.graph.focus.is_empty()
        && is_kept(args, session.survey);
    match is_all {
        true => Ok(kept(args, session.survey, reader)?.0),
        false => session.add_up(reader, Stats::new()),
    }
}

/// What makes a range of time of a large trace begin at once; a first pass, if there has been none.
///
/// # Errors
/// A sentence for the user: the trace cannot be read.
pub fn snapshots(args: &ReportArgs, survey: &Survey) -> anyhow::Result<Option<Arc<Snapshots>>> {
    let is_time = |text: &String| parse_time_ns(text).is_ok();
    let is_range = args.from.or(args.to).is_some()
        || args.range.is_some()
        || args.tree.around.as_ref().is_some_and(is_time);
    if !is_range || !is_kept(args, survey) {
        return Ok(None);
    }
    let reader = TraceReader::open(&args.input).map_err(|error| explain(&args.input, error))?;
    Ok(Some(Arc::new(kept(args, survey, reader)?.1)))
}

/// From the index, or from a pass that makes one.
fn kept(
    args: &ReportArgs,
    survey: &Survey,
    mut reader: Reader,
) -> anyhow::Result<(Stats, Snapshots)> {
    let path = &args.input;
    let shown = index::path_of(path);
    let shown = shown.display();
    match index::load(path, survey) {
        Ok(kept) => return Ok(kept),
        Err(NoIndex::Absent) => {}
        Err(NoIndex::Foreign) => say(&format!(
            "{shown} is of another trace or another sptrace; it is made anew"
        )),
        Err(NoIndex::Damaged(why)) => {
            say(&format!("{shown} cannot be used: {why}; it is made anew"))
        }
        Err(NoIndex::Read(error)) => say(&format!(
            "{shown} cannot be used: {error}; the trace is read instead"
        )),
    }
    let length = std::fs::metadata(path).map_or(0, |file| file.len());
    let _progress = Progress::begin(reader.passed(), length);
    let kept = replay_and_keep(&mut reader, survey, EVENTS_APART, Stats::new());
    let (stats, snapshots) = kept.map_err(|error| explain(path, error))?;
    if let Err(error) = index::save(path, survey, &stats, &snapshots)
        && args.index == When::Always
    {
        say(&format!(
            "cannot write {shown}: {error}; the next report reads the trace again"
        ));
    }
    Ok((stats, snapshots))
}

/// Is an index wanted of this trace, and is it whole, so that it does not change any more?
fn is_kept(args: &ReportArgs, survey: &Survey) -> bool {
    let is_asked = match args.index {
        When::Auto => survey.blocks.len() >= LARGE_BLOCKS,
        When::Always => true,
        When::Never => false,
    };
    is_asked && matches!(survey.ending, Ending::Complete(_))
}
