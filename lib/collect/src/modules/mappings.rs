//! What a process may be asked to do with its mappings so that they stay few.
//!
//! Given its code, as the agent asks before it patches ([`sptrace_wire::control::ASK_TEXT`]); gives
//! extents. Must not know why the agent asks now.

use sptrace_tracee::maps::Mapping;
use sptrace_tracee::proc::Status;

/// First and last address of the mapping of a file's code that ends after `address`, and of those
/// that continue it, if they can be made writable for a moment as a whole. That charges all of
/// their pages: with vm.overcommit_memory 2 these would be missing elsewhere, and the kernel copies
/// pages that are locked at once. `code_around` gives the first mapping of a file's code that ends
/// after an address.
pub fn text(
    code_around: &dyn Fn(u64) -> Option<Mapping>,
    pid: u32,
    address: u64,
) -> Option<(u64, u64)> {
    let is_text = |m: &Mapping| m.access == [true, false, true] && !m.is_shared;
    let mut first = code_around(address)?;
    while !is_text(&first) {
        first = code_around(first.end)?;
    }
    let mut end = first.end;
    while let Some(m) = code_around(end) {
        let follows = m.start == end && m.offset == first.offset + (end - first.start);
        if !follows || m.file != first.file || !is_text(&m) {
            break;
        }
        end = m.end;
    }
    let is_free = !is_counted_strictly() && !has_locked_memory(pid);
    is_free.then_some((first.start, end))
}

fn is_counted_strictly() -> bool {
    number("/proc/sys/vm/overcommit_memory").is_none_or(|mode| mode == 2)
}

fn has_locked_memory(pid: u32) -> bool {
    let locked = Status::of(pid).ok().and_then(|status| status.locked_kib());
    locked != Some(0)
}

fn number(path: &str) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(start: u64, is_writable: bool, inode: u64) -> Mapping {
        Mapping {
            start,
            end: start + 0x1000,
            access: [true, is_writable, true],
            is_shared: false,
            offset: start,
            file: (String::new(), inode),
            path: String::new(),
        }
    }

    #[test]
    fn text_that_was_patched_in_parts_is_named_as_one() {
        let maps = [
            code(0x1000, true, 7),
            code(0x2000, false, 7),
            code(0x3000, false, 7),
            code(0x4000, false, 8),
            code(0x6000, false, 8),
        ];
        let code_around = |at| maps.iter().find(|m| m.end > at).cloned();
        let named = |at| text(&code_around, std::process::id(), at);
        if is_counted_strictly() || has_locked_memory(std::process::id()) {
            assert_eq!(named(0x1000), None);
            return;
        }
        assert_eq!(named(0x1000), Some((0x2000, 0x4000)));
        assert_eq!(named(0x3000), Some((0x3000, 0x4000)));
        assert_eq!(
            named(0x4000),
            Some((0x4000, 0x5000)),
            "another file, and a gap"
        );
        assert_eq!(named(0x7000), None);
    }
}
