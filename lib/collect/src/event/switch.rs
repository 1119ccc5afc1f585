//! What somebody who looks at a recording asks of it meanwhile: that it pauses and goes on, and
//! that functions are left out from there on, or recorded again.
//!
//! A [`Switch`] is held by who looks, and by the recording. What it asks for is an event as others
//! are, of which [`Asked`] is the source; functions that are left out count from the next time that
//! the recording goes on. Must not know who looks, nor how a recording pauses.

use super::{Armed, EventError, Occurrence, Source, What};
use crate::windows::Windows;
use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Held by who looks.
#[derive(Clone, Debug)]
pub struct Switch(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    wake: OwnedFd,
    /// What was asked for, in order: to go on (true), or to pause.
    asked: Mutex<Vec<bool>>,
    left_out: Mutex<BTreeSet<String>>,
    /// Since plans were made.
    is_changed: AtomicBool,
    windows: OnceLock<Arc<Windows>>,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Switch {
    /// One that nobody has asked anything.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn new() -> Result<Self, EventError> {
        // SAFETY: gives a fresh descriptor or an error.
        let wake = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if wake < 0 {
            let why = std::io::Error::last_os_error();
            return Err(EventError::Socket("an eventfd".to_owned(), why));
        }
        Ok(Self(Arc::new(Inner {
            // SAFETY: a fresh descriptor.
            wake: unsafe { OwnedFd::from_raw_fd(wake) },
            asked: Mutex::default(),
            left_out: Mutex::default(),
            is_changed: AtomicBool::new(false),
            windows: OnceLock::new(),
        })))
    }

    /// Nothing is recorded at the moment, since it was asked to pause.
    pub fn is_paused(&self) -> bool {
        let windows = self.0.windows.get();
        windows.is_some_and(|windows| windows.is_pause())
    }

    /// It shall go on, or pause.
    pub fn ask(&self, to_go_on: bool) {
        held(&self.0.asked).push(to_go_on);
        let one = 1u64;
        // SAFETY: an eventfd of ours takes eight bytes.
        unsafe { libc::write(self.0.wake.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// The functions that are left out, by their names.
    pub fn left_out(&self) -> BTreeSet<String> {
        held(&self.0.left_out).clone()
    }

    /// Functions of this name shall be recorded no more, or again: a recording that runs pauses for
    /// that as short as it can.
    pub fn turn(&self, name: &str) {
        {
            let mut left_out = held(&self.0.left_out);
            if !left_out.remove(name) {
                left_out.insert(name.to_owned());
            }
            self.0.is_changed.store(true, Ordering::Release);
        }
        if !self.is_paused() {
            self.ask(false);
            self.ask(true);
        }
    }

    /// Plans must be made anew; says so once.
    pub(crate) fn takes_change(&self) -> bool {
        self.0.is_changed.swap(false, Ordering::AcqRel)
    }
}

/// The source of what is asked.
pub(crate) struct Asked {
    switch: Switch,
    /// The events: to pause, and to go on.
    events: [Option<usize>; 2],
}

impl Asked {
    /// Of a switch, for the recordings of these windows.
    pub(crate) fn new(switch: Switch, armed: &Armed, windows: &Arc<Windows>) -> Self {
        let event = |goes_on| armed.all(&What::Asked(goes_on)).first().copied();
        // There is one recording for a switch.
        let _ = switch.0.windows.set(Arc::clone(windows));
        Self {
            switch,
            events: [event(false), event(true)],
        }
    }
}

impl Source for Asked {
    fn descriptors(&self) -> Vec<RawFd> {
        vec![self.switch.0.wake.as_raw_fd()]
    }

    fn look(&mut self, found: &mut Vec<Occurrence>) {
        let mut count = 0u64;
        // SAFETY: an eventfd of ours gives eight bytes and does not block.
        unsafe { libc::read(self.switch.0.wake.as_raw_fd(), (&raw mut count).cast(), 8) };
        let asked = std::mem::take(&mut *held(&self.switch.0.asked));
        let events = asked
            .into_iter()
            .filter_map(|goes_on| self.events[usize::from(goes_on)]);
        found.extend(events.map(|event| Occurrence {
            event,
            tsc: crate::clock::tsc(),
            pid: 0,
            detail: String::new(),
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_comes_in_order_and_once() {
        let switch = Switch::new().expect("a descriptor");
        let windows = Arc::new(Windows::switched());
        let armed = Armed::default().with_switch();
        let mut asked = Asked::new(switch.clone(), &armed, &windows);
        let mut look = || {
            let mut found = Vec::new();
            asked.look(&mut found);
            let what = |o: &Occurrence| armed.reaction(o.event);
            found.iter().filter_map(what).collect::<Vec<_>>()
        };
        assert_eq!(look(), []);
        switch.turn("f");
        use crate::event::Reaction::{Start, Stop};
        assert_eq!(look(), [Stop, Start]);
        assert_eq!(look(), []);
        assert!(switch.left_out().contains("f"));
        assert!(switch.takes_change() && !switch.takes_change());
        windows.begin();
        assert!(!windows.stop(1) && switch.is_paused());
        switch.turn("f");
        assert_eq!(look(), [], "it counts when the recording goes on");
        assert!(switch.left_out().is_empty() && switch.takes_change());
    }
}
