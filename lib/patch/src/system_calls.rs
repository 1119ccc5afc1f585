//! Interceptions of the instructions that call the kernel, for one recording (`--syscalls`).
//!
//! Given the image, its analysis and the plan; gives for each `syscall` a range of text that a jump
//! covers, and a slot in which the instruction itself is executed between two events:
//!
//! ```text
//!   [moved instructions]
//!   lea rsp, [rsp-128]       below the red zone (System V ABI for x86-64, section 3.2.2)
//!   call SYSTEM_CALL
//!   lea rsp, [rsp+128]
//!   syscall                  begun again by the kernel, it is this one
//!   lea rsp, [rsp-128]
//!   call SYSTEM_RETURN
//!   lea rsp, [rsp+128]
//!   jmp back
//! ```
//!
//! None changes a flag. Where a site of the plan covers some of the bytes, or no jump has room, the
//! instruction is left alone, with the reason. Must not know which call is made.

use std::collections::HashSet;

use iced_x86::{Decoder, DecoderOptions, Mnemonic, OpKind, Register};
use sptrace_addr::Svma;
use sptrace_code::{Analysis, Function, Site, SiteFlags, number_before};
use sptrace_image::Object;
use sptrace_wire::plan::*;

use crate::covered::Covered;
use crate::handlers::{Handler, handlers};
use crate::kept::{Keep, Kept};
use crate::springboard::Springboards;
use crate::tactic::{JUMP_BYTES, Refusal};
use crate::template::Builder;

/// `mov rax, 15` and `mov eax, 15`: what unwinders look for before the instruction (libgcc's
/// fallback, gdb). The unwind table has such a function begin one byte too early, so that its code
/// cannot be decoded from there.
const SIGNAL_RETURN: [&[u8]; 2] = [&[0x48, 0xc7, 0xc0, 15, 0, 0, 0], &[0xb8, 15, 0, 0, 0]];

// arch/x86/entry/syscalls/syscall_64.tbl.
const MUNMAP: u32 = 11;
const RT_SIGRETURN: u32 = 15;
const EXIT: u32 = 60;

/// How an instruction that calls the kernel is intercepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interception {
    /// The instruction, as offset in the module.
    pub at: u32,
    /// The number of the call, if the instructions before say it.
    pub number: Option<u32>,
    /// Where the text is changed.
    pub start: u32,
    /// How many bytes of it are covered.
    pub span: u8,
    /// A two-byte jump leads to the long one.
    pub has_springboard: bool,
    /// Its code, and what depends on where things lie.
    pub template: Vec<u8>,
    /// Bytes of its slot.
    pub slot_bytes: u32,
}

/// An instruction that calls the kernel and is left alone.
#[derive(Clone, Copy, Debug)]
pub struct RefusedCall {
    /// Its address.
    pub at: Svma,
    /// The number of the call, if the instructions before say it.
    pub number: Option<u32>,
    /// Why.
    pub why: Refusal,
}

/// What can be intercepted, sorted by address, and what is left alone and why.
#[derive(Debug, Default)]
pub struct SystemCalls {
    /// Intercepted.
    pub taken: Vec<Interception>,
    /// Left alone.
    pub refused: Vec<RefusedCall>,
    /// Functions that may come to be signal handlers.
    pub handlers: Vec<Handler>,
}

/// Looks at every instruction that calls the kernel. `plan`: the module's; nothing is found if the
/// bytes are none.
pub fn system_calls(object: &Object<'_>, analysis: &Analysis, plan: &[u8]) -> SystemCalls {
    let Some(plan) = PlanView::new(plan) else {
        return SystemCalls::default();
    };
    let mut finder = Finder {
        object,
        base: Svma(plan.header().base_svma),
        covered: Covered::by(plan),
        springboards: Springboards::find(object, analysis),
    };
    let kept = Kept::of(object, analysis);
    let mut found = SystemCalls::default();
    let without_stack = without_stack(object, analysis);
    for site in analysis.system_calls.iter() {
        let site = with_number(object, analysis, site);
        let function = analysis.function_at(site.address);
        let result = match function.map(|i| &analysis.functions[i]) {
            _ if ends_handler(object, site.address) => Err(Refusal::SignalReturn),
            _ if without_stack.contains(&site.address) => Err(Refusal::GivesStackBack),
            Some(f) if kept.in_function(f) != Keep::Bytes => finder.find(f, &site),
            _ => Err(Refusal::CopiedCode),
        };
        match result {
            Ok(taken) => found.taken.push(taken),
            Err(why) => found.refused.push(RefusedCall {
                at: site.address,
                number: match why {
                    Refusal::SignalReturn => Some(RT_SIGRETURN),
                    _ => number_before(object, &site),
                },
                why,
            }),
        }
    }
    found.taken.sort_unstable_by_key(|taken| taken.start);
    let calls = found.taken.iter();
    finder
        .covered
        .add(calls.map(|t| (t.start, t.start + u32::from(t.span))));
    let is_free = |start, end| finder.covered.is_free(start, end);
    found.handlers = handlers(object, analysis, (finder.base, &kept), &is_free);
    found
}

