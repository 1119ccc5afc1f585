//! Notes of a trace as sentences: what happened to a process, and what became of the recording.
//!
//! Given a note; gives a line of text without control characters, or none for notes that are read
//! by views and not shown. Must not know where the line stands.

use crate::units::clean;
use sptrace_trace::{EarlyEnd, ExitStatus, Note, Turn, Window};

/// What has happened, in words.
pub fn note_text(note: &Note) -> Option<String> {
    Some(match note {
        Note::ProcessExit { status, .. } => match *status {
            ExitStatus::Exited(code) => format!("process exited with status {code}"),
            ExitStatus::Signaled(signal) | ExitStatus::Dumped(signal) => {
                format!("process killed by signal {signal}")
            }
        },
        Note::Exec { path, .. } => format!("exec {}", clean(path)),
        Note::Recording { turn, .. } => turn_text(turn),
        Note::ModuleMap { .. }
        | Note::Descriptors { .. }
        | Note::KernelExec { .. }
        | Note::Tables { .. }
        | Note::InOrder { .. }
        | Note::Level { .. }
        | Note::Counts { .. } => return None,
    })
}

/// Why recording ended before the command did.
pub fn early_end_text(why: &EarlyEnd) -> String {
    match why {
        EarlyEnd::AtSize => "the file had reached --max-size".to_owned(),
        EarlyEnd::DiskLow => "the disk was running low".to_owned(),
        EarlyEnd::AtEvent(event) => {
            format!("{}{}", option_or_none("--stop-on ", event), clean(event))
        }
    }
}

/// The option that names an event; none if a payload of a script has asked for it, whose words
/// stand behind the name of its parameter.
fn option_or_none(option: &'static str, event: &str) -> &'static str {
    if event.starts_with("c.") { "" } else { option }
}

fn turn_text(turn: &Turn) -> String {
    match turn {
        Turn::Begins { event, window } => {
            let which = window.map(window_text).unwrap_or_default();
            let option = option_of(*window, option_or_none("--start-on ", event));
            format!("recording {which}began at {option}{}", clean(event))
        }
        Turn::Ends { event, window } => {
            let which = window_text(*window);
            let option = option_of(Some(*window), option_or_none("--stop-on ", event));
            format!("recording {which}ended at {option}{}", clean(event))
        }
        Turn::EndsEarly(why) => format!("recording ended early: {}", early_end_text(why)),
        Turn::Dumped { event } => format!("dumped at {}", clean(event)),
        Turn::Between {
            glob,
            is_opening,
            event,
            missed,
        } => {
            let what = if *is_opening { "begins" } else { "ends" };
            let before = match missed {
                0 => String::new(),
                n => format!(", after {n} turns more than could be noted"),
            };
            let (glob, event) = (clean(glob), clean(event));
            format!("--between '{glob}' {what} at {event}{before}")
        }
    }
}

/// What was asked for while it was recorded, as often as somebody liked, is no event of an option.
fn option_of(window: Option<Window>, option: &'static str) -> &'static str {
    match window {
        Some(Window { of: 0, .. }) => "",
        _ => option,
    }
}

fn window_text(window: Window) -> String {
    if window.of == 0 {
        return format!("{} ", window.number);
    }
    format!("{} of {} ", window.number, window.of)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(turn: Turn) -> String {
        let (pid, tsc) = (0, 0);
        note_text(&Note::Recording { pid, tsc, turn }).unwrap()
    }

    #[test]
    fn each_turn_is_a_sentence_without_control_characters() {
        let event = || "ctl:\u{1b}[2J".to_owned();
        let ends = |of| Turn::Ends {
            event: "a key of --top".to_owned(),
            window: Window { number: 2, of },
        };
        assert_eq!(text(ends(0)), "recording 2 ended at a key of --top");
        let window = Window { number: 2, of: 9 };
        let begins = |window| Turn::Begins {
            event: "signal:USR1".to_owned(),
            window,
        };
        assert_eq!(
            text(begins(None)),
            "recording began at --start-on signal:USR1"
        );
        assert_eq!(
            text(begins(Some(window))),
            "recording 2 of 9 began at --start-on signal:USR1"
        );
        let between = Turn::Between {
            glob: "parse*".to_owned(),
            is_opening: false,
            event: "time:1s".to_owned(),
            missed: 3,
        };
        assert_eq!(
            text(between),
            "--between 'parse*' ends at time:1s, after 3 turns more than could be noted"
        );
        let early = [
            EarlyEnd::AtSize,
            EarlyEnd::DiskLow,
            EarlyEnd::AtEvent(event()),
        ];
        let ends = Turn::Ends {
            event: event(),
            window,
        };
        let dumped = Turn::Dumped { event: event() };
        let all = early.map(Turn::EndsEarly).into_iter().chain([ends, dumped]);
        for said in all.map(text) {
            assert!(!said.chars().any(char::is_control), "{said:?}");
        }
    }
}
