//! Calls of the kernel's functions, entry and exit, by a probe at each (kprobe and kretprobe).
//!
//! Given functions; makes the probes as events of a group of our own, and switches them on in our
//! instance. Given a record; gives what happened. What the kernel refuses to probe is named. The
//! group bears our process's number and start: [`remove_left_over`] removes those of a killed one.
//!
//! Must not know: how functions are chosen, and what is shown of their calls.

use crate::error::KernelError;
use crate::folder::Folder;
use crate::format::Format;
use crate::owner::Owner;
use crate::source::{Frame, Happening};
use crate::symbols::Symbols;
use crate::tracefs::Tracefs;
use std::collections::{HashMap, HashSet};

/// How our groups begin; the process's number and start follow.
const GROUP: &str = "sptrace_";
/// The same, of groups of which one process has several; its number, the process's number and start
/// follow.
const NUMBERED_GROUP: &str = "sptraceb";
const FILE: &str = "kprobe_events";
/// More are not made: each takes the kernel some milliseconds to make and to remove.
const MOST: usize = 1000;
/// Calls of one function that may be open at once; more are missed, which is counted.
const OPEN_AT_ONCE: u32 = 256;

/// See the module.
#[derive(Debug)]
pub struct Probes {
    top: Folder,
    own: Folder,
    group: String,
    /// By number of the event: the function, and is it its entry?
    events: HashMap<u16, (u64, bool, Format)>,
    /// Functions that the kernel does not let be probed.
    pub refused: Vec<String>,
}

impl Probes {
    /// Makes them, and switches them on in a folder that records nothing yet.
    ///
    /// # Errors
    /// The kernel has no probes, refuses all, or too many are asked for.
    pub fn switch_on(
        tracefs: &Tracefs,
        own: &Folder,
        addresses: &HashSet<u64>,
        symbols: &Symbols,
    ) -> Result<Self, KernelError> {
        let wanted: Vec<_> = symbols
            .iter()
            .filter(|s| addresses.contains(&s.address))
            .collect();
        if wanted.len() > MOST {
            return Err(KernelError::TooMany(wanted.len()));
        }
        let mut probes = Self {
            top: Folder::new(tracefs.root().to_owned()),
            own: own.clone(),
            group: group(None),
            events: HashMap::new(),
            refused: Vec::new(),
        };
        for (i, symbol) in wanted.iter().enumerate() {
            if let Err(e) = probes.make(i, symbol.address) {
                probes.refused.push(format!("{} ({e})", symbol.name));
            }
        }
        if probes.events.is_empty() {
            return Err(KernelError::NotOffered {
                what: "functions",
                why: format!("no probe was accepted: {}", probes.refused.join(", ")),
            });
        }
        Ok(probes)
    }

    /// Both probes of a function, or none.
    fn make(&mut self, i: usize, address: u64) -> Result<(), KernelError> {
        let group = self.group.clone();
        let entry = format!("p:{group}/entry{i} {address:#x}\n");
        let exit = format!("r{OPEN_AT_ONCE}:{group}/exit{i} {address:#x}\n");
        self.top.add(FILE, &entry)?;
        let made = self.top.add(FILE, &exit);
        let both = made.and_then(|()| {
            for (name, is_entry) in [(format!("exit{i}"), false), (format!("entry{i}"), true)] {
                let event = format!("events/{group}/{name}");
                let format = Format::parse(&self.own.read(&format!("{event}/format"))?);
                self.own.set(&format!("{event}/enable"), "1")?;
                if let Some(format) = format {
                    let known = (address, is_entry, format);
                    self.events.insert(known.2.id, known);
                }
            }
            Ok(())
        });
        if both.is_err() {
            for name in ["entry", "exit"] {
                let event = format!("events/{group}/{name}{i}/enable");
                let _ = self.own.set(&event, "0");
                let _ = self.top.add(FILE, &format!("-:{group}/{name}{i}\n"));
            }
            self.events.retain(|_, known| known.0 != address);
        }
        both
    }

    /// How many functions have both.
    pub fn count(&self) -> usize {
        self.events.len() / 2
    }

    /// Calls that were not recorded, since too many were open at once.
    pub fn missed(&self) -> u64 {
        missed(&self.top, &self.own, &self.group)
    }

    /// The task that was running, and what happened. `None`: a record of something else.
    pub fn read(&self, record: &[u8]) -> Option<(u32, Happening)> {
        let id = record.first_chunk().map(|b| u16::from_le_bytes(*b))?;
        let (address, is_entry, format) = self.events.get(&id)?;
        let task = u32::try_from(format.number(record, "common_pid")?).ok()?;
        let frame = Frame::Function {
            address: *address,
            depth: 0,
        };
        let happening = match is_entry {
            true => Happening::Begin(frame),
            false => Happening::End(frame),
        };
        Some((task, happening))
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        let _ = self.own.set(&format!("events/{}/enable", self.group), "0");
        remove(&self.top, |group| group == self.group);
    }
}

/// Hits of a group's probes that were not recorded, as the kernel counts them.
pub(crate) fn missed(top: &Folder, own: &Folder, group: &str) -> u64 {
    let profile = top.read("kprobe_profile").unwrap_or_default();
    let ours = profile.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let name = words.next()?;
        let is_ours = own.path("events").join(group).join(name);
        let missed = words.nth(1)?.parse::<u64>().ok()?;
        is_ours.exists().then_some(missed)
    });
    ours.sum()
}

/// The name of a group of our own, or of one of several.
pub(crate) fn group(number: Option<usize>) -> String {
    let owner = Owner::me().name('_');
    match number {
        None => format!("{GROUP}{owner}"),
        Some(number) => format!("{NUMBERED_GROUP}{number}_{owner}"),
    }
}

/// Whose group this is, if it is one of ours.
fn owner_of(group: &str) -> Option<Owner> {
    let name = match group.strip_prefix(NUMBERED_GROUP) {
        Some(rest) => rest.split_once('_')?.1,
        None => group.strip_prefix(GROUP)?,
    };
    Owner::of(name, '_')
}

/// Removes the probes of these groups; gives how many there were.
pub(crate) fn remove(top: &Folder, is_meant: impl Fn(&str) -> bool) -> usize {
    let lines = top.read(FILE).unwrap_or_default();
    let mut removed = 0;
    for line in lines.lines() {
        // Such as `r256:sptrace_7_99/exit0 vfs_read`.
        let event = line.split_whitespace().next();
        let Some((_, event)) = event.and_then(|e| e.split_once(':')) else {
            continue;
        };
        if event.split_once('/').is_some_and(|(g, _)| is_meant(g)) {
            removed += usize::from(top.add(FILE, &format!("-:{event}\n")).is_ok());
        }
    }
    removed
}

/// Removes the probes of processes that are gone; gives how many there were.
pub fn remove_left_over(tracefs: &Tracefs) -> usize {
    let top = Folder::new(tracefs.root().to_owned());
    remove(&top, |group| {
        owner_of(group).is_some_and(|owner| !owner.is_alive())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_known_by_their_names() {
        assert_eq!(owner_of(&group(None)), Some(Owner::me()));
        assert_eq!(owner_of(&group(Some(12))), Some(Owner::me()));
        assert_eq!(owner_of("oracle"), None);
        assert_eq!(owner_of("sptraceb3"), None);
    }
}
