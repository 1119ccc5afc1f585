//! Writes man/ and completions/: `cargo run -p xtask`, from anywhere in the repository.
//!
//! `cargo run -p xtask -- syscalls [TRACEFS]` writes the table of system calls instead, from this
//! machine's header files and the tracefs that is mounted at TRACEFS; `-- constants` writes the
//! tables of flags, errors and other named constants, from header files. `-- prototypes` compares
//! the table of known functions with header files.
#![forbid(unsafe_code)]

use std::path::Path;

fn main() -> std::io::Result<()> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next();
    if what.as_deref() == Some("constants") {
        let table = xtask::constants::make()?;
        return std::fs::write(top.join("lib/types/src/names/table.rs"), table);
    }
    if what.as_deref() == Some("prototypes") {
        return compare_prototypes(&top);
    }
    if what.as_deref() == Some("syscalls") {
        let tracefs = arguments.next();
        let tracefs = tracefs.as_deref().unwrap_or("/sys/kernel/tracing");
        let table = xtask::syscalls::make(Path::new(tracefs))?;
        return std::fs::write(top.join("lib/types/src/syscalls/table.rs"), table);
    }
    for (name, content) in xtask::make_all()? {
        let path = top.join(&name);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(&path, content)?;
        println!("{name}");
    }
    Ok(())
}

/// Says what differs; an error if something does.
fn compare_prototypes(top: &Path) -> std::io::Result<()> {
    let table = std::fs::read_to_string(top.join("lib/types/src/functions/known.conf"))?;
    let compared = xtask::prototypes::compare(&table, &std::env::temp_dir());
    let compared = compared.map_err(std::io::Error::other)?;
    for name in &compared.unknown {
        println!("no header declares {name}");
    }
    for what in &compared.different {
        println!("{what}");
    }
    println!("{} functions agree", compared.same);
    match compared.different.len() {
        0 => Ok(()),
        more => Err(std::io::Error::other(format!("{more} differ"))),
    }
}
