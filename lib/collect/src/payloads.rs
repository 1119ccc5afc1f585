//! Code for the calls of functions whose values are recorded: what the common routines can do by
//! themselves of what a module's plan asks for.
//!
//! Given what is recorded of a function ([`FunctionValues`]); makes of it a program of
//! `sptrace-payload`, and puts its code into the plan's section. What needs memory of the traced
//! program is left to the agent's slow path, but for the decision whether a call is wanted. Must
//! not know what a word means.

use sptrace_payload::acts::Acts;
use sptrace_payload::acts_code::{Entry, Thread, acts_code, exit_code};
use sptrace_payload::contract::in_place::{self as contract, KEPT_IN_PLACE, NO_CALL};
use sptrace_payload::in_place::{InPlace, Switch, in_place};
use sptrace_payload::program::{Binary, Expression, Program, Source, Width};
use sptrace_payload::slot_code::{SlotCode, slot_code};
use sptrace_payload::tables::Tables;
use sptrace_wire::control::block;
use sptrace_wire::plan::{
    Comparison, Failure, FunctionValues, NO_SOURCE, SOURCE_CALLER, SOURCE_INSIDE, SOURCE_STACK,
    SOURCE_VECTOR, SYSTEM_ENTRIES, SlotActs, TEXTS, ValuesHead,
};
use sptrace_wire::record::{FRAME_SYSTEM, FRAME_VALUES};

use crate::acts::{Exit, Runs};

/// What beside the words is read of a function's calls.
#[derive(Clone, Copy, Debug)]
pub struct Reads {
    /// Memory, before the call.
    pub before: bool,
    /// Memory, after it.
    pub after: bool,
}

impl Reads {
    /// No memory.
    pub const NONE: Self = Self {
        before: false,
        after: false,
    };
}

/// What runs at a function's calls, what it adds to, and nanoseconds of a tick, times 2^32.
pub type Acting<'a> = (&'a Runs, &'a Tables, u64);

/// The code of a function, in its parts.
#[derive(Default)]
struct Code {
    calls: InPlace,
    exit: Vec<u8>,
    slot: SlotCode,
}

const THREAD: Thread = Thread {
    tables: block::TABLES,
    muted: block::MUTED,
    tid: block::TID,
    top_frame: block::TOP_FRAME,
    key: block::KEY,
    stack_page: block::STACK_PAGE,
    errno: block::ERRNO,
    active: block::ACTIVE,
    texts: block::TEXTS,
    counters: block::COUNTERS,
    told: block::TOLD,
    bids: block::BIDS,
    has_bidden: block::HAS_BIDDEN,
};

/// By which the values of a function are switched.
fn switch_of(values: &FunctionValues) -> Option<Switch> {
    (values.switch != 0).then_some(Switch {
        table: block::SWITCHES,
        number: values.switch,
    })
}

const _: () = assert!(sptrace_payload::text::RESULT == sptrace_wire::plan::RESULT_TEXT);
const _: () = assert!(contract::MOST_KEPT == sptrace_wire::plan::MOST_KEPT);
// What the code adds up there the agent keeps for it.
const _: () = assert!(sptrace_payload::tables::INSIDE_AT as u64 == sptrace_wire::plan::INSIDE_AT);

// The code passes such frames over where it walks them.
const _: () = assert!((NO_CALL as u64) << 56 & FRAME_VALUES != 0);
const _: () = assert!((NO_CALL as u64) << 56 & FRAME_SYSTEM != 0);

/// Puts the code of functions behind each other, from the area's offset `first` on.
pub struct Layout {
    next: u32,
    /// Calls need frames, by which is decided what is recorded.
    needs_frames: bool,
}

/// Where a function's code may begin, so that its first instructions come at once.
const ALIGNMENT: u32 = 16;

impl Layout {
    /// The first code goes behind the slots of an area with so many bytes.
    /// `needs_frames`: what is recorded depends on which calls are open.
    pub fn behind(area_bytes: u32, needs_frames: bool) -> Self {
        Self {
            next: area_bytes.next_multiple_of(ALIGNMENT),
            needs_frames,
        }
    }

    /// The head of a section whose code begins here.
    pub fn head(&self, head: ValuesHead) -> ValuesHead {
        ValuesHead {
            code_start: self.next,
            ..head
        }
    }

