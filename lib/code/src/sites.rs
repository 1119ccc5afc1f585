//! Listing the sites of regions, once all leaders are known.
//!
//! Walks the instructions that control was seen to reach, in address order, and notes each that
//! hands control to another function, with the run of plain instructions before it. An instruction
//! counts only if a linear sweep from the function's start comes upon it too: two witnesses, since
//! a misread jump table leads into the middle of instructions.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use sptrace_addr::Svma;
use sptrace_image::Object;

use crate::classify::Classes;
use crate::discover::Discovery;
use crate::follow::IndirectJump;
use crate::noreturn::is_noreturn_import;
use crate::packed::Sites;
use crate::regions::Region;
use crate::site::{Site, SiteFlags, SiteKind};

/// Longest run before a site.
const LONGEST_WINDOW_BYTES: u64 = 15;

/// A jump to anywhere.
const JUMP_BYTES: u64 = 5;

/// Intel SDM volume 2, 2.1.1.
const LOCK_PREFIX: u8 = 0xf0;

/// Room for two jumps: one to where the instructions went, one for the cramped site.
const ROOM_BYTES: u64 = 2 * JUMP_BYTES;

/// What a two-byte jump reaches from its end, less what moving by whole instructions may take.
const REACH_BYTES: u64 = 127;

/// What listing the sites of a chunk of regions gave.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    pub sites: Sites,
    /// Instructions that call the kernel, in order.
    pub system_calls: Sites,
    /// See [`crate::Analysis::plain_runs`].
    pub plain_runs: Vec<(Svma, Svma)>,
    /// Number of sites of each region of the chunk, in order.
    pub counts: Vec<u32>,
    pub instructions: u64,
    pub blocks: u64,
    pub overlapped: u64,
}

/// Appends the sites of region `index`.
pub(crate) fn list_sites(
    object: &Object<'_>,
    discovery: &Discovery,
    classes: &Classes,
    index: usize,
    listed: &mut Listed,
) {
    let region = &discovery.regions[index];
    let first = listed.sites.len();
    if let Some(range) = object.code_range_at(Svma(region.start)) {
        let decoder = Decoder::with_ip(64, range.bytes, range.start.0, DecoderOptions::NONE);
        let mut lister = Lister {
            object,
            discovery,
            classes,
            region,
            index,
            run: Run::default(),
            jumps: Vec::new(),
            block: Block::default(),
            secluded: Vec::new(),
            plain_from: None,
            plain_runs: Vec::new(),
            is_astray: false,
            sites: Vec::new(),
            system_calls: Vec::new(),
            listed,
        };
        lister.walk(decoder, range.start.0);
        lister.find_ways_in();
        lister.doubt();
        let free = lister.find_rooms();
        lister.keep_near(&free);
        let (sites, system_calls) = (lister.sites, lister.system_calls);
        listed.sites.extend(sites);
        listed.system_calls.extend(system_calls);
    }
    listed.counts.push((listed.sites.len() - first) as u32);
}

struct Lister<'a, 'data> {
    object: &'a Object<'data>,
    discovery: &'a Discovery,
    classes: &'a Classes,
    region: &'a Region,
    index: usize,
    run: Run,
    /// Targets and addresses of the jumps within the region.
    jumps: Vec<(u64, u64)>,
    block: Block,
    /// Indexes of the short sites whose block is only jumped to.
    secluded: Vec<usize>,
    /// Where the run of plain instructions that is being walked began.
    plain_from: Option<u64>,
    /// Runs of plain instructions in one block that are long enough to make room, by address.
    plain_runs: Vec<(u64, u64)>,
    /// Control was led into the middle of an instruction.
    is_astray: bool,
    sites: Vec<Site>,
    system_calls: Vec<Site>,
    listed: &'a mut Listed,
}

/// The block that is being walked.
#[derive(Default)]
struct Block {
    start: u64,
    /// The instruction before it may go on into it.
    is_fallen_into: bool,
}

/// Starts of the movable instructions that lead without a gap to the current one.
#[derive(Default)]
struct Run {
    starts: [u64; LONGEST_WINDOW_BYTES as usize + 1],
    count: usize,
}

impl Run {
    fn clear(&mut self) {
        self.count = 0;
    }

