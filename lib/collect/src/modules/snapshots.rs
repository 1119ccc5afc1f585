//! What processes had mapped when that was read last, for as long as it may be relied on.
//!
//! A program that starts asks about one module after the other, of which it may have hundreds, and
//! reading its mappings takes as long as all else that an answer needs. So they are read again only
//! where what is asked about is not what was read: where it is new, where the process asks about
//! the same address once more since the place that it was told is taken, and after a short while. A
//! place that was free then and is not now is refused by the process itself. Given the process and
//! the address; gives its mappings. Must not know what is looked for in them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sptrace_tracee::maps::{self, LiveMaps, Mapping};

/// What has come beside is missed for so long at most.
const LASTS: Duration = Duration::from_millis(100);
/// Processes whose mappings are kept.
const PROCESSES: usize = 8;

/// The mappings of a few processes.
#[derive(Default)]
pub struct Snapshots(Mutex<Vec<Snapshot>>);

struct Snapshot {
    pid: u32,
    maps: Arc<Vec<Mapping>>,
    read_at: Instant,
    /// What the process has asked about last.
    address: u64,
}

impl Snapshots {
    /// The mappings of a process that asks about an address.
    pub(crate) fn of(&self, pid: u32, live: &LiveMaps, address: u64) -> Arc<Vec<Mapping>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.iter_mut().find(|s| s.pid == pid);
        if let Some(known) = known.filter(|s| s.serves(live, address)) {
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
    fn serves(&self, live: &LiveMaps, address: u64) -> bool {
        if self.address == address || self.read_at.elapsed() > LASTS {
            return false;
        }
        let around = |m: &&Mapping| (m.start..m.end).contains(&address);
        let Some(m) = self.maps.iter().find(around) else {
            return false;
        };
        let first = maps::first_of(&self.maps, m);
        live.has_one(m) && first.is_none_or(|first| live.has_one(first))
    }
}