/// True if the instruction at `at` calls rt_sigreturn(2).
fn ends_handler(object: &Object<'_>, at: Svma) -> bool {
    let is_before = |bytes: &&[u8]| {
        let start = Svma(at.0.saturating_sub(bytes.len() as u64));
        let code = object.code_from(start);
        code.is_some_and(|code| code.starts_with(bytes))
    };
    SIGNAL_RETURN.iter().any(is_before)
}

/// The instructions at which, or behind which, a thread has no stack any more: two that unmap it
/// and then end the thread (musl's src/thread/x86_64/__unmapself.s), and in Go the one that ends
/// it, before which another thread was told to take it (runtime.exitThread, sys_linux_amd64.s).
fn without_stack(object: &Object<'_>, analysis: &Analysis) -> HashSet<Svma> {
    let mut found = HashSet::new();
    for site in analysis.system_calls.iter() {
        match number_before(object, &site) {
            Some(EXIT) if object.keeps_stack_maps => {
                found.insert(site.address);
            }
            Some(MUNMAP) => {
                let end = ends_thread(object, &site);
                found.extend(end.into_iter().flat_map(|end| [site.address, end]));
            }
            _ => {}
        }
    }
    found
}

/// The instruction by which the thread ends right behind this site.
fn ends_thread(object: &Object<'_>, site: &Site) -> Option<Svma> {
    const MOST: usize = 6;
    let behind = Svma(site.address.0 + u64::from(site.length));
    let decoder = Decoder::with_ip(
        64,
        object.code_from(behind)?,
        behind.0,
        DecoderOptions::NONE,
    );
    let mut number = None;
    for i in decoder.into_iter().take(MOST) {
        let is_register = i.op0_kind() == OpKind::Register;
        match i.mnemonic() {
            Mnemonic::Syscall => return (number == Some(EXIT.into())).then_some(Svma(i.ip())),
            Mnemonic::Mov if is_register && i.op0_register().full_register() == Register::RAX => {
                number = i.try_immediate(1).ok();
            }
            Mnemonic::Mov | Mnemonic::Xor if is_register => {}
            _ => return None,
        }
    }
    None
}

/// The site with the instruction before it that sets its number, where the unwind table ends a
/// function between the two (glibc's clone3, whose child has no caller) and no branch of that
/// function leads there.
fn with_number(object: &Object<'_>, analysis: &Analysis, mut site: Site) -> Site {
    const MOV_EAX_BYTES: u64 = 5;
    const MOV_EAX: u8 = 0xb8;
    let start = Svma(site.address.0.saturating_sub(MOV_EAX_BYTES));
    let is_cut = |f: &Function| f.end == site.address && f.entry < start;
    let before = analysis.function_at(start).map(|i| &analysis.functions[i]);

    let Some(before) = before.filter(|f| site.window_start == site.address && is_cut(f)) else {
        return site;
    };
    let bytes = (before.end.0 - before.entry.0) as usize;
    let code = object.code_from(before.entry).and_then(|c| c.get(..bytes));
    let options = iced_x86::DecoderOptions::NONE;
    let decode = |code| iced_x86::Decoder::with_ip(64, code, before.entry.0, options);
    let is_set = code.is_some_and(|code| {
        let last = code[bytes - MOV_EAX_BYTES as usize] == MOV_EAX;
        let mut all = decode(code).into_iter();
        let is_boundary = decode(code).into_iter().any(|i| i.ip() == start.0);
        let targets = start.0 + 1..=site.address.0;
        last && is_boundary && !all.any(|i| targets.contains(&i.near_branch_target()))
    });
    if is_set {
        site.window_start = start;
    }
    site
}