    fn push(&mut self, svma: u64) {
        if self.count == self.starts.len() {
            self.starts.copy_within(1.., 0);
            self.count -= 1;
        }
        self.starts[self.count] = svma;
        self.count += 1;
    }

    /// Newest first.
    fn backwards(&self) -> impl Iterator<Item = u64> + '_ {
        self.starts[..self.count].iter().rev().copied()
    }
}

/// What the instruction before was, as far as it matters for the next one.
struct Before {
    /// Where the next one is if control goes on; `u64::MAX`: nobody knows.
    expected: u64,
    block_ended: bool,
    never_goes_on: bool,
}

impl Default for Before {
    fn default() -> Self {
        Self {
            expected: u64::MAX,
            block_ended: true,
            never_goes_on: true,
        }
    }
}

/// The decoder goes on at an address; false: that is not in its range.
fn go_to(decoder: &mut Decoder<'_>, svma: u64, range_start: u64) -> bool {
    let at = (svma - range_start) as usize;
    let is_there = decoder.set_position(at).is_ok();
    if is_there {
        decoder.set_ip(svma);
    }
    is_there
}

impl Lister<'_, '_> {
    fn bit(&self, svma: u64) -> u64 {
        svma.wrapping_add(self.region.delta)
    }

    fn is_leader(&self, svma: u64) -> bool {
        self.discovery.leaders.get(self.bit(svma))
    }

    fn walk(&mut self, mut decoder: Decoder<'_>, range_start: u64) {
        let mut instruction = Instruction::default();
        let end_bit = self.bit(self.region.end);
        let mut next_bit = self.bit(self.region.start);
        let mut before = Before::default();
        let mut swept_to = self.region.start;
        while let Some(bit) = self.discovery.reached.next(next_bit, end_bit) {
            next_bit = bit + 1;
            let svma = bit.wrapping_sub(self.region.delta);
            while swept_to < svma {
                if !go_to(&mut decoder, swept_to, range_start) {
                    return;
                }
                decoder.decode_out(&mut instruction);
                swept_to = instruction.next_ip().max(swept_to + 1);
            }
            if decoder.ip() != svma && !go_to(&mut decoder, svma, range_start) {
                return;
            }
            let is_on_sweep = svma == swept_to;
            decoder.decode_out(&mut instruction);
            if !is_on_sweep {
                self.stray(svma, &instruction);
                before.expected = u64::MAX;
                continue;
            }
            swept_to = instruction.next_ip().max(swept_to + 1);
            if instruction.is_invalid() {
                before.expected = u64::MAX;
                continue;
            }
            self.reached(svma, &instruction, &mut before);
        }
        self.end_plain_run(before.expected);
    }

    /// The next instruction that control reaches and the sweep meets.
    fn reached(&mut self, svma: u64, instruction: &Instruction, before: &mut Before) {
        self.listed.instructions += 1;
        let starts_block = svma != before.expected || self.is_leader(svma);
        self.listed.blocks += u64::from(starts_block || before.block_ended);
        if starts_block {
            self.end_plain_run(before.expected);
            self.run.clear();
            let is_fallen_into = svma == before.expected && !before.never_goes_on;
            self.block = Block {
                start: svma,
                is_fallen_into,
            };
        }
        before.expected = instruction.next_ip();
        before.never_goes_on = matches!(
            instruction.flow_control(),
            FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return
        );
        if instruction.op0_kind() == OpKind::NearBranch64 && !instruction.is_call_near() {
            self.jumps.push((instruction.near_branch_target(), svma));
        }
        before.block_ended = is_block_end(instruction);
        if let Some(site) = self.site(instruction) {
            self.add(site);
        }
        if instruction.mnemonic() == Mnemonic::Syscall {
            self.add_system_call(instruction);
        }
        let is_plain = is_plain(instruction);
        if is_plain {
            self.plain_from.get_or_insert(svma);
        } else {
            self.end_plain_run(svma);
        }
        if is_plain || self.is_inner_condition(instruction) {
            self.run.push(svma);
        } else {
            self.run.clear();
        }
    }

