//! Names from a debug file, made as distributions make theirs.

use std::path::{Path, PathBuf};
use std::process::Command;

use sptrace_image::{Object, debug_symbols};

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn run(folder: &Path, program: &str, words: &[&str]) {
    let status = Command::new(program)
        .args(words)
        .current_dir(folder)
        .status();
    assert!(status.unwrap().success(), "{program} {words:?}");
}

const SOURCE: &str = "static __attribute__((noinline)) int hidden(int n) { return n * 7; }
int main(int argc, char **argv) { return hidden(argc) + hidden(argc + 1); }";

#[test]
fn stripped_functions_get_their_names_back() {
    let folder = Folder(std::env::temp_dir().join(format!("sptrace-debug-{}", std::process::id())));
    std::fs::create_dir_all(&folder.0).unwrap();
    let path = |name: &str| folder.0.join(name);
    std::fs::write(path("a.c"), SOURCE).unwrap();
    for (output, id) in [("a", "0x1234567890"), ("other", "0x99")] {
        let id = format!("-Wl,--build-id={id}");
        run(&folder.0, "cc", &["-O1", "-o", output, &id, "a.c"]);
    }
    run(&folder.0, "objcopy", &["--only-keep-debug", "a", "a.debug"]);
    run(&folder.0, "strip", &["a", "other"]);
    let debug = std::fs::read(path("a.debug")).unwrap();

    let bytes = std::fs::read(path("a")).unwrap();
    let object = Object::parse(&bytes).unwrap();
    assert!(object.symbols.iter().all(|s| s.name != "hidden"));
    let symbols = debug_symbols(&debug, &object);
    let hidden = symbols.iter().find(|s| s.name == "hidden").unwrap();
    assert!(object.unwind.fde_at(hidden.svma).is_some());
    assert!(hidden.size_bytes > 0);

    let bytes = std::fs::read(path("other")).unwrap();
    let other = Object::parse(&bytes).unwrap();
    assert!(debug_symbols(&debug, &other).is_empty());
    for end in (0..debug.len()).step_by(37) {
        debug_symbols(&debug[..end], &object);
    }
}
