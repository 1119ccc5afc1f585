//! What sptrace says: one line each on stderr, begun by its name.
//!
//! stderr may be closed, full or a broken pipe: then nothing is said, and nothing else changes.

use std::io::Write;

/// Says one line.
pub fn say(text: &str) {
    let line = format!("sptrace: {}\n", text.replace(['\n', '\r'], " "));
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// The long name of the option that an error is about.
pub fn option_of(error: &clap::Error) -> Option<String> {
    use clap::error::{ContextKind, ContextValue};
    let Some(ContextValue::String(arg)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let name = arg.strip_prefix("--")?;
    let end = name.find([' ', '=', '[']).unwrap_or(name.len());
    Some(name.get(..end)?.to_owned())
}

/// A usage error of clap's, several lines with a usage, as one line with a hint.
pub fn usage_line(error: &clap::Error) -> String {
    let rendered = error.render().to_string();
    let lines = rendered.lines().map(str::trim);
    let told: Vec<String> = lines
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"))
        .filter(|line| !line.is_empty())
        .map(|line| match line.strip_prefix("tip: ") {
            Some(tip) => format!("({tip})"),
            None => line.trim_start_matches("error: ").to_owned(),
        })
        .collect();
    let told = told.join(" ");
    let command = rendered
        .lines()
        .find_map(|line| line.trim().strip_prefix("Usage: sptrace "))
        .and_then(|usage| usage.split(' ').next())
        .filter(|word| word.chars().all(|c| c.is_ascii_lowercase()));
    use clap::error::{ContextKind, ContextValue};
    let is = |kind, what: &dyn Fn(&str) -> bool| matches!(error.get(kind), Some(ContextValue::String(s)) if what(s));
    if is(ContextKind::InvalidArg, &|s| s == "[VIEW]")
        && is(ContextKind::InvalidValue, &|s| {
            std::path::Path::new(s).is_file()
        })
    {
        return format!("{told} (a trace file is named by -i FILE)");
    }
    match command {
        Some(command) => format!("{told} (see `sptrace {command} --help`)"),
        None => format!("{told} (see `sptrace --help`)"),
    }
}