    /// An instruction inside another one of the function's linear sweep: a path that should not be
    /// (a jump table that was misread), unless a prefix is skipped over (glibc's `lock`).
    fn stray(&mut self, svma: u64, instruction: &Instruction) {
        self.end_plain_run(svma);
        self.run.clear();
        let before = self.object.code_from(Svma(svma.wrapping_sub(1)));
        let skips_prefix = before.is_some_and(|code| code.first() == Some(&LOCK_PREFIX));
        self.is_astray |= !skips_prefix;
        self.listed.overlapped += u64::from(self.site(instruction).is_some());
    }

    /// If one jump table was misread, its true targets are unknown.
    fn doubt(&mut self) {
        if self.is_astray {
            for site in self.sites.iter_mut().chain(&mut self.system_calls) {
                site.flags.insert(SiteFlags::LEADER_SUSPECT);
                site.way_in = Svma(0);
            }
        }
    }

    fn end_plain_run(&mut self, end: u64) {
        if let Some(start) = self.plain_from.take()
            && end.saturating_sub(start) >= ROOM_BYTES
        {
            self.plain_runs.push((start, end));
        }
    }

    /// A conditional jump that stays in the region: it may be moved, its target is told by an
    /// offset.
    fn is_inner_condition(&self, instruction: &Instruction) -> bool {
        instruction.is_jcc_short_or_near()
            && (self.region.start..self.region.end).contains(&instruction.near_branch_target())
    }

    fn add(&mut self, mut site: Site) {
        let (start, end) = (site.address.0, site.address.0 + u64::from(site.length));
        let overlaps = (start + 1..end)
            .any(|svma| self.is_leader(svma) || self.discovery.reached.get(self.bit(svma)));
        if overlaps || end > self.region.end {
            self.listed.overlapped += 1;
            return;
        }
        site.window_start = Svma(self.window_start(start));
        if matches!(site.kind, SiteKind::CallDirect | SiteKind::CallIndirect) {
            site.leaders_behind = self.leaders_behind(end);
        }
        if self.classes.is_suspect(self.index) {
            site.flags.insert(SiteFlags::LEADER_SUSPECT);
        }
        let is_short = matches!(site.kind, SiteKind::CallIndirect | SiteKind::TailIndirect)
            && site.window_bytes() < JUMP_BYTES;
        let starts_function =
            site.window_start.0 == self.region.start && !self.classes.is_cold(self.index);
        if is_short
            && site.window_start.0 == self.block.start
            && !self.block.is_fallen_into
            && !starts_function
        {
            self.secluded.push(self.sites.len());
        }
        self.sites.push(site);
    }

    /// See [`Site::leaders_behind`]. Bytes behind the end of the code may seem to have some.
    fn leaders_behind(&self, end: u64) -> u16 {
        let leads = |n: &u32| self.is_leader(end + u64::from(*n));
        let found = (0..u16::BITS).filter(leads);
        found.fold(0, |bits, n| bits | 1 << n)
    }

    /// An instruction that calls the kernel, with what leads to it.
    fn add_system_call(&mut self, instruction: &Instruction) {
        let mut site = new_site(instruction, SiteKind::SystemCall);
        if self.is_leader(site.address.0 + 1) {
            return;
        }
        site.window_start = Svma(self.window_start(site.address.0));
        if self.classes.is_suspect(self.index) {
            site.flags.insert(SiteFlags::LEADER_SUSPECT);
        }
        self.system_calls.push(site);
    }

    /// A block without room for a jump, after a jump and reached by one long conditional jump only
    /// (code for the unlikely case): that jump can be led elsewhere.
    fn find_ways_in(&mut self) {
        self.jumps.sort_unstable();
        let edges = &self.discovery.edges;
        for index in std::mem::take(&mut self.secluded) {
            let start = self.sites[index].window_start.0;
            let first = self.jumps.partition_point(|(target, _)| *target < start);
            let inner = self.jumps[first..]
                .iter()
                .take_while(|(target, _)| *target == start);
            let first = edges.partition_point(|e| e.target < start);
            let outer = edges[first..].iter().take_while(|e| e.target == start);
            let mut froms: Vec<u64> = inner
                .map(|(_, from)| *from)
                .chain(outer.map(|e| e.from))
                .collect();
            froms.sort_unstable();
            froms.dedup();
            if let [from] = froms[..]
                && self.is_long_condition(from, start)
                && self.leave_out_of_windows(from)
            {
                self.sites[index].way_in = Svma(from);
            }
        }
    }

