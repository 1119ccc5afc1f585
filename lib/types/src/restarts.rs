//! Which error of the kernel's own a call has ended in that a signal has interrupted.
//!
//! A tracer sees these errors; the program sees EINTR, or the call is begun again (Linux,
//! arch/x86/kernel/signal.c, `handle_signal`). Which one it is depends on the call alone.
//!
//! Given a call and what became of it; gives the number as [`crate::names::error`] knows it. Must
//! not know how that was noticed.

use crate::syscalls;

/// To be restarted if SA_RESTART is set.
const ERESTARTSYS: i64 = 512;
/// To be restarted.
const ERESTARTNOINTR: i64 = 513;
/// To be restarted if no handler.
const ERESTARTNOHAND: i64 = 514;
/// To be restarted by another call, with the time that is left.
const ERESTART_RESTARTBLOCK: i64 = 516;

const FUTEX_COMMAND: u64 = 0x7f;
const FUTEX_LOCK_PI: u64 = 6;
const TIMER_ABSTIME: u64 = 1;

/// Of a call that is begun again when the handler has returned.
pub fn begun_again(number: u32, args: &[u64; 6]) -> i64 {
    match name(number) {
        "fork" | "vfork" | "clone" | "clone3" => ERESTARTNOINTR,
        "futex" if args[1] & FUTEX_COMMAND == FUTEX_LOCK_PI => ERESTARTNOINTR,
        _ => ERESTARTSYS,
    }
}

/// Of a call that has returned EINTR to the program. `None`: it may have ended in just that.
pub fn interrupted(number: u32, args: &[u64; 6]) -> Option<i64> {
    Some(match name(number) {
        "pause" | "rt_sigsuspend" | "select" | "pselect6" | "ppoll" | "msgrcv" | "msgsnd" => {
            ERESTARTNOHAND
        }
        "clock_nanosleep" if args[1] & TIMER_ABSTIME != 0 => ERESTARTNOHAND,
        "poll" | "nanosleep" | "clock_nanosleep" => ERESTART_RESTARTBLOCK,
        // With a time limit.
        "futex" if args[3] != 0 => ERESTART_RESTARTBLOCK,
        "futex" | "read" | "readv" | "pread64" | "write" | "writev" | "pwrite64" | "open"
        | "openat" | "ioctl" | "wait4" | "waitid" | "flock" | "fcntl" | "accept" | "accept4"
        | "connect" | "recvfrom" | "recvmsg" | "sendto" | "sendmsg" | "splice" | "sendfile"
        | "mq_timedsend" | "mq_timedreceive" | "getrandom" => ERESTARTSYS,
        _ => return None,
    })
}

fn name(number: u32) -> &'static str {
    syscalls::by_number(number).map_or("", |call| call.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: u32 = 0;
    const PAUSE: u32 = 34;
    const FORK: u32 = 57;
    const FUTEX: u32 = 202;
    const CLOCK_NANOSLEEP: u32 = 230;
    const EPOLL_WAIT: u32 = 232;

    #[test]
    fn the_error_follows_from_the_call() {
        let none = [0; 6];
        assert_eq!(begun_again(READ, &none), ERESTARTSYS);
        assert_eq!(begun_again(FORK, &none), ERESTARTNOINTR);
        assert_eq!(interrupted(READ, &none), Some(ERESTARTSYS));
        assert_eq!(interrupted(PAUSE, &none), Some(ERESTARTNOHAND));
        assert_eq!(interrupted(FUTEX, &none), Some(ERESTARTSYS));
        let limited = [0, 0, 0, 0x1000, 0, 0];
        assert_eq!(interrupted(FUTEX, &limited), Some(ERESTART_RESTARTBLOCK));
        let absolute = [0, TIMER_ABSTIME, 0, 0, 0, 0];
        let sleeps = |args| interrupted(CLOCK_NANOSLEEP, args);
        assert_eq!(sleeps(&none), Some(ERESTART_RESTARTBLOCK));
        assert_eq!(sleeps(&absolute), Some(ERESTARTNOHAND));
        // It ends in EINTR.
        assert_eq!(interrupted(EPOLL_WAIT, &none), None);
    }

    #[test]
    fn all_of_them_have_a_name() {
        for number in [
            ERESTARTSYS,
            ERESTARTNOINTR,
            ERESTARTNOHAND,
            ERESTART_RESTARTBLOCK,
        ] {
            let (name, _) = crate::names::error(number as u64).expect("a name");
            assert!(name.starts_with("ERESTART"), "{name}");
        }
    }
}
