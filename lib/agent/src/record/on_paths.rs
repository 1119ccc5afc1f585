//! What is learnt of descriptors where only calls on some paths are asked for (`-P`).
//!
//! Given calls of the kernel that have returned; says of descriptors that were opened, or copied,
//! whether they may lead to such a path ([`crate::memory::descriptors`]). The reader of the records
//! decides in the end, and follows links and folders; what is left out here is what it would leave
//! out. So a descriptor that is opened counts as one that does not lead there only if the kernel
//! names another file, and the text that it was opened by ends in another name, too: what the
//! kernel says may be another name of the same file, as in a container.
//!
//! Asking the kernel takes a system call that a filter may forbid. So it is asked only in a process
//! without one, as the host says. Must not know records.

use crate::memory::descriptors;
use crate::memory::thread::Hot;
use crate::memory::{sandbox, sys};
use crate::record::capture;
use crate::record::question::question;
use core::sync::atomic::{AtomicU32, Ordering};
use sptrace_wire::control::ASK_UNFILTERED;

const OPEN: u32 = 2;
const DUP: u32 = 32;
const DUP2: u32 = 33;
const FCNTL: u32 = 72;
const CREAT: u32 = 85;
const PRCTL: u32 = 157;
const OPENAT: u32 = 257;
const DUP3: u32 = 292;
const SECCOMP: u32 = 317;
const OPENAT2: u32 = 437;
const F_DUPFD: u64 = 0;
const F_DUPFD_CLOEXEC: u64 = 1030;

const PAGE_BYTES: u64 = 4096;
/// The longest path, with its zero (PATH_MAX).
const PATH_BYTES: usize = 4096;

/// May the kernel be asked here?
static MAY_ASK: AtomicU32 = AtomicU32::new(UNKNOWN);
/// So many threads are asking it.
static ASKING: AtomicU32 = AtomicU32::new(0);
/// Whoever installs a filter waits so long for them: a child may have the number of a parent whose
/// threads it has not.
const PATIENCE: u32 = 1 << 20;
const UNKNOWN: u32 = 0;
const YES: u32 = 1;
const NO: u32 = 2;

/// True if something is learnt by this call, or forgotten.
pub fn learns_by(number: u32) -> bool {
    const ALL: [u32; 10] = [
        OPEN, CREAT, OPENAT, OPENAT2, DUP, DUP2, DUP3, FCNTL, SECCOMP, PRCTL,
    ];
    ALL.contains(&number) && capture::paths().is_some()
}

/// The call is about to be made: the kernel is asked nothing behind a filter.
pub fn before(number: u32, args: &[u64; 6]) {
    const SET_SECCOMP: u64 = 22;
    let [first, ..] = *args;
    if (number == SECCOMP || number == PRCTL && first == SET_SECCOMP) && learns_by(number) {
        give_up();
    }
}

/// A task begins that shares this memory, as these flags of clone(2) say: if it does not share the
/// descriptors, what is known of them would be of two processes.
pub fn memory_is_shared(flags: u64) {
    const CLONE_FILES: u64 = 0x400;
    if flags & CLONE_FILES == 0 {
        give_up();
    }
}

/// Nothing is known of descriptors from here on.
fn give_up() {
    MAY_ASK.store(NO, Ordering::SeqCst);
    for _ in 0..PATIENCE {
        if ASKING.load(Ordering::SeqCst) == 0 {
            break;
        }
        core::hint::spin_loop();
    }
    ASKING.store(0, Ordering::SeqCst);
    descriptors::forget();
}

/// The call has returned. `is_owner`: not in a child of vfork, which has descriptors of its own,
/// but its parent's memory.
pub fn learn(hot: &Hot, number: u32, args: &[u64; 6], result: i64, is_owner: bool) {
    let Some(fd) = u32::try_from(result).ok().filter(|_| learns_by(number)) else {
        return;
    };
    let [first, second, ..] = *args;
    let may_lead = match number {
        OPEN | CREAT => opened_may_lead(hot, fd, first),
        OPENAT | OPENAT2 => opened_may_lead(hot, fd, second),
        DUP | DUP2 | DUP3 => descriptors::may_lead(first as u32),
        FCNTL if matches!(second, F_DUPFD | F_DUPFD_CLOEXEC) => descriptors::may_lead(first as u32),
        _ => return,
    };
    if MAY_ASK.load(Ordering::Relaxed) == YES && (is_owner || may_lead) {
        descriptors::set(fd, may_lead);
    }
}

