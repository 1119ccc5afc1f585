//! A process image as the collector sees it: which modules lie where, and which patch areas.
//!
//! Calls through pointers are recorded with the low half of the callee's address. It stands for one
//! address: a range whose low halves meet those of a range known before becomes *wide*, and the
//! agent writes full addresses for calls into it. What is known is never forgotten while the image
//! lives, so what has been written keeps its meaning.

use std::sync::Arc;

use super::module::{Place, Places};

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
    /// Callees in it are recorded with full addresses.
    pub wide: bool,
}

/// Code without a plan that calls may lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Other {
    /// First avma.
    pub start: u64,
    /// End.
    pub end: u64,
    /// Callees in it are recorded with full addresses.
    pub wide: bool,
}

/// A patch area.
#[derive(Clone, Debug)]
pub struct Area {
    /// First avma.
    pub start: u64,
    /// Bytes.
    pub bytes: u64,
    /// Index of the module.
    pub module: usize,
    /// The module's places.
    pub places: Places,
}

/// The patch areas of a process image.
#[derive(Clone, Debug, Default)]
pub struct Areas {
    /// Newest last.
    all: Vec<Area>,
    /// By the high byte of an id: the area, where there is one only. Large modules have such cells
    /// for themselves.
    cells: Vec<Cell>,
    /// By the page of an id: one more than the index of the newest area there, 0 for none.
    pages: Vec<u16>,
}

#[derive(Clone, Debug, Default)]
struct Cell {
    /// Low half of the area's first avma.
    start: u32,
    areas: u32,
    /// Of the only area; otherwise none.
    places: Places,
}

const CELL_SHIFT: u32 = 24;
/// Ids in the same page are of the same area: areas begin and end at pages.
const PAGE_SHIFT: u32 = 12;

impl Areas {
    /// Adds an area, which is the one meant from here on where it meets others.
    pub fn push(&mut self, area: Area) {
        if self.pages.is_empty() {
            // Not `resize`, which would touch all of it.
            self.pages = vec![0; 1 << (32 - PAGE_SHIFT)];
        }
        let last = area.start + area.bytes.saturating_sub(1);
        for page in area.start >> PAGE_SHIFT..=last >> PAGE_SHIFT {
            let page = page as usize % self.pages.len();
            self.pages[page] = u16::try_from(self.all.len() + 1).unwrap_or(0);
        }
        self.cells.resize(1 << (32 - CELL_SHIFT), Cell::default());
        for cell in area.start >> CELL_SHIFT..=last >> CELL_SHIFT {
            let cell = &mut self.cells[cell as usize % (1 << (32 - CELL_SHIFT))];
            cell.areas += 1;
            (cell.start, cell.places) = match cell.areas {
                1 => (area.start as u32, area.places.clone()),
                _ => (0, Places::default()),
            };
        }
        self.all.push(area);
    }

    /// Nothing is known of the process that has these.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// All of them, newest last: what these are made from by [`Self::push`].
    pub fn list(&self) -> &[Area] {
        &self.all
    }

    /// First avma and bytes of each.
    pub fn ranges(&self) -> Vec<(u64, u64)> {
        self.all.iter().map(|a| (a.start, a.bytes)).collect()
    }

    /// The area that an id lies in, and the offset there.
    pub fn find(&self, id: u32) -> Option<(&Area, u32)> {
        let offset = |area: &Area| id.wrapping_sub(area.start as u32);
        let inside = |area: &Area| u64::from(offset(area)) < area.bytes;
        let area = self.all.iter().rev().find(|a| inside(a))?;
        Some((area, offset(area)))
    }

    /// What an id stands for, if that can be said at once.
    #[inline]
    pub fn quick(&self, id: u32) -> Option<Place> {
        let cell = self.cells.get((id >> CELL_SHIFT) as usize)?;
        let place = cell.places.at(id.wrapping_sub(cell.start));
        if place.is_some() {
            return place;
        }
        let page = *self.pages.get((id >> PAGE_SHIFT) as usize)?;
        let area = self.all.get(usize::from(page).wrapping_sub(1))?;
        area.places.at(id.wrapping_sub(area.start as u32))
    }

    /// What an id stands for, in which area and where there.
    pub fn place(&self, id: u32) -> Option<(Place, &Area, u32)> {
        let (area, offset) = self.find(id)?;
        Some((area.places.at(offset)?, area, offset))
    }
}

/// One exec image of one process.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// Modules, newest last (the newest wins where addresses were used again).
    pub loaded: Vec<Loaded>,
    /// Executable ranges that are left alone.
    pub others: Vec<Other>,
    /// Where ids lie.
    pub areas: Arc<Areas>,
    /// Mappings that were looked at for functions to hook: start and file.
    pub looked_at: Vec<(u64, (String, u64))>,
    /// Number of execs before this image.
    pub execs: u32,
    /// The parent's pid, if known.
    pub parent: u32,
    /// A number that no other image has; 0: none yet.
    pub image: u64,
}

