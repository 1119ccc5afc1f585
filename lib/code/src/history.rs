//! The last instructions on the path to the current one.
//!
//! Copied at every branch, therefore small: addresses only, decoded again when an indirect jump
//! asks.

/// How many instructions are remembered.
const DEPTH: usize = 20;

/// Addresses of the last instructions of a path, the newest last.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct History {
    /// Offsets would be smaller; a path may cross regions of any distance only by mistake.
    svmas: [u64; DEPTH],
    next: u8,
    count: u8,
}

impl History {
    pub fn push(&mut self, svma: u64) {
        self.svmas[usize::from(self.next)] = svma;
        self.next = (self.next + 1) % DEPTH as u8;
        self.count = (self.count + 1).min(DEPTH as u8);
    }

    /// From the newest back.
    pub fn backwards(&self) -> impl Iterator<Item = u64> + '_ {
        (1..=usize::from(self.count)).map(|back| {
            let index = (usize::from(self.next) + DEPTH - back) % DEPTH;
            self.svmas[index]
        })
    }
}
