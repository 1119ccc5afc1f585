//! What `--between` was given: functions, and the events that begin and end the recording of their
//! calls.
//!
//! Given three words of a command line; gives a [`Rule`]. Must not know how calls are counted or
//! hooked.

use std::str::FromStr;

use super::{Event, EventError, What};

/// What the user asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Of the functions.
    pub glob: String,
    /// From when on their calls are recorded; `None`: from the recording's start.
    pub start: Option<Event>,
    /// Calls that begin after this are not.
    pub stop: Event,
}

impl Rule {
    /// Reads a rule as it stands on the command line, in three words.
    ///
    /// # Errors
    /// An event has no form, or is none that can open a rule.
    pub fn parse(glob: &str, start: &str, stop: &str) -> Result<Self, EventError> {
        let start = match start {
            "start" => None,
            event => Some(Event::from_str(event)?),
        };
        if let Some(event) = &start
            && matches!(event.what, What::Crash | What::Exit)
        {
            return Err(EventError::TooLate(
                event.text.clone(),
                "open a rule of --between",
            ));
        }
        let (glob, stop): (_, Event) = (glob.to_owned(), stop.parse()?);
        let several = |e: &&Event| matches!(e.what, What::Several(..));
        let found = start.iter().chain([&stop]).find(several);
        if let Some(text) = found.map(|event| event.text.clone()) {
            return Err(EventError::OneOnly(text, "turn a rule of --between"));
        }
        Ok(Self { glob, start, stop })
    }
}
