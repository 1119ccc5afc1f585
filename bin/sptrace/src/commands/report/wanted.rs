//! What of a trace a report shows: the options that choose, as a [`Selection`].
//!
//! Given the options and the names of a trace; gives what is chosen, or a sentence that says what
//! matches nothing and what would. Must not know what is shown of it.

use super::ReportArgs;
use anyhow::{Context, anyhow, bail};
use sptrace_trace::{Clock, Names, Selection, glob_matches};

/// What the options choose.
///
/// # Errors
/// A sentence that names the option.
pub fn selection(args: &ReportArgs, names: &Names<'_>, clock: Clock) -> anyhow::Result<Selection> {
    if let (Some(from), Some(to)) = (args.from, args.to)
        && from >= to
    {
        bail!("--from is not before --to; exchange them");
    }
    for &tid in &args.tid {
        let streams = &names.dictionary().streams;
        if !streams.iter().any(|stream| stream.tid == tid) {
            let first = streams.first().map_or(0, |stream| stream.tid);
            bail!("the trace has no thread {tid} (its first is {first})");
        }
    }
    Ok(Selection {
        within: choose("-F", &args.within, names)?,
        without: choose("-N", &args.without, names)?,
        only: choose_modules(args, names)?,
        with_leaves: args.user,
        max_depth: args.depth,
        from_tsc: args.from.map(|ns| clock.tsc_at(ns)),
        to_tsc: args.to.map(|ns| clock.tsc_at(ns)),
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

/// Reads `5us`, `1.5ms`, `2s`, `3m`, `250ns`, `250`.
///
/// # Errors
/// What is wrong.
pub fn parse_time_ns(text: &str) -> anyhow::Result<u64> {
    let number_length = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(number_length);
    let unit_ns = match unit.trim() {
        "" | "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" => 60e9,
        _ => bail!("unknown unit '{unit}' (ns, us, ms, s, m)"),
    };
    let number: f64 = number.parse().context("not a number")?;
    Ok((number * unit_ns).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::parse_time_ns;

    #[test]
    fn times_are_read() {
        for (text, ns) in [
            ("5us", 5_000),
            ("1.5ms", 1_500_000),
            ("2s", 2_000_000_000),
            ("7", 7),
        ] {
            assert_eq!(parse_time_ns(text).unwrap(), ns);
        }
        for text in ["", "us", "5 parsecs", "1.2.3s", "-1s"] {
            assert!(parse_time_ns(text).is_err(), "{text}");
        }
    }
}
