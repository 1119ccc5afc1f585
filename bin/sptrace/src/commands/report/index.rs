//! The sums of a whole trace, from its index if there is one, else from its events.
//!
//! Given a session; gives sums. What is chosen of a trace is added up anew each time. An index that
//! cannot be used is passed over, said and made anew.

use super::{Reader, Session};
use crate::talk::say;
use clap::ValueEnum;
use sptrace_trace::index::{self, NoIndex};
use sptrace_trace::{Ending, Stats};

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
    if !is_kept(session) {
        return session.add_up(reader, Stats::new());
    }
    let path = &session.args.input;
    let shown = index::path_of(path);
    let shown = shown.display();
    match index::load(path, session.survey) {
        Ok(stats) => return Ok(stats),
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
    let stats = session.add_up(reader, Stats::new())?;
    if let Err(error) = index::save(path, session.survey, &stats)
        && session.args.index == When::Always
    {
        say(&format!(
            "cannot write {shown}: {error}; the next report reads the trace again"
        ));
    }
    Ok(stats)
}

/// Of all events of a trace that is whole and does not change any more.
fn is_kept(session: &Session<'_>) -> bool {
    let args = session.args;
    let is_large = session.survey.blocks.len() >= LARGE_BLOCKS;
    let is_asked = match args.index {
        When::Auto => is_large,
        When::Always => true,
        When::Never => false,
    };
    is_asked
        && matches!(session.survey.ending, Ending::Complete(_))
        && session.selection.is_everything()
        && args.min_time == 0
        && args.graph.focus.is_empty()
}
