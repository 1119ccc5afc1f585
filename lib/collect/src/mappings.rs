//! What a process may be asked to do with its mappings so that they stay few.
//!
//! Given its maps, as the agent asks before it patches ([`sptrace_wire::control::ASK_TEXT`]); gives extents.
//! Must not know why the agent asks now.

use sptrace_tracee::maps::Mapping;

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
