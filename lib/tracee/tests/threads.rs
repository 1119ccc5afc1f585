//! A child of ours that ends while its threads are being stopped keeps its end for who waits for
//! it; one that does not end is stopped, and one that was too late to stop is held again.
//!
//! Given no input. Thousands of children end by themselves at another moment around the stop each;
//! the moments close in on where half of them end before it. How many there are, and what each ends
//! with, is fixed.
#![allow(clippy::unwrap_used, reason = "a test: failing loudly is right")]

use sptrace_tracee::{ptrace, threads::Threads};
use std::sync::atomic::{AtomicU32, Ordering};

const CHILDREN: u32 = 1500;
/// One step of the moment of a child's end, in spins.
const STEP: u32 = 64;

/// A word that is shared with children.
fn shared_word() -> &'static AtomicU32 {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a new mapping, which stays: a word of it is good for any number.
    unsafe {
        let at = libc::mmap(
            std::ptr::null_mut(),
            4096,
            access,
            kind | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        assert_ne!(at, libc::MAP_FAILED);
        &*at.cast()
    }
}

/// A process that ends so many spins after the word is set.
fn child(go: &AtomicU32, spins: u32, status: i32) -> u32 {
    go.store(0, Ordering::SeqCst);
    // SAFETY: the child calls nothing but the kernel, and ends by itself.
    match unsafe { libc::fork() } {
        0 => {
            // The test's failure shall not leave it behind.
            // SAFETY: changes nothing in memory.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            go.store(1, Ordering::SeqCst);
            while go.load(Ordering::SeqCst) == 1 {
                std::hint::spin_loop();
            }
            for _ in 0..spins {
                std::hint::spin_loop();
            }
            // SAFETY: ends the process.
            unsafe { libc::_exit(status) }
        }
        pid => {
            while go.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            u32::try_from(pid).unwrap()
        }
    }
}

/// What a process has ended with; a thread that was late to stop is let go on the way.
fn end_of(pid: u32) -> Result<i32, std::io::Error> {
    loop {
        let mut status = 0;
        // SAFETY: `status` has room for what is written.
        if unsafe { libc::waitpid(pid as i32, &raw mut status, libc::__WALL) } < 0 {
            return Err(std::io::Error::last_os_error());
        }
        if libc::WIFEXITED(status) {
            return Ok(libc::WEXITSTATUS(status));
        }
        let _ = ptrace::detach(pid, 0);
    }
}

#[test]
fn the_end_of_a_child_is_not_taken() {
    let go = shared_word();
    let (mut spins, mut stopped) = (0u32, 0);
    for n in 0..CHILDREN {
        let status = (n % 100) as i32;
        let pid = child(go, spins, status);
        go.store(2, Ordering::SeqCst);
        match Threads::stop_all(pid, &|| ()) {
            Ok(threads) => {
                threads.release();
                stopped += 1;
                spins = spins.saturating_sub(STEP);
            }
            Err(_) => spins += STEP,
        }
        assert_eq!(end_of(pid).unwrap(), status, "child {n}");
    }
    // On a busy machine most are stopped in time, on an idle one half.
    println!("{stopped} of {CHILDREN} were stopped before their end");
}

#[test]
fn a_child_that_runs_is_stopped() {
    let go = shared_word();
    let pid = child(go, 0, 3);
    for n in 0..CHILDREN {
        let threads = Threads::stop_all(pid, &|| ());
        assert!(threads.is_ok(), "stop {n}: {:?}", threads.err());
        threads.unwrap().release();
    }
    go.store(2, Ordering::SeqCst);
    assert_eq!(end_of(pid).unwrap(), 3);
}

/// A process that cannot stop for so long, and then ends with 7.
fn in_vfork(microseconds: u32) -> u32 {
    // SAFETY: the child calls nothing but the kernel, and ends by itself.
    let pid = match unsafe { libc::fork() } {
        // SAFETY: as before.
        0 => unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            // A parent that waits for a vfork child cannot stop (ptrace(2)); without CLONE_VM its
            // memory is its own.
            if libc::syscall(
                libc::SYS_clone,
                libc::CLONE_VFORK | libc::SIGCHLD,
                0,
                0,
                0,
                0,
            ) == 0
            {
                libc::usleep(microseconds);
                libc::_exit(0);
            }
            libc::_exit(7)
        },
        pid => u32::try_from(pid).unwrap(),
    };
    while sptrace_tracee::threads::state(pid, pid) != Some('D') {
        std::thread::yield_now();
    }
    pid
}

#[test]
fn one_that_was_late_to_stop_is_held_again() {
    let pid = in_vfork(3_200_000);
    assert!(Threads::stop_one(pid, &|| ()).is_err());
    let threads = Threads::stop_all(pid, &|| ()).unwrap();
    assert_eq!(threads.all().count(), 1);
    threads.release();
    assert_eq!(end_of(pid).unwrap(), 7);
}

#[test]
fn the_only_thread_is_waited_for_while_its_vfork_child_is_slow() {
    let pid = in_vfork(1_000_000);
    let threads = Threads::stop_one(pid, &|| ()).unwrap();
    assert_eq!(threads.all().count(), 1);
    threads.release();
    assert_eq!(end_of(pid).unwrap(), 7);
}
