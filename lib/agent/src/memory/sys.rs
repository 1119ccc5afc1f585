//! The system calls that the agent makes, directly: the program's libc is never entered.
//!
//! Numbers and argument order: Linux x86-64 ABI (syscalls(2)). Results below zero are `-errno`.

use core::arch::asm;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use sptrace_wire::{OWN_AVMA, OWN_CALL};

/// One system call of the agent's own, which is marked as such where it takes five arguments or
/// fewer.
///
/// # Safety
/// The arguments must be valid for that call.
#[inline]
unsafe fn call(n: usize, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    let f = match n {
        MMAP | PROCESS_VM_READV => f,
        _ => OWN_CALL as usize,
    };
    // SAFETY: the caller's.
    unsafe { call_as_is(n, [a, b, c, d, e, f]) }
}

/// One system call, with these arguments: the program's, made for it.
///
/// # Safety
/// The arguments must be valid for that call.
#[inline]
pub unsafe fn call_as_is(n: usize, a: [usize; 6]) -> isize {
    let r: isize;
    // SAFETY: the kernel clobbers rcx and r11 only; memory effects are the caller's duty.
    unsafe {
        asm!("syscall", inlateout("rax") n as isize => r, in("rdi") a[0], in("rsi") a[1],
            in("rdx") a[2], in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    r
}

/// A call that harms no memory of anybody's, whatever else it is given by the functions here: it
/// reads nothing but numbers, or makes a mapping where there is none.
fn ask(n: usize, a: [usize; 6]) -> isize {
    // SAFETY: see above.
    unsafe { call(n, a) }
}

const MMAP: usize = 9;
const MPROTECT: usize = 10;
const MUNMAP: usize = 11;
const SIGACTION: usize = 13;
const SIGPROCMASK: usize = 14;
const MREMAP: usize = 25;
const MADVISE: usize = 28;
const OPEN: usize = 2;
const CLOSE: usize = 3;
const PWRITE: usize = 18;
const IOCTL: usize = 16;
const USERFAULTFD: usize = 323;
const GETPPID: usize = 110;
const GETPID: usize = 39;
const GETTID: usize = 186;
const TKILL: usize = 200;
const FUTEX: usize = 202;
const SIGALTSTACK: usize = 131;
const PRCTL: usize = 157;
const FSTATFS: usize = 138;
const READLINK: usize = 89;
const UNSHARE: usize = 272;
const PROCESS_VM_READV: usize = 310;
const ESRCH: isize = 3;
/// `PROT_*` values (mman.h).
pub const PROT_NONE: usize = 0;
/// Readable and writable.
pub const PROT_RW: usize = 3;
/// Readable and executable.
pub const PROT_RX: usize = 5;
const MAP_SHARED_ANON: usize = 0x21;
const MAP_PRIVATE_ANON_NORESERVE: usize = 0x4022;
const MAP_FIXED_NOREPLACE: usize = 0x10_0000;
const PAGE_BYTES: usize = 4096;

/// True if a system call's result is an error.
pub fn failed(r: isize) -> bool {
    (-4095..0).contains(&r)
}

/// Where the agent's next mapping shall lie; see [`map`].
static NEXT_AT: AtomicUsize = AtomicUsize::new(OWN_AVMA as usize);

/// New zeroed memory, or null. It lies where no program puts anything, and never where something
/// was before: a program may have unmapped a place only to map it again a moment later
/// (MAP_FIXED), and would take from us what the kernel would have given us there in between.
fn map(bytes: usize, flags: usize) -> *mut u8 {
    let at = NEXT_AT.fetch_add(bytes.next_multiple_of(PAGE_BYTES), Ordering::Relaxed);
    // If something is there, the kernel picks another address.
    let r = ask(MMAP, [at, bytes, PROT_RW, flags, usize::MAX, 0]);
    if failed(r) {
        core::ptr::null_mut()
    } else {
        r as *mut u8
    }
}

/// New private zeroed memory, or null.
pub fn map_private(bytes: usize) -> *mut u8 {
    map(bytes, MAP_PRIVATE_ANON_NORESERVE)
}

/// New shared zeroed memory, or null.
pub fn map_shared(bytes: usize) -> *mut u8 {
    map(bytes, MAP_SHARED_ANON)
}

/// Reserves exactly `[at, at + bytes)` without access; false if something is there.
pub fn reserve_exactly(at: usize, bytes: usize) -> bool {
    // NOREPLACE never touches an existing mapping.
    let flags = MAP_PRIVATE_ANON_NORESERVE | MAP_FIXED_NOREPLACE;
    let r = ask(MMAP, [at, bytes, PROT_NONE, flags, usize::MAX, 0]);
    if !failed(r) && r as usize != at {
        // A kernel before 4.17 takes the address as a hint.
        // SAFETY: unmaps what was just mapped.
        unsafe { unmap(r as usize, bytes) };
        return false;
    }
    !failed(r)
}

/// Maps the pages of the shared mapping at `from` a second time at `to` (mremap(2): old size 0),
/// over whatever is there.
///
/// # Safety
/// The caller owns `to`.
pub unsafe fn duplicate_shared(from: usize, bytes: usize, to: usize) -> bool {
    // SAFETY: the caller's.
    let r = unsafe { call(MREMAP, [from, 0, bytes, 3, to, 0]) };
    r as usize == to
}

/// The same anywhere; 0 on error.
pub fn duplicate_shared_anywhere(from: usize, bytes: usize) -> usize {
    let place = map_private(bytes) as usize;
    // SAFETY: it was mapped just now, or nothing was.
    let is_there = place != 0 && unsafe { duplicate_shared(from, bytes, place) };
    if !is_there && place != 0 {
        // SAFETY: nobody knows of it.
        unsafe { unmap(place, bytes) };
    }
    if is_there { place } else { 0 }
}

/// Moves a mapping over another, which it replaces at once (mremap(2), MREMAP_FIXED).
///
/// # Safety
/// The caller owns both.
pub unsafe fn move_over(from: usize, bytes: usize, to: usize) -> bool {
    // SAFETY: the caller's.
    unsafe { call(MREMAP, [from, bytes, bytes, 3, to, 0]) as usize == to }
}

/// mprotect(2); false on error.
///
/// # Safety
/// The caller owns the range, or nobody touches it until it is as before.
pub unsafe fn protect(at: usize, bytes: usize, prot: usize) -> bool {
    // SAFETY: the caller's.
    unsafe { call(MPROTECT, [at, bytes, prot, 0, 0, 0]) == 0 }
}

/// munmap(2).
///
/// # Safety
/// The caller owns the range, and nobody needs it.
pub unsafe fn unmap(at: usize, bytes: usize) {
    // SAFETY: the caller owns the range.
    unsafe { call(MUNMAP, [at, bytes, 0, 0, 0, 0]) };
}

/// A userfaultfd(2) that is told of the first touch of each page of a private mapping, which must
/// be unused; `None` where the kernel or the process does not permit it (memory that is locked is
/// never missing).
///
/// # Safety
/// The caller owns the range, and nothing is in it.
pub unsafe fn watch_faults(at: usize, bytes: usize) -> Option<usize> {
    /// O_CLOEXEC, O_NONBLOCK, UFFD_USER_MODE_ONLY.
    const FLAGS: usize = 0o2_000_000 | 0o4000 | 1;
    const MADV_DONTNEED: usize = 4;
    const UFFDIO_API: usize = 0xc018_aa3f;
    const UFFDIO_REGISTER: usize = 0xc020_aa00;
    // The version of the interface; UFFDIO_REGISTER_MODE_MISSING (linux/userfaultfd.h).
    let api = [0xaau64, 0, 0];
    let register = [at as u64, bytes as u64, 1, 0];
    // SAFETY: the caller owns the range; the structures are as the kernel's header says.
    unsafe {
        if call(MADVISE, [at, bytes, MADV_DONTNEED, 0, 0, 0]) != 0 {
            return None;
        }
        let fd = call(USERFAULTFD, [FLAGS, 0, 0, 0, 0, 0]);
        if failed(fd) {
            return None;
        }
        let fd = fd as usize;
        let ask = |request: usize, of: *const u64| call(IOCTL, [fd, request, of as usize, 0, 0, 0]);
        if ask(UFFDIO_API, api.as_ptr()) != 0 || ask(UFFDIO_REGISTER, register.as_ptr()) != 0 {
            close(fd);
            return None;
        }
        Some(fd)
    }
}

/// close(2), of a descriptor of the caller's own.
pub fn close(fd: usize) {
    ask(CLOSE, [fd, 0, 0, 0, 0, 0]);
}

/// A descriptor of the process's own memory (proc_pid_mem(5)), closed by an exec. `None`: there is
/// none, or what has its name is something else.
pub fn open_own_memory() -> Option<usize> {
    /// O_RDWR, O_CLOEXEC.
    const FLAGS: usize = 0o2 | 0o2_000_000;
    /// PROC_SUPER_MAGIC (linux/magic.h).
    const PROC: u64 = 0x9fa0;
    let fd = ask(
        OPEN,
        [c"/proc/self/mem".as_ptr() as usize, FLAGS, 0, 0, 0, 0],
    );
    if failed(fd) {
        return None;
    }
    let fd = fd as usize;
    // The kernel's struct statfs has 120 bytes, and begins with the kind of file system.
    let mut found = [0u64; 15];
    // SAFETY: points to that many.
    let r = unsafe { call(FSTATFS, [fd, found.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    let [kind, ..] = found;
    if r != 0 || kind != PROC {
        close(fd);
        return None;
    }
    Some(fd)
}

/// What a descriptor leads to, as proc_pid_fd(5) names it. `None`: it does not, or that is too
/// long. A filter may forbid it: it is not for a process with one.
pub fn descriptor_path(fd: u32, to: &mut [u8]) -> Option<&[u8]> {
    const FOLDER: &[u8] = b"/proc/self/fd/";
    const DIGITS: usize = 10;
    let mut name = [0u8; FOLDER.len() + DIGITS + 1];
    let (folder, number) = name.split_at_mut(FOLDER.len());
    folder.copy_from_slice(FOLDER);
    let digits = fd.checked_ilog10().unwrap_or(0) as usize + 1;
    let mut rest = fd;
    for digit in number.iter_mut().take(digits).rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let path = [name.as_ptr() as usize, to.as_mut_ptr() as usize, to.len()];
    let [name, first, bytes] = path;
    // SAFETY: a string with its zero, and room for so many bytes.
    let r = unsafe { call(READLINK, [name, first, bytes, 0, 0, 0]) };
    let length = usize::try_from(r).ok().filter(|length| *length < bytes)?;
    to.get(..length)
}

/// Writes to the process's own memory, whose descriptor is given, whatever protects it there; gives
/// how many bytes were written.
///
/// # Safety
/// The caller owns what is written, as if the memory were writable.
pub unsafe fn write_own(fd: usize, at: u64, bytes: &[u8]) -> usize {
    let (from, at) = (bytes.as_ptr() as usize, at as usize);
    // SAFETY: the caller's.
    let r = unsafe { call(PWRITE, [fd, from, bytes.len(), at, 0, 0]) };
    if failed(r) { 0 } else { r as usize }
}

/// MADV_WIPEONFORK: the child of a fork sees zeroes. False where refused.
///
/// # Safety
/// The caller owns the range, and the child may find it so.
pub unsafe fn wipe_on_fork(at: usize, bytes: usize) -> bool {
    // SAFETY: the caller's.
    unsafe { call(MADVISE, [at, bytes, 18, 0, 0, 0]) == 0 }
}

/// Gives the memory behind private pages back: they are zero from here on (MADV_DONTNEED).
///
/// # Safety
/// The caller owns the range and needs nothing of it.
pub unsafe fn discard(at: usize, bytes: usize) {
    // SAFETY: the caller's.
    unsafe { call(MADVISE, [at, bytes, 4, 0, 0, 0]) };
}

/// Maps the pages of a range of shared memory at once, as reading each would (MADV_POPULATE_READ,
/// Linux 5.14): those that are there already sixteen by one fault, and no write faults afterwards.
/// An older kernel does nothing.
pub fn populate(at: usize, bytes: usize) {
    // SAFETY: nothing of the memory changes.
    unsafe { call(MADVISE, [at, bytes, 22, 0, 0, 0]) };
}

/// Says whether the child of a fork inherits a range (MADV_DOFORK, MADV_DONTFORK).
pub fn inherit(at: usize, bytes: usize, shall: bool) {
    let advice = if shall { 11 } else { 10 };
    ask(MADVISE, [at, bytes, advice, 0, 0, 0]);
}

/// Blocks all signals; returns the mask before.
pub fn block_signals() -> u64 {
    let all = u64::MAX;
    let mut old = 0u64;
    // SAFETY: both point to eight bytes.
    unsafe {
        call(
            SIGPROCMASK,
            [2, &raw const all as usize, &raw mut old as usize, 8, 0, 0],
        )
    };
    old
}

/// Low and high end of the thread's alternate signal stack, if it has one (sigaltstack(2)).
pub fn alternate_stack() -> Option<(u64, u64)> {
    // ss_sp, ss_flags, ss_size
    let mut now = [0u64; 3];
    // SAFETY: the kernel's stack_t has 24 bytes.
    let r = unsafe { call(SIGALTSTACK, [0, now.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    let [low, flags, bytes] = now;
    (r == 0 && flags & 2 == 0 && bytes != 0).then_some((low, low.wrapping_add(bytes)))
}

/// The signal mask.
pub fn signal_mask() -> u64 {
    let mut mask = 0u64;
    // SAFETY: points to eight bytes.
    unsafe { call(SIGPROCMASK, [0, 0, &raw mut mask as usize, 8, 0, 0]) };
    mask
}

/// Sets the signal mask.
pub fn restore_signals(mask: u64) {
    // The kernel reads eight bytes.
    ask(SIGPROCMASK, [2, &raw const mask as usize, 0, 8, 0, 0]);
}

/// What the kernel does about a signal.
pub struct Handler {
    /// The handler, or SIG_DFL or SIG_IGN.
    pub address: u64,
    /// SA_ and more.
    pub flags: u64,
    /// Where it returns to.
    pub restorer: u64,
}

/// What the kernel does about a signal (rt_sigaction(2)).
pub fn handler(signal: usize) -> Option<Handler> {
    let mut now = [0u64; 4];
    // SAFETY: the kernel's struct has 32 bytes.
    let r = unsafe { call(SIGACTION, [signal, 0, now.as_mut_ptr() as usize, 8, 0, 0]) };
    let [address, flags, restorer, _mask] = now;
    (r == 0).then_some(Handler {
        address,
        flags,
        restorer,
    })
}

/// The restorer of the handler of `signal`, if there is one (SA_RESTORER), and whether the signal
/// is blocked while it runs (no SA_NODEFER).
pub fn restorer(signal: usize) -> Option<(u64, bool)> {
    let now = handler(signal)?;
    let there = now.address > 1 && now.flags & 0x0400_0000 != 0 && now.restorer != 0;
    there.then_some((now.restorer, now.flags & 0x4000_0000 == 0))
}

/// True if text that was writable can be executable again: the program, or one before it, may have
/// asked for the opposite (PR_SET_MDWE, Linux 6.3; PR_MDWE_REFUSE_EXEC_GAIN).
pub fn may_write_text() -> bool {
    const GET_MDWE: usize = 66;
    let r = ask(PRCTL, [GET_MDWE, 0, 0, 0, 0, 0]);
    failed(r) || r & 1 == 0
}

/// Process id.
pub fn pid() -> u32 {
    ask(GETPID, [0; 6]) as u32
}

/// Process id of the parent, 0 if it is in an outer pid namespace.
pub fn parent_pid() -> u32 {
    ask(GETPPID, [0; 6]) as u32
}

/// Thread id.
pub fn tid() -> u32 {
    ask(GETTID, [0; 6]) as u32
}

/// True if this thread is the only user of its memory: unshare(CLONE_VM) does nothing then, and is
/// refused otherwise (kernel/fork.c, `check_unshare_flags`).
pub fn alone() -> bool {
    ask(UNSHARE, [0x100, 0, 0, 0, 0, 0]) == 0
}

/// Waits at most `timeout_ms` while `word` is `expected`: FUTEX_WAIT, across processes.
pub fn futex_wait(word: &AtomicU32, expected: u32, timeout_ms: u64) {
    let timeout = [timeout_ms / 1000, timeout_ms % 1000 * 1_000_000];
    let (word, timeout) = (word.as_ptr() as usize, timeout.as_ptr() as usize);
    ask(FUTEX, [word, 0, expected as usize, timeout, 0, 0]);
}

/// Waits so many nanoseconds, whatever is sent to the thread.
pub fn wait_ns(ns: u64) {
    const SECOND_NS: u64 = 1_000_000_000;
    let nobody = AtomicU32::new(0);
    let timeout = [ns / SECOND_NS, ns % SECOND_NS];
    let (word, timeout) = (nobody.as_ptr() as usize, timeout.as_ptr() as usize);
    ask(FUTEX, [word, 0, 0, timeout, 0, 0]);
}

/// Sends a signal to this thread. Not in a sandbox, whose filter is not asked about it.
pub fn raise(signal: u32) {
    ask(TKILL, [tid() as usize, signal as usize, 0, 0, 0, 0]);
}

/// Wakes `count` waiters.
pub fn futex_wake(word: &AtomicU32, count: u32) {
    ask(FUTEX, [word.as_ptr() as usize, 1, count as usize, 0, 0, 0]);
}

/// False if no task has this number any more.
pub fn is_alive(tid: u32) -> bool {
    // Signal 0 is none.
    ask(TKILL, [tid as usize, 0, 0, 0, 0, 0]) != -ESRCH
}

/// Copies own memory without faulting; gives how many bytes could be copied.
pub fn read_into(from: u64, to: &mut [u8]) -> usize {
    // SAFETY: `to` has room.
    unsafe { read_to(from, to.as_mut_ptr(), to.len()) }
}

/// As `read_into`, words; gives how many bytes.
pub fn read_words(from: u64, to: &mut [u64]) -> usize {
    // SAFETY: `to` has room, and any bytes are words.
    unsafe { read_to(from, to.as_mut_ptr().cast(), size_of_val(to)) }
}

/// The bytes at `at`, if they can be read.
pub fn read<const N: usize>(at: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    (read_into(at, &mut bytes) == N).then_some(bytes)
}

/// As `read_into`.
///
/// # Safety
/// `to` has room.
unsafe fn read_to(from: u64, to: *mut u8, bytes: usize) -> usize {
    let local = [to as usize, bytes];
    let remote = [from as usize, bytes];
    let (to, from) = (local.as_ptr() as usize, remote.as_ptr() as usize);
    // SAFETY: `to` has room, as the caller says; a bad `from` gives an error, no fault.
    let r = unsafe { call(PROCESS_VM_READV, [pid() as usize, to, 1, from, 1, 0]) };
    if failed(r) { 0 } else { r as usize }
}

/// True if the kernel can read what `at` points to. `None`: it does not say. It is given as a set
/// of signals, with no valid wish what to do with it (kernel/signal.c, `sigprocmask`).
pub fn is_readable(at: u64) -> Option<bool> {
    const NOTHING: usize = usize::MAX;
    const SET_BYTES: usize = 8;
    const EFAULT: isize = -14;
    const EINVAL: isize = -22;
    // All eight bytes lie in one page.
    let set = (at & !7) as usize;
    // The kernel does nothing but read.
    match ask(SIGPROCMASK, [NOTHING, set, 0, SET_BYTES, 0, 0]) {
        EINVAL => Some(true),
        EFAULT => Some(false),
        _ => None,
    }
}

/// The word at `at`, if it can be read.
pub fn read_word(at: u64) -> Option<u64> {
    read(at).map(u64::from_le_bytes)
}

/// The time stamp counter.
#[inline]
pub fn tsc() -> u64 {
    // SAFETY: available unless the program forbade it, which is noticed before.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The fs base: identifies the thread.
#[inline]
pub fn fs_base() -> u64 {
    let r: u64;
    // SAFETY: FSGSBASE was checked at injection.
    unsafe { asm!("rdfsbase {}", out(reg) r, options(nomem, nostack, preserves_flags)) };
    r
}

/// The gs base: this thread's block, or that of the thread which created it.
#[inline]
pub fn gs_base() -> u64 {
    let r: u64;
    // SAFETY: as above.
    unsafe { asm!("rdgsbase {}", out(reg) r, options(nomem, nostack, preserves_flags)) };
    r
}

/// Sets the gs base.
///
/// # Safety
/// The program does not use gs.
#[inline]
pub unsafe fn set_gs_base(to: u64) {
    // SAFETY: the caller's.
    unsafe { asm!("wrgsbase {}", in(reg) to, options(nomem, nostack, preserves_flags)) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_the_last_page_of_numbers() {
        assert!(failed(-1) && failed(-4095));
        assert!(!failed(-4096) && !failed(0) && !failed(isize::MAX));
    }

    #[test]
    fn own_memory_is_read_only_where_it_is() {
        let word = 0x1234_5678_9abc_def0u64;
        assert_eq!(read_word(&raw const word as u64), Some(word));
        assert_eq!(read_word(0), None);
        assert_eq!(read_word(u64::MAX - 7), None);
    }

    #[test]
    fn a_place_that_is_taken_is_not_reserved_again() {
        // Far from where the kernel puts anything by itself.
        let at = 0x1234_5678_9000;
        // SAFETY: a place that nobody else knows.
        unsafe {
            assert!(reserve_exactly(at, 4096));
            assert!(!reserve_exactly(at, 4096));
            assert!(read_word(at as u64).is_none());
            unmap(at, 4096);
            assert!(reserve_exactly(at, 4096));
            unmap(at, 4096);
        }
    }

    #[test]
    fn a_view_shows_what_was_written_through_the_other() {
        // SAFETY: fresh memory, which nobody else knows.
        unsafe {
            let rw = map_shared(4096);
            let view = duplicate_shared_anywhere(rw as usize, 4096);
            assert!(view != 0 && view != rw as usize);
            assert!(protect(view, 4096, PROT_RX));
            rw.write_volatile(0xcc);
            assert_eq!((view as *const u8).read_volatile(), 0xcc);
            unmap(view, 4096);
            unmap(rw as usize, 4096);
        }
    }

    #[test]
    fn memory_given_back_is_zero() {
        // SAFETY: fresh memory, which nobody else knows.
        unsafe {
            let at = map_private(4096);
            at.write_volatile(7);
            discard(at as usize, 4096);
            assert_eq!(at.read_volatile(), 0);
            unmap(at as usize, 4096);
        }
    }

    #[test]
    fn a_thread_lives_until_its_number_is_nobodys() {
        assert!(is_alive(tid()));
        assert!(!is_alive(0x3fff_ffff));
    }

    #[test]
    fn blocked_signals_are_let_in_again() {
        let before = signal_mask();
        assert_eq!(block_signals(), before);
        assert_ne!(signal_mask(), before);
        restore_signals(before);
        assert_eq!(signal_mask(), before);
    }
}
