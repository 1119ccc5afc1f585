//! The files that are made from sptrace's command line: man pages and shell completions.
//!
//! Given nothing but the types of `sptrace::cli` and the words of scripts; gives names and
//! contents, the same on every machine. Every man page ends in a section that names the others
//! ([`see_also`]).
#![forbid(unsafe_code)]

pub mod constants;
pub mod prototypes;
pub mod syscalls;

use clap::CommandFactory;
use clap_complete::{Shell, generate};
use std::io;

/// Path from the repository's top, and content.
pub type Made = (String, Vec<u8>);

/// Files in the same folders that are written by hand: nothing here may overwrite or miss them.
pub const WRITTEN_BY_HAND: [&str; 2] = ["man/sptrace-limits.7", "man/sptrace-values.7"];

/// All files.
///
/// # Errors
/// None in practice: the output is memory.
pub fn make_all() -> io::Result<Vec<Made>> {
    let mut command = sptrace::cli::Cli::command();
    command.build();
    let mut pages = vec![(command.get_name().to_owned(), command.clone())];
    for sub in command
        .get_subcommands()
        .filter(|c| c.get_name() != "help" && !c.is_hide_set())
    {
        // build() has set "sptrace-run" for titles and "sptrace run" for usage.
        let name = sub.get_display_name().unwrap_or(sub.get_name()).to_owned();
        pages.push((name, sub.clone().version(env!("CARGO_PKG_VERSION"))));
    }
    let names: Vec<_> = pages.iter().map(|page| page.0.clone()).collect();
    let mut made = Vec::new();
    for (name, command) in pages {
        let mut page = man_page(command)?;
        page.extend(see_also(&name, &names).into_bytes());
        made.push((format!("man/{name}.1"), page));
    }
    let page = sptrace::script_page().into_bytes();
    made.push(("man/sptrace-script.7".to_owned(), page));
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

/// The last section of the page `name`: all other pages.
fn see_also(name: &str, names: &[String]) -> String {
    let others = names.iter().filter(|other| *other != name);
    let mut text = String::from(".SH \"SEE ALSO\"\n");
    for other in others {
        text += &format!("\\fB{}\\fR(1),\n", other.replace('-', "\\-"));
    }
    text + "\\fBsptrace\\-limits\\fR(7),\n\\fBsptrace\\-script\\fR(7),\n\\fBsptrace\\-values\\fR(7)\n"
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
