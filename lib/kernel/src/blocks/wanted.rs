//! Which blocks of which function somebody wants to see, and when: `FUNC[:WHAT][@START..END]`.
//!
//! Given a text; gives what it says. Must not know: graphs and probes.

use std::time::Duration;

/// Which blocks of a function are hooked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Every block: the path of each call.
    Path,
    /// The entry, and all that leave the function: how long each call takes.
    Exits,
    /// The blocks in which these offsets lie, before and after.
    Only(Vec<u64>),
}

/// An instrument: what is hooked of one function, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The function.
    pub function: String,
    /// Which of its blocks.
    pub strategy: Strategy,
    /// It begins so long after the recording.
    pub start: Duration,
    /// It ends so long after the recording's start, if not with it.
    pub end: Option<Duration>,
}

impl Wanted {
    /// Reads it.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn parse(
        text: &str,
        duration: &dyn Fn(&str) -> Result<Duration, String>,
    ) -> Result<Self, String> {
        let (what, when) = match text.split_once('@') {
            Some((what, when)) => (what, Some(when)),
            None => (text, None),
        };
        let (function, strategy) = match what.split_once(':') {
            Some((function, strategy)) => (function, self::strategy(strategy)?),
            None => (what, Strategy::Path),
        };
        if function.is_empty() {
            return Err("a function of the kernel must be named: FUNC[:WHAT][@START..END]".into());
        }
        let (start, end) = match when {
            None => (Duration::ZERO, None),
            Some(when) => {
                let (start, end) = when
                    .split_once("..")
                    .ok_or_else(|| format!("{when} is no time: START..END, as in 1s..3s"))?;
                let of = |text: &str| match text {
                    "" => Ok(None),
                    text => duration(text).map(Some),
                };
                (of(start)?.unwrap_or_default(), of(end)?)
            }
        };
        if end.is_some_and(|end| end <= start) {
            return Err(format!("{text} ends before it begins"));
        }
        Ok(Self {
            function: function.to_owned(),
            strategy,
            start,
            end,
        })
    }

    /// It begins with the recording.
    pub fn is_at_once(&self) -> bool {
        self.start.is_zero()
    }
}

fn strategy(text: &str) -> Result<Strategy, String> {
    match text {
        "path" => return Ok(Strategy::Path),
        "exits" => return Ok(Strategy::Exits),
        _ => {}
    }
    let offset = |word: &str| {
        let hex = word.trim_start_matches('+').strip_prefix("0x");
        hex.and_then(|hex| u64::from_str_radix(hex, 16).ok())
    };
    let offsets: Option<Vec<u64>> = text.split(',').map(offset).collect();
    offsets.map(Strategy::Only).ok_or_else(|| {
        format!("{text} is none of path, exits, and offsets of blocks such as 0x1a4,0x200")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Wanted, String> {
        let seconds = |text: &str| {
            let number = text.trim_end_matches('s').parse::<u64>();
            number.map(Duration::from_secs).map_err(|e| e.to_string())
        };
        Wanted::parse(text, &seconds)
    }

    #[test]
    fn all_forms() {
        let plain = parse("pipe_write").unwrap();
        assert_eq!((plain.strategy, plain.end), (Strategy::Path, None));
        let exits = parse("vfs_write:exits@1s..3s").unwrap();
        assert_eq!(
            (exits.function.as_str(), exits.strategy),
            ("vfs_write", Strategy::Exits)
        );
        assert_eq!(
            (exits.start, exits.end),
            (Duration::from_secs(1), Some(Duration::from_secs(3)))
        );
        let only = parse("f:+0x10,0x2a@..2s").unwrap();
        assert_eq!(only.strategy, Strategy::Only(vec![0x10, 0x2a]));
        assert!(only.is_at_once() && only.end == Some(Duration::from_secs(2)));
    }

    #[test]
    fn wrong_ones_are_named() {
        assert!(parse(":path").unwrap_err().contains("must be named"));
        assert!(parse("f:paths").unwrap_err().contains("paths is none of"));
        assert!(parse("f@3s").unwrap_err().contains("START..END"));
        assert!(parse("f@3s..1s").unwrap_err().contains("before it begins"));
    }
}
