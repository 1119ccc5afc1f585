//! The files that are made from sptrace's command line: man pages and shell completions.
//!
//! Given nothing but the types of `sptrace::cli`; gives names and contents, the same on every
//! machine.
#![forbid(unsafe_code)]

pub mod syscalls;

use clap::CommandFactory;
use clap_complete::{Shell, generate};
use std::io;

/// Path from the repository's top, and content.
pub type Made = (String, Vec<u8>);

/// All files.
///
/// # Errors
/// None in practice: the output is memory.
pub fn make_all() -> io::Result<Vec<Made>> {
    let mut command = sptrace::cli::Cli::command();
    command.build();
    let mut made = vec![(
        format!("man/{}.1", command.get_name()),
        man_page(command.clone())?,
    )];
    for sub in command
        .get_subcommands()
        .filter(|c| c.get_name() != "help" && !c.is_hide_set())
    {
        // build() has set "sptrace-run" for titles and "sptrace run" for usage.
        let name = sub.get_display_name().unwrap_or(sub.get_name()).to_owned();
        let page = man_page(sub.clone().version(env!("CARGO_PKG_VERSION")))?;
        made.push((format!("man/{name}.1"), page));
    }
    let shells = [
        (Shell::Bash, "sptrace.bash"),
        (Shell::Zsh, "_sptrace"),
        (Shell::Fish, "sptrace.fish"),
    ];
    for (shell, file) in shells {
        let mut text = Vec::new();
        generate(
            shell,
            &mut sptrace::cli::Cli::command(),
            "sptrace",
            &mut text,
        );
        made.push((format!("completions/{file}"), text));
    }
    Ok(made)
}

fn man_page(command: clap::Command) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let source = concat!("sptrace ", env!("CARGO_PKG_VERSION"));
    clap_mangen::Man::new(command)
        .manual("sptrace")
        .source(source)
        .date("")
        .render(&mut text)?;
    Ok(text)
}
