//! Who a task acts as, and when that changes: users, groups, capabilities.
//!
//! Where the kernel has probes, one stands where it gives a task new credentials (`commit_creds`),
//! and reads them out of the structure, whose layout the kernel says itself. Where it has none,
//! what /proc says after a system call that may change them is compared with what was known
//! before. A change by which a task gains something is an escalation, and is shown so; one into
//! another user namespace, where capabilities are worth less, is told apart.
//!
//! Must not know: how a trace is written.

use crate::btf::{self, Types};
use crate::error::KernelError;
use crate::folder::Folder;
use crate::format::Format;
use crate::probes;
use crate::source::{Frame, Happening};
use crate::tracefs::Tracefs;
use sptrace_tracee::proc::{self, Status};
use sptrace_types::names::table::CAPABILITY;
use std::cell::RefCell;
use std::collections::HashMap;

const FILE: &str = "kprobe_events";
/// Of the groups that one process may have; blocks have the first ones.
const GROUP_NUMBER: usize = 999_999;
const EVENT: &str = "creds";
/// The module that changes are shown in.
pub const MODULE: &str = "[privileges]";
/// Members of `struct cred`, and how they are fetched.
const MEMBERS: [(&str, &str); 7] = [
    ("uid", "u32"),
    ("euid", "u32"),
    ("gid", "u32"),
    ("egid", "u32"),
    ("cap_effective", "u64"),
    ("cap_permitted", "u64"),
    ("user_ns", "u64"),
];
/// System calls after which it is looked, where there are no probes: setuid, setgid, setreuid,
/// setregid, setresuid, setresgid, capset, unshare, setns, execve, execveat.
const MAY_CHANGE: [u32; 11] = [105, 106, 113, 114, 117, 119, 126, 272, 308, 59, 322];

/// Who a task acts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Credentials {
    uid: u32,
    euid: u32,
    gid: u32,
    egid: u32,
    effective: u64,
    permitted: u64,
    /// Which user namespace. 0: not known.
    namespace: u64,
}

impl Credentials {
    fn of_task(tid: u32) -> Option<Self> {
        let status = Status::of(tid).ok()?;
        let ([uid, euid], [gid, egid]) = (status.users()?, status.groups()?);
        let [effective, permitted] = status.capabilities()?;
        Some(Self {
            uid,
            euid,
            gid,
            egid,
            effective,
            permitted,
            namespace: 0,
        })
    }

    fn of_record(format: &Format, record: &[u8]) -> Option<Self> {
        let number = |field| format.number(record, field);
        let id = |field| Some(number(field)? as u32);
        Some(Self {
            uid: id("uid")?,
            euid: id("euid")?,
            gid: id("gid")?,
            egid: id("egid")?,
            effective: number("cap_effective")? as u64,
            permitted: number("cap_permitted")? as u64,
            namespace: number("user_ns")? as u64,
        })
    }

    /// What differs from `before`, in words. `None`: nothing.
    fn told(&self, before: &Self) -> Option<String> {
        let is_elsewhere =
            self.namespace != before.namespace && self.namespace != 0 && before.namespace != 0;
        let mut words = Vec::new();
        for (name, old, new) in [
            ("uid", before.uid, self.uid),
            ("euid", before.euid, self.euid),
            ("gid", before.gid, self.gid),
            ("egid", before.egid, self.egid),
        ] {
            if old != new {
                words.push(format!("{name} {old} -> {new}"));
            }
        }
        let all = |c: &Self| c.effective | c.permitted;
        let (gained, dropped) = (
            (self.effective & !before.effective) | (self.permitted & !before.permitted),
            all(before) & !all(self) | (before.effective & !self.effective),
        );
        words.extend(capabilities("gains", gained));
        words.extend(capabilities("loses", dropped & !gained));
        if words.is_empty() && !is_elsewhere {
            return None;
        }
        let is_root_now = self.euid == 0 && before.euid != 0 || self.uid == 0 && before.uid != 0;
        let kind = match is_elsewhere {
            true => "in another user namespace",
            false if gained != 0 || is_root_now => "ESCALATION",
            false => "change",
        };
        Some(format!("{kind}: {}", words.join(", ")))
    }
}

/// `None`: there are none.
fn capabilities(verb: &str, set: u64) -> Option<String> {
    /// More are counted, not named.
    const MOST_NAMED: u32 = 4;
    if set == 0 {
        return None;
    }
    if set.count_ones() > MOST_NAMED {
        return Some(format!("{verb} {} capabilities", set.count_ones()));
    }
    let numbers = (0..64).filter(|bit| set >> bit & 1 == 1);
    let name = |bit: u64| {
        CAPABILITY
            .name(bit)
            .map_or_else(|| format!("CAP_{bit}"), str::to_owned)
    };
    let names: Vec<String> = numbers.map(name).collect();
    Some(format!("{verb} {}", names.join(" ")))
}

/// Where changes are seen.
#[derive(Debug)]
enum How {
    /// At a probe.
    Probe { format: Format },
    /// After system calls.
    Calls,
}

/// See the module.
#[derive(Debug)]
pub struct Privileges {
    top: Folder,
    own: Folder,
    how: How,
    /// Records are read one after the other, by one thread.
    known: RefCell<HashMap<u32, Credentials>>,
}

