//! Native code of [`crate::acts`], for the middle of a common routine.
//!
//! Given acts, where their tables lie in a thread's set, and how the set is found; gives code as
//! [`crate::contract::in_place`] wants it: it changes rax, rcx and the flags, pushes nothing, and
//! keeps what it needs in the 128 bytes below the stack pointer. A row is found by a product and a
//! few comparisons; what seldom happens stands behind the rest. Must not know what is counted.

use iced_x86::code_asm::registers::*;
use iced_x86::code_asm::*;
use iced_x86::{Decoder, DecoderOptions, IcedError};

use crate::acts::{Act, Acts, ActsError, DEEPEST, Step, check};
use crate::below::*;
use crate::compile::CompileError;
use crate::contract::in_place::*;
use crate::in_place::{Code, ExitWords, LOCAL_AT, Switch, on_stack};
use crate::program::{Expression, Source};
use crate::tables::{
    BEING_TAKEN, HEAD_BYTES, Kind, PROBES, SPREAD, TAKEN, Table, Tables, VARIABLES_AT,
};
use crate::text::{TOLD_BYTES, TOLD_WORDS};
use crate::told_code::Told;

/// Where the thread's words are, by displacement from gs.
#[derive(Clone, Copy, Debug)]
pub struct Thread {
    /// The address of its set of tables; 0: it has none.
    pub tables: i32,
    /// Not 0: nothing is recorded now.
    pub muted: i32,
    /// The thread's number, of 32 bits.
    pub tid: i32,
    /// The innermost frame of its shadow stack.
    pub top_frame: i32,
    /// The fs base of the thread whose words these are.
    pub key: i32,
    /// The page of its stack that was last known to be its own; 0: none.
    pub stack_page: i32,
    /// Its errno, where acts of a return ask for it.
    pub errno: i32,
    /// What is to be done to the call: bits by the numbers of [`Act`], then a word for each.
    pub active: i32,
    /// Words of texts, in the order of [`Acts::texts`].
    pub texts: i32,
    /// The address of what is kept of texts that are keys, so many bytes of each; 0: there is none.
    pub told: i32,
    /// The address of the process's counters.
    pub counters: i32,
    /// What the host is bidden do: bits by numbers.
    pub bids: i32,
    /// The innermost frame of the call whose return has bidden something.
    pub has_bidden: i32,
}

/// What of a call is decided at its beginning, beside what is added.
#[derive(Clone, Copy, Debug, Default)]
pub struct Entry<'a> {
    /// The condition on which values of a recorded call are kept. None: it has none.
    pub wanted: Option<&'a Expression>,
    /// By which they are switched off and on. None: they are not.
    pub switch: Option<Switch>,
    /// What the return needs of the call. None: nobody waits for that.
    pub kept: Option<&'a [Source]>,
}

/// The code of acts at the beginning of a call. `None`: memory would have to be read, or an
/// expression needs more room than there is.
///
/// # Errors
/// The acts are not as they must be.
pub fn acts_code(
    acts: &Acts,
    tables: &Tables,
    thread: Thread,
    entry: Entry<'_>,
) -> Result<Option<Vec<u8>>, ActsCodeError> {
    let mut writer = Writer::new(acts, tables, thread)?;
    Ok(match writer.all(acts, entry)? {
        true => Some(writer.code.a.assemble(0)?),
        false => None,
    })
}

/// The same of acts when the call returns, given nanoseconds of a tick of the clock, times 2^32.
/// What they need of the call is kept ([`Acts::keep`]).
///
/// # Errors
/// As [`acts_code`].
pub fn exit_code(
    acts: &Acts,
    tables: &Tables,
    thread: Thread,
    tick_ns: u64,
) -> Result<Option<Vec<u8>>, ActsCodeError> {
    let mut writer = Writer::new(acts, tables, thread)?;
    if acts.records || acts.asks_for_record() {
        return Err(ActsError::Late.into());
    }
    if acts.locals() > acts.most_locals() {
        return Err(ActsError::Locals.into());
    }
    Ok(match writer.returns(acts, tick_ns)? {
        true => Some(writer.code.a.assemble(0)?),
        false => None,
    })
}

/// The instructions of code, in words.
pub fn instructions(code: &[u8]) -> Vec<String> {
    let decoder = Decoder::new(64, code, DecoderOptions::NONE);
    decoder.into_iter().map(|one| one.to_string()).collect()
}

