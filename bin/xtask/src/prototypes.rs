//! Compares the table of known functions with the header files of this machine.
//!
//! Given the table (`lib/types/src/functions/known.conf`); has the C compiler say what the headers
//! declare of each function, by the type of a pointer to it in debug information, and gives what
//! differs: how many parameters there are, in which registers they come, and where the result is.
//! What the headers do not declare is told apart. Must not know what a type means beyond that.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use sptrace_types::functions::parse::{Defined, prototype};
use sptrace_types::functions::prototype::{Prototype, Source};

const HEADERS: [&str; 45] = [
    "arpa/inet.h",
    "ctype.h",
    "dirent.h",
    "dlfcn.h",
    "err.h",
    "errno.h",
    "fcntl.h",
    "getopt.h",
    "grp.h",
    "langinfo.h",
    "libgen.h",
    "libintl.h",
    "locale.h",
    "malloc.h",
    "math.h",
    "netdb.h",
    "openssl/evp.h",
    "openssl/rand.h",
    "openssl/ssl.h",
    "poll.h",
    "pthread.h",
    "pwd.h",
    "sched.h",
    "semaphore.h",
    "signal.h",
    "stdio.h",
    "stdlib.h",
    "string.h",
    "sys/epoll.h",
    "sys/eventfd.h",
    "sys/file.h",
    "sys/inotify.h",
    "sys/ioctl.h",
    "sys/mman.h",
    "sys/prctl.h",
    "sys/random.h",
    "sys/resource.h",
    "sys/socket.h",
    "sys/stat.h",
    "sys/statfs.h",
    "sys/uio.h",
    "sys/utsname.h",
    "sys/wait.h",
    "syslog.h",
    "zlib.h",
];
/// Further ones.
const MORE_HEADERS: [&str; 3] = ["sys/time.h", "time.h", "unistd.h"];
/// Words of a call with a format, of which nobody says which are used.
const FORMATTED: usize = 16;

/// What was compared.
#[derive(Debug, Default)]
pub struct Compared {
    /// Functions that agree.
    pub same: usize,
    /// What differs.
    pub different: Vec<String>,
    /// What this machine's headers do not declare.
    pub unknown: Vec<String>,
}

/// Compares the lines of a table; `folder` is for the compiler's output.
///
/// # Errors
/// There is no compiler, or it does not do what it should.
pub fn compare(table: &str, folder: &Path) -> Result<Compared> {
    let lines = table.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with(['#', ';']));
    let known: Vec<Prototype> = lines
        .map(|line| {
            let read = prototype(line, &Defined::new());
            read.map_err(|wrong| anyhow::anyhow!("{}", wrong.shown(line)))
        })
        .collect::<Result<_>>()?;
    let mut compared = Compared::default();
    let mut names: Vec<&str> = known.iter().map(|one| one.name.as_str()).collect();
    let object = folder.join("prototypes.so");
    loop {
        let refused = compile(&names, &object)?;
        if refused.is_empty() {
            break;
        }
        let before = names.len();
        names.retain(|name| !refused.iter().any(|r| r == name));
        ensure!(names.len() < before, "the compiler refuses {refused:?}");
        compared.unknown.extend(refused);
    }
    let bytes = std::fs::read(&object).context("the compiler's output")?;
    for (pointer, line) in sptrace_dwarf::Prototypes::new(Some(bytes)).of_pointers() {
        let Some(name) = pointer.strip_prefix("p_") else {
            continue;
        };
        let Some(ours) = known.iter().find(|one| one.name == name) else {
            continue;
        };
        let theirs = prototype(&line, &Defined::new());
        let theirs = theirs.map_err(|wrong| anyhow::anyhow!("{}", wrong.shown(&line)))?;
        match difference(ours, &theirs) {
            None => compared.same += 1,
            Some(what) => compared
                .different
                .push(format!("{name}: {what}: {}: {line}", ours.text)),
        }
    }
    Ok(compared)
}

/// Compiles a pointer to each function; gives the names that are not declared.
fn compile(names: &[&str], object: &Path) -> Result<Vec<String>> {
    let mut source = String::from("#define _GNU_SOURCE\n");
    for header in HEADERS.iter().chain(&MORE_HEADERS) {
        source += &format!("#if __has_include(<{header}>)\n#include <{header}>\n#endif\n");
    }
    for name in names {
        source += &format!("__typeof__({name}) *p_{name};\n");
    }
    let mut compiler = Command::new("cc")
        .args([
            "-w",
            "-g",
            "-fmax-errors=0",
            "-fdiagnostics-color=never",
            "-xc",
            "-",
            // Linked: names and types of an object file are relocations yet.
            "-shared",
            "-fPIC",
            "-nostdlib",
            "-o",
        ])
        .arg(object)
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cc")?;
    let mut input = compiler.stdin.take().context("cc")?;
    input.write_all(source.as_bytes())?;
    drop(input);
    let done = compiler.wait_with_output()?;
    if done.status.success() {
        return Ok(Vec::new());
    }
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    let quoted = |line: &str| Some(line.split_once('\'')?.1.split_once('\'')?.0.to_owned());
    let refused: Vec<_> = said
        .lines()
        .filter(|line| line.contains("undeclared"))
        .filter_map(quoted)
        .collect();
    if refused.is_empty() {
        bail!("cc: {said}");
    }
    Ok(refused)
}

/// What differs in how a call is made.
fn difference(ours: &Prototype, theirs: &Prototype) -> Option<&'static str> {
    if ours.is_kernels {
        let registers = |source: &Source| matches!(source, Source::Register(_));
        return (!theirs.sources.iter().all(registers)).then_some("parameters");
    }
    let has_format = ours.sources.len() == FORMATTED;
    if !has_format && ours.sources != theirs.sources {
        return Some("parameters");
    }
    let place = |one: &Prototype| one.result.map(|given| given.place);
    (place(ours) != place(theirs)).then_some("result")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_agrees_with_the_headers() {
        let folder =
            std::env::temp_dir().join(format!("sptrace-prototypes-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let compared = compare(
            include_str!("../../../lib/types/src/functions/known.conf"),
            &folder,
        );
        std::fs::remove_dir_all(&folder).unwrap();
        let compared = compared.unwrap();
        assert!(compared.different.is_empty(), "{:#?}", compared.different);
        assert!(
            compared.same > 250,
            "{} agree; unknown: {:?}",
            compared.same,
            compared.unknown
        );
    }

    #[test]
    fn a_wrong_line_is_found() {
        let folder = std::env::temp_dir().join(format!("sptrace-wrong-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let table = "int strlen(string)\nint sqrt(double)\nlong atol(string, int)\nint no_such()";
        let compared = compare(table, &folder);
        std::fs::remove_dir_all(&folder).unwrap();
        let compared = compared.unwrap();
        assert_eq!(compared.different.len(), 2, "{:?}", compared.different);
        assert_eq!(
            (compared.same, compared.unknown),
            (1, vec!["no_such".to_owned()])
        );
    }
}
