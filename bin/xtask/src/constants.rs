//! The tables of named constants in `lib/types`, made from this machine's header files.
//!
//! Given `constants.txt` beside this file, which says what is in which table, and a C compiler,
//! which says what each constant is; gives Rust source. Made by hand when newer headers are at
//! hand, never while building.

use std::collections::HashSet;
use std::fmt::Write;
use std::io;
use std::process::Command;

const SPEC: &str = include_str!("constants.txt");

/// A table as `constants.txt` has it.
struct Table<'a> {
    flags: bool,
    name: &'a str,
    fallback: &'a str,
    headers: Vec<&'a str>,
    words: Vec<&'a str>,
}

/// The tables' source.
///
/// # Errors
/// There is no C compiler, or a header or constant is missing.
pub fn make() -> io::Result<String> {
    let mut out = String::from(
        "//! Made by `cargo run -p xtask -- constants`; not to be changed by hand.\n\n\
         use super::Names;\n",
    );
    for table in tables()? {
        let mut values = evaluate(&table)?;
        if !table.flags {
            values.sort_by_key(|(_, value, _)| *value);
        }
        let kind = if table.flags { "flags" } else { "choice" };
        let _ = writeln!(out, "\n/// `{}`.", table.fallback);
        out.push_str("#[rustfmt::skip]\n");
        let (name, fallback) = (table.name, table.fallback);
        let _ = writeln!(
            out,
            "pub static {name}: Names = Names::{kind}({fallback:?}, &["
        );
        for (name, value, _) in &values {
            let _ = writeln!(out, "    ({value:#x}, {name:?}),");
        }
        out.push_str("]);\n");
        if table.name == "ERRNO" {
            out.push_str("\n/// What strerror says of each.\n#[rustfmt::skip]\n");
            out.push_str("pub static ERRNO_TEXTS: &[(u64, &str)] = &[\n");
            for (_, value, text) in &values {
                let _ = writeln!(out, "    ({value}, {text:?}),");
            }
            out.push_str("];\n");
        }
    }
    Ok(out)
}

fn tables() -> io::Result<Vec<Table<'static>>> {
    let mut tables: Vec<Table<'static>> = Vec::new();
    for line in SPEC.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        if line.starts_with(' ') {
            let Some(table) = tables.last_mut() else {
                return Err(io::Error::other("constants before the first table"));
            };
            table.words.extend(words);
        } else if let (Some(kind), Some(name), Some(fallback)) =
            (words.next(), words.next(), words.next())
        {
            tables.push(Table {
                flags: kind == "flags",
                name,
                fallback,
                headers: words.collect(),
                words: Vec::new(),
            });
        }
    }
    Ok(tables)
}

/// Name, value and strerror's text of each constant, in the table's order.
fn evaluate(table: &Table) -> io::Result<Vec<(String, u64, String)>> {
    let mut includes = String::from("#define _GNU_SOURCE\n");
    for header in &table.headers {
        let _ = writeln!(includes, "#include <{header}>");
    }
    let mut program = includes.clone();
    program += "extern int printf(const char *, ...); extern char *strerror(int);\n\
                int main(void) {\n";
    for word in words_of(table, &includes)? {
        let (name, value) = word.split_once('=').unwrap_or((&word, &word));
        let _ = writeln!(
            program,
            "printf(\"%s\\t%llu\\t%s\\n\", \"{name}\", (unsigned long long)({value}), \
             strerror((int)({value})));"
        );
    }
    program += "return 0; }\n";
    let folder = std::env::temp_dir().join(format!("xtask-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let (source, binary) = (folder.join("constants.c"), folder.join("constants"));
    std::fs::write(&source, program)?;
    let built = Command::new("cc")
        .args(["-w", "-O0", "-o"])
        .arg(&binary)
        .arg(&source)
        .status()?;
    if !built.success() {
        return Err(io::Error::other(format!(
            "table {} does not compile",
            table.name
        )));
    }
    let printed = Command::new(&binary).env("LC_ALL", "C").output()?.stdout;
    std::fs::remove_dir_all(&folder)?;
    let mut found = Vec::new();
    for line in String::from_utf8_lossy(&printed).lines() {
        let mut parts = line.split('\t');
        if let (Some(name), Some(value), Some(text)) = (parts.next(), parts.next(), parts.next()) {
            let value = value.parse::<u64>().map_err(io::Error::other)?;
            // A table of 32-bit constants: a sign is no part of the pattern.
            let value = if value >> 32 == 0xffff_ffff {
                value & 0xffff_ffff
            } else {
                value
            };
            found.push((name.to_owned(), value, text.to_owned()));
        }
    }
    Ok(found)
}

/// The table's words with each `PREFIX_*` replaced by the macros that begin so.
fn words_of(table: &Table, includes: &str) -> io::Result<Vec<String>> {
    let without: HashSet<_> = table
        .words
        .iter()
        .filter_map(|w| w.strip_prefix('-'))
        .collect();
    let mut found = Vec::new();
    for word in table.words.iter().filter(|word| !word.starts_with('-')) {
        let Some(prefix) = word.strip_suffix('*') else {
            found.push((*word).to_owned());
            continue;
        };
        for (name, is_number) in macros(includes)? {
            if name.starts_with(prefix) && is_number && !without.contains(name.as_str()) {
                found.push(name);
            }
        }
    }
    Ok(found)
}

/// The macros without parameters, and whether what they stand for looks like a number.
fn macros(includes: &str) -> io::Result<Vec<(String, bool)>> {
    let source = std::env::temp_dir().join(format!("xtask-{}.c", std::process::id()));
    std::fs::write(&source, includes)?;
    let printed = Command::new("cc")
        .args(["-E", "-dM"])
        .arg(&source)
        .output()?
        .stdout;
    std::fs::remove_file(&source)?;
    let mut found = Vec::new();
    for line in String::from_utf8_lossy(&printed).lines() {
        let Some(rest) = line.strip_prefix("#define ") else {
            continue;
        };
        let (name, value) = rest.split_once(' ').unwrap_or((rest, ""));
        let ioctl = ["_IO(", "_IOR(", "_IOW(", "_IOWR("]
            .iter()
            .any(|m| value.starts_with(m));
        let value = value.trim_start_matches('(');
        let number = value.starts_with(|c: char| c.is_ascii_digit());
        if !name.contains('(') {
            found.push((name.to_owned(), ioctl || number));
        }
    }
    found.sort();
    Ok(found)
}
