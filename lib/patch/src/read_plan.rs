//! Reading a plan on the host: which place in a patch area belongs to which site.
//!
//! Plans come from our own cache, whose bytes are checked as a whole; every access is checked all the
//! same.

use sptrace_wire::plan::*;

/// The header's bytes, in the order of its fields.
pub fn header_bytes(h: &PlanHeader) -> Vec<u8> {
    let mut out = Vec::with_capacity(size_of::<PlanHeader>());
    for v in [h.magic, h.version, h.total_bytes, h.area_bytes] {
        out.extend(v.to_le_bytes());
    }
    out.extend(h.base_svma.to_le_bytes());
    for v in [
        h.text_start,
        h.text_end,
        h.functions,
        h.functions_offset,
        h.sites,
        h.sites_offset,
        h.links,
        h.links_offset,
        h.specials,
        h.specials_offset,
        h.blob_bytes,
        h.blob_offset,
        h.entry,
        h.plt_start,
        h.plt_end,
        h.hash,
    ] {
        out.extend(v.to_le_bytes());
    }
    debug_assert_eq!(out.len(), size_of::<PlanHeader>());
    out
}

/// A plan's bytes.
#[derive(Clone, Copy)]
pub struct PlanReader<'a> {
    bytes: &'a [u8],
}

/// What a place in a patch area stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Entry of a site.
    Entry,
    /// Exit of a site.
    Exit,
}