    /// A site that has neither room nor another way in: instructions nearby are moved away instead,
    /// and the long jump stands where they stood. Gives the plain runs that are left.
    fn find_rooms(&mut self) -> Vec<(u64, u64)> {
        if self.classes.is_suspect(self.index) || self.is_astray {
            return Vec::new();
        }
        let is_cramped = |s: &Site| {
            let is_condition = s.kind == SiteKind::TailConditional && s.length == 2;
            is_condition || u64::from(s.length) < JUMP_BYTES && s.window_bytes() < JUMP_BYTES
        };
        let cramped: Vec<usize> = (0..self.sites.len())
            .filter(|i| self.sites[*i].way_in.0 == 0 && is_cramped(&self.sites[*i]))
            .collect();
        let windows = self.sites.iter();
        let windows: Vec<(u64, u64)> = windows
            .filter(|s| u64::from(s.length) < JUMP_BYTES)
            .map(|s| (s.window_start.0, s.address.0))
            .collect();
        let runs = std::mem::take(&mut self.plain_runs);
        let mut free: Vec<(u64, u64)> = runs.iter().map(|r| without(*r, &windows)).collect();
        for index in cramped {
            let from = self.sites[index].address.0 + 2;
            let found = (0..free.len()).find_map(|i| Some((i, self.room(free[i], from)?)));
            if let Some((i, (start, end))) = found {
                let site = &mut self.sites[index];
                (site.room, site.room_bytes) = (Svma(start), (end - start) as u8);
                // What is left of the run, on the longer side.
                let (left, right) = ((free[i].0, start), (end, free[i].1));
                let longer_left = left.1 - left.0 > right.1 - right.0;
                free[i] = if longer_left { left } else { right };
            }
        }
        free
    }

    /// Keeps the runs near a call of this function, or of the one before it or behind it, that has
    /// less room behind it than a long jump needs.
    fn keep_near(&mut self, free: &[(u64, u64)]) {
        const LEADERS_IN_JUMP: u16 = (1 << JUMP_BYTES) - 2;
        let (start, end) = (self.region.start, self.region.end);
        let is_calling =
            |s: &&Site| matches!(s.kind, SiteKind::CallDirect | SiteKind::CallIndirect);
        let behind = |s: &Site| s.address.0 + u64::from(s.length);
        let mut near: Vec<u64> = (self.sites.iter().filter(is_calling))
            .filter(|s| s.leaders_behind & LEADERS_IN_JUMP != 0 || behind(s) + JUMP_BYTES > end)
            .map(behind)
            .collect();
        near.extend([start, end].into_iter().filter(|at| self.is_tight(*at)));
        let reach = REACH_BYTES + ROOM_BYTES;
        let is_near = |run: &&(u64, u64)| {
            let at = |svma: &u64| run.0 < svma + reach && *svma < run.1 + reach;
            run.1 - run.0 >= ROOM_BYTES && near.iter().any(at)
        };
        let kept = free.iter().filter(is_near);
        let is_whole = |run: &&(u64, u64)| !(run.0 + 1..run.1).any(|svma| self.is_leader(svma));
        let kept = kept.filter(is_whole).map(|run| (Svma(run.0), Svma(run.1)));
        let kept: Vec<(Svma, Svma)> = kept.collect();
        self.listed.plain_runs.extend(kept);
    }

    /// No filling stands in front of a function's end or beginning.
    fn is_tight(&self, svma: u64) -> bool {
        const FILLING: [u8; 3] = [0x90, 0xcc, 0];
        let before = self.object.code_from(Svma(svma.wrapping_sub(1)));
        let byte = before.and_then(|code| code.first());
        byte.is_some_and(|byte| !FILLING.contains(byte))
    }

