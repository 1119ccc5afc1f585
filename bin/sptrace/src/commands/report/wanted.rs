//! What of a trace a report shows: the options that choose, as a [`Selection`].
//!
//! Given the options and the names of a trace; gives what is chosen, or a sentence that says what
//! matches nothing and what would. Must not know what is shown of it.

use super::ReportArgs;
use crate::commands::duration::parse_time_ns;
use anyhow::{Context, anyhow, bail};
use sptrace_trace::{Clock, Names, Selection, Tid, glob_matches};

/// What the options choose.
///
/// # Errors
/// A sentence that names the option.
pub fn selection(args: &ReportArgs, names: &Names<'_>, clock: Clock) -> anyhow::Result<Selection> {
    let Range { from, to } = args.range.unwrap_or(Range {
        from: args.from,
        to: args.to,
    });
    if let (Some(from), Some(to)) = (from, to)
        && from >= to
    {
        bail!("--from is not before --to; exchange them");
    }
    for &tid in &args.tid {
        let streams = &names.dictionary().streams;
        if !streams.iter().any(|stream| stream.tid == tid) {
            let first = streams.first().map_or(0, |stream| stream.tid);
            let (tid, first) = (Tid(tid), Tid(first));
            bail!("the trace has no thread {tid} (its first is {first})");
        }
    }
    Ok(Selection {
        within: choose("-F", &args.within, names)?,
        without: choose("-N", &args.without, names)?,
        only: choose_modules(args, names)?,
        with_leaves: args.user,
        max_depth: args.depth,
        from_tsc: from.map(|ns| clock.tsc_at(ns)),
        to_tsc: to.map(|ns| clock.tsc_at(ns)),
        tids: args.tid.clone(),
    })
}

/// The functions that globs choose, by their index; none for no globs.
///
/// # Errors
/// A sentence that names the option.
pub fn choose(option: &str, globs: &[String], names: &Names<'_>) -> anyhow::Result<Vec<bool>> {
    let mut all = Vec::new();
    for glob in globs {
        let chosen = names.choose(glob).ok_or_else(|| {
            let hint = match names.nearest(glob) {
                Some(near) => format!("did you mean '{near}'?"),
                None => "`sptrace report functions` lists them".to_owned(),
            };
            anyhow!("no traced function matches {option} '{glob}' ({hint})")
        })?;
        all.resize(chosen.len(), false);
        for (all, chosen) in all.iter_mut().zip(chosen) {
            *all |= chosen;
        }
    }
    Ok(all)
}

/// Folders that belong to the distribution, as their paths begin; code in brackets is of no file.
const OF_THE_DISTRIBUTION: [&str; 9] = [
    "/bin/",
    "/sbin/",
    "/lib/",
    "/lib32/",
    "/lib64/",
    "/usr/bin/",
    "/usr/sbin/",
    "/usr/lib",
    "[",
];

fn choose_modules(args: &ReportArgs, names: &Names<'_>) -> anyhow::Result<Vec<bool>> {
    let mut all = Vec::new();
    if args.user {
        let is_of = |path: &str| OF_THE_DISTRIBUTION.iter().any(|of| path.starts_with(of));
        return names.choose_modules(|path| !is_of(path)).context(
            "--user: all that ran is of the distribution's folders; choose modules by -l GLOB",
        );
    }
    for glob in &args.modules {
        let is_wanted = |path: &str| {
            let file = path.rsplit('/').next().unwrap_or(path);
            glob_matches(glob, path) || glob_matches(glob, file)
        };
        let chosen = names.choose_modules(is_wanted).with_context(|| {
            format!("no traced module matches -l '{glob}' (`sptrace report functions --format csv` names them)")
        })?;
        all.resize(chosen.len(), false);
        for (all, chosen) in all.iter_mut().zip(chosen) {
            *all |= chosen;
        }
    }
    Ok(all)
}

/// From when to when, in nanoseconds since the start of the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// What runs after this.
    pub from: Option<u64>,
    /// What begins before this.
    pub to: Option<u64>,
}

/// Reads `1s..2s`, `1s..`, `..2s`.
///
/// # Errors
/// What is wrong.
pub fn parse_range(text: &str) -> anyhow::Result<Range> {
    let (from, to) = text
        .split_once("..")
        .context("a range is FROM..TO, as 1s..2s")?;
    let time = |text: &str| match text.trim() {
        "" => Ok(None),
        text => parse_time_ns(text).map(Some),
    };
    Ok(Range {
        from: time(from)?,
        to: time(to)?,
    })
}

#[cfg(test)]
mod tests {
    use super::{Range, parse_range};

    #[test]
    fn ranges_are_read() {
        let range = |from, to| Range { from, to };
        assert_eq!(
            parse_range("1us..2us").unwrap(),
            range(Some(1000), Some(2000))
        );
        assert_eq!(parse_range("..7").unwrap(), range(None, Some(7)));
        assert_eq!(
            parse_range("1s..").unwrap(),
            range(Some(1_000_000_000), None)
        );
        for text in ["1s", "a..b", "1..2..3"] {
            assert!(parse_range(text).is_err(), "{text}");
        }
    }
}
