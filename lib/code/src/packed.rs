//! Sites in 16 bytes each.
//!
//! There is one site for some fifty bytes of code, so that their size decides what an analysis
//! costs in memory. Targets are kept as distances from the site. What does not fit (rare fields,
//! far addresses of odd files) is kept whole in a second list, so nothing is ever lost.

use sptrace_addr::Svma;

use crate::site::{Site, SiteFlags, SiteKind};

/// Distance of an address that is 0: none.
const NONE: i32 = i32::MIN;
/// How many of the bits of [`Packed::kind_and_flags`] are the kind.
const KIND_BITS: u32 = 3;
/// As a kind: kept whole; `address` is the index.
const WHOLE: u8 = (1 << KIND_BITS) - 1;
/// How many of the bits of [`Packed::window_and_length`] are the length.
const LENGTH_BITS: u32 = 4;

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
    /// Length, and above it the bytes from the window's start to the site.
    window_and_length: u8,
    /// Kind, and above it the flags.
    kind_and_flags: u8,
    leaders_behind: u16,
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
        match packed.kind() {
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
            window_and_length: 0,
            kind_and_flags: WHOLE,
            leaders_behind: 0,
        }
    }

    fn kind(&self) -> u8 {
        self.kind_and_flags & WHOLE
    }

    /// `None` when a distance does not fit; of other fields what this has no room for is lost.
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
            window_and_length: u8::try_from(window).ok()? << LENGTH_BITS
                | site.length & ((1 << LENGTH_BITS) - 1),
            kind_and_flags: site.flags.0 << KIND_BITS | site.kind as u8,
            leaders_behind: site.leaders_behind,
        })
    }

    fn unpack(&self, base: Svma) -> Option<Site> {
        let address = base.0.wrapping_add(u64::from(self.address));
        let at = |distance: i32| match distance {
            NONE => Svma(0),
            _ => Svma(address.wrapping_add_signed(i64::from(distance))),
        };
        let length = self.window_and_length & ((1 << LENGTH_BITS) - 1);
        let window = self.window_and_length >> LENGTH_BITS;
        let kind = SiteKind::of_number(self.kind())?;
        Some(Site {
            target: at(self.target),
            got_slot: at(self.got_slot),
            window_start: Svma(address.wrapping_sub(u64::from(window))),
            leaders_behind: self.leaders_behind,
            flags: SiteFlags(self.kind_and_flags >> KIND_BITS),
            ..Site::new(Svma(address), length, kind)
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
            leaders_behind: 0x8001,
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
            // No room in its bits.
            Site { length: 16, ..base },
            Site {
                window_start: Svma(base.address.0 - 16),
                ..base
            },
            Site {
                flags: SiteFlags(32),
                ..base
            },
        ];
        let packed: Sites = sites.into_iter().collect();
        assert_eq!(packed.iter().collect::<Vec<_>>(), sites);
        assert_eq!(packed.whole.len(), 9);
        assert_eq!(size_of::<Packed>(), 16);
        assert_eq!(packed.get(sites.len()), None);
        assert_eq!(packed.run(10, usize::MAX).count(), 2);
    }
}
