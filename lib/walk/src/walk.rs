//! The walk: frames of one thread, from the innermost outwards.
//!
//! Is given what was prepared before the stop ([`Unwinder`]), registers and a memory; gives
//! [`Walk`]. Steps by table are framehop's, for the rows of which it is right ([`row::plain`]), and
//! checked: framehop answers by frame pointers where it has no answer, without saying so. All other
//! rows are evaluated here. What was learnt of an address is kept in a [`Cache`].

use std::collections::HashMap;

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Unwinder as _};
use gimli::UnwindContext;
use sptrace_addr::{Avma, Bias};
use sptrace_image::UnwindTables;

use crate::code::{self, Place, Rule, Saved};
use crate::frame::{End, FoundBy, Frame, Walk};
use crate::memory::{Memory, read_u64};
use crate::registers::{RBP, RSP, Registers};
use crate::row::{self, Caller, PlainCfa};
use crate::sigframe;
use crate::tables::{Described, Tables};

/// How far behind an image's entry the return address of its first call may lie.
const START_CODE_BYTES: u64 = 64;
/// Addresses that a cache knows at most.
const CACHED_ADDRESSES: usize = 1 << 16;

/// A mapped module.
#[derive(Clone)]
pub struct Module<'data> {
    /// Its tables.
    pub tables: UnwindTables<'data>,
    /// Where it is mapped.
    pub bias: Bias,
}

/// Says where the function begins that an address lies in.
pub type FunctionStart<'a> = dyn Fn(Avma) -> Option<Avma> + 'a;

/// What is known of the code at an address.
#[derive(Debug, Clone, Copy)]
enum Verdict {
    Plain(PlainCfa),
    Row { is_signal_frame: bool },
    Restorer,
    End(End),
}

/// What walks remember of addresses; one for each thread of the host, for as long as the modules
/// are the same.
#[derive(Default)]
pub struct Cache {
    of_framehop: CacheX86_64,
    context: UnwindContext<usize>,
    verdicts: HashMap<(u64, bool), (Option<usize>, Verdict)>,
    /// What the code says where no table does.
    search: code::Search,
}

impl Cache {
    /// While this is so, a function without a table is followed to its end: walks that come through
    /// it from elsewhere need not do so later.
    pub fn learn_all(&mut self, shall: bool) {
        self.search.is_thorough = shall;
    }
}

/// What is prepared of a process's modules.
pub struct Unwinder<'data> {
    modules: Vec<Tables<'data>>,
    /// Start and end of code and its module, sorted by start.
    code: Vec<(u64, u64, usize)>,
    framehop: UnwinderX86_64<&'data [u8]>,
}

impl<'data> Unwinder<'data> {
    /// Prepares the modules.
    pub fn new(modules: &[Module<'data>]) -> Self {
        let prepared = modules.iter().map(|m| Tables::new(&m.tables, m.bias));
        let mut unwinder = Self {
            modules: prepared.collect(),
            code: Vec::new(),
            framehop: UnwinderX86_64::new(),
        };
        for (index, module) in modules.iter().enumerate() {
            let tables = &unwinder.modules[index];
            let ranges = tables.code.iter().map(|r| (r.start.0, r.end.0, index));
            unwinder.code.extend(ranges);
            if let Some(module) = framehop_module(module, tables) {
                unwinder.framehop.add_module(module);
            }
        }
        unwinder.code.sort_unstable();
        unwinder
    }

    /// Walks at most `max_frames` frames. Where no table describes the code the walk ends, unless
    /// `starts` is given: then the code itself is looked at, from the function's start if that is
    /// known.
    pub fn walk(
        &self,
        registers: &Registers,
        memory: &mut dyn Memory,
        cache: &mut Cache,
        max_frames: usize,
        starts: Option<&FunctionStart<'_>>,
    ) -> Walk {
        let mut walker = Walker {
            unwinder: self,
            memory,
            cache,
            starts,
            registers: *registers,
            behind: Vec::new(),
            signal_frames: Vec::new(),
            frames: Vec::new(),
        };
        let end = walker.run(max_frames);
        Walk {
            frames: walker.frames,
            end,
        }
    }

    fn module_at(&self, avma: u64) -> Option<usize> {
        let after = self.code.partition_point(|(start, ..)| *start <= avma);
        let (_, end, module) = self.code[after.checked_sub(1)?];
        (avma < end).then_some(module)
    }
}

fn framehop_module<'data>(
    module: &Module<'data>,
    tables: &Tables<'data>,
) -> Option<framehop::Module<&'data [u8]>> {
    let (first, last) = (module.tables.code.first()?, module.tables.code.last()?);
    let eh_frame = module.tables.eh_frame?;
    let header = module.tables.eh_frame_hdr.filter(|_| tables.has_header());
    let range = |table: sptrace_image::Table<'_>| {
        table.start.0..table.start.0.saturating_add(table.bytes.len() as u64)
    };
    let sections = ExplicitModuleSectionInfo {
        base_svma: first.start.0,
        eh_frame_svma: Some(range(eh_frame)),
        eh_frame: Some(eh_frame.bytes),
        eh_frame_hdr_svma: header.map(range),
        eh_frame_hdr: header.map(|table| table.bytes),
        ..Default::default()
    };
    let (start, end) = (
        module.bias.to_avma(first.start).0,
        module.bias.to_avma(last.end).0,
    );
    (start < end).then(|| framehop::Module::new(String::new(), start..end, start, sections))
}

