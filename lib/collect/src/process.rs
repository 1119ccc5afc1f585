//! A process image as the collector sees it: which modules lie where, and which patch areas.

/// Where a module lies.
#[derive(Clone, Copy, Debug)]
pub struct Loaded {
    /// Index of the module in the recording.
    pub module: usize,
    /// First executable avma.
    pub start: u64,
    /// End of the executable part.
    pub end: u64,
    /// avma - svma.
    pub bias: u64,
}

/// A patch area.
#[derive(Clone, Copy, Debug)]
pub struct Area {
    /// First avma.
    pub start: u64,
    /// Bytes.
    pub bytes: u64,
    /// Index of the module.
    pub module: usize,
}

/// One exec image of one process.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// Modules, newest last (the newest wins where addresses were used again).
    pub loaded: Vec<Loaded>,
    /// Areas, newest last.
    pub areas: Vec<Area>,
    /// Mappings that were looked at for functions to hook: start and file.
    pub looked_at: Vec<(u64, (String, u64))>,
    /// Number of execs before this image.
    pub execs: u32,
    /// The parent's pid, if known.
    pub parent: u32,
}

impl Process {
    /// The area that an id lies in, and the offset there.
    #[inline]
    pub fn area_of(&self, id: u32) -> Option<(usize, u32)> {
        self.areas.iter().rev().find_map(|a| {
            let offset = id.wrapping_sub(a.start as u32);
            (u64::from(offset) < a.bytes).then_some((a.module, offset))
        })
    }

    /// The module that holds an avma.
    pub fn module_at(&self, avma: u64) -> Option<&Loaded> {
        self.loaded
            .iter()
            .rev()
            .find(|l| avma >= l.start && avma < l.end)
    }
}
