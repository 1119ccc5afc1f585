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
use clap_complete::env::Shells;
use std::io;

/// Path from the repository's top, and content.
pub type Made = (String, Vec<u8>);

/// Files in the same folders that are written by hand: nothing here may overwrite or miss them.
pub const WRITTEN_BY_HAND: [&str; 4] = [
    "man/sptrace-events.7",
    "man/sptrace-limits.7",
    "man/sptrace-trace.5",
    "man/sptrace-values.7",
];

/// Shells, and the files by which they learn to ask sptrace itself what can be completed.
const SHELLS: [(&str, &str); 3] = [
    ("bash", "sptrace.bash"),
    ("zsh", "_sptrace"),
    ("fish", "sptrace.fish"),
];

/// See [`SHELLS`].
const ZSH_FIRST_CALL: &str = "\
if [[ $funcstack[1] == _sptrace ]]; then
    _clap_dynamic_completer_sptrace \"$@\"
fi
";
/// When the texts of the pages were last gone through, as mdoc(7) and man(7) want a date.
const DATE: &str = "2026-11-24";

/// All files.
///
/// # Errors
/// None in practice: the output is memory.
pub fn make_all() -> io::Result<Vec<Made>> {
    // What the build is, is nothing of the manual's.
    let mut command = sptrace::cli::Cli::command().long_version(sptrace::version::SHORT);
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
    let definitions = sptrace::script_definitions().into_bytes();
    made.push(("completions/sptrace.d.rhai".to_owned(), definitions));
    for (shell, file) in SHELLS {
        let mut text = Vec::new();
        if let Some(completer) = Shells::builtins().completer(shell) {
            let variable = sptrace::complete::VARIABLE;
            completer.write_registration(variable, "sptrace", "sptrace", "sptrace", &mut text)?;
        }
        if shell == "zsh" {
            // What zsh loads by itself is called at once, but only defines the function.
            text.extend(ZSH_FIRST_CALL.as_bytes());
        }
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
    for (other, section) in [
        ("events", 7),
        ("limits", 7),
        ("script", 7),
        ("values", 7),
        ("trace", 5),
    ] {
        let end = if other == "trace" { "\n" } else { ",\n" };
        text += &format!("\\fBsptrace\\-{other}\\fR({section}){end}");
    }
    text
}

fn man_page(command: clap::Command) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let source = concat!("sptrace ", env!("CARGO_PKG_VERSION"));
    clap_mangen::Man::new(command)
        .manual("sptrace")
        .source(source)
        .date(DATE)
        .render(&mut text)?;
    // Space breaks the line by itself: groff does not mind, others complain.
    let text = String::from_utf8_lossy(&text);
    Ok(text.replace("\n.br\n\n.br\n", "\n.sp\n").into_bytes())
}