struct Walker<'w, 'data> {
    unwinder: &'w Unwinder<'data>,
    memory: &'w mut dyn Memory,
    cache: &'w mut Cache,
    starts: Option<&'w FunctionStart<'w>>,
    /// Of the frame that was found last. rip, rsp and rbp are right.
    registers: Registers,
    /// Frames that framehop has stepped over: the other registers are those of the first of them.
    behind: Vec<usize>,
    /// Stack pointers of signal frames passed: each can be passed once only.
    signal_frames: Vec<u64>,
    frames: Vec<Frame>,
}

impl Walker<'_, '_> {
    fn run(&mut self, max_frames: usize) -> End {
        let (mut found_by, mut return_word) = (FoundBy::Registers, None);
        loop {
            if self.frames.len() >= max_frames {
                return End::TooManyFrames;
            }
            let exact = matches!(found_by, FoundBy::Registers | FoundBy::SignalFrame);
            let (module, verdict) = self.verdict(exact);
            self.frames.push(Frame {
                address: Avma(self.registers.rip),
                return_word: return_word.map(Avma),
                stack_pointer: Avma(self.registers.rsp()),
                cfa: None,
                module,
                found_by,
                is_restorer: matches!(verdict, Verdict::Restorer),
            });
            (found_by, return_word) = match self.step(verdict, module, exact) {
                Ok(found) => found,
                Err(end) => return end,
            };
        }
    }

    /// Goes to the caller; gives by what it was found and where its address lies.
    fn step(
        &mut self,
        verdict: Verdict,
        module: Option<usize>,
        exact: bool,
    ) -> Result<(FoundBy, Option<u64>), End> {
        match verdict {
            Verdict::Restorer => self.leave_handler(),
            Verdict::Plain(cfa) => match self.by_framehop(cfa, exact) {
                Some(word) => Ok((FoundBy::Table, Some(word))),
                None => self.by_row(module, exact, false),
            },
            Verdict::Row { is_signal_frame } => self.by_row(module, exact, is_signal_frame),
            Verdict::End(End::NoTable) => {
                let word = self.by_code(exact).ok_or(End::NoTable)?;
                Ok((FoundBy::Code, Some(word)))
            }
            Verdict::End(end) => Err(end),
        }
    }

    fn verdict(&mut self, exact: bool) -> (Option<usize>, Verdict) {
        let pc = self.registers.rip;
        if let Some(known) = self.cache.verdicts.get(&(pc, exact)) {
            return *known;
        }
        let module = self.unwinder.module_at(lookup_address(pc, exact));
        let verdict = self.judge(module, pc, exact);
        if self.cache.verdicts.len() >= CACHED_ADDRESSES {
            self.cache.verdicts.clear();
        }
        self.cache.verdicts.insert((pc, exact), (module, verdict));
        (module, verdict)
    }

