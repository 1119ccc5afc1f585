//! Reads an event as it stands on the command line.
//!
//! Given one argument; gives an [`Event`] or an error that says what the forms are.

use super::error::EventError;
use super::{Event, Order, What};
use std::str::FromStr;
use std::time::Duration;

/// Signals that can be waited for. Not those that cannot be blocked, that stop or continue us, or
/// that tell of faults of our own.
const SIGNALS: [(&str, i32); 12] = [
    ("HUP", libc::SIGHUP),
    ("INT", libc::SIGINT),
    ("QUIT", libc::SIGQUIT),
    ("TERM", libc::SIGTERM),
    ("USR1", libc::SIGUSR1),
    ("USR2", libc::SIGUSR2),
    ("ALRM", libc::SIGALRM),
    ("VTALRM", libc::SIGVTALRM),
    ("PROF", libc::SIGPROF),
    ("URG", libc::SIGURG),
    ("IO", libc::SIGIO),
    ("WINCH", libc::SIGWINCH),
];

/// Of an event that consists of several.
const MOST_PARTS: usize = 16;

const UNITS_NS: [(&str, f64); 6] = [
    ("ns", 1.0),
    ("us", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("m", 60e9),
    ("h", 3600e9),
];

impl FromStr for Event {
    type Err = EventError;

    fn from_str(text: &str) -> Result<Self, EventError> {
        if let Some(several) = several(text)? {
            return Ok(several);
        }
        let (body, every) = every(text)?;
        let (form, argument) = match body.split_once(':') {
            Some((form, argument)) => (form, Some(argument)),
            None => (body, None),
        };
        let need = |form, example| {
            argument
                .filter(|text| !text.is_empty())
                .ok_or(EventError::Missing(form, example))
        };
        let what = match form {
            "time" => What::Time(duration(need("time:", "a duration, as in time:500ms")?)?),
            "signal" => What::Signal(signal(need("signal:", "a name, as in signal:USR1")?)?),
            "key" => What::Key(need("key:", "a key, as in key:ctrl-t")?.parse()?),
            "ctl" => What::Control(word(need("ctl:", "a word, as in ctl:dump")?)?),
            "call" => What::Call(need("call:", "a function, as in call:main")?.to_owned()),
            "return" => What::Return(need("return:", "a function, as in return:main")?.to_owned()),
            "slow" => slow(need(
                "slow:",
                "a function and a bound, as in slow:write>10ms",
            )?)?,
            "crash" if argument.is_none() => What::Crash,
            "exit" if argument.is_none() => What::Exit,
            "crash" => return Err(EventError::Superfluous("crash")),
            "exit" => return Err(EventError::Superfluous("exit")),
            _ => return Err(EventError::Form(text.to_owned())),
        };
        let text = text.to_owned();
        Ok(Self { what, every, text })
    }
}

/// `EVENT & EVENT`: when all have happened; `EVENT then EVENT`: one after the other.
fn several(text: &str) -> Result<Option<Event>, EventError> {
    let separators = [(" & ", Order::Any), (" then ", Order::AsWritten)];
    let mut used = separators.into_iter().filter(|(s, _)| text.contains(s));
    let Some((separator, order)) = used.next() else {
        return Ok(None);
    };
    if used.next().is_some() {
        return Err(EventError::Mixed(text.to_owned()));
    }
    let parts = text.split(separator).map(|part| part.trim().parse());
    let parts = parts.collect::<Result<Vec<Event>, _>>()?;
    if parts.len() > MOST_PARTS {
        return Err(EventError::TooMany);
    }
    Ok(Some(Event {
        what: What::Several(parts, order),
        every: 1,
        text: text.to_owned(),
    }))
}

/// Takes `#N` off. Demangled names have such a thing in braces only, never at the end.
fn every(text: &str) -> Result<(&str, u64), EventError> {
    match text.rsplit_once('#') {
        Some((body, digits))
            if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) =>
        {
            let number = digits.parse().ok().filter(|n| *n > 0);
            number.map(|n| (body, n)).ok_or(EventError::Number)
        }
        _ => Ok((text, 1)),
    }
}

fn duration(text: &str) -> Result<Duration, EventError> {
    let wrong = || EventError::Duration(text.to_owned());
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, unit) = text.split_at(digits.ok_or_else(wrong)?);
    let unit_ns = UNITS_NS.iter().find(|known| known.0 == unit);
    let ns = number.parse::<f64>().map_err(|_| wrong())? * unit_ns.ok_or_else(wrong)?.1;
    // 2^63 ns are 292 years.
    let is_sane = (1.0..9.2e18).contains(&ns);
    is_sane
        .then(|| Duration::from_nanos(ns.round() as u64))
        .ok_or_else(wrong)
}

fn signal(text: &str) -> Result<i32, EventError> {
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let known = SIGNALS.iter().find(|known| known.0 == name);
    known.map(|known| known.1).ok_or_else(|| {
        let names: Vec<_> = SIGNALS.iter().map(|known| known.0).collect();
        EventError::Signal(text.to_owned(), names.join(" "))
    })
}

