//! Sites in 16 bytes each.
//!
//! There is one site for some fifty bytes of code, so that their size decides what an analysis
//! costs in memory. Targets are kept as distances from the site. What does not fit (rare fields,
//! far addresses of odd files) is kept whole in a second list, so nothing is ever lost.

use sptrace_addr::Svma;

use crate::site::{Site, SiteFlags, SiteKind};

/// Distance of an address that is 0: none.
const NONE: i32 = i32::MIN;
/// [`Packed::kind`]: kept whole; `address` is the index.
const WHOLE: u8 = u8::MAX;

/// A list of sites, read by value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sites {
    /// Of the first site that was added.
    base: Svma,
    packed: Vec<Packed>,
    whole: Vec<Site>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Packed {
    /// From the base.
    address: u32,
    target: i32,
    got_slot: i32,
    length: u8,
    kind: u8,
    /// Bytes from the window's start to the site.
    window: u8,
    flags: u8,
}

impl Sites {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.packed.len()
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.packed.is_empty()
    }

    /// Site number `index`.
    pub fn get(&self, index: usize) -> Option<Site> {
        let packed = self.packed.get(index)?;
        match packed.kind {
            WHOLE => self.whole.get(packed.address as usize).copied(),
            _ => packed.unpack(self.base),
        }
    }

    /// All, in order.
    pub fn iter(&self) -> impl Iterator<Item = Site> + Clone + '_ {
        self.run(0, self.len())
    }

    /// Up to `count` sites from number `first` on.
    pub fn run(&self, first: usize, count: usize) -> impl Iterator<Item = Site> + Clone + '_ {
        let end = first.saturating_add(count).min(self.len());
        (first..end).filter_map(|index| self.get(index))
    }

    /// Appends a site.
    pub fn push(&mut self, site: Site) {
        if self.is_empty() {
            self.base = site.address;
        }
        let packed = Packed::pack(&site, self.base).filter(|p| p.unpack(self.base) == Some(site));
        let packed = packed.unwrap_or_else(|| {
            self.whole.push(site);
            Packed::whole(self.whole.len() - 1)
        });
        self.packed.push(packed);
    }

    /// Makes room for exactly so many more.
    pub fn reserve_exact(&mut self, count: usize) {
        self.packed.reserve_exact(count);
    }

    /// Gives back what is allocated beyond need.
    pub fn shrink_to_fit(&mut self) {
        self.packed.shrink_to_fit();
        self.whole.shrink_to_fit();
    }
}

impl Extend<Site> for Sites {
    fn extend<I: IntoIterator<Item = Site>>(&mut self, sites: I) {
        sites.into_iter().for_each(|site| self.push(site));
    }
}

impl FromIterator<Site> for Sites {
    fn from_iter<I: IntoIterator<Item = Site>>(sites: I) -> Self {
        let mut all = Self::default();
        all.extend(sites);
        all
    }
}

impl Packed {
    fn whole(index: usize) -> Self {
        Self {
            address: index as u32,
            target: 0,
            got_slot: 0,
            length: 0,
            kind: WHOLE,
            window: 0,
            flags: 0,
        }
    }

    /// `None` when a field does not fit; the fields that this has no room for are lost.
    fn pack(site: &Site, base: Svma) -> Option<Self> {
        let distance = |to: Svma| match to {
            Svma(0) => Some(NONE),
            _ => i32::try_from(to.0.wrapping_sub(site.address.0) as i64).ok(),
        };
        let window = site.address.0.wrapping_sub(site.window_start.0);
        Some(Self {
            address: u32::try_from(site.address.0.wrapping_sub(base.0)).ok()?,
            target: distance(site.target)?,
            got_slot: distance(site.got_slot)?,
            length: site.length,
            kind: site.kind as u8,
            window: u8::try_from(window).ok()?,
            flags: site.flags.0,
        })
    }

    fn unpack(&self, base: Svma) -> Option<Site> {
        let address = base.0.wrapping_add(u64::from(self.address));
        let at = |distance: i32| match distance {
            NONE => Svma(0),
            _ => Svma(address.wrapping_add_signed(i64::from(distance))),
        };
        Some(Site {
            target: at(self.target),
            got_slot: at(self.got_slot),
            window_start: Svma(address.wrapping_sub(u64::from(self.window))),
            flags: SiteFlags(self.flags),
            ..Site::new(Svma(address), self.length, SiteKind::of_number(self.kind)?)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_and_what_does_not_comes_back_as_it_was() {
        let plain = |address| Site {
            target: Svma(address + 0x123),
            flags: SiteFlags(31),
            window_start: Svma(address - 15),
            ..Site::new(Svma(address), 15, SiteKind::TailConditional)
        };
        let base = plain(0x7000_0000);
        let sites = [
            base,
            plain(0x7000_0100),
            // Fits no distance, or no offset from the base.
            Site {
                got_slot: Svma(1),
                ..plain(u64::MAX - 0x1000)
            },
            Site {
                target: Svma(base.address.0.wrapping_sub(1 << 31)),
                ..base
            },
            plain(0x6fff_ffff),
            plain(0x1_7000_0001),
            Site {
                way_in: Svma(5),
                ..base
            },
            Site {
                window_start: Svma(0),
                ..base
            },
            Site {
                target: base.address,
                got_slot: Svma(0x7fff_0000),
                ..base
            },
        ];
        let packed: Sites = sites.into_iter().collect();
        assert_eq!(packed.iter().collect::<Vec<_>>(), sites);
        assert_eq!(packed.whole.len(), 6);
        assert_eq!(packed.get(sites.len()), None);
        assert_eq!(packed.run(7, usize::MAX).count(), 2);
    }
}