    /// Gives a function its code, with what it adds to tables; `put` keeps it and says where.
    pub fn place(
        &mut self,
        values: &mut FunctionValues,
        reads: Reads,
        acts: Option<Acting<'_>>,
        put: &mut dyn FnMut(&[u8]) -> u32,
    ) {
        let code = match acts {
            Some(acts) => code_with_acts(values, reads, acts),
            None => code_of(values, reads).map(|calls| Code {
                calls,
                ..Code::default()
            }),
        };
        values.acts = u8::from(acts.is_some());
        if let Some((runs, ..)) = acts {
            let is_of_kernel = values.entry >= SYSTEM_ENTRIES;
            let kept = runs.exit.as_ref().map_or(0, |exit| exit.kept.len());
            let is_slow = runs.entry.is_slow() || is_of_kernel || kept > KEPT_IN_PLACE;
            values.acts_slowly = u8::from(is_slow);
            values.texts = texts_of(&runs.entry);
        }
        let Some(Code { calls, exit, slot }) = code else {
            return;
        };
        let slot = match self.needs_frames || values.acts_slowly != 0 {
            true => SlotCode::default(),
            false => slot,
        };
        let bytes = [&calls.decides[..], &calls.writes, &exit, &slot.bytes].concat();
        let length = |bytes: &[u8]| u16::try_from(bytes.len());
        let parts = (length(&calls.decides), length(&calls.writes), length(&exit));
        let (Ok(decides), Ok(writes), Ok(exit)) = parts else {
            return;
        };
        values.code_at = put(&bytes);
        values.code_to = self.next;
        values.decides_bytes = decides;
        values.writes_bytes = writes;
        values.exit_bytes = exit;
        values.slot_acts = SlotActs {
            bytes: slot.bytes.len() as u16,
            changes_from: slot.changes_from,
            changes_to: slot.changes_to,
            takes_from: slot.takes_from,
            asks_from: slot.asks_from,
        };
        if let Some(exit) = acts.and_then(|(runs, ..)| runs.exit.as_ref()) {
            keep(values, exit);
        }
        values.returns_by_routine = u8::from(returns_by_routine(values, reads));
        self.next = (self.next + bytes.len() as u32).next_multiple_of(ALIGNMENT);
    }
}

/// The texts that acts compare, as the agent knows them.
fn texts_of(acts: &Acts) -> u64 {
    let texts = acts.texts().into_iter().take(TEXTS);
    let packed = texts.map(|(argument, length)| u64::from(argument) << 13 | u64::from(length));
    (0..)
        .zip(packed)
        .fold(0, |all, (i, text)| all | text << (16 * i))
}

/// The code of a function. `None`: the slow path does all of it.
fn code_of(values: &FunctionValues, reads: Reads) -> Option<InPlace> {
    let needs_memory = reads.before || values.keep != 0;
    let switch = switch_of(values);
    if needs_memory && values.comparison == Comparison::Always && switch.is_none() {
        return None;
    }
    let mut code = in_place(&program_of(values)?, switch).ok()??;
    if needs_memory {
        code.writes.clear();
    }
    Some(code)
}

/// The code of a function that adds to tables first. `None`: it cannot be done, and the agent
/// counts its calls as such.
fn code_with_acts(
    values: &FunctionValues,
    reads: Reads,
    (runs, tables, tick_ns): Acting<'_>,
) -> Option<Code> {
    let has_values = values.words > 0 || values.returns != 0;
    let program = program_of(values)?;
    let always = Expression::Constant(1);
    let wanted = has_values.then(|| program.wanted.as_ref().unwrap_or(&always));
    let exit = runs.exit.as_ref();
    let entry = Entry {
        wanted,
        switch: switch_of(values),
        kept: exit.map(|exit| &exit.kept[..]),
    };
    let decides = acts_code(&runs.entry, tables, THREAD, entry).ok()??;
    // Where the return is waited for, the slow path records the values: the row has one place for
    // code beside that which decides.
    let needs_memory = reads.before || values.keep != 0 || exit.is_some();
    let exit = match exit {
        Some(exit) => exit_code(&exit.acts, tables, THREAD, tick_ns).ok()??,
        None => Vec::new(),
    };
    let writes = match has_values && !needs_memory {
        true => in_place(&program, None)
            .ok()?
            .map_or_else(Vec::new, |code| code.writes),
        false => Vec::new(),
    };
    let slot = match exit.is_empty() && !has_values {
        true => slot_code(&runs.entry, tables, THREAD)
            .ok()?
            .unwrap_or_default(),
        false => SlotCode::default(),
    };
    let calls = InPlace { decides, writes };
    Some(Code { calls, exit, slot })
}

/// What the return of a call needs of it.
fn keep(values: &mut FunctionValues, exit: &Exit) {
    let mut kept = [NO_SOURCE; 8];
    for (place, source) in kept.iter_mut().zip(&exit.kept) {
        *place = number_of(*source);
    }
    values.kept = u64::from_le_bytes(kept);
    values.kept_words = exit.kept.len().max(KEPT_IN_PLACE) as u8;
    values.exit_needs_clock = u8::from(exit.acts.is_timed());
    values.exit_texts = texts_of(&exit.acts);
    values.exit_needs_errno = u8::from(exit.acts.uses(Source::Errno));
}

/// A source as the agent knows it.
fn number_of(source: Source) -> u8 {
    match source {
        Source::Argument(n) => n,
        Source::Stack(n) => SOURCE_STACK.saturating_add(n),
        Source::Caller => SOURCE_CALLER,
        Source::Inside => SOURCE_INSIDE,
        _ => NO_SOURCE,
    }
}

