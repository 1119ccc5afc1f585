//! What processes had mapped when that was read last, for as long as it may be relied on.
//!
//! A program that starts asks about one module after the other, of which it may have hundreds, and
//! reading its mappings takes as long as all else that an answer needs. So they are read again only
//! where what is asked about is not what was read: where it is new, where the process asks about
//! the same address once more since the place that it was told is taken, and after a short while. A
//! place that was free then and is not now is refused by the process itself. One that is led to the
//! agent has no others meanwhile: what was read of it serves until it is back. Given the process
//! and the address; gives its mappings. Must not know what is looked for in them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sptrace_tracee::maps::{self, LiveMaps, Mapping};

/// What has come beside is missed for so long at most.
const LASTS: Duration = Duration::from_millis(100);
/// Processes whose mappings are kept.
const PROCESSES: usize = 8;

/// The mappings of a few processes.
#[derive(Default)]
pub struct Snapshots {
    all: Mutex<Vec<Snapshot>>,
    /// The process that is led to the agent; 0: none.
    led: AtomicU32,
}

struct Snapshot {
    pid: u32,
    maps: Arc<Vec<Mapping>>,
    read_at: Instant,
    /// What the process has asked about last.
    address: u64,
}

impl Snapshots {
    /// A process is led to the agent, with many modules.
    pub(crate) fn begin_to_lead(&self, pid: u32) {
        self.forget(pid);
        self.led.store(pid, Ordering::Relaxed);
    }

    /// It is back.
    pub(crate) fn led(&self, pid: u32) {
        self.led.store(0, Ordering::Relaxed);
        self.forget(pid);
    }

    fn forget(&self, pid: u32) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|s| s.pid != pid);
    }

    /// The mappings of a process that asks about an address.
    pub(crate) fn of(&self, pid: u32, live: &LiveMaps, address: u64) -> Arc<Vec<Mapping>> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let is_led = self.led.load(Ordering::Relaxed) == pid;
        let known = all.iter_mut().find(|s| s.pid == pid);
        if let Some(known) = known.filter(|s| s.serves(live, address, is_led)) {
            known.address = address;
            return Arc::clone(&known.maps);
        }
        all.retain(|s| s.pid != pid);
        all.truncate(PROCESSES - 1);
        let read_at = Instant::now();
        let maps = Arc::new(maps::read(pid).unwrap_or_default());
        let new = Snapshot {
            pid,
            maps: Arc::clone(&maps),
            read_at,
            address,
        };
        all.insert(0, new);
        maps
    }
}

impl Snapshot {
    /// True if what lies at the address is there still as it was read, with the first page of its
    /// file. Where the kernel does not answer for single mappings, nobody knows.
    fn serves(&self, live: &LiveMaps, address: u64, is_led: bool) -> bool {
        if self.address == address || !is_led && self.read_at.elapsed() > LASTS {
            return false;
        }
        let around = |m: &&Mapping| (m.start..m.end).contains(&address);
        let Some(m) = self.maps.iter().find(around) else {
            return false;
        };
        let first = maps::first_of(&self.maps, m);
        is_led || live.has_one(m) && first.is_none_or(|first| live.has_one(first))
    }
}
