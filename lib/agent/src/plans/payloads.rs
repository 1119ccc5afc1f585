//! Code that runs at the calls of a function whose values are recorded.
//!
//! Given a function that is instrumented, and its module's plan; puts its code into the patch area
//! and its row into the table ([`crate::memory::rows`]), so that its calls need the slow path no
//! more. Under the propagation lock. Must not know what the code does.

use crate::memory::rows::{
    self, ACTS, EXIT_TIMED, EXITS_BY_ROUTINE, FAILS_BY_MINUS_ONE, FAILS_BY_NULL, RESULT_IS_INTEGER,
    RETURNS, RETURNS_BY_ROUTINE, Row, Says,
};
use crate::memory::state;
use crate::memory::table::Module;
use crate::plans::modules;
use crate::routines::image;
use sptrace_wire::plan::{Failure, FunctionValues, SlotActs, ValuesView, common};
use sptrace_wire::record;

/// The row of a function; `None`: its calls take the slow path.
pub fn row(callee: u64) -> Option<&'static Row> {
    rows::find(state::process().rows.get()?, callee)
}

/// True if a function could have a row, and has none.
pub fn lacks(callee: u64, values: &FunctionValues) -> bool {
    let Some(rows) = state::process().rows.get() else {
        return false;
    };
    values.code_bytes() > 0
        && values.acts_slowly == 0
        && rows::has_place(rows, callee)
        && rows::find(rows, callee).is_none()
        && modules::is_narrow(callee)
}

/// Gives it one.
pub fn enter(m: &Module, callee: u64, view: &ValuesView<'_>, of: &FunctionValues) {
    let Some(rows) = state::process().rows.get() else {
        return;
    };
    let at = place(m, view, of);
    if at == 0 {
        return;
    }
    let id = id_of_records(of);
    let part = |bytes: u16, offset: u64| match bytes {
        0 => 0,
        _ => at + offset,
    };
    let says = Says {
        decides: part(of.decides_bytes, 0),
        writes: match of.exit_bytes {
            0 if id.is_none() => 0,
            0 => part(of.writes_bytes, of.decides_bytes.into()),
            bytes => part(bytes, exit_from(of)),
        },
        id: id.unwrap_or(0),
        kinds: kinds(of),
    };
    rows::enter(rows, callee, &says);
}

/// The id of the records of its direct calls. `None`: its number is too large for one.
fn id_of_records(of: &FunctionValues) -> Option<u32> {
    let halves = 1 + 2 * u32::from(of.words);
    let is_told = of.number < record::NO_VALUED_NUMBER && halves < record::VALUED_HALVES;
    is_told.then(|| record::valued_id(of.number, halves))
}

/// Where the code of a return begins in a function's code.
pub fn exit_from(of: &FunctionValues) -> u64 {
    u64::from(of.decides_bytes) + u64::from(of.writes_bytes)
}

/// Where a function's code is; 0: it is not there yet, or cannot be.
pub fn placed(m: &Module, view: &ValuesView<'_>, of: &FunctionValues) -> u64 {
    code_and_place(m, view, of)
        .filter(|(code, address)| is_there(m, code, *address))
        .map_or(0, |(_, address)| address)
}

/// A function's code, and the address where it belongs.
fn code_and_place<'a>(
    m: &Module,
    view: &ValuesView<'a>,
    of: &FunctionValues,
) -> Option<(&'a [u8], u64)> {
    let code = view.code(of).filter(|code| !code.is_empty());
    let (at, start) = (u64::from(of.code_to), u64::from(view.head.code_start));
    let code = code.filter(|_| start != 0 && at >= start)?;
    Some((code, m.area_start() + at))
}

fn is_there(m: &Module, code: &[u8], address: u64) -> bool {
    // No code begins as memory does that nobody has written to.
    let mut first = [0; 16];
    let known = m.area().read(address, &mut first);
    code.len() >= known.len() && !known.is_empty() && code.starts_with(known)
}