impl Privileges {
    /// Switches on what there is, in a folder that records nothing yet.
    pub fn switch_on(tracefs: &Tracefs, own: &Folder) -> Self {
        let tasks = proc::processes();
        let threads = tasks.into_iter().flat_map(proc::threads);
        let known = threads.filter_map(|tid| Some((tid, Credentials::of_task(tid)?)));
        let mut privileges = Self {
            top: Folder::new(tracefs.root().to_owned()),
            own: own.clone(),
            how: How::Calls,
            known: RefCell::new(known.collect()),
        };
        match privileges.probe() {
            Ok(how) => privileges.how = how,
            Err(_) => privileges.remove(),
        }
        privileges
    }

    fn probe(&self) -> Result<How, KernelError> {
        let lacking = |why: &str| KernelError::NotOffered {
            what: "credentials",
            why: why.to_owned(),
        };
        let types = Types::read().ok_or_else(|| lacking(btf::ABSENT))?;
        let members = types
            .members("cred")
            .ok_or_else(|| lacking("no struct cred"))?;
        let group = probes::group(Some(GROUP_NUMBER));
        let mut line = format!("p:{group}/{EVENT} commit_creds");
        for (name, kind) in MEMBERS {
            let offset = members.get(name).ok_or_else(|| lacking(name))?;
            line.push_str(&format!(" {name}=+{offset}($arg1):{kind}"));
        }
        self.top.add(FILE, &format!("{line}\n"))?;
        let event = format!("events/{group}/{EVENT}");
        let text = self.own.read(&format!("{event}/format"))?;
        let format = Format::parse(&text).ok_or_else(|| lacking("no format"))?;
        self.own.set(&format!("{event}/enable"), "1")?;
        Ok(How::Probe { format })
    }

    /// How changes are seen, in words.
    pub fn told(&self) -> String {
        match self.how {
            How::Probe { .. } => "privileges: by a probe at commit_creds".to_owned(),
            How::Calls => "privileges: by what /proc says after system calls that may change \
                           them, since this kernel has no probes"
                .to_owned(),
        }
    }

    /// The task that was running, and what happened. `None`: a record of something else.
    pub fn read(&self, record: &[u8]) -> Option<(u32, Option<Happening>)> {
        let How::Probe { format, .. } = &self.how else {
            return None;
        };
        let id = record.first_chunk().map(|b| u16::from_le_bytes(*b))?;
        if id != format.id {
            return None;
        }
        let task = u32::try_from(format.number(record, "common_pid")?).ok()?;
        let new = Credentials::of_record(format, record)?;
        Some((task, self.changed(task, new)))
    }

    /// Something else has happened to a task; what follows for its privileges.
    pub fn saw(&self, task: u32, happening: &Happening) -> Option<Happening> {
        match (happening, &self.how) {
            (Happening::NewTask { tid, .. }, _) => {
                let mut known = self.known.borrow_mut();
                let parent = known.get(&task).copied();
                parent.and_then(|parent| known.insert(*tid, parent));
                None
            }
            (
                Happening::End(Frame::SystemCall(number))
                | Happening::EndWith(Frame::SystemCall(number), _),
                How::Calls,
            ) if MAY_CHANGE.contains(number) => self.changed(task, Credentials::of_task(task)?),
            _ => None,
        }
    }

    fn changed(&self, task: u32, mut new: Credentials) -> Option<Happening> {
        let mut known = self.known.borrow_mut();
        let before = known.get(&task).copied();
        if let Some(before) = before.filter(|_| new.namespace == 0) {
            new.namespace = before.namespace;
        }
        known.insert(task, new);
        let told = match before {
            Some(before) => new.told(&before)?,
            None => format!(
                "uid {}, euid {}; what it was before is not known",
                new.uid, new.euid
            ),
        };
        Some(Happening::Instant(MODULE, told))
    }

    fn remove(&self) {
        let group = probes::group(Some(GROUP_NUMBER));
        let _ = self.own.set(&format!("events/{group}/enable"), "0");
        probes::remove(&self.top, |other| other == group);
    }
}

impl Drop for Privileges {
    fn drop(&mut self) {
        if let How::Probe { .. } = &self.how {
            self.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(uid: u32, euid: u32, effective: u64) -> Credentials {
        Credentials {
            uid,
            euid,
            gid: uid,
            egid: uid,
            effective,
            permitted: effective,
            namespace: 1,
        }
    }

    #[test]
    fn what_gains_is_an_escalation_and_what_loses_is_a_change() {
        let (user, root) = (of(1000, 1000, 0), of(0, 0, 0x1ff_ffff_ffff));
        let setuid = Credentials {
            euid: 0,
            effective: root.effective,
            permitted: root.permitted,
            ..user
        };
        assert_eq!(
            setuid.told(&user).unwrap(),
            "ESCALATION: euid 1000 -> 0, gains 41 capabilities"
        );
        let dropped = user.told(&root).unwrap();
        assert!(
            dropped.starts_with("change: uid 0 -> 1000, euid 0 -> 1000"),
            "{dropped}"
        );
        assert!(dropped.ends_with("loses 41 capabilities"), "{dropped}");
        let with_one = of(1000, 1000, 1 << 21);
        assert_eq!(
            with_one.told(&user).unwrap(),
            "ESCALATION: gains CAP_SYS_ADMIN"
        );
        assert_eq!(user.told(&user), None);
        let elsewhere = Credentials {
            namespace: 2,
            ..with_one
        };
        assert!(
            elsewhere
                .told(&user)
                .unwrap()
                .starts_with("in another user namespace")
        );
    }
}
