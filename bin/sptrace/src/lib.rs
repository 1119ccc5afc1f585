//! The sptrace command as a library, so that its man pages and completions are made from the same
//! types as its command line (bin/xtask).

pub mod cli;
pub mod commands;
pub mod complete;
pub mod crash;
pub mod exit_code;
pub mod logging;
pub mod settings;
pub mod talk;
pub mod version;

/// The manual of the language of scripts, as roff.
pub fn script_page() -> String {
    sptrace_script::reference::page()
}

/// The words of that language, for editors.
pub fn script_definitions() -> String {
    sptrace_script::definitions::file()
}