/// Where a function's code is, which is put there if it is not yet; 0: it cannot be.
pub fn place(m: &Module, view: &ValuesView<'_>, of: &FunctionValues) -> u64 {
    let Some((code, address)) = code_and_place(m, view, of) else {
        return 0;
    };
    if is_there(m, code, address) {
        return address;
    }
    let at = u64::from(of.code_to);
    // Slots of other modules lead there, and what a fork child has of those it has with them.
    modules::share(m);
    if !m.area().renew(at, code) {
        return 0;
    }
    let end = at + code.len() as u64;
    if of.slot_acts.bytes > 0 {
        // The last jump is the only one that leads out of the code.
        let to = m.area_start() + u64::from(image::offset(common::ACTS_FIRST));
        let rel32 = to.wrapping_sub(m.area_start() + end) as u32;
        m.area().renew(end - 4, &rel32.to_le_bytes());
    }
    m.area_used.raise(end);
    address
}

/// Where the acts of a function are for the slots of its calls, which are put there if they are not
/// yet; 0: there are none.
pub fn place_in_slots(m: &Module, callee: u64) -> u64 {
    let view = m.plan().and_then(|plan| ValuesView::new(plan.values()));
    let found = view.and_then(|view| {
        let of = view.of(u32::try_from(callee.checked_sub(m.base.get())?).ok()?)?;
        let at = place(m, &view, &of);
        (at != 0 && of.slot_acts.bytes > 0).then(|| at + slot_acts_from(&of))
    });
    found.unwrap_or(0)
}

/// Where the acts for slots begin in a function's code: behind all else.
fn slot_acts_from(of: &FunctionValues) -> u64 {
    of.code_bytes() as u64 - u64::from(of.slot_acts.bytes)
}

/// The code for slots that an address of such code lies in: what is said of it, and where it
/// begins.
pub fn slot_acts_at(m: &Module, address: u64) -> Option<(SlotActs, u64)> {
    let view = m.plan().and_then(|plan| ValuesView::new(plan.values()))?;
    let all = (0..view.head.functions).map_while(|i| view.get(i));
    let mut placed = all.filter(|of| of.slot_acts.bytes > 0).map(|of| {
        let at = m.area_start() + u64::from(of.code_to) + slot_acts_from(&of);
        (of.slot_acts, at)
    });
    placed.find(|(acts, at)| (*at..at + u64::from(acts.bytes)).contains(&address))
}

fn kinds(of: &FunctionValues) -> u32 {
    let flag = |is: bool, flag: u32| if is { flag } else { 0 };
    let returns_by_routine = of.returns_by_routine != 0 && id_of_records(of).is_some();
    (8 * u32::from(of.words))
        | flag(of.returns != 0, RETURNS)
        | flag(of.acts != 0, ACTS)
        | flag(of.exit_needs_clock != 0, EXIT_TIMED)
        | flag(
            of.exit_bytes != 0 && of.exit_needs_errno == 0 && of.exit_texts == 0,
            EXITS_BY_ROUTINE,
        )
        | flag(returns_by_routine, RETURNS_BY_ROUTINE)
        | flag(of.result_is_integer != 0, RESULT_IS_INTEGER)
        | flag(of.failure == Failure::MinusOne, FAILS_BY_MINUS_ONE)
        | flag(of.failure == Failure::Null, FAILS_BY_NULL)
}

/// True if this is an instruction of such code: the word at the stack pointer leads back into the
/// routine that has called it.
pub fn holds(m: &Module, rip: u64) -> bool {
    let view = m.plan().and_then(|plan| ValuesView::new(plan.values()));
    let start = view.map_or(0, |view| u64::from(view.head.code_start));
    start != 0 && m.area_holds(rip) && rip - m.area_start() >= start
}

/// Forgets the functions in `[start, end)`, which are gone.
pub fn forget(start: u64, end: u64) {
    if let Some(rows) = state::process().rows.get() {
        rows::forget(rows, start, end);
    }
}