    fn judge(&mut self, module: Option<usize>, pc: u64, exact: bool) -> Verdict {
        let tables = module.map(|index| &self.unwinder.modules[index]);
        let lookup = lookup_address(pc, exact);
        let described = tables.and_then(|t| t.described_at(&mut self.cache.context, lookup));
        // A restorer has no table, or one that says so; one without may follow a function at once.
        let may_be_restorer = |d: &Described<'_>| d.is_signal_frame || d.is_last_byte && !exact;
        if described.as_ref().is_none_or(may_be_restorer)
            && sigframe::is_restorer(self.memory, pc, exact)
        {
            return Verdict::Restorer;
        }
        let Some(described) = described else {
            let is_start = |t: &Tables<'_>| pc.wrapping_sub(t.entry.0) < START_CODE_BYTES;
            let is_first = tables.is_some_and(is_start);
            return Verdict::End(if is_first {
                End::Outermost
            } else {
                End::NoTable
            });
        };
        let is_signal_frame = described.is_signal_frame;
        match described.row {
            None => Verdict::End(End::BadTable),
            Some(row) if row::is_outermost(row) => Verdict::End(End::Outermost),
            Some(row) => match row::plain(row) {
                Some(cfa) if !is_signal_frame => Verdict::Plain(cfa),
                _ => Verdict::Row { is_signal_frame },
            },
        }
    }

    /// `None`: framehop's answer is not the table's.
    fn by_framehop(&mut self, cfa: PlainCfa, exact: bool) -> Option<u64> {
        let expected = cfa.cfa(&self.registers)?;
        let (rip, rsp) = (self.registers.rip, self.registers.rsp());
        // A rule that needs rbp has it, or there were no expected CFA.
        let rbp = self.registers.general[RBP];
        let address = if exact {
            FrameAddress::from_instruction_pointer(rip)
        } else {
            FrameAddress::from_return_address(rip)?
        };
        let mut regs = UnwindRegsX86_64::new(rip, rsp, rbp.unwrap_or(0));
        let memory = &mut *self.memory;
        let mut read = |avma| read_u64(memory, avma).map_err(|_| ());
        let found = self.unwinder.framehop.unwind_frame(
            address,
            &mut regs,
            &mut self.cache.of_framehop,
            &mut read,
        );
        let return_address = found.ok().flatten()?;
        if regs.sp() != expected {
            return None;
        }
        if cfa.saves_rbp {
            self.registers.general[RBP] = Some(regs.bp());
        }
        self.behind.push(self.frames.len() - 1);
        self.registers.rip = return_address;
        self.registers.general[RSP] = Some(expected);
        self.set_cfa(expected);
        Some(expected - 8)
    }

    fn by_row(
        &mut self,
        module: Option<usize>,
        exact: bool,
        is_signal_frame: bool,
    ) -> Result<(FoundBy, Option<u64>), End> {
        let unwinder = self.unwinder;
        let tables = &unwinder.modules[module.ok_or(End::NoTable)?];
        self.catch_up();
        let lookup = lookup_address(self.registers.rip, exact);
        let described = tables.described_at(&mut self.cache.context, lookup);
        let row = described.and_then(|d| d.row).ok_or(End::BadTable)?;
        let caller = row::apply(tables, row, &self.registers, self.memory)?;
        let Caller {
            cfa,
            return_word,
            registers,
        } = caller;
        if is_signal_frame {
            self.pass_signal_frame()?;
            self.set_cfa(cfa);
            self.registers = registers;
            return Ok((FoundBy::SignalFrame, None));
        }
        // libc's vfork has its return address in a register while it waits, and nothing on the
        // stack.
        let is_empty = exact && return_word.is_none() && cfa == self.registers.rsp();
        if cfa <= self.registers.rsp() && !is_empty || registers.rsp() < cfa {
            return Err(End::NoProgress);
        }
        if registers.rip == 0 {
            return Err(End::NullReturn);
        }
        self.set_cfa(cfa);
        self.registers = registers;
        Ok((FoundBy::Table, return_word))
    }