impl Process {
    /// Ranges whose low halves stand for one address each.
    fn narrow(&self) -> impl Iterator<Item = (u64, u64)> {
        let modules = self.loaded.iter().filter(|l| !l.wide);
        let others = self.others.iter().filter(|o| !o.wide);
        let modules = modules.map(|l| (l.start, l.end));
        modules.chain(others.map(|o| (o.start, o.end)))
    }

    /// True if low halves of addresses in a new range would stand for addresses known before, too.
    pub fn is_ambiguous(&self, start: u64, end: u64) -> bool {
        // Modulo 4 GiB two ranges meet if one begins inside the other. If they meet in full, each
        // address is still itself: ranges of less than 2 GiB that touch span less than 4.
        let bytes = |start: u64, end: u64| end.saturating_sub(start);
        let inside = |at: u64, start: u64, end: u64| {
            u64::from((at as u32).wrapping_sub(start as u32)) < bytes(start, end)
        };
        bytes(start, end) >= 1 << 31
            || self.narrow().any(|(s, e)| {
                (inside(start, s, e) || inside(s, start, end)) && !(start < e && s < end)
            })
    }

    /// The avma of a callee of which the low half was recorded; in no known range: that half.
    pub fn from_low_half(&self, low: u32) -> u64 {
        self.narrow()
            .find_map(|(start, end)| {
                let offset = u64::from(low.wrapping_sub(start as u32));
                (offset < end - start).then_some(start + offset)
            })
            .unwrap_or(u64::from(low))
    }

    /// Adds code that is left alone; true if it is wide.
    pub fn leave_alone(&mut self, start: u64, end: u64) -> bool {
        let same = |o: &&Other| o.start == start && o.end == end;
        if let Some(known) = self.others.iter().find(same) {
            return known.wide;
        }
        let wide = self.is_ambiguous(start, end);
        self.others.push(Other { start, end, wide });
        wide
    }

    /// Modules at these addresses are gone, and were not recorded in.
    pub fn unload(&mut self, addresses: &[u64]) {
        let is_gone = |l: &Loaded| addresses.iter().any(|a| l.start <= *a && *a < l.end);
        self.loaded.retain(|l| !is_gone(l));
    }

    /// A module is or was where a new range comes to lie.
    pub fn overlaps(&self, start: u64, end: u64) -> bool {
        self.loaded.iter().any(|l| start < l.end && l.start < end)
    }

    /// The module that holds an avma.
    pub fn module_at(&self, avma: u64) -> Option<&Loaded> {
        self.loaded
            .iter()
            .rev()
            .find(|l| avma >= l.start && avma < l.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIBRARY: u64 = 0x7f12_3456_7000;

    fn process() -> Process {
        let mut p = Process::default();
        assert!(!p.leave_alone(LIBRARY, LIBRARY + 0x2000));
        p
    }

    #[test]
    fn a_low_half_gives_the_address_back() {
        let p = process();
        assert_eq!(p.from_low_half((LIBRARY + 0x1234) as u32), LIBRARY + 0x1234);
        assert_eq!(p.from_low_half(0x3456_9000), 0x3456_9000);
    }

    #[test]
    fn a_newcomer_with_the_same_low_halves_is_wide_and_changes_nothing() {
        let mut p = process();
        let program = LIBRARY - (5 << 32);
        assert!(p.leave_alone(program - 0x1000, program + 1));
        assert!(p.is_ambiguous(program + 0x1fff, program + 0x9000));
        assert!(p.is_ambiguous(program - 0x1000, program + 0x9000));
        assert!(!p.is_ambiguous(program - 0x1000, program));
        assert!(!p.is_ambiguous(program + 0x2000, program + 0x9000));
        assert_eq!(p.from_low_half(program as u32), LIBRARY);
    }

    #[test]
    fn code_mapped_anew_at_the_same_place_is_not_ambiguous() {
        assert!(!process().is_ambiguous(LIBRARY - 0x1000, LIBRARY + 0x1000));
    }

    #[test]
    fn a_range_may_cross_four_gibibytes() {
        let mut p = Process::default();
        let edge = 0x7f13_0000_0000;
        assert!(!p.leave_alone(edge - 0x1000, edge + 0x1000));
        assert_eq!(p.from_low_half(0x10), edge + 0x10);
        assert_eq!(p.from_low_half(0xffff_fff0), edge - 0x10);
        assert!(p.is_ambiguous(0x800, 0x900));
        assert!(!p.is_ambiguous(0x40_0000, 0x50_0000));
    }
}