/// The plan with these interceptions among its special functions, their slots behind all others.
/// `None`: the bytes are no plan.
pub fn with_system_calls(plan: &[u8], found: &SystemCalls) -> Option<Vec<u8>> {
    let view = PlanView::new(plan)?;
    let old = view.header();
    let mut slot = old.area_bytes;
    let blob_start = old.blob_bytes.next_multiple_of(8);
    let mut blob: Vec<u8> = Vec::new();
    let mut specials: Vec<_> = view.specials().collect();
    for handler in &found.handlers {
        specials.push(PlanSpecial {
            entry: handler.entry,
            kind: SpecialKind::Handler,
            slot,
            argument: blob_start + blob.len() as u32,
            start: handler.start,
            span: handler.span,
            rules: u16::from(handler.is_one_instruction),
            ..PlanSpecial::default()
        });
        slot += handler.slot_bytes.next_multiple_of(8);
        blob.extend(&handler.template);
    }
    for taken in &found.taken {
        specials.push(PlanSpecial {
            entry: taken.at,
            kind: match taken.has_springboard {
                true => SpecialKind::SystemCallFar,
                false => SpecialKind::SystemCall,
            },
            slot,
            argument: blob_start + blob.len() as u32,
            start: taken.start,
            span: taken.span,
            opens: PlanSpecial::number_word(taken.number),
            ..PlanSpecial::default()
        });
        slot += taken.slot_bytes.next_multiple_of(8);
        blob.extend(&taken.template);
    }
    let base = old.base_svma;
    specials.extend(found.refused.iter().map(|call| {
        let entry = call.at.0.wrapping_sub(base) as u32;
        refused_call(entry, call.number, call.why)
    }));
    rewritten(view, plan, &specials, &blob, slot)
}

/// An instruction that calls the kernel and is left alone; `number`: of the call, if that is known.
pub(crate) fn refused_call(entry: u32, number: Option<u32>, why: Refusal) -> PlanSpecial {
    PlanSpecial {
        entry,
        kind: SpecialKind::SystemCallRefused,
        // Behind all that have one: they are in the order of their slots.
        slot: u32::MAX,
        opens: PlanSpecial::number_word(number),
        rules: why as u16,
        ..PlanSpecial::default()
    }
}

/// The plan with other special functions, more templates behind its own (at the next multiple of
/// 8), and areas up to `area_end`.
pub(crate) fn rewritten(
    view: PlanView<'_>,
    plan: &[u8],
    specials: &[PlanSpecial],
    blob: &[u8],
    area_end: u32,
) -> Option<Vec<u8>> {
    let old = view.header();
    let specials: Vec<u8> = specials.iter().flat_map(|s| s.to_bytes()).collect();
    let part = |offset: u32, bytes: usize| plan.get(offset as usize..offset as usize + bytes);
    let functions = old.functions as usize * PlanFunction::BYTES;
    let links = old.links as usize * size_of::<u32>();
    let mut out = vec![0; PlanHeader::BYTES];
    let mut put = |bytes: &[u8]| {
        out.resize(out.len().next_multiple_of(8), 0);
        let at = out.len() as u32;
        out.extend(bytes);
        at
    };
    let blob_offset = put(part(old.blob_offset, old.blob_bytes as usize)?);
    put(blob);
    let header = PlanHeader {
        blob_offset,
        blob_bytes: old.blob_bytes.next_multiple_of(8) + blob.len() as u32,
        functions_offset: put(part(old.functions_offset, functions)?),
        sites_offset: put(part(
            old.sites_offset,
            old.sites as usize * PlanSite::BYTES,
        )?),
        links_offset: put(part(old.links_offset, links)?),
        specials_offset: put(&specials),
        specials: (specials.len() / PlanSpecial::BYTES) as u32,
        total_bytes: put(&[]),
        area_bytes: area_end.next_multiple_of(4096),
        ..*old
    };
    out.get_mut(..PlanHeader::BYTES)?
        .copy_from_slice(&header.to_bytes());
    Some(out)
}