/// True if the kernel may be asked what a descriptor leads to.
fn may_ask() -> bool {
    if MAY_ASK.load(Ordering::Relaxed) == UNKNOWN {
        let is_free = question(ASK_UNFILTERED, 0).is_some_and(|[is_free, ..]| is_free != 0);
        let found = if is_free { YES } else { NO };
        // Unless it was given up meanwhile.
        let _ = MAY_ASK.compare_exchange(UNKNOWN, found, Ordering::Relaxed, Ordering::Relaxed);
    }
    MAY_ASK.load(Ordering::Relaxed) == YES && !sandbox::is_sandboxed()
}

/// `text`: where the path lies that it was opened by.
fn opened_may_lead(hot: &Hot, fd: u32, text: u64) -> bool {
    if !may_ask() {
        return true;
    }
    // SAFETY: what a record takes is read behind this.
    let Some(buffer) = (unsafe { hot.pieces() }) else {
        return true;
    };
    let (link, rest) = buffer.split_at_mut(PATH_BYTES.min(buffer.len()));
    ASKING.fetch_add(1, Ordering::SeqCst);
    let link = match MAY_ASK.load(Ordering::SeqCst) {
        YES => sys::descriptor_path(fd, link),
        _ => None,
    };
    let _ = ASKING.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |asking| {
        asking.checked_sub(1)
    });
    let text = text_at(text, rest);
    let (Some(link), Some(text), Some(mut paths)) = (link, text, capture::paths()) else {
        return true;
    };
    paths.any(|path| may_be(path, link, text))
}

/// True if the file that the kernel names so, opened by this text, may be the one with this path.
fn may_be(path: &[u8], link: &[u8], text: &[u8]) -> bool {
    let last = |path: &[u8]| path.rsplit(|byte| *byte == b'/').next().map(<[u8]>::len);
    let name = |path| last(path).and_then(|length| path.get(path.len() - length..));
    let is_plain = name(text).is_some_and(|name| !matches!(name, b"" | b"." | b".."));
    let is_gone = link.ends_with(b" (deleted)");
    path == link || is_gone || !is_plain || name(path) == name(text)
}

/// The string at `at`, without its zero. `None`: it is longer than a path, or cannot be read.
fn text_at(at: u64, to: &mut [u8]) -> Option<&[u8]> {
    let mut read = 0;
    while read < PATH_BYTES {
        let from = at.wrapping_add(read as u64);
        let in_page = (PAGE_BYTES - from % PAGE_BYTES) as usize;
        let place = to.get_mut(read..read + in_page.min(256))?;
        let got = sys::read_into(from, place);
        if let Some(end) = place.get(..got)?.iter().position(|byte| *byte == 0) {
            return to.get(..read + end);
        }
        if got < place.len() {
            return None;
        }
        read += got;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    #[test]
    fn a_file_of_another_name_by_both_is_another() {
        let path = b"/srv/data";
        assert!(!may_be(path, b"/srv/other", b"other"));
        assert!(!may_be(path, b"/srv/data2", b"/srv/data2"));
        assert!(may_be(path, b"/srv/data", b"link"));
        // In another root, or by a link that is asked for.
        assert!(may_be(path, b"/inner/srv/real", b"/srv/data"));
        assert!(may_be(path, b"/srv/other (deleted)", b"other"));
        for text in [&b""[..], b".", b"a/..", b"a/"] {
            assert!(may_be(path, b"/srv/other", text), "{text:?}");
        }
    }

    #[test]
    fn a_text_is_read_to_its_end() {
        let mut to = vec![0; 2 * PATH_BYTES];
        let long = vec![b'x'; 300];
        let text = [&long[..], &[0]].concat();
        let at = text.as_ptr() as u64;
        assert_eq!(text_at(at, &mut to), Some(&long[..]));
        assert_eq!(text_at(8, &mut to), None);
        let endless = vec![b'x'; 2 * PATH_BYTES];
        assert_eq!(text_at(endless.as_ptr() as u64, &mut to), None);
    }
}