/// A word that can stand in a line of the control protocol.
pub fn word(text: &str) -> Result<String, EventError> {
    let is_word = (1..=32).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    is_word
        .then(|| text.to_owned())
        .ok_or_else(|| EventError::Word(text.to_owned()))
}

/// `GLOB>DURATION`; names of C++ may hold `>`, durations never do.
fn slow(text: &str) -> Result<What, EventError> {
    match text.rsplit_once('>') {
        Some((glob, bound)) if !glob.is_empty() => Ok(What::Slow(
            glob.trim_end().to_owned(),
            duration(bound.trim_start())?,
        )),
        _ => Err(EventError::Missing(
            "slow:",
            "a function and a bound, as in slow:write>10ms",
        )),
    }
}

/// The name of a signal that can be waited for, or of one that kills.
pub fn signal_name(signal: i32) -> String {
    const DEADLY: [(&str, i32); 8] = [
        ("SEGV", libc::SIGSEGV),
        ("ABRT", libc::SIGABRT),
        ("BUS", libc::SIGBUS),
        ("FPE", libc::SIGFPE),
        ("ILL", libc::SIGILL),
        ("KILL", libc::SIGKILL),
        ("TRAP", libc::SIGTRAP),
        ("SYS", libc::SIGSYS),
    ];
    let known = SIGNALS.iter().chain(&DEADLY).find(|s| s.1 == signal);
    known.map_or_else(|| format!("signal {signal}"), |s| format!("SIG{}", s.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn what(text: &str) -> What {
        text.parse::<Event>().expect(text).what
    }

    #[test]
    fn all_forms_are_read() {
        let ms = Duration::from_millis;
        assert_eq!(what("time:500ms"), What::Time(ms(500)));
        assert_eq!(what("time:1.5s"), What::Time(ms(1500)));
        assert_eq!(what("time:2m"), What::Time(ms(120_000)));
        assert_eq!(what("signal:USR1"), What::Signal(libc::SIGUSR1));
        assert_eq!(what("signal:sigusr2"), What::Signal(libc::SIGUSR2));
        assert_eq!(what("ctl:dump-now"), What::Control("dump-now".to_owned()));
        assert_eq!(what("call:std::*"), What::Call("std::*".to_owned()));
        assert_eq!(what("return:f"), What::Return("f".to_owned()));
        assert_eq!(
            what("slow:A<B>::f>10us"),
            What::Slow("A<B>::f".to_owned(), Duration::from_micros(10))
        );
        assert_eq!(what("crash"), What::Crash);
        assert_eq!(what("exit"), What::Exit);
        assert!(matches!(what("key:ctrl-t"), What::Key(_)));
    }

    #[test]
    fn occurrences_are_counted_after_a_hash() {
        let event: Event = "call:malloc#1000".parse().expect("an event");
        assert_eq!(event.every, 1000);
        assert_eq!(event.what, What::Call("malloc".to_owned()));
        assert_eq!(event.text, "call:malloc#1000");
        let event: Event = "call:main::{lambda()#1}".parse().expect("an event");
        assert_eq!(event.every, 1);
        assert_eq!(event.what, What::Call("main::{lambda()#1}".to_owned()));
        assert_eq!("crash#2".parse::<Event>().expect("an event").every, 2);
    }

    #[test]
    fn wrong_forms_say_what_is_right() {
        for (text, hint) in [
            ("", "the forms are: time:DURATION"),
            ("sometimes", "the forms are"),
            ("timer:5s", "the forms are"),
            ("time", "time:500ms"),
            ("time:", "time:500ms"),
            ("time:5", "no duration"),
            ("time:0s", "no duration"),
            ("time:-1s", "no duration"),
            ("time:1e9s", "no duration"),
            ("time:1.2.3s", "no duration"),
            ("signal:KILL", "USR1"),
            ("signal:CHLD", "USR1"),
            ("signal:STOP", "USR1"),
            ("signal:9", "USR1"),
            ("key:", "key:ctrl-t"),
            ("ctl:two words", "no control word"),
            ("ctl:../../x", "no control word"),
            ("call:", "call:main"),
            ("call", "call:main"),
            ("return:#3", "return:main"),
            ("slow:f", "slow:write>10ms"),
            ("slow:>10ms", "slow:write>10ms"),
            ("slow:f>10", "no duration"),
            ("ctl:a & time:5", "no duration"),
            ("ctl:a & ctl:b then ctl:c", "not both"),
            ("ctl:a then ", "the forms are"),
            ("crash:now", "nothing after it"),
            ("exit:0", "nothing after it"),
            ("crash#0", "from 1"),
            ("crash#99999999999999999999", "from 1"),
        ] {
            let error = text.parse::<Event>().expect_err(text).to_string();
            assert!(error.contains(hint), "{text}: {error}");
        }
    }

    #[test]
    fn signals_have_names() {
        assert_eq!(signal_name(libc::SIGSEGV), "SIGSEGV");
        assert_eq!(signal_name(libc::SIGUSR1), "SIGUSR1");
        assert_eq!(signal_name(64), "signal 64");
    }
}
