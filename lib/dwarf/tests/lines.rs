//! Lines of a small program, held against its source, and of what is left of it when it is damaged.

use std::path::PathBuf;
use std::process::Command;

use sptrace_addr::Svma;
use sptrace_dwarf::{Lines, Prototypes};
use sptrace_image::Object;

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const SOURCE: &str = "__attribute__((noinline)) int leaf(int n) {
    return n * 3;
}
static inline __attribute__((always_inline)) int helper(int n) {
    return leaf(n) + 1;
}
__attribute__((noinline)) int user(int n) {
    return helper(n) * 2;
}
int main(int argc, char **argv) {
    (void)argv;
    return user(argc);
}
";

fn built(name: &str, flags: &[&str]) -> Vec<u8> {
    let name = format!("sptrace-lines-{name}-{}", std::process::id());
    let folder = Folder(std::env::temp_dir().join(name));
    std::fs::create_dir_all(&folder.0).unwrap();
    std::fs::write(folder.0.join("a.c"), SOURCE).unwrap();
    let status = Command::new("cc")
        .args(["-g", "-O2", "-o", "a", "a.c"])
        .args(flags)
        .current_dir(&folder.0)
        .status();
    assert!(status.unwrap().success());
    if flags.contains(&"-gz=none") {
        // What GCC does not offer, binutils do.
        let status = Command::new("objcopy")
            .args(["--compress-debug-sections=zstd", "a"])
            .current_dir(&folder.0)
            .status();
        assert!(status.unwrap().success());
    }
    std::fs::read(folder.0.join("a")).unwrap()
}

fn address(file: &[u8], name: &str) -> Svma {
    let object = Object::parse(file).unwrap();
    object.symbols.iter().find(|s| s.name == name).unwrap().svma
}

#[test]
fn functions_and_inlined_calls_have_their_lines() {
    for flags in [
        &["-gdwarf-5"][..],
        &["-gdwarf-4"],
        &["-gdwarf-5", "-gz=zlib"],
        &["-gdwarf-5", "-gz=none"],
    ] {
        let file = built("whole", flags);
        let lines = Lines::new(&file, None).unwrap();
        let leaf = lines.begin(address(&file, "leaf")).unwrap();
        assert!(
            leaf.file.ends_with("/a.c") && (1..=2).contains(&leaf.line),
            "{leaf:?}"
        );
        let user = address(&file, "user");
        assert!((7..=8).contains(&lines.begin(user).unwrap().line));
        // Somewhere in it stands the call that was written in helper.
        let inlined = (0..32)
            .map(|n| lines.frames(Svma(user.0 + n)))
            .find(|frames| frames.len() == 2)
            .unwrap();
        let names: Vec<_> = inlined.iter().map(|f| f.function.as_deref()).collect();
        assert_eq!(names, [Some("helper"), Some("user")]);
        let at: Vec<_> = inlined
            .iter()
            .map(|f| f.at.as_ref().unwrap().line)
            .collect();
        assert_eq!(at, [5, 8]);
        for nowhere in [Svma(1), Svma(u64::MAX)] {
            assert!(lines.frames(nowhere).is_empty() && lines.at(nowhere).is_none());
        }
    }
    assert!(Lines::new(b"no file", None).is_none());
}

#[test]
fn damaged_debug_information_gives_less_and_no_panic() {
    let file = built("damaged", &["-gdwarf-5"]);
    let (leaf, user) = (address(&file, "leaf"), address(&file, "user"));
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let sections = sptrace_image::debug_sections(&file);
    let ranges: Vec<(usize, usize)> = sections
        .iter()
        .map(|s| {
            let start = s.bytes.as_ptr() as usize - file.as_ptr() as usize;
            (start, s.bytes.len())
        })
        .collect();
    drop(sections);
    for _ in 0..1500 {
        let mut bytes = file.clone();
        for _ in 0..=random() % 4 {
            let (start, length) = ranges[random() as usize % ranges.len()];
            bytes[start + random() as usize % length] = random() as u8;
        }
        if let Some(lines) = Lines::new(&bytes, Some(&bytes)) {
            lines.begin(leaf);
            lines.frames(user);
        }
        let prototypes = Prototypes::new(Some(bytes.clone())).with_supplement(Some(bytes));
        prototypes.of(leaf);
    }
}