impl<'a> PlanReader<'a> {
    /// None: not a plan of this version, or one whose sections lie outside it.
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        let r = Self { bytes };
        let h = r.header();
        let ours = h.magic == PLAN_MAGIC && h.version == PLAN_VERSION;
        let sections = [
            (h.functions_offset, h.functions, size_of::<PlanFunction>()),
            (h.sites_offset, h.sites, size_of::<PlanSite>()),
            (h.links_offset, h.links, 4),
            (h.specials_offset, h.specials, size_of::<PlanSpecial>()),
            (h.blob_offset, h.blob_bytes, 1),
        ];
        let total_bytes = h.total_bytes as usize;
        let whole = bytes.len() >= size_of::<PlanHeader>()
            && total_bytes <= bytes.len()
            && sections.iter().all(|(offset, count, size)| {
                *offset as usize + *count as usize * size <= total_bytes
            });
        (whole && ours).then_some(r)
    }

    fn u32(&self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(
            self.bytes.get(at..at + 4)?.try_into().ok()?,
        ))
    }

    /// The header (zeroes where the bytes end).
    pub fn header(&self) -> PlanHeader {
        let v = |i: usize| self.u32(i).unwrap_or(0);
        PlanHeader {
            magic: v(0),
            version: v(4),
            total_bytes: v(8),
            area_bytes: v(12),
            base_svma: u64::from(v(16)) | u64::from(v(20)) << 32,
            text_start: v(24),
            text_end: v(28),
            functions: v(32),
            functions_offset: v(36),
            sites: v(40),
            sites_offset: v(44),
            links: v(48),
            links_offset: v(52),
            specials: v(56),
            specials_offset: v(60),
            blob_bytes: v(64),
            blob_offset: v(68),
            entry: v(72),
            plt_start: v(76),
            plt_end: v(80),
            hash: v(84),
        }
    }

    /// Site `i`.
    pub fn site(&self, i: u32) -> Option<PlanSite> {
        let h = self.header();
        if i >= h.sites {
            return None;
        }
        let at = h.sites_offset as usize + i as usize * 16;
        let tail = self.bytes.get(at + 12..at + 16)?;
        Some(PlanSite {
            start: self.u32(at)?,
            slot: self.u32(at + 4)?,
            argument: self.u32(at + 8)?,
            span: tail[0],
            form: tail[1],
            tactic: tail[2],
            flags: tail[3],
        })
    }

    /// Function `i`.
    pub fn function(&self, i: u32) -> Option<PlanFunction> {
        let h = self.header();
        if i >= h.functions {
            return None;
        }
        let at = h.functions_offset as usize + i as usize * size_of::<PlanFunction>();
        let tail = self.bytes.get(at + 12..at + 16)?;
        Some(PlanFunction {
            entry: self.u32(at)?,
            first_site: self.u32(at + 4)?,
            first_link: self.u32(at + 8)?,
            site_count: u16::from_le_bytes([tail[0], tail[1]]),
            link_count: tail[2],
            flags: tail[3],
        })
    }

    /// Svma of function `i`.
    pub fn function_entry(&self, i: u32) -> Option<u64> {
        let h = self.header();
        let offset = self
            .u32((h.functions_offset + i * 16) as usize)
            .filter(|_| i < h.functions)?;
        Some(h.base_svma + u64::from(offset))
    }

    /// Flags of the function that begins at `svma`; 0 if there is none.
    pub fn function_flags(&self, svma: u64) -> u8 {
        let h = self.header();
        let want = svma.wrapping_sub(h.base_svma) as u32;
        let at = |i: u32| h.functions_offset as usize + i as usize * 16;
        let (mut low, mut high) = (0, h.functions);
        while low < high {
            let middle = (low + high) / 2;
            if self.u32(at(middle)).is_some_and(|entry| entry < want) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let is_it = low < h.functions && self.u32(at(low)) == Some(want);
        let flags = self.bytes.get(at(low) + 15).filter(|_| is_it);
        flags.copied().unwrap_or(0)
    }

    /// The special functions.
    pub fn specials(&self) -> Vec<PlanSpecial> {
        let h = self.header();
        let one = |i: u32| {
            let at = h.specials_offset as usize + i as usize * 24;
            Some(PlanSpecial {
                entry: self.u32(at)?,
                kind: self.u32(at + 4)?,
                slot: self.u32(at + 8)?,
                argument: self.u32(at + 12)?,
                start: self.u32(at + 16)?,
                span: self.u32(at + 20)?,
            })
        };
        (0..h.specials).map_while(one).collect()
    }

    /// Where the text jumps to, as an offset in the patch area.
    pub fn slot_entry(&self, site: &PlanSite) -> Option<u32> {
        match site.form {
            FORM_DIRECT => Some(site.slot + DIRECT_ENTRY),
            FORM_TEMPLATE => Some(site.slot),
            _ => None,
        }
    }

    /// Text outside the site that its patch covers, as offsets: the long jump of a two-byte one, and
    /// what was moved to make room for it.
    pub fn springboard(&self, site: &PlanSite) -> Option<(u32, u32)> {
        if site.form != FORM_TEMPLATE || site.flags & SITE_SPRINGBOARD == 0 {
            return None;
        }
        let at = self.header().blob_offset as usize + site.argument as usize;
        let t = self.bytes.get(at..at + 8)?;
        let spring = (site.start + 2).wrapping_add_signed(i32::from(t[6] as i8));
        let back = match t[7] {
            0 => 0,
            _ => u32::from(*self.bytes.get(at + 8 + usize::from(t[2]))?),
        };
        Some((spring.wrapping_sub(back), spring + 5))
    }

    /// Offsets in the slot of the entry and exit ids (0: none) and, for direct sites, the callee's
    /// svma.
    pub fn ids(&self, site: &PlanSite) -> Option<(u32, u32, Option<u64>)> {
        let base = self.header().base_svma;
        match site.form {
            FORM_DIRECT => Some((8, 18, Some(base.wrapping_add(u64::from(site.argument))))),
            FORM_TEMPLATE => {
                let at = self.header().blob_offset as usize + site.argument as usize;
                let t = self.bytes.get(at..at + 8)?;
                let (entry, exit) = (u32::from(t[4]), u32::from(t[5]));
                let callee = if site.flags & SITE_INDIRECT == 0 {
                    // Of the call or jump that follows the entry id.
                    self.address_at(at, entry + 1)
                } else {
                    None
                };
                Some((entry, exit, callee))
            }
            _ => None,
        }
    }

    /// The GOT slot whose content an indirect call or jump pushes.
    pub fn got_slot(&self, site: &PlanSite) -> Option<u64> {
        if site.form != FORM_TEMPLATE || site.flags & SITE_INDIRECT == 0 {
            return None;
        }
        let at = self.header().blob_offset as usize + site.argument as usize;
        let entry = u32::from(*self.bytes.get(at + 4)?);
        // The entry id follows `push [rip+x]; call`.
        self.address_at(at, entry.checked_sub(9)?)
    }

    /// What the rel32 at `position` of the slot of the template at `at` leads to.
    fn address_at(&self, at: usize, position: u32) -> Option<u64> {
        let t = self.bytes.get(at..at + 8)?;
        let room_at = at + 8 + usize::from(t[2]);
        let room_bytes = match t[7] {
            0 => 0,
            _ => 2 + usize::from(*self.bytes.get(room_at + 1)?),
        };
        let fixups = room_at + room_bytes + usize::from(t[0]);
        (0..usize::from(t[1])).find_map(|k| {
            let f = self.bytes.get(fixups + k * 8..fixups + k * 8 + 8)?;
            let value = i32::from_le_bytes(f[4..8].try_into().ok()?);
            (u32::from(f[0]) == position && f[2] == TO_TEXT)
                .then(|| self.header().base_svma.wrapping_add(value as i64 as u64))
        })
    }
}