    /// Whole instructions of `run`, at least [`ROOM_BYTES`], with a place for a jump that a
    /// two-byte jump ending at `from` reaches.
    fn room(&self, run: (u64, u64), from: u64) -> Option<(u64, u64)> {
        if run.1.saturating_sub(run.0) < ROOM_BYTES
            || run.0.abs_diff(from) > 4 * REACH_BYTES && run.1.abs_diff(from) > 4 * REACH_BYTES
        {
            return None;
        }
        let code = self.object.code_from(Svma(run.0))?;
        let code = code.get(..(run.1 - run.0) as usize)?;
        let mut decoder = Decoder::with_ip(64, code, run.0, DecoderOptions::NONE);
        let mut starts = Vec::new();
        while decoder.can_decode() {
            starts.push(decoder.decode().ip());
        }
        starts.push(run.1);
        let rooms = starts.iter().filter_map(|start| {
            let end = *starts.iter().find(|e| **e >= start + ROOM_BYTES)?;
            let is_whole = !(start + 1..end).any(|svma| self.is_leader(svma));
            let is_near = (start + JUMP_BYTES).abs_diff(from) <= REACH_BYTES;
            (is_whole && is_near).then_some((*start, end))
        });
        // A function's entry may be wanted for another jump: only if there is nothing else.
        let entry_bytes = LONGEST_WINDOW_BYTES + JUMP_BYTES;
        rooms.max_by_key(|(start, _)| (start - self.region.start).min(entry_bytes))
    }

    fn is_long_condition(&self, from: u64, target: u64) -> bool {
        let code = self.object.code_from(Svma(from));
        let is_plain_form = code.is_some_and(|c| matches!(c, [0x0f, 0x80..=0x8f, ..]));
        let relative = code.and_then(|c| c.get(2..6)?.try_into().ok());
        let relative = relative.map(|bytes| i64::from(i32::from_le_bytes(bytes)));
        is_plain_form && relative.map(|r| (from + 6).wrapping_add_signed(r)) == Some(target)
    }

    /// No other site may move the jump away. False: one needs it.
    fn leave_out_of_windows(&mut self, jump: u64) -> bool {
        let next = Svma(jump + 6);
        let own = self.sites.iter_mut().rev();
        let own = own.take_while(|s| s.address.0 >= self.region.start);
        let mut holders: Vec<&mut Site> = own
            .filter(|s| s.window_start.0 <= jump && s.address.0 > jump)
            .collect();
        let needed = |s: &&mut Site| {
            let left = s.address.0 - next.0 + u64::from(s.length);
            u64::from(s.length) < JUMP_BYTES && left < JUMP_BYTES
        };
        if holders.iter().any(needed) {
            return false;
        }
        for site in &mut holders {
            site.window_start = next;
        }
        true
    }

    /// Goes back instruction by instruction as long as no leader lies after the new start.
    fn window_start(&self, site: u64) -> u64 {
        let mut window_start = site;
        for start in self.run.backwards() {
            let crosses = (start + 1..=window_start).any(|svma| self.is_leader(svma));
            if crosses || site - start > LONGEST_WINDOW_BYTES {
                break;
            }
            window_start = start;
        }
        window_start
    }

    fn site(&self, instruction: &Instruction) -> Option<Site> {
        match instruction.flow_control() {
            FlowControl::Call if instruction.is_call_near() => Some(self.direct_call(instruction)),
            FlowControl::IndirectCall if instruction.is_call_near_indirect() => {
                Some(self.indirect(instruction, SiteKind::CallIndirect))
            }
            FlowControl::UnconditionalBranch => self.direct_tail(instruction, SiteKind::TailDirect),
            FlowControl::ConditionalBranch => {
                self.direct_tail(instruction, SiteKind::TailConditional)
            }
            FlowControl::IndirectBranch if instruction.is_jmp_near_indirect() => {
                let svma = instruction.ip();
                self.classes
                    .indirect_jump(svma)
                    .is_some_and(|shape| shape == IndirectJump::Pointer)
                    .then(|| self.indirect(instruction, SiteKind::TailIndirect))
            }
            _ => None,
        }
    }

    fn direct_call(&self, instruction: &Instruction) -> Site {
        let target = instruction.near_branch_target();
        let mut site = new_site(instruction, SiteKind::CallDirect);
        site.target = Svma(target);
        site.got_slot = self.stub_slot(target);
        let next = instruction.next_ip();
        if target == next || takes_return_address(self.object, target) {
            site.flags.insert(SiteFlags::CALL_NEXT_POP);
        }
        let ends_region = next >= self.region.end && !self.classes.falls_on(self.index);
        if target != next && (ends_region || self.classes.never_returns(self.discovery, target)) {
            site.flags.insert(SiteFlags::NO_RETURN_CALLEE);
        }
        site
    }

