//! Sockets that wait for no longer than a time: a call on one that a signal has interrupted ends in
//! EINTR and is never begun again (Linux, include/net/sock.h, `sock_intr_errno`).
//!
//! Given calls that have ended; says whether a call waits so. What a descriptor was made a copy of,
//! or inherited, is not looked at. Must not know how calls are shown.

use std::collections::HashSet;

use sptrace_types::decode::memory::Memory;
use sptrace_types::decode::types::Phase;
use sptrace_types::syscalls;

use crate::listener::Call;

const SOL_SOCKET: u64 = 1;
/// Their numbers with a time of 64 bits, and the older ones (asm-generic/socket.h).
const SO_RCVTIMEO: [u64; 2] = [20, 66];
const SO_SNDTIMEO: [u64; 2] = [21, 67];
/// Of a struct timeval.
const TIME_BYTES: usize = 16;
/// So many sockets are known at most: of a program that closes none.
const MOST: usize = 1 << 16;

/// What a socket does.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Way {
    Receives,
    Sends,
}

/// The sockets with such a time, by process and descriptor.
#[derive(Default)]
pub(crate) struct TimeLimits {
    of: HashSet<(u32, i32, Way)>,
}

impl TimeLimits {
    /// A call has ended with its result.
    pub(crate) fn ended(&mut self, call: &Call) {
        if call.result != Some(0) {
            return;
        }
        let descriptor = call.args[0] as i32;
        match name(call) {
            "setsockopt" if call.args[1] & 0xffff_ffff == SOL_SOCKET => {
                let Some(way) = way_of_option(call.args[2] & 0xffff_ffff) else {
                    return;
                };
                let time = call.captured.read(Phase::Entry, call.args[3], TIME_BYTES);
                let key = (call.pid, descriptor, way);
                match time.iter().any(|byte| *byte != 0) {
                    true if self.of.len() < MOST => {
                        self.of.insert(key);
                    }
                    true => {}
                    false => {
                        self.of.remove(&key);
                    }
                }
            }
            "close" => {
                for way in [Way::Receives, Way::Sends] {
                    self.of.remove(&(call.pid, descriptor, way));
                }
            }
            _ => {}
        }
    }

    /// True if a call waits for its socket with such a time.
    pub(crate) fn limits(&self, call: &Call) -> bool {
        let way = match name(call) {
            "recvfrom" | "recvmsg" | "accept" | "accept4" | "read" | "readv" => Way::Receives,
            "sendto" | "sendmsg" | "connect" | "write" | "writev" => Way::Sends,
            _ => return false,
        };
        self.of.contains(&(call.pid, call.args[0] as i32, way))
    }
}

fn way_of_option(option: u64) -> Option<Way> {
    match option {
        _ if SO_RCVTIMEO.contains(&option) => Some(Way::Receives),
        _ if SO_SNDTIMEO.contains(&option) => Some(Way::Sends),
        _ => None,
    }
}

fn name(call: &Call) -> &'static str {
    syscalls::by_number(call.number).map_or("", |known| known.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sptrace_types::decode::memory::{Captured, Chunk};

    fn call(name: &str, args: [u64; 6], time: &[u8]) -> Call {
        let chunk = Chunk {
            phase: Phase::Entry,
            address: 0x1000,
            bytes: time.to_vec(),
        };
        Call {
            number: syscalls::by_name(name).map_or(0, |known| known.number),
            tid: 7,
            pid: 7,
            ppid: 1,
            start_tsc: 1,
            args,
            result: Some(0),
            end_tsc: Some(2),
            acted: None,
            captured: Captured {
                chunks: vec![chunk],
            },
            stack: Vec::new(),
        }
    }

    #[test]
    fn a_socket_has_a_time_from_its_option_until_it_is_taken_back_or_closed() {
        let mut limits = TimeLimits::default();
        let set = |time: &[u8]| call("setsockopt", [3, 1, 20, 0x1000, 16, 0], time);
        let waits = |limits: &TimeLimits, name: &str| limits.limits(&call(name, [3; 6], &[]));
        limits.ended(&set(&[1; 16]));
        assert!(waits(&limits, "recvfrom") && waits(&limits, "read"));
        assert!(!waits(&limits, "sendto") && !waits(&limits, "poll"));
        // No time at all is none.
        limits.ended(&set(&[0; 16]));
        assert!(!waits(&limits, "recvfrom"));
        limits.ended(&set(&[1; 16]));
        limits.ended(&call("close", [3, 0, 0, 0, 0, 0], &[]));
        assert!(!waits(&limits, "recvfrom"));
        // Another level, another option.
        limits.ended(&call("setsockopt", [3, 6, 20, 0x1000, 16, 0], &[1; 16]));
        limits.ended(&call("setsockopt", [3, 1, 2, 0x1000, 16, 0], &[1; 16]));
        assert!(!waits(&limits, "recvfrom"));
    }
}
