//! What a process may be asked to do with its mappings so that they stay few.
//!
//! Given its maps, as the agent asks before it patches (`ASK_TEXT`, `ASK_SPLITS` in
//! [`sptrace_wire::control`]); gives extents and numbers.
//! Must not know why the agent asks now.

use sptrace_tracee::maps::Mapping;

const SPLITS_AT_ONCE: u64 = 512;

/// First and last address of the mapping of a file's code that ends after `address`, if it can be made
/// writable for a moment as a whole. That charges all of its pages: with vm.overcommit_memory 2 these would
/// be missing elsewhere, and the kernel copies pages that are locked at once.
pub fn text(maps: &[Mapping], pid: u32, address: u64) -> Option<(u64, u64)> {
    let is_text = |m: &&Mapping| {
        m.access == [true, false, true] && !m.is_shared && m.file.1 != 0 && m.end > address
    };
    let m = maps.iter().find(is_text)?;
    let is_free = !is_counted_strictly() && !has_locked_memory(pid);
    is_free.then_some((m.start, m.end))
}

/// How many mappings patching may add before it asks again. The program may map more in the meantime, so
/// these are few; and the last quarter of what the kernel allows is the program's.
pub fn splits(maps: &[Mapping]) -> u64 {
    let most = number("/proc/sys/vm/max_map_count").unwrap_or(0);
    splits_of(maps.len() as u64, most)
}

fn splits_of(there: u64, most: u64) -> u64 {
    let left = most.saturating_sub(there);
    match left < most / 4 {
        true => 0,
        false => (left / 2).min(SPLITS_AT_ONCE),
    }
}

fn is_counted_strictly() -> bool {
    number("/proc/sys/vm/overcommit_memory").is_none_or(|mode| mode == 2)
}

fn has_locked_memory(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let locked = status.lines().find_map(|l| l.strip_prefix("VmLck:"));
    locked.is_none_or(|kib| kib.trim() != "0 kB")
}

fn number(path: &str) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, access: [bool; 3], inode: u64) -> Mapping {
        Mapping {
            start,
            end: start + 0x1000,
            access,
            is_shared: false,
            offset: 0,
            file: (String::new(), inode),
            path: String::new(),
        }
    }

    #[test]
    fn the_last_quarter_is_the_programs() {
        assert_eq!(splits_of(64_000, 65_530), 0);
        assert_eq!(splits_of(70_000, 65_530), 0);
        assert_eq!(splits_of(40_000, 65_530), SPLITS_AT_ONCE);
        assert_eq!(splits_of(500, 1_000), 250);
        assert_eq!(splits_of(100, 0), 0);
    }

    #[test]
    fn only_code_of_files_is_named() {
        let maps = [
            mapping(0x1000, [true, false, false], 7),
            mapping(0x2000, [true, true, true], 7),
            mapping(0x3000, [true, false, true], 0),
            mapping(0x4000, [true, false, true], 7),
        ];
        let pid = std::process::id();
        let named = text(&maps, pid, 0x1000);
        assert!(named.is_none() || named == Some((0x4000, 0x5000)));
        assert_eq!(text(&maps, pid, 0x5000), None);
    }
}