/// A call that has failed is left to the slow path, which looks for errno. The routine compares the
/// lower half of the result.
fn returns_by_routine(values: &FunctionValues, reads: Reads) -> bool {
    let is_known = match values.failure {
        Failure::Never => true,
        Failure::MinusOne | Failure::Null => values.result_bytes >= 4,
    };
    values.returns != 0 && values.keep == 0 && !reads.after && is_known
}

/// Which calls are wanted, and the words of one. `None`: a source that has no name.
fn program_of(values: &FunctionValues) -> Option<Program> {
    let words: Option<Vec<Expression>> = (0..usize::from(values.words))
        .map(|i| source(values.source(i)).map(Expression::Source))
        .collect();
    let words = words?;
    let wanted = match values.comparison {
        Comparison::Always => None,
        comparison => Some(compared(
            comparison,
            words.get(usize::from(values.compared))?.clone(),
            values,
        )),
    };
    Some(Program {
        wanted,
        words,
        parts: Vec::new(),
    })
}

fn compared(comparison: Comparison, word: Expression, values: &FunctionValues) -> Expression {
    let word = word.narrow(match values.compared_bytes {
        1 => Width::I8,
        2 => Width::I16,
        4 => Width::I32,
        _ => Width::U64,
    });
    let with = Expression::Constant(values.with as u64);
    match comparison {
        Comparison::Always | Comparison::Equal => word.with(Binary::Equal, with),
        Comparison::NotEqual => word.with(Binary::NotEqual, with),
        Comparison::Less => word.with(Binary::Less, with),
        Comparison::LessOrEqual => word.with(Binary::LessOrEqual, with),
        Comparison::Greater => with.with(Binary::Less, word),
        Comparison::GreaterOrEqual => with.with(Binary::LessOrEqual, word),
    }
}

fn source(number: u8) -> Option<Source> {
    Some(match number {
        0..6 => Source::Argument(number),
        SOURCE_VECTOR..SOURCE_STACK if number - SOURCE_VECTOR < 8 => {
            Source::Vector(number - SOURCE_VECTOR)
        }
        SOURCE_STACK.. => Source::Stack(number - SOURCE_STACK),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_integers() -> FunctionValues {
        let mut values = FunctionValues {
            words: 2,
            returns: 1,
            result_bytes: 4,
            ..FunctionValues::default()
        };
        values.set_source(1, 1);
        values
    }

    fn placed(mut values: FunctionValues, reads: Reads) -> (FunctionValues, Vec<u8>) {
        let mut kept = Vec::new();
        Layout::behind(0x2008, false).place(&mut values, reads, None, &mut |code| {
            kept = code.to_vec();
            7
        });
        (values, kept)
    }

    #[test]
    fn code_for_slots_keeps_registers_where_the_agent_looks() {
        use sptrace_payload::contract::slot;
        use sptrace_wire::plan as wire;
        assert_eq!(usize::from(wire::SLOT_ACTS_BELOW_FROM), slot::BELOW_FROM);
        assert_eq!(usize::from(wire::SLOT_ACTS_KEPT_FROM), slot::KEPT_FROM);
        let flags = usize::from(wire::SLOT_ACTS_FLAGS_KEPT_FROM);
        assert_eq!(flags, slot::FLAGS_KEPT_FROM);
        assert_eq!(wire::SLOT_ACTS_SAVED_BYTES, slot::SAVED_BYTES as u64);
        let kept = [slot::FLAGS_AT, slot::RAX_AT, slot::RDX_AT, slot::RCX_AT];
        assert_eq!(kept, [0, 8, 16, 24]);
        assert_eq!(usize::from(wire::SLOT_ACTS_JUMP_BYTES), slot::JUMP_BYTES);
    }

    #[test]
    fn numbers_are_recorded_by_the_routines() {
        let (values, code) = placed(two_integers(), Reads::NONE);
        assert_eq!((values.code_at, values.code_to), (7, 0x2010));
        assert_eq!((values.decides_bytes, values.returns_by_routine), (0, 1));
        assert_eq!(usize::from(values.writes_bytes), code.len());
    }

    #[test]
    fn what_needs_memory_is_left_to_the_slow_path_when_the_condition_holds() {
        let before = Reads {
            before: true,
            after: false,
        };
        assert_eq!(placed(two_integers(), before).0.code_bytes(), 0);
        let filtered = FunctionValues {
            comparison: Comparison::Greater,
            compared_bytes: 4,
            with: i64::from(i32::MAX) + 1,
            ..two_integers()
        };
        let (values, _) = placed(filtered, before);
        assert!(values.decides_bytes > 0 && values.writes_bytes == 0);
    }

    #[test]
    fn a_failure_that_is_narrower_than_half_a_word_is_left_to_the_slow_path() {
        let failing = FunctionValues {
            failure: Failure::MinusOne,
            ..two_integers()
        };
        assert_eq!(placed(failing, Reads::NONE).0.returns_by_routine, 1);
        let narrow = FunctionValues {
            result_bytes: 2,
            ..failing
        };
        assert_eq!(placed(narrow, Reads::NONE).0.returns_by_routine, 0);
    }
}
