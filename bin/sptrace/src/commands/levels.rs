//! How much of a function's calls is recorded: all, or only that they were made.
//!
//! Given the options of that, and what else was asked for; gives what the recording does, or one
//! line that says why both cannot be had together, and what to do instead. Must not know how calls
//! are counted.

use std::time::Duration;

use clap::Args;
use sptrace_collect::request::Limit;

use super::duration::parse_time_ns;

/// The group of options that say what is recorded, in the help.
pub const WHAT: &str = "What is recorded";

/// Calls a second from which on the calls of a function that lasts shortly are counted, if nothing
/// else is said: fewer cost nothing.
const OFTEN_PER_S: u64 = 1000;

/// Options by which calls are counted and not recorded.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct LevelArgs {
    /// Count calls, and record none: exactly how often each function is called by each other one,
    /// without order and times, at a small part of the price (`report functions`, `callers`,
    /// `callees`, `graph`). A dump (--dump-on) has what was counted up to it
    #[arg(help_heading = WHAT, long)]
    pub count: bool,
    /// Count the calls of a function while it is called more than RATE times a second (1M, 200k),
    /// and record those of all others: which functions these were, and how often they were called
    /// meanwhile, is in the trace (`report functions` has their calls as untimed)
    #[arg(help_heading = WHAT, long, value_name = "RATE", value_parser = rate, conflicts_with = "count")]
    pub hot_limit: Option<u64>,
    /// Count the calls of a function as by --hot-limit only while they last less than TIME on
    /// average (1us, 500ns). Without --hot-limit that of 1000 calls a second is taken. Such a
    /// function is recorded again for a moment now and then, to be measured anew
    #[arg(help_heading = WHAT, long, value_name = "TIME", value_parser = parse_time_ns, conflicts_with = "count")]
    pub short_limit: Option<u64>,
    /// Spend at most so much of the program's CPU time on the recording, sptrace's own included
    /// (5%): the functions that cost most are counted while that is needed, as by --hot-limit, and
    /// recorded again when there is room. `report` says what was spent, and `report levels` which
    /// functions were counted when. A program's start costs more
    #[arg(help_heading = WHAT, long, value_name = "PERCENT", value_parser = percent, conflicts_with_all = ["count", "hot_limit", "short_limit"])]
    pub budget: Option<f64>,
}

/// What else may be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// -F
    Within,
    /// -D
    Depth,
    /// --between
    Between,
    /// --shadow, and what begins the recording that only recorded calls show
    Shadow,
    /// --ring, --dump-on
    Ring,
    /// --max-size
    MaxSize,
    /// --stop-on and --dump-on with an event that is a return or a slow call.
    EndEvent,
    /// --syscalls, -c, --live
    SystemCalls,
    /// --syscalls-only, and -c and --live where functions are not recorded
    SystemCallsAlone,
    /// -A, -R
    Values,
    /// --top
    Top,
    /// propagate(|f| ...) of a script
    Decides,
    /// on_enter and on_exit of a script
    Payloads,
}

impl Beside {
    /// What it is called.
    const fn name(self) -> &'static str {
        match self {
            Self::Within => "-F (only(GLOB) of a script)",
            Self::Depth => "-D (depth(N) of a script)",
            Self::Between => "--between",
            Self::Shadow => "--shadow, and --start-on return: and slow:",
            Self::Ring => "--ring and --dump-on",
            Self::MaxSize => "--max-size",
            Self::EndEvent => "--stop-on and --dump-on of return: and slow:",
            Self::SystemCalls => "--syscalls, -c and --live",
            Self::SystemCallsAlone => "--syscalls-only, and -c and --live without --syscalls",
            Self::Values => "-A and -R",
            Self::Top => "--top",
            Self::Decides => "propagate(|f| ...) of a script",
            Self::Payloads => "on_enter and on_exit of a script",
        }
    }

    /// Why it does not go together with counting all calls, and what to do.
    const fn beside_count(self) -> Option<&'static str> {
        Some(match self {
            // What lies inside of them is counted, and a dump has what was counted by then.
            Self::Within | Self::Depth | Self::Between | Self::Ring | Self::MaxSize => {
                return None;
            }
            // What it leaves out is not counted.
            Self::Decides => return None,
            Self::Shadow => "the command is followed by its recorded calls; use another event",
            Self::EndEvent => "ends of calls are not seen; use call:, time:, signal: or ctl:",
            Self::SystemCalls | Self::SystemCallsAlone => {
                "system calls are recorded with order and time; record them in a run of their own"
            }
            Self::Values => {
                "values belong to recorded calls; --hot-limit counts those of other functions"
            }
            Self::Top => "it shows calls as they are recorded; use `report functions` afterwards",
            Self::Payloads => {
                "it runs where calls are recorded; use the script without --count, or with --hot-limit"
            }
        })
    }

    /// The same of counting those of some functions at times.
    const fn beside_limit(self) -> Option<&'static str> {
        Some(match self {
            Self::Shadow => "the command is followed by its recorded calls; use another event",
            Self::SystemCallsAlone => {
                "no functions are recorded then, whose calls could be counted; use --syscalls"
            }
            Self::Top => "it would not show counted calls; use `report functions` afterwards",
            // Those with values and payloads are not counted.
            Self::Values | Self::Payloads | Self::Decides => return None,
            Self::Within | Self::Depth | Self::Between => return None,
            Self::Ring | Self::MaxSize | Self::EndEvent | Self::SystemCalls => return None,
        })
    }
}

