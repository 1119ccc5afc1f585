//! The committed man pages and completions are those of the present command line, and beside them
//! lie no others but those that are written by hand.

use std::collections::BTreeSet;
use std::path::Path;

#[test]
fn committed_files_are_what_is_made() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let made = xtask::make_all().unwrap();
    for (name, content) in &made {
        let committed = std::fs::read(top.join(name)).unwrap_or_default();
        assert!(
            committed == *content,
            "{name} is out of date: run `cargo run -p xtask`"
        );
    }
    let names: BTreeSet<&str> = made.iter().map(|m| m.0.as_str()).collect();
    for folder in ["man", "completions"] {
        for entry in std::fs::read_dir(top.join(folder)).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                continue;
            }
            let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
            assert!(
                names.contains(name.as_str()) || xtask::WRITTEN_BY_HAND.contains(&name.as_str()),
                "{name} is made by nothing any more"
            );
        }
    }
}
