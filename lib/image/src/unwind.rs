//! Unwind ranges: the FDEs of .eh_frame and the landing pads of their LSDAs.
//!
//! The section is found by its header or through PT_GNU_EH_FRAME. The language-specific data area
//! is the one of GCC's C++ and Rust personalities (no specification but "Exception Handling
//! Tables", Itanium C++ ABI). Broken entries are left out.

use gimli::{
    BaseAddresses, CallFrameInstruction, CfaRule, CieOrFde, CommonInformationEntry, EhFrame,
    EhFrameOffset, EndianSlice, LittleEndian, Pointer, UnwindContext, UnwindSection,
};
use sptrace_addr::Svma;

use crate::lsda::{self, LandingPad};
use crate::space::Space;

type Slice<'data> = EndianSlice<'data, LittleEndian>;
type Cie<'data> = CommonInformationEntry<Slice<'data>>;

/// DWARF number of rsp.
const RSP: gimli::Register = gimli::Register(7);

/// One frame description entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fde {
    /// First address it covers.
    pub start: Svma,
    /// End of what it covers, exclusive.
    pub end: Svma,
    /// In its first row the canonical frame address is rsp+8, as at a function's entry.
    pub entry_like: bool,
    /// A signal frame (`__restore_rt`).
    pub is_signal_frame: bool,
    /// Size of the entry in the section, which bounds the cost of reading it.
    pub entry_bytes: usize,
    /// Offset of the entry in the section.
    offset: usize,
}

/// All FDEs of an image.
#[derive(Debug, Clone)]
pub struct Unwind<'data> {
    section: EhFrame<Slice<'data>>,
    bases: BaseAddresses,
    fdes: Vec<Fde>,
    landing_pads: Vec<LandingPad>,
}

impl<'data> Unwind<'data> {
    pub(crate) fn read(
        section: &'data [u8],
        svma: Svma,
        space: &Space<'data>,
        is_code: &dyn Fn(Svma) -> bool,
    ) -> Self {
        let mut unwind = Self {
            section: EhFrame::new(section, LittleEndian),
            bases: BaseAddresses::default().set_eh_frame(svma.0),
            fdes: Vec::new(),
            landing_pads: Vec::new(),
        };
        unwind.read_entries(space, is_code);
        unwind.fdes.sort_by_key(|f| (f.start, f.offset));
        unwind.fdes.dedup_by_key(|f| f.start);
        unwind.landing_pads.sort_unstable();
        unwind.landing_pads.dedup();
        unwind
    }

    /// Sorted by start, one for each start.
    pub fn fdes(&self) -> &[Fde] {
        &self.fdes
    }

    /// Where exceptions land, sorted by pad.
    pub fn landing_pads(&self) -> &[LandingPad] {
        &self.landing_pads
    }

    /// The FDE that covers `svma`.
    pub fn fde_at(&self, svma: Svma) -> Option<&Fde> {
        let after = self.fdes.partition_point(|f| f.start <= svma);
        let fde = &self.fdes[after.checked_sub(1)?];
        (svma < fde.end).then_some(fde)
    }

    /// Functions whose frame saves rax and rdx (DWARF 0 and 1): those that use
    /// `__builtin_eh_return` to land in a handler, that is the unwinder's entry points, whatever
    /// they are called. Reads every FDE.
    pub fn eh_return_functions(&self) -> Vec<Svma> {
        let saves_both = |fde: &Fde| {
            let fde = self
                .section
                .fde_from_offset(
                    &self.bases,
                    EhFrameOffset(fde.offset),
                    EhFrame::cie_from_offset,
                )
                .ok()?;
            let mut saved = [false; 2];
            let mut instructions = fde.instructions(&self.section, &self.bases);
            while let Ok(Some(instruction)) = instructions.next() {
                if let CallFrameInstruction::Offset { register, .. } = instruction
                    && let Some(s) = saved.get_mut(usize::from(register.0))
                {
                    *s = true;
                }
            }
            (saved == [true; 2]).then_some(())
        };
        self.fdes
            .iter()
            .filter(|f| saves_both(f).is_some())
            .map(|f| f.start)
            .collect()
    }