/// The header of a plan that they are taken out of again: nothing of them is left but bytes that
/// nobody looks at. `None`: there are none.
pub fn without_system_calls(plan: &[u8]) -> Option<PlanHeader> {
    let view = PlanView::new(plan)?;
    let first = view.specials().position(|s| s.kind.is_for_system_calls())?;
    // Those that are left alone have no slot.
    let with_slot = |s: &PlanSpecial| s.kind != SpecialKind::SystemCallRefused;
    let others_end = view.specials().skip(first).find(with_slot);
    Some(PlanHeader {
        specials: first as u32,
        area_bytes: others_end.map_or(view.header().area_bytes, |s| s.slot),
        ..*view.header()
    })
}

struct Finder<'a> {
    object: &'a Object<'a>,
    base: Svma,
    covered: Covered,
    springboards: Springboards,
}

impl Finder<'_> {
    fn offset(&self, svma: Svma) -> u32 {
        svma.0.wrapping_sub(self.base.0) as u32
    }

    fn find(&mut self, f: &Function, site: &Site) -> Result<Interception, Refusal> {
        let is_suspect = site.flags.contains(SiteFlags::LEADER_SUSPECT);
        let has_window = site.window_bytes() >= JUMP_BYTES;
        let length = u64::from(site.length);
        // First what leaves the instruction as it is: a call that a signal has interrupted is begun
        // again there.
        let with_window = |finder: &Self, least| match has_window && !is_suspect {
            true => finder.with_window(site, least),
            false => None,
        };
        with_window(self, JUMP_BYTES + length)
            .or_else(|| self.with_springboard(f, site))
            .or_else(|| with_window(self, JUMP_BYTES))
            .ok_or(match has_window && is_suspect {
                true => Refusal::UnresolvedJumps,
                false => Refusal::NoRoom,
            })
    }

    /// The jump covers instructions before the call, which move into the slot.
    fn with_window(&self, site: &Site, least_bytes: u64) -> Option<Interception> {
        let start = self.start_in_window(site, least_bytes)?;
        let mut t = Builder::new(self.base);
        if !t.relocate(self.object, start, site.address) {
            return None;
        }
        self.intercepted(t, site, start, false)
    }

    /// A two-byte jump takes the instruction's place.
    fn with_springboard(&mut self, f: &Function, site: &Site) -> Option<Interception> {
        loop {
            let distance = self.springboards.take(self.object, f, site.address)?;
            let at = (self.offset(site.address) + 2).wrapping_add_signed(i32::from(distance));
            if !self.covered.is_free(at, at + JUMP_BYTES as u32) {
                continue;
            }
            let mut t = Builder::new(self.base);
            t.set_springboard(distance);
            return self.intercepted(t, site, site.address, true);
        }
    }

    fn intercepted(
        &self,
        mut t: Builder,
        site: &Site,
        start: Svma,
        has_springboard: bool,
    ) -> Option<Interception> {
        let back = Svma(site.address.0 + u64::from(site.length));
        let (first, end) = (self.offset(start), self.offset(back));
        if !self.covered.is_free(first, end) {
            return None;
        }
        t.end_of_moved();
        t.system_call(back);
        let span = (back.0 - start.0) as usize;
        let original = self.object.code_from(start)?.get(..span)?;
        Some(Interception {
            at: self.offset(site.address),
            number: number_before(self.object, site),
            start: first,
            span: u8::try_from(span).ok()?,
            has_springboard,
            slot_bytes: t.slot_bytes(),
            template: t.finish(original),
        })
    }

    /// The latest instruction boundary in the window so many bytes before the site's end.
    fn start_in_window(&self, site: &Site, least_bytes: u64) -> Option<Svma> {
        let bytes = (site.address.0 - site.window_start.0) as usize;
        let code = self.object.code_from(site.window_start)?.get(..bytes)?;
        let options = iced_x86::DecoderOptions::NONE;
        let decoder = iced_x86::Decoder::with_ip(64, code, site.window_start.0, options);
        let end = site.address.0 + u64::from(site.length);
        let starts = decoder.into_iter().map(|i| i.ip());
        starts.filter(|ip| end - ip >= least_bytes).last().map(Svma)
    }
}