/// Why there is no code.
#[derive(Debug, thiserror::Error)]
pub enum ActsCodeError {
    /// The acts are not as they must be.
    #[error(transparent)]
    Acts(#[from] ActsError),
    /// The assembler does not take an instruction.
    #[error("the code cannot be assembled: {0}")]
    Assemble(#[from] IcedError),
    /// The condition is not as it must be.
    #[error(transparent)]
    Compile(#[from] CompileError),
}

pub(crate) type Made = Result<bool, IcedError>;

/// What seldom happens when a row is looked for.
struct Cold {
    table: Table,
    /// What a new row is told of its keys, and where in the row that is.
    told: Vec<(Told, u32)>,
    /// The row is another's: the next one.
    next: CodeLabel,
    /// It is free, or being taken.
    other: CodeLabel,
    again: CodeLabel,
    found: CodeLabel,
    done: CodeLabel,
}

pub(crate) struct Writer<'a> {
    pub(crate) code: Code,
    tables: &'a Tables,
    pub(crate) thread: Thread,
    cold: Vec<Cold>,
    /// What is given for a call that is recorded, and for one at which something is bidden.
    pub(crate) recorded: u32,
    pub(crate) bidden: u32,
    /// The acts bid something.
    pub(crate) bids: bool,
    /// Behind the first and behind the last instruction that changes something.
    pub(crate) changes: Option<(CodeLabel, CodeLabel)>,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(
        acts: &Acts,
        tables: &'a Tables,
        thread: Thread,
    ) -> Result<Self, ActsCodeError> {
        let keys: Vec<u8> = tables.all.iter().map(|table| table.keys).collect();
        check(acts, &keys)?;
        let mut code = Code::new()?;
        code.has_locals = true;
        code.thread_at = Some(thread.tid);
        code.tables_at = Some(thread.tables);
        code.texts = (acts.texts(), thread.texts);
        code.top_frame_at = Some(thread.top_frame);
        Ok(Self {
            code,
            tables,
            thread,
            cold: Vec::new(),
            recorded: UNWANTED,
            bidden: BIDDEN,
            bids: acts.bids(),
            changes: None,
        })
    }

    fn all(&mut self, acts: &Acts, entry: Entry<'_>) -> Made {
        let kept = entry.kept.unwrap_or_default().iter();
        let kept = kept.filter_map(|source| on_stack(&(*source).into()));
        let expressions = acts.expressions().into_iter().chain(entry.wanted);
        if let Some(most) = expressions.filter_map(on_stack).chain(kept).max() {
            self.code.stack_is_near(most)?;
        }
        let (mut muted, undecided) = (self.code.a.create_label(), self.code.a.create_label());
        self.code.a.cmp(qword_ptr(self.thread.muted).gs(), 0)?;
        self.code.a.jne(muted)?;
        let keeps_inside = entry.kept.unwrap_or_default().contains(&Source::Inside);
        if acts.needs_set() || keeps_inside {
            self.code.a.cmp(qword_ptr(self.thread.tables).gs(), 0)?;
            self.code.a.je(undecided)?;
        }
        if acts.may_record() || acts.bids() {
            let without = if entry.kept.is_some() { HELD } else { PASSED };
            self.code.a.mov(dword_ptr(rsp + RECORDED_AT), without)?;
            (self.recorded, self.bidden) = match entry.kept {
                Some(_) => (HELD_RECORDED, HELD_RECORDED),
                None => (UNWANTED, BIDDEN),
            };
        }
        self.clear_locals(acts)?;
        if !self.steps(&acts.steps, 0)? {
            return Ok(false);
        }
        let is_made = match entry.kept {
            Some(kept) => self.give_held(acts, entry.wanted.is_some(), kept, muted)?,
            None => {
                self.give_bidden()?;
                self.code.a.set_label(&mut muted)?;
                self.code.a.zero_bytes()?;
                self.give(acts, entry)?
            }
        };
        if !is_made {
            return Ok(false);
        }
        self.end(undecided)
    }

    /// Acts of a return.
    fn returns(&mut self, acts: &Acts, tick_ns: u64) -> Made {
        self.code.exit = Some(ExitWords {
            errno_at: self.thread.errno,
            elapsed_at: ELAPSED_AT,
            self_at: SELF_AT,
        });
        let (mut muted, undecided) = (self.code.a.create_label(), self.code.a.create_label());
        let a = &mut self.code.a;
        a.cmp(qword_ptr(self.thread.muted).gs(), 0)?;
        a.jne(muted)?;
        if acts.needs_set() {
            a.cmp(qword_ptr(self.thread.tables).gs(), 0)?;
            a.je(undecided)?;
        }
        if acts.is_timed() {
            self.elapsed(tick_ns)?;
        }
        let top_frame = qword_ptr(self.thread.top_frame).gs();
        self.code.a.mov(rdx, top_frame)?;
        if let Some(kept) = acts.self_time() {
            self.self_time(kept)?;
        }
        self.clear_locals(acts)?;
        if !self.steps(&acts.steps, 0)? {
            return Ok(false);
        }
        self.give_bidden()?;
        self.code.a.set_label(&mut muted)?;
        self.code.a.mov(eax, PASSED)?;
        self.code.a.ret()?;
        self.end(undecided)
    }

    /// What seldom happens, behind the rest.
    fn end(&mut self, mut undecided: CodeLabel) -> Made {
        self.code.a.set_label(&mut undecided)?;
        self.code.a.mov(eax, UNDECIDED)?;
        self.code.a.ret()?;
        self.take_rows()?;
        Ok(true)
    }

    pub(crate) fn take_rows(&mut self) -> Result<(), IcedError> {
        let mut all = std::mem::take(&mut self.cold).into_iter();
        all.try_for_each(|cold| self.take_row(cold))
    }

    /// The last instruction has changed a table, a counter or a variable.
    fn has_changed(&mut self) -> Result<(), IcedError> {
        let mut here = self.code.a.create_label();
        self.code.a.set_label(&mut here)?;
        self.code.a.zero_bytes()?;
        let first = self.changes.map_or(here, |(first, _)| first);
        self.changes = Some((first, here));
        Ok(())
    }

    /// What becomes of a call whose return is waited for; at `muted` it is left alone.
    fn give_held(
        &mut self,
        acts: &Acts,
        has_values: bool,
        kept: &[Source],
        mut muted: CodeLabel,
    ) -> Made {
        let is_recorded = acts.records || has_values;
        let kept = kept.iter().take(KEPT_IN_PLACE);
        for (at, source) in (0i32..).map(|i| KEPT_AT - 8 * i).zip(kept) {
            if !self.code.word(&(*source).into())? {
                return Ok(false);
            }
            self.code.a.mov(qword_ptr(rsp + at), rax)?;
        }
        match (is_recorded, acts.may_record()) {
            (true, _) => self.code.a.mov(eax, HELD_RECORDED)?,
            (false, true) => self.code.a.mov(eax, dword_ptr(rsp + RECORDED_AT))?,
            (false, false) => self.code.a.mov(eax, HELD)?,
        }
        self.code.a.ret()?;
        self.code.a.set_label(&mut muted)?;
        self.code
            .a
            .mov(eax, if is_recorded { UNWANTED } else { PASSED })?;
        self.code.a.ret()?;
        Ok(true)
    }

    pub(crate) fn clear_locals(&mut self, acts: &Acts) -> Result<(), IcedError> {
        for local in 0..i32::from(acts.locals()) {
            let at = qword_ptr(rsp + (LOCAL_AT - 8 * local));
            self.code.a.mov(at, 0)?;
        }
        Ok(())
    }

    /// What becomes of the call.
    fn give(&mut self, acts: &Acts, entry: Entry<'_>) -> Made {
        let is_recorded = acts.records || entry.wanted.is_some();
        match entry.wanted {
            Some(wanted) => {
                let mut unwanted = self.code.a.create_label();
                if let Some(switch) = entry.switch {
                    self.code.unless_shown(switch, unwanted)?;
                }
                if !self.code.unless(wanted, unwanted)? {
                    return Ok(false);
                }
                self.code.a.mov(eax, WANTED)?;
                self.code.a.ret()?;
                self.code.a.set_label(&mut unwanted)?;
                self.code.a.mov(eax, UNWANTED)?;
            }
            None if acts.may_record() => {
                // A muted thread has left the word as it was: nothing is recorded then.
                let (mut known, muted) = (self.code.a.create_label(), self.thread.muted);
                self.code.a.mov(eax, PASSED)?;
                self.code.a.cmp(qword_ptr(muted).gs(), 0)?;
                self.code.a.jne(known)?;
                self.code.a.mov(eax, dword_ptr(rsp + RECORDED_AT))?;
                self.code.a.set_label(&mut known)?;
                self.code.a.zero_bytes()?;
            }
            None if is_recorded => self.code.a.mov(eax, UNWANTED)?,
            None => self.code.a.mov(eax, PASSED)?,
        }
        self.code.a.ret()?;
        Ok(true)
    }

    pub(crate) fn steps(&mut self, steps: &[Step], depth: usize) -> Made {
        if depth > DEEPEST {
            return Ok(false);
        }
        for step in steps {
            let is_made = match step {
                Step::Set(local, value) => {
                    let is_made = self.code.word(value)?;
                    let at = qword_ptr(rsp + (LOCAL_AT - 8 * i32::from(*local)));
                    self.code.a.mov(at, rax)?;
                    is_made
                }
                Step::If(condition, then, or) => self.either(condition, then, or, depth)?,
                Step::Add { table, keys, value } => self.add(*table, keys, value)?,
                Step::Record => {
                    self.is_recorded()?;
                    true
                }
                Step::Bid(number) => {
                    self.bid(*number)?;
                    true
                }
                Step::Next(local, counter) => {
                    self.next(*local, *counter)?;
                    true
                }
                Step::Act(act, value) => self.act(*act, value)?,
                Step::Keep(variable, value) => self.variable(*variable, value, false)?,
                Step::Increase(variable, value) => self.variable(*variable, value, true)?,
            };
            if !is_made {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// One instruction counts, for all threads of the process.
    fn next(&mut self, local: u8, counter: u8) -> Result<(), IcedError> {
        let at = qword_ptr(rsp + (LOCAL_AT - 8 * i32::from(local)));
        let a = &mut self.code.a;
        a.mov(rcx, qword_ptr(self.thread.counters).gs())?;
        a.mov(eax, 1)?;
        a.lock()
            .xadd(qword_ptr(rcx + 8 * i32::from(counter)), rax)?;
        self.has_changed()?;
        let a = &mut self.code.a;
        a.inc(rax)?;
        a.mov(at, rax)
    }

    /// One instruction changes it: a handler's payload comes before or after.
    fn variable(&mut self, number: u8, value: &Expression, is_added: bool) -> Made {
        let is_made = self.code.word(value)?;
        let a = &mut self.code.a;
        a.mov(rcx, qword_ptr(self.thread.tables).gs())?;
        let at = qword_ptr(rcx + (VARIABLES_AT as i32 + 8 * i32::from(number)));
        match is_added {
            true => a.add(at, rax)?,
            false => a.mov(at, rax)?,
        }
        self.has_changed()?;
        Ok(is_made)
    }

    /// Says what is to be done; the slow path does it.
    fn act(&mut self, act: Act, value: &Expression) -> Made {
        let is_made = self.code.word(value)?;
        let (number, first) = (i32::from(act.number()), self.thread.active);
        let a = &mut self.code.a;
        a.mov(qword_ptr(first + 8 + 8 * number).gs(), rax)?;
        a.or(dword_ptr(first).gs(), 1 << number)?;
        self.is_recorded()?;
        Ok(is_made)
    }

    fn either(&mut self, condition: &Expression, then: &[Step], or: &[Step], depth: usize) -> Made {
        let mut not = self.code.a.create_label();
        if !self.code.unless(condition, not)? || !self.steps(then, depth + 1)? {
            return Ok(false);
        }
        if or.is_empty() {
            self.code.a.set_label(&mut not)?;
            self.code.a.zero_bytes()?;
            return Ok(true);
        }
        let mut end = self.code.a.create_label();
        self.code.a.jmp(end)?;
        self.code.a.set_label(&mut not)?;
        self.code.a.zero_bytes()?;
        let is_made = self.steps(or, depth + 1)?;
        self.code.a.set_label(&mut end)?;
        self.code.a.zero_bytes()?;
        Ok(is_made)
    }

    fn add(&mut self, table: u8, keys: &[Expression], value: &Expression) -> Made {
        let Some(table) = self.tables.all.get(usize::from(table)).copied() else {
            return Ok(false);
        };
        match table.kind {
            Kind::Slowest(_) => return self.add_greatest(table, keys, value),
            Kind::Rows => return self.append(table, keys),
            _ => {}
        }
        let is_one = table.kind == Kind::Count && *value == Expression::Constant(1);
        if !self.keys(keys)? {
            return Ok(false);
        }
        if !is_one {
            if !self.code.word(value)? {
                return Ok(false);
            }
            self.code.a.mov(qword_ptr(rsp + VALUE_AT), rax)?;
        }
        let mut done = self.code.a.create_label();
        match keys.len() {
            0 => self.code.a.mov(rcx, qword_ptr(self.thread.tables).gs())?,
            _ => self.find_row(table, keys, done)?,
        }
        // rcx = the row, less the place of the table's first one in the set.
        let values = (table.at + HEAD_BYTES + table.count_at()) as i32;
        self.put(table.kind, values, is_one)?;
        self.has_changed()?;
        self.code.a.set_label(&mut done)?;
        self.code.a.zero_bytes()?;
        Ok(true)
    }

    /// Puts keys where they are kept.
    pub(crate) fn keys(&mut self, keys: &[Expression]) -> Made {
        for (at, word) in (0i32..).map(|i| KEYS_AT - 8 * i).zip(keys) {
            if !self.code.word(word)? {
                return Ok(false);
            }
            self.code.a.mov(qword_ptr(rsp + at), rax)?;
        }
        Ok(true)
    }

    /// What a new row of a table is told of these keys, and where in the row that is.
    pub(crate) fn told(&self, table: Table, keys: &[Expression]) -> Vec<(Told, u32)> {
        let texts = &self.code.texts.0;
        let told_of = |key| told_of(key, texts, self.thread.told);
        let told = keys.iter().enumerate();
        let told = told.filter_map(|(i, key)| Some((told_of(key)?, table.told_at(i))));
        told.collect()
    }

    /// Writes keys, and what they stand for, into the row at rcx, less `row`.
    pub(crate) fn write_keys(
        &mut self,
        (keys, row): (u8, i32),
        told: Vec<(Told, u32)>,
    ) -> Result<(), IcedError> {
        let a = &mut self.code.a;
        for key in 0..i32::from(keys) {
            a.mov(rax, qword_ptr(rsp + (KEYS_AT - 8 * key)))?;
            a.mov(qword_ptr(rcx + (row + 8 + 8 * key)), rax)?;
        }
        for (told, at) in told {
            self.code.tell(told, row + at as i32)?;
        }
        Ok(())
    }

    fn find_row(
        &mut self,
        table: Table,
        keys: &[Expression],
        done: CodeLabel,
    ) -> Result<(), IcedError> {
        let (told, keys) = (self.told(table, keys), keys.len());
        let a = &mut self.code.a;
        let mut cold = Cold {
            table,
            told,
            next: a.create_label(),
            other: a.create_label(),
            again: a.create_label(),
            found: a.create_label(),
            done,
        };
        a.mov(rcx, SPREAD)?;
        if keys == 1 {
            a.imul_2(rcx, rax_or_key(0))?;
        } else {
            a.mov(rax, rcx)?;
            for key in 0..keys as i32 {
                a.xor(rcx, qword_ptr(rsp + (KEYS_AT - 8 * key)))?;
                a.imul_2(rcx, rax)?;
                a.ror(rcx, 29)?;
            }
            a.imul_2(rcx, rax)?;
        }
        a.shr(rcx, 64 - table.row_bits() as i32)?;
        a.imul_3(rcx, rcx, table.row_bytes() as i32)?;
        a.add(rcx, qword_ptr(self.thread.tables).gs())?;
        a.mov(dword_ptr(rsp + PROBES_AT), PROBES)?;
        let row = (table.at + HEAD_BYTES) as i32;
        a.set_label(&mut cold.again)?;
        a.cmp(qword_ptr(rcx + row), TAKEN as i32)?;
        a.jne(cold.other)?;
        for key in 0..keys as i32 {
            a.mov(rax, qword_ptr(rsp + (KEYS_AT - 8 * key)))?;
            a.cmp(rax, qword_ptr(rcx + (row + 8 + 8 * key)))?;
            a.jne(cold.next)?;
        }
        a.set_label(&mut cold.found)?;
        a.zero_bytes()?;
        self.cold.push(cold);
        Ok(())
    }

    /// Adds to the row at rcx.
    fn put(&mut self, kind: Kind, count: i32, is_one: bool) -> Result<(), IcedError> {
        let a = &mut self.code.a;
        let value = qword_ptr(rsp + VALUE_AT);
        let second = qword_ptr(rcx + (count + 8));
        match kind {
            Kind::Count if is_one => return a.inc(qword_ptr(rcx + count)),
            Kind::Count => {
                a.mov(rax, value)?;
                return a.add(qword_ptr(rcx + count), rax);
            }
            Kind::Sum => {
                a.mov(rax, value)?;
                a.add(second, rax)?;
                self.has_changed()?;
            }
            Kind::Least | Kind::Greatest => {
                let (mut is_first, mut stays) = (a.create_label(), a.create_label());
                a.mov(rax, value)?;
                a.cmp(qword_ptr(rcx + count), 0)?;
                a.je(is_first)?;
                a.cmp(rax, second)?;
                match kind {
                    Kind::Least => a.jge(stays)?,
                    _ => a.jle(stays)?,
                }
                a.set_label(&mut is_first)?;
                a.mov(second, rax)?;
                a.set_label(&mut stays)?;
                a.zero_bytes()?;
                self.has_changed()?;
            }
            Kind::Histogram => {
                let mut known = a.create_label();
                let mut positive = a.create_label();
                a.mov(rax, value)?;
                a.test(rax, rax)?;
                a.jg(positive)?;
                a.xor(eax, eax)?;
                a.jmp(known)?;
                a.set_label(&mut positive)?;
                a.bsr(rax, rax)?;
                a.inc(eax)?;
                a.set_label(&mut known)?;
                a.inc(qword_ptr(rcx + rax * 8 + (count + 8)))?;
                self.has_changed()?;
            }
            // It has rows of its own.
            Kind::Slowest(_) | Kind::Rows => return Ok(()),
        }
        self.code.a.inc(qword_ptr(rcx + count))
    }

    /// Takes a free row, goes on to the next, or gives up.
    fn take_row(&mut self, mut cold: Cold) -> Result<(), IcedError> {
        let a = &mut self.code.a;
        let row = (cold.table.at + HEAD_BYTES) as i32;
        a.set_label(&mut cold.other)?;
        a.mov(rax, qword_ptr(rcx + row))?;
        a.test(rax, rax)?;
        a.jne(cold.next)?;
        // One instruction takes it: a handler comes before or after.
        a.mov(qword_ptr(rsp + RDX_AT), rdx)?;
        a.mov(edx, BEING_TAKEN as u32)?;
        a.cmpxchg(qword_ptr(rcx + row), rdx)?;
        a.mov(rdx, qword_ptr(rsp + RDX_AT))?;
        a.jne(cold.next)?;
        self.write_keys((cold.table.keys, row), cold.told)?;
        let a = &mut self.code.a;
        a.mov(qword_ptr(rcx + row), TAKEN as i32)?;
        a.jmp(cold.found)?;
        a.set_label(&mut cold.next)?;
        a.add(rcx, cold.table.row_bytes() as i32)?;
        a.dec(dword_ptr(rsp + PROBES_AT))?;
        a.jne(cold.again)?;
        a.mov(rcx, qword_ptr(self.thread.tables).gs())?;
        a.inc(qword_ptr(rcx + cold.table.at as i32))?;
        a.jmp(cold.done)
    }
}

/// What a row is told of a key.
fn told_of(key: &Expression, texts: &[(u8, u16)], told: i32) -> Option<Told> {
    match key {
        Expression::Source(source) if source.told_words() == TOLD_WORDS => {
            let place = texts.iter().position(|text| Some(*text) == source.text())?;
            Some(Told::Text(told, (TOLD_BYTES * place) as i32))
        }
        Expression::Source(Source::Callers(count)) => Some(Told::Places(*count, None)),
        Expression::Source(Source::KeptCallers(count, kept)) => {
            Some(Told::Places(*count, Some(*kept)))
        }
        _ => None,
    }
}

fn rax_or_key(key: i32) -> AsmMemoryOperand {
    qword_ptr(rsp + (KEYS_AT - 8 * key))
}