    fn indirect(&self, instruction: &Instruction, kind: SiteKind) -> Site {
        let mut site = new_site(instruction, kind);
        let is_memory = instruction.op0_kind() == OpKind::Memory;
        let name = if instruction.is_ip_rel_memory_operand() {
            site.got_slot = Svma(instruction.ip_rel_memory_address());
            self.object.slot_name(site.got_slot)
        } else {
            None
        };
        let uses_rsp = is_memory && instruction.memory_base() == Register::RSP;
        if uses_rsp || instruction.op0_register() == Register::RSP {
            site.flags.insert(SiteFlags::RSP_OPERAND);
        }
        if kind == SiteKind::TailIndirect && name.is_some() {
            site.flags.insert(SiteFlags::SURE_ENTRY);
        }
        let ends_region =
            instruction.next_ip() >= self.region.end && !self.classes.falls_on(self.index);
        let is_call = kind == SiteKind::CallIndirect;
        if is_call && (ends_region || name.is_some_and(is_noreturn_import)) {
            site.flags.insert(SiteFlags::NO_RETURN_CALLEE);
        }
        site
    }

    fn direct_tail(&self, instruction: &Instruction, kind: SiteKind) -> Option<Site> {
        if instruction.op0_kind() != OpKind::NearBranch64 {
            return None;
        }
        let target = instruction.near_branch_target();
        if (self.region.start..self.region.end).contains(&target) {
            return None;
        }
        let mut site = new_site(instruction, kind);
        site.target = Svma(target);
        site.got_slot = self.stub_slot(target);
        if site.got_slot == Svma(0) {
            let callee = self.discovery.region_starting_at(target)?;
            if self.classes.is_cold(callee) {
                return None;
            }
            if self.classes.is_sure_entry(callee) {
                site.flags.insert(SiteFlags::SURE_ENTRY);
            }
        } else {
            site.flags.insert(SiteFlags::SURE_ENTRY);
        }
        if self.classes.never_returns(self.discovery, target) {
            site.flags.insert(SiteFlags::NO_RETURN_CALLEE);
        }
        Some(site)
    }

    fn stub_slot(&self, target: u64) -> Svma {
        self.object
            .plt_stub_at(Svma(target))
            .map_or(Svma(0), |stub| stub.got_slot)
    }
}

fn new_site(instruction: &Instruction, kind: SiteKind) -> Site {
    Site::new(Svma(instruction.ip()), instruction.len() as u8, kind)
}

/// What is left of `run` on its longer side when all of `windows` are taken out.
fn without(run: (u64, u64), windows: &[(u64, u64)]) -> (u64, u64) {
    windows.iter().fold(run, |(start, end), window| {
        if window.1 <= start || window.0 >= end {
            return (start, end);
        }
        let (left, right) = ((start, window.0.max(start)), (window.1.min(end), end));
        let longer_left = left.1 - left.0 > right.1 - right.0;
        if longer_left { left } else { right }
    })
}

fn is_block_end(instruction: &Instruction) -> bool {
    !matches!(
        instruction.flow_control(),
        FlowControl::Next | FlowControl::Call | FlowControl::IndirectCall | FlowControl::Interrupt
    )
}

/// May be moved together with the site that follows it.
fn is_plain(instruction: &Instruction) -> bool {
    instruction.flow_control() == FlowControl::Next
        && !matches!(
            instruction.mnemonic(),
            Mnemonic::Endbr64 | Mnemonic::Endbr32 | Mnemonic::Hlt | Mnemonic::Xend
        )
}

/// The target begins with `pop`, `add rsp, 8`, `lea rsp, [rsp+8]`, or a load or store of the return
/// address: position-independent code of old compilers, and retpolines.
fn takes_return_address(object: &Object<'_>, target: u64) -> bool {
    let Some(code) = object.code_from(Svma(target)) else {
        return false;
    };
    let code = code.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]).unwrap_or(code);
    match code {
        [0x58..=0x5f, ..] | [0x41, 0x58..=0x5f, ..] | [0x8f, ..] => true,
        [0x48, 0x83, 0xc4, 0x08, ..] | [0x48, 0x8d, 0x64, 0x24, 0x08, ..] => true,
        [0x48 | 0x4c, 0x8b | 0x89, modrm, 0x24, ..] => modrm & 0xc7 == 0x04,
        _ => false,
    }
}