impl LevelArgs {
    /// Which functions are to be counted at times.
    pub fn limit(&self) -> Option<Limit> {
        match (self.hot_limit, self.short_limit) {
            (rate, Some(ns)) => Some(Limit::Short {
                calls_per_s: rate.unwrap_or(OFTEN_PER_S),
                shorter_than: Duration::from_nanos(ns),
            }),
            (Some(rate), None) => Some(Limit::Rate(rate)),
            (None, None) => self.budget.map(Limit::Budget),
        }
    }

    /// Why one of the things that are asked for beside cannot be had; `None`: all can.
    pub fn refused(&self, asked: impl IntoIterator<Item = (bool, Beside)>) -> Option<String> {
        let own = match (self.count, self.limit()) {
            (true, _) => "--count",
            (_, Some(Limit::Budget(_))) => "--budget",
            (_, Some(_)) if self.hot_limit.is_none() => "--short-limit",
            (_, Some(_)) => "--hot-limit",
            (_, None) => return None,
        };
        let why = |beside: Beside| match self.count {
            true => beside.beside_count(),
            false => beside.beside_limit(),
        };
        let asked = asked.into_iter().filter(|(is_asked, _)| *is_asked);
        let mut refused = asked.filter_map(|(_, beside)| Some((beside, why(beside)?)));
        let (beside, why) = refused.next()?;
        Some(format!(
            "{own} cannot be used with {}: {why}",
            beside.name()
        ))
    }
}

/// A number of calls a second, with the suffixes k and M.
fn rate(text: &str) -> Result<u64, String> {
    let (number, unit) = match text.strip_suffix(['k', 'K']) {
        Some(number) => (number, 1000),
        None => text.strip_suffix('M').map_or((text, 1), |n| (n, 1_000_000)),
    };
    let number: Option<u64> = number.parse().ok().filter(|n| *n > 0);
    let rate = number.and_then(|n| n.checked_mul(unit));
    rate.ok_or_else(|| "not a number of calls a second, such as 500000, 200k or 1M".to_owned())
}

/// A share, of a number of hundredths with or without a sign for that.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim_end();
    let number: Option<f64> = number.parse().ok();
    let number = number.filter(|n| (0.1..=100.0).contains(n));
    let share = number.map(|n| n / 100.0);
    share.ok_or_else(|| "not a share of CPU time between 0.1% and 100%, such as 5%".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_read_with_and_without_its_sign() {
        assert_eq!(percent("5%"), Ok(0.05));
        assert_eq!(percent("12.5"), Ok(0.125));
        for wrong in ["0", "-1%", "nan", "101%", "five", "%"] {
            assert!(percent(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_rate_has_suffixes() {
        assert_eq!(rate("200k"), Ok(200_000));
        assert_eq!(rate("1M"), Ok(1_000_000));
        assert!(rate("0").is_err() && rate("1G").is_err());
    }

    #[test]
    fn what_is_refused_says_why_and_without_levels_nothing_is() {
        let shadow = [(true, Beside::Shadow)];
        assert_eq!(LevelArgs::default().refused(shadow), None);
        let budget = LevelArgs {
            budget: Some(0.05),
            ..LevelArgs::default()
        };
        let said = budget.refused([(false, Beside::Top), shadow[0]]);
        let said = said.unwrap_or_default();
        assert!(
            said.starts_with("--budget cannot be used with --shadow"),
            "{said}"
        );
        assert!(said.contains("use another event"), "{said}");
        assert_eq!(budget.refused([(true, Beside::Ring)]), None);
    }
}
