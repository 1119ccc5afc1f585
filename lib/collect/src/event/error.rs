//! What can be wrong with an event, by cause; each text says what to write or do instead.

use sptrace_keys::KeyError;

/// The forms of an event, for the user.
pub const FORMS: &str = "time:DURATION, signal:NAME, key:KEY, ctl:WORD, call:GLOB, return:GLOB, \
                         slow:GLOB>DURATION, crash, exit; each maybe with #N; 'EVENT & EVENT' when \
                         all have happened, 'EVENT then EVENT' one after the other";

/// Why an event cannot be waited for.
#[derive(Debug, thiserror::Error)]
pub enum EventError {
    /// It has none of the forms.
    #[error("unknown event '{0}'; the forms are: {FORMS}")]
    Form(String),
    /// The part after the colon is missing.
    #[error("{0} needs more: {1}")]
    Missing(&'static str, &'static str),
    /// There must be no such part.
    #[error("{0} takes nothing after it but #N")]
    Superfluous(&'static str),
    /// Two ways of putting events together.
    #[error("'{0}' has '&' and 'then': events are put together by one of them, not both")]
    Mixed(String),
    /// Calls among several are seen where they are recorded only.
    #[error(
        "'{0}' cannot begin a recording: calls among several events are seen only while they are recorded; let one \
         event begin it, or moments, signals, keys and words"
    )]
    NotYetSeen(String),
    /// What has several parts cannot do this.
    #[error("'{0}' cannot {1}: write one event")]
    OneOnly(String, &'static str),
    /// `#0` or too many.
    #[error("#N counts occurrences from 1")]
    Number,
    /// No duration.
    #[error("'{0}' is no duration: a number and ns, us, ms, s, m or h, as in 500ms")]
    Duration(String),
    /// No signal, or not one that we can wait for.
    #[error("'{0}' is no signal to wait for; those are: {1}")]
    Signal(String, String),
    /// No key, or none that arrives.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// No word.
    #[error("'{0}' is no control word: up to 32 letters, digits, - and _")]
    Word(String),
    /// The command cannot have a terminal of its own.
    #[error(
        "cannot wait for keys: the command cannot get a terminal of its own: {0}; give it another input (</dev/null), or use \
         ctl:WORD or signal:NAME"
    )]
    NoRelay(std::io::Error),
    /// There is none.
    #[error(
        "cannot wait for keys: there is no controlling terminal: {0}; use ctl:WORD or signal:NAME"
    )]
    NoTerminal(std::io::Error),
    /// The socket for `sptrace ctl`.
    #[error("cannot wait for control words: cannot listen at {0}: {1}")]
    Socket(String, std::io::Error),
    /// It comes at the end.
    #[error("{0} cannot {1}: nothing comes after it")]
    TooLate(String, &'static str),
    /// Processes are followed until it is seen.
    #[error(
        "{0} cannot begin a recording with --dump-on: let a call, a moment, a signal, a key or a word begin it"
    )]
    NoDumps(String),
    /// Too many rules.
    #[error("more than {0} --between are too many")]
    TooManyRules(usize),
    /// Too many functions are watched.
    #[error("more than 64 call, return and slow events are too many")]
    TooMany,
}
