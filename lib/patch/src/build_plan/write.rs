//! The bytes of a plan: its header, and its tables one behind the other.
//!
//! Given what was decided; writes it down. Must not know what it is for.

use sptrace_addr::Svma;
use sptrace_image::Segment;
use sptrace_wire::plan::*;

use super::{HEADER_BYTES, PlanBuilder};
use crate::lanes::lanes;

impl PlanBuilder<'_> {
    /// Where everything will lie in the plan, and what it says of the module as a whole.
    fn header_of(&self, out: &[u8]) -> PlanHeader {
        let code = self.object.code_ranges.iter();
        let text_start = code.clone().map(|r| r.start.0).min().unwrap_or(0);
        let text_end = code.clone().map(|r| r.end().0).max().unwrap_or(0);
        let plt: Vec<_> = code.filter(|r| r.is_plt).collect();
        let plt_start = plt.iter().map(|r| r.start.0).min().unwrap_or(0);
        let plt_end = plt.iter().map(|r| r.end().0).max().unwrap_or(0);
        let plt_offset = |svma: u64| {
            if svma == 0 {
                0
            } else {
                self.offset(Svma(svma))
            }
        };
        let [constants_start, constants_end] = self.constants(text_end);
        let lanes = lanes(self.object);
        let mut at = HEADER_BYTES as u32;
        let mut place = |bytes: usize| {
            let here = at;
            at = (at + bytes as u32 + 7) & !7;
            here
        };
        PlanHeader {
            magic: PLAN_MAGIC,
            version: PLAN_VERSION,
            blob_offset: place(out.len() - HEADER_BYTES),
            functions_offset: place(self.functions.len() * PlanFunction::BYTES),
            sites_offset: place(self.sites.len() * PlanSite::BYTES),
            links_offset: place(self.links.len() * size_of::<u32>()),
            specials_offset: place(self.specials.len() * PlanSpecial::BYTES),
            total_bytes: at,
            area_bytes: (self.area_used + 64 + 4095) & !4095,
            base_svma: self.base.0,
            text_start: self.offset(Svma(text_start)),
            text_end: self.offset(Svma(text_end)),
            functions: self.functions.len() as u32,
            sites: self.sites.len() as u32,
            links: self.links.len() as u32,
            specials: self.specials.len() as u32,
            blob_bytes: (out.len() - HEADER_BYTES) as u32,
            entry: if self.object.entry.0 == 0 {
                0
            } else {
                self.offset(self.object.entry)
            },
            plt_start: plt_offset(plt_start),
            plt_end: plt_offset(plt_end),
            values_bytes: 0,
            values_offset: 0,
            twins: self.twins,
            uses_gs: u32::from(self.leaves_out_gs),
            constants_start,
            constants_end,
            lane_at: lanes.at,
            lane_number: lanes.number,
            in_slot_order: u32::from(self.are_in_slot_order()),
            runtime_functions: self.runtime_functions(),
            hash: 0,
        }
    }

    fn runtime_functions(&self) -> u32 {
        let all = self.functions.iter().filter(|f| f.is_any(FN_RUNTIME));
        all.count() as u32
    }

    fn are_in_slot_order(&self) -> bool {
        let (sites, twins) = self.sites.split_at(self.sites.len() - self.twins as usize);
        [sites, twins]
            .iter()
            .all(|rows| rows.is_sorted_by_key(|row| row.slot))
    }

    /// Where the first segment of constants behind the text begins and ends.
    fn constants(&self, text_end: u64) -> [u32; 2] {
        let is_constant = |s: &&Segment<'_>| !s.executable && !s.writable && s.svma.0 >= text_end;
        let found = self.object.space.segments().iter().find(is_constant);
        let bytes = found.map_or(0, |s| s.bytes.len() as u64);
        let start = found.map_or(self.base, |s| s.svma);
        [start, Svma(start.0 + bytes)].map(|svma| self.offset(svma))
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        let out = std::mem::take(&mut self.out);
        self.written(self.header_of(&out), out)
    }

    /// The plan as it is so far.
    pub(super) fn bytes(&self) -> Vec<u8> {
        self.written(self.header_of(&self.out), self.out.clone())
    }

    /// The plan with this header, given its start up to the templates' end.
    fn written(&self, header: PlanHeader, mut out: Vec<u8>) -> Vec<u8> {
        out.reserve_exact((header.total_bytes as usize).saturating_sub(out.len()));
        out[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
        out.resize(header.functions_offset as usize, 0);
        out.extend(self.functions.iter().flat_map(|r| r.to_bytes()));
        out.resize(header.sites_offset as usize, 0);
        out.extend(self.sites.iter().flat_map(|r| r.to_bytes()));
        out.resize(header.links_offset as usize, 0);
        out.extend(self.links.iter().flat_map(|l| l.to_le_bytes()));
        out.resize(header.specials_offset as usize, 0);
        out.extend(self.specials.iter().flat_map(|r| r.to_bytes()));
        out.resize(header.total_bytes as usize, 0);
        out
    }
}