    /// Whether the canonical frame address at `svma` is rsp+8, as at a function's entry; `None`
    /// when no FDE says.
    pub fn is_entry_frame_at(&self, svma: Svma) -> Option<bool> {
        let fde = self.fde_at(svma)?;
        let fde = self
            .section
            .fde_from_offset(
                &self.bases,
                EhFrameOffset(fde.offset),
                EhFrame::cie_from_offset,
            )
            .ok()?;
        let mut context = UnwindContext::new();
        let row = fde
            .unwind_info_for_address(&self.section, &self.bases, &mut context, svma.0)
            .ok()?;
        Some(is_entry_cfa(row.cfa()))
    }

    fn read_entries(&mut self, space: &Space<'data>, is_code: &dyn Fn(Svma) -> bool) {
        let (section, bases) = (self.section, self.bases.clone());
        let mut entries = section.entries(&bases);
        let mut known: Option<(EhFrameOffset, Cie<'data>, bool)> = None;
        let mut lsda_budget = lsda::Budget::new(space);
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(partial) = entry else {
                continue;
            };
            let cie_offset = partial.cie_offset();
            if known
                .as_ref()
                .is_none_or(|(offset, ..)| *offset != cie_offset)
            {
                known = section.cie_from_offset(&bases, cie_offset).ok().map(|cie| {
                    let entry_like = first_row(cie.instructions(&section, &bases), false);
                    (cie_offset, cie, entry_like)
                });
            }
            let Some((_, cie, cie_entry_like)) = &known else {
                continue;
            };
            let Ok(fde) = partial.parse(|_, _, _| Ok(cie.clone())) else {
                continue;
            };
            let start = Svma(fde.initial_address());
            let Some(end) = start.0.checked_add(fde.len()).map(Svma) else {
                continue;
            };
            if end <= start || !is_code(start) {
                continue;
            }
            let entry_like = first_row(fde.instructions(&section, &bases), *cie_entry_like);
            if let Some(lsda) = fde.lsda().and_then(|p| direct(p, space)) {
                lsda_budget.read_landing_pads(space, lsda, start, &mut self.landing_pads);
            }
            let is_signal_frame = fde.is_signal_trampoline();
            let (offset, entry_bytes) = (fde.offset(), fde.entry_len());
            let fde = Fde {
                start,
                end,
                entry_like,
                is_signal_frame,
                entry_bytes,
                offset,
            };
            self.fdes.push(fde);
        }
        self.landing_pads.retain(|p| is_code(p.pad));
    }
}

fn direct(pointer: Pointer, space: &Space<'_>) -> Option<Svma> {
    match pointer {
        Pointer::Direct(svma) => Some(Svma(svma)),
        Pointer::Indirect(svma) => space.read_u64(Svma(svma)).map(Svma),
    }
    .filter(|svma| svma.0 != 0)
}

fn is_entry_cfa(cfa: &CfaRule<usize>) -> bool {
    matches!(cfa, CfaRule::RegisterAndOffset { register, offset: 8 } if *register == RSP)
}

/// Whether CFA = rsp+8 holds in the first row, that is before the first advance.
fn first_row(
    mut instructions: gimli::CallFrameInstructionIter<'_, Slice<'_>>,
    inherited: bool,
) -> bool {
    use CallFrameInstruction as Op;
    let (mut register, mut offset) = if inherited {
        (RSP, 8)
    } else {
        (gimli::Register(u16::MAX), 0)
    };
    while let Ok(Some(op)) = instructions.next() {
        match op {
            Op::AdvanceLoc { delta: 1.. } | Op::SetLoc { .. } => break,
            Op::DefCfa {
                register: r,
                offset: o,
            } => (register, offset) = (r, o),
            Op::DefCfaRegister { register: r } => register = r,
            Op::DefCfaOffset { offset: o } => offset = o,
            Op::DefCfaSf { .. } | Op::DefCfaOffsetSf { .. } | Op::DefCfaExpression { .. } => {
                offset = 0;
            }
            _ => {}
        }
    }
    register == RSP && offset == 8
}