    /// Brings the registers up to date that framehop does not follow.
    fn catch_up(&mut self) {
        for index in std::mem::take(&mut self.behind) {
            let frame = self.frames[index];
            let tables = frame.module.map(|m| &self.unwinder.modules[m]);
            let lookup = lookup_address(frame.address.0, frame.is_exact());
            let described = tables.and_then(|t| t.described_at(&mut self.cache.context, lookup));
            if let (Some(row), Some(cfa)) = (described.and_then(|d| d.row), frame.cfa) {
                row::apply_to_others(row, cfa.0, &mut self.registers, self.memory);
            }
        }
    }

    fn leave_handler(&mut self) -> Result<(FoundBy, Option<u64>), End> {
        let rsp = self.registers.rsp();
        let interrupted = sigframe::interrupted(self.memory, rsp);
        let interrupted = interrupted.map_err(|_| End::Unreadable(Avma(rsp)))?;
        let interrupted = interrupted.ok_or(End::BadSignalFrame)?;
        self.pass_signal_frame()?;
        self.registers = interrupted;
        Ok((FoundBy::SignalFrame, None))
    }

    /// What a signal interrupted may lie anywhere: progress is that each signal frame is met once.
    fn pass_signal_frame(&mut self) -> Result<(), End> {
        let rsp = self.registers.rsp();
        if self.signal_frames.contains(&rsp) {
            return Err(End::NoProgress);
        }
        self.signal_frames.push(rsp);
        self.behind.clear();
        Ok(())
    }

    /// Where no table is.
    fn by_code(&mut self, exact: bool) -> Option<u64> {
        let starts = self.starts?;
        self.catch_up();
        let pc = self.registers.rip;
        let registers = &self.registers;
        let mut is_good = |memory: &mut dyn Memory, rule: &Rule| {
            let word = place(registers, rule.return_word).filter(|w| *w >= registers.rsp());
            word.and_then(|w| read_u64(memory, w).ok())
                .is_some_and(|address| code::follows_call(memory, address))
        };
        let known = self.cache.search.rules.get(&pc);
        let rule = match known.filter(|rule| is_good(self.memory, rule)) {
            Some(rule) => rule.clone(),
            None => {
                let start = starts(Avma(lookup_address(pc, exact)));
                let (search, memory) = (&mut self.cache.search, &mut *self.memory);
                let is_inside = |next| starts(Avma(lookup_address(next, false))) == start;
                let rule = start
                    .and_then(|s| {
                        let function = (s.0, &is_inside as &dyn Fn(u64) -> bool);
                        code::from_entry(search, memory, function, pc, &mut is_good)
                    })
                    .or_else(|| code::to_return(search, memory, pc, &mut is_good))?;
                self.cache.search.rules.insert(pc, rule.clone());
                rule
            }
        };
        let word = place(registers, rule.return_word)?;
        let cfa = word.checked_add(8)?.checked_add(rule.popped_bytes)?;
        let mut outer = Registers::only(read_u64(self.memory, word).ok()?, cfa, None);
        for (number, saved) in rule.saved.iter().enumerate().filter(|(n, _)| *n != RSP) {
            outer.general[number] = match *saved {
                Saved::Same => registers.general[number],
                Saved::At(at) => place(registers, at).and_then(|at| read_u64(self.memory, at).ok()),
                Saved::Lost => None,
            };
        }
        self.set_cfa(cfa);
        self.registers = outer;
        Some(word)
    }

    fn set_cfa(&mut self, cfa: u64) {
        if let Some(frame) = self.frames.last_mut() {
            frame.cfa = Some(Avma(cfa));
        }
    }
}

/// A call may be a function's last instruction: its return address then belongs to the next one.
fn lookup_address(pc: u64, exact: bool) -> u64 {
    if exact { pc } else { pc.wrapping_sub(1) }
}

fn place(registers: &Registers, place: Place) -> Option<u64> {
    (*registers.general.get(place.register)?)?.checked_add_signed(place.offset)
}
