//! Moves contexts that a signal has interrupted inside of a patch area to a point in the program's
//! own text.
//!
//! A handler may have interrupted a slot or a common routine, for which no unwind information
//! exists. Before a stack walker runs, such a context is moved *back* to the patched instruction if
//! the event has not happened yet, or *forward* to the callee's entry, or behind the call, if it
//! has.
//!
//! Given the stack pointer at the walker's entry; changes the `ucontext` of the signal frames above
//! it, which [`crate::signals::sigframe`] finds. Both directions are what running on would do, so
//! the handler may return, jump away or throw, and nothing has to be put back. In the middle of
//! moved instructions the rest of them is executed first ([`crate::signals::moved`]). A half-made
//! record or shadow frame is completed or taken back ([`crate::signals::interrupted`]). A context
//! that cannot be moved stays as it is, and the walk ends there.

use crate::frames::handlers;
use crate::memory::area::Area;
use crate::memory::frame::XMM_BYTES;
use crate::memory::table::Module;
use crate::memory::thread::{FRAME_BYTES, Hot, ShadowFrame};
use crate::memory::{frame, loss, sys};
use crate::plans::place::{Place, SystemCall};
use crate::plans::{modules, payloads, place, slot};
use crate::routines::marks;
use crate::routines::marks::Phase;
use crate::signals::around::{Around, RED_ZONE_BYTES, stack_word, write_ahead};
use crate::signals::sigframe::{
    FLAGS, FPSTATE, NESTED, R8, R12, RAX, RBP, RBX, RCX, RDI, RDX, RIP, RSI, RSP, WORDS,
};
use crate::signals::{interrupted, pushed, sigframe, valued};
use sptrace_wire::plan::SLOTS_START;
use sptrace_wire::plan::kept_acts::PUSH_WORD;
use sptrace_wire::record::{FRAME_OPEN, FRAME_SYSTEM};

/// The flags that lahf and seto keep: SF ZF AF PF CF, and OF.
const ARITHMETIC: u64 = 0x8d5;

pub(super) const R11: usize = R8 + 3;
/// The general registers by their numbers in instructions.
pub(super) const REGISTERS: [usize; 16] = [
    RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8, 6, 7, 8, 9, 10, 11, 12,
];

/// xmm0 in the extended state (Intel SDM vol. 1, 13.4), the bits that say what is in it, that of
/// xmm.
const XMM: u64 = 160;
const XSTATE_BV: u64 = 512;
const XSTATE_SSE: u64 = 2;

/// Moves the contexts of all signal frames above `above` out of the patch areas. `mask`: the
/// thread's signal mask; a handler runs with its signal blocked. `hot` may be null: nothing is
/// recorded then. Gives where the interrupted code's stacks are, innermost first, then zeros.
pub fn move_contexts(hot: Option<&Hot>, above: u64, mask: u64) -> [u64; NESTED] {
    let mut stacks = [0; NESTED];
    if !handlers::learn() {
        return stacks;
    }
    let handled = handlers::handled_in(mask);
    if handled == 0 {
        return stacks;
    }
    let mut from = above & !7;
    for stack in &mut stacks {
        let Some((at, mut context)) = sigframe::find(from, handled) else {
            break;
        };
        let before = context;
        let handler = from..at;
        if Context(&mut context, hot).leave_area(hot, &handler) {
            let registers = (0..).zip(before.iter().zip(&context));
            for (i, (was, is)) in registers.take(FLAGS + 1).skip(R8) {
                if was != is {
                    stack_word(at + 8 + 8 * i).set(*is);
                }
            }
        }
        from = before[RSP] & !7;
        *stack = context[RSP];
    }
    stacks
}

/// Moves a stopped thread out of a patch area; nothing is recorded. What it has reserved in the
/// chunk of its block, `hot`, is passed over. `registers` are those from r8 to the flags, and stay
/// as they are if that cannot be done.
pub fn move_thread(hot: Option<&Hot>, registers: &mut [u64; FLAGS - R8 + 1]) -> bool {
    let mut context = [0; WORDS];
    context[R8..=FLAGS].copy_from_slice(registers);
    let is_out =
        Context(&mut context, hot).leave_area(None, &(0..0)) && !modules::is_in_area(context[RIP]);
    if is_out {
        registers.copy_from_slice(&context[R8..=FLAGS]);
    }
    is_out
}

/// The registers, and the block of the thread whose chunk may hold a reservation.
pub(super) struct Context<'a>(pub(super) &'a mut [u64; WORDS], Option<&'a Hot>);

impl Context<'_> {
    /// Moves the context into the program's text; false: it is there already, or must stay.
    /// `handler`: where the frames of the handler that runs lie.
    fn leave_area(&mut self, hot: Option<&Hot>, handler: &core::ops::Range<u64>) -> bool {
        let rip = self.0[RIP];
        let m = modules::of_area(rip);
        let area = m.map_or(0, Module::area_start);
        if let Some(m) = m.filter(|_| rip - area >= SLOTS_START as u64) {
            if let Some(acts) = payloads::slot_acts_at(m, rip) {
                return self.out_of_acts(m, acts);
            }
            if payloads::holds(m, rip) {
                return self.out_of_payload(hot, handler);
            }
            return place::place(m, rip).is_some_and(|place| self.out_of_slot(hot, &place));
        }
        let Some((phase, depth)) = marks::interrupted(rip, area) else {
            return self.out_of_unblocked(hot, handler);
        };
        self.out_of_routine(hot, phase, depth, handler)
    }

    /// Inside a function's code, which a common routine has called: it leaves the stack alone.
    fn out_of_payload(&mut self, hot: Option<&Hot>, handler: &core::ops::Range<u64>) -> bool {
        let back = sys::read_word(self.0[RSP]).unwrap_or(0);
        let area = modules::area(back).map_or(0, Area::start);
        let called_from = marks::interrupted(back, area).filter(|_| area != 0);
        let Some((phase, depth)) = called_from else {
            return false;
        };
        self.0[RSP] += 8;
        self.0[RIP] = back;
        self.out_of_routine(hot, phase, depth, handler)
    }

    /// In the slot of what is no call or jump that is recorded with stamps. `None`: it is as in the
    /// slot of one.
    fn out_of_own_slot(&mut self, hot: Option<&Hot>, place: &Place) -> Option<bool> {
        if place.looks != 0
            && let Some(is_out) = self.out_of_kept_order(hot, place)
        {
            return Some(is_out);
        }
        let rip = self.0[RIP];
        if let Some(call) = place.system_call {
            return Some(self.out_of_system_call(hot, place, call));
        }
        if place.is_return || place.returned == rip {
            return Some(self.out_of_return(hot, place));
        }
        if place.counted && rip != place.start {
            return Some(self.out_of_counted(hot, place));
        }
        if place.in_order && rip != place.start {
            return Some(self.out_of_ordered(hot, place));
        }
        if place.acts {
            return Some(self.out_of_acts_slot(place));
        }
        if place.keeps_acts
            && rip >= place.start + place.moved
            && let Some(is_out) = self.out_of_kept_acts(hot, place)
        {
            return Some(is_out);
        }
        if place.kept_jump != 0 && (place.loaded()..place.entry - 5).contains(&rip) {
            return Some(self.out_of_kept(hot, place));
        }
        None
    }

    /// Inside a slot, outside of the common routines.
    pub(super) fn out_of_slot(&mut self, hot: Option<&Hot>, place: &Place) -> bool {
        if let Some(is_out) = self.out_of_own_slot(hot, place) {
            return is_out;
        }
        let rip = self.0[RIP];
        if place.push != 0 && (place.push..=place.push + pushed::BYTES).contains(&rip) {
            return self.out_of_push(hot, place);
        }
        if place.hook && rip <= place.exit {
            return self.return_from_hook(hot, place, rip);
        }
        if rip == place.entry || rip == place.exit {
            return self.forward(place, rip);
        }
        // The operand is pushed by one instruction, just before the call of the routine.
        let pushed = place.operand && rip == place.entry - 5;
        if rip == place.exit.wrapping_sub(5) {
            return self.skip_exit(hot, place, self.0[RSP]);
        }
        let has_pushed = place.push != 0 && rip > place.push;
        let has_begun = place.moved != 0 && rip != place.start || has_pushed;
        let has_text = place.text != 0 || place.keep_call && !place.in_hook;
        if rip < place.entry && !has_begun && has_text {
            // Of a slot that keeps a callee with acts the text has called the slot.
            let is_called = pushed || place.keeps_acts;
            self.0[RSP] += if is_called { 8 } else { 0 };
            return self.back(place);
        }
        if rip > place.entry || rip < place.moved_end() {
            return self.execute_moved(hot, place.moved_end());
        }
        if place.operand && rip == place.start + place.moved {
            return self.forward_unpushed(hot, place);
        }
        if place.operand && !pushed {
            return false;
        }
        self.skip_entry(hot, place)
    }

    /// Around an instruction that calls the kernel: to it, if the text still has it, or behind it.
    fn out_of_system_call(&mut self, hot: Option<&Hot>, place: &Place, call: SystemCall) -> bool {
        let rip = self.0[RIP];
        let moved_end = place.start + place.moved;
        if rip == place.start && place.moved > 0 {
            return self.back(place);
        }
        if rip < moved_end {
            return self.execute_moved(hot, place.moved_end());
        }
        let part = place::part_of(rip, moved_end, place);
        if !part.is_over && call.at == 0 {
            return false;
        }
        self.0[RSP] += if part.is_below { RED_ZONE_BYTES } else { 0 };
        self.0[RIP] = if part.is_over { call.back } else { call.at };
        if part.has_frame {
            interrupted::is_done(hot, self.0[RSP]);
        }
        true
    }

    /// Inside the agent, with signals let in: the event has not happened.
    fn out_of_unblocked(&mut self, hot: Option<&Hot>, handler: &core::ops::Range<u64>) -> bool {
        let door = hot.map_or(0, |hot| hot.unblocked.get());
        if door == 0 || !frame::is_agent(self.0[RIP]) {
            return false;
        }
        self.0[RBP] = door;
        self.out_of_routine(hot, Phase::DoorKept, frame::DOOR_DEPTH, handler)
    }

    /// The program's vector registers and r12 to r15 stand below the door's frame; those of the
    /// context may be the agent's.
    fn restore_kept(&mut self, hot: Option<&Hot>, door: u64) {
        let kept = frame::xmm_of(door);
        let state = self.0[FPSTATE];
        let in_use = stack_word(state + XSTATE_BV);
        for at in (0..XMM_BYTES as u64).step_by(8) {
            stack_word(state + XMM + at).set(stack_word(kept + at).get());
        }
        in_use.set(in_use.get() | XSTATE_SSE);
        for (k, register) in self.0[R12..R12 + 4].iter_mut().enumerate() {
            *register = stack_word(kept + (XMM_BYTES + 8 * k) as u64).get();
        }
        if let Some(hot) = hot.filter(|hot| hot.unblocked.get() == door) {
            // SAFETY: the door at which signals were let in, when it has called the agent.
            hot.unblocked.set(unsafe { frame::before(door) });
            hot.reading.replace_in_one(door, 0);
        }
    }

    /// Inside a common routine or the slow path's door.
    fn out_of_routine(
        &mut self,
        hot: Option<&Hot>,
        phase: Phase,
        depth: u64,
        handler: &core::ops::Range<u64>,
    ) -> bool {
        let base = self.base_of(phase, depth);
        let around = Around::read(base).filter(|_| phase != Phase::DoorInside);
        let Some(around) = around else {
            return false;
        };
        let id = around.at(0);
        let m = modules::of_area(id);
        match phase {
            Phase::DoorAfter => return self.after_door(hot, &around, m),
            Phase::SilentDone => {
                self.restore(&around, phase);
                // A direct call's return address stands in the place of the id.
                self.0[RSP] = base + if m.is_none() { 0 } else { 8 };
                self.0[RIP] = around.at(-8);
                return true;
            }
            _ => {}
        }
        let place = m.and_then(|m| place::place(m, id));
        let Some(place) = place.filter(|place| place::is_id(place, id)) else {
            return false;
        };
        let (word, door) = (self.0[RCX], self.0[RBP]);
        let below = match phase {
            Phase::Pushed => self.0[RDX].wrapping_sub(FRAME_BYTES as u64),
            _ => self.0[RDX],
        };
        if phase == Phase::DoorKept {
            self.restore_kept(hot, door);
        }
        let is_door = matches!(phase, Phase::DoorKept | Phase::DoorBefore);
        let is_written = is_door && interrupted::is_written(self.1, door);
        self.restore(&around, phase);
        self.0[RSP] = base + 8;
        let is_entry = id == place.entry;
        match if is_written { Phase::Committed } else { phase } {
            reached @ (Phase::Committed | Phase::Pushed | Phase::Done) => {
                return self.after_event(hot, reached, &around, &place, below, handler);
            }
            reached @ (Phase::WrittenCall | Phase::PushedCall | Phase::PairedCall) => {
                return self.after_valued(hot, reached, &around, &place, below, handler);
            }
            Phase::Reserved => interrupted::abandon(self.1, word, place.operand && is_entry),
            Phase::PoppedEnd => interrupted::leave_untold(self.1),
            Phase::ReservedEnd => interrupted::abandon_end(self.1, word),
            Phase::UntoldEnd => interrupted::tell_end(self.1, word),
            Phase::ReservedPlaced => interrupted::abandon_placed(self.1, word, place.operand),
            Phase::ReservedValues => interrupted::abandon_values(self.1, word, is_entry),
            _ => {}
        }
        self.before_event(hot, &place, id)
    }

    /// Where the id lies that the routine was called with.
    fn base_of(&self, phase: Phase, depth: u64) -> u64 {
        let is_door = matches!(
            phase,
            Phase::DoorBefore | Phase::DoorAfter | Phase::DoorKept
        );
        match is_door && depth > 104 {
            true => self.0[RBP] + 104,
            false => self.0[RSP] + depth,
        }
    }

    /// The slow path is done, the door on its way back: to the id, or to what it has put there.
    fn after_door(&mut self, hot: Option<&Hot>, around: &Around, m: Option<&Module>) -> bool {
        self.restore(around, Phase::DoorAfter);
        let taken_off = if around.at(-40) != 0 { 8 } else { 0 };
        let id = around.at(0);
        self.0[RSP] = around.base + 8 + taken_off;
        self.0[RIP] = id;
        m.is_none_or(|m| place::place(m, id).is_some_and(|p| self.out_of_slot(hot, &p)))
    }

    /// The event has not happened: back to the patched instruction, or on without a record.
    fn before_event(&mut self, hot: Option<&Hot>, place: &Place, id: u64) -> bool {
        if let Some(call) = place.system_call {
            // As if the routine had not been called yet.
            self.0[RIP] = id - 5;
            return self.out_of_system_call(hot, place, call);
        }
        if place.in_order && id != place.entry {
            // As if the routine had not been called yet.
            self.0[RIP] = id - 5;
            return self.out_of_ordered(hot, place);
        }
        if place.keeps_acts && id == place::acts_end_of(place) {
            // As if its acts had not been asked for yet.
            self.0[RIP] = id - 6;
            return self.out_of_kept_acts(hot, place) == Some(true);
        }
        if place.keeps_acts && id < place.entry {
            self.0[RIP] = id;
            return self.out_of_kept_acts(hot, place) == Some(true);
        }
        if place.sees_return(id) {
            return self.back(place);
        }
        if place.hook && id == place.exit {
            // Where the routine was called from.
            return self.return_from_hook(hot, place, id - 5);
        }
        if id == place.exit {
            return self.skip_exit(hot, place, self.0[RSP]);
        }
        if place.moved != 0 || place.text == 0 || place.push != 0 {
            return self.forward_unrecorded(hot, place);
        }
        self.0[RSP] += if place.operand { 8 } else { 0 };
        self.back(place)
    }

    /// The event has happened: the shadow stack gets what is missing there, and the code goes on
    /// behind the routine. `below`: the frame that the routine was writing.
    fn after_event(
        &mut self,
        hot: Option<&Hot>,
        phase: Phase,
        around: &Around,
        place: &Place,
        below: u64,
        handler: &core::ops::Range<u64>,
    ) -> bool {
        if let Some(call) = place.system_call {
            return self.after_call_of_routine(hot, phase, around, (place, call), below, handler);
        }
        let id = around.at(0);
        let above = around.base + 8;
        let has_back = place.keep_call || place.push != 0;
        let words = u64::from(place.operand) + u64::from(has_back);
        let frame = ShadowFrame {
            rsp: above + 8 * words,
            id: if place.is_open { id | FRAME_OPEN } else { id },
            callee: if place.operand { around.at(8) } else { 0 },
        };
        match phase {
            Phase::Committed if place.sees_return(id) => {
                let pushed = if has_back { 8 } else { 0 };
                hot.into_iter()
                    .for_each(|hot| interrupted::take_out(hot, above + pushed));
            }
            Phase::Committed if place.tail => {}
            Phase::Committed if id == place.exit => {
                hot.into_iter()
                    .for_each(|hot| interrupted::take_out(hot, above));
            }
            Phase::Committed => {
                hot.into_iter()
                    .for_each(|hot| interrupted::put_in(hot, frame, handler));
            }
            Phase::Pushed => {
                hot.into_iter()
                    .for_each(|hot| interrupted::repair(hot, below, frame));
            }
            _ => {}
        }
        let is_entry = place.operand && id == place.entry;
        self.0[RSP] += if is_entry { 8 } else { 0 };
        if place.sees_return(id) {
            // Coming to it once more ends no call.
            return self.back(place);
        }
        self.forward(place, id)
    }

    /// The same of a call with values, or of its return.
    fn after_valued(
        &mut self,
        hot: Option<&Hot>,
        phase: Phase,
        around: &Around,
        place: &Place,
        below: u64,
        handler: &core::ops::Range<u64>,
    ) -> bool {
        let (id, above) = (around.at(0), around.base + 8);
        let (rsp, callee) = match place.operand {
            true => (above + 8, around.at(8)),
            false => (above, slot::direct_target(id)),
        };
        let call = ShadowFrame {
            rsp,
            id,
            callee: if place.operand { callee } else { 0 },
        };
        match hot {
            Some(hot) if id == place.exit => valued::pop_frame(hot, above),
            Some(hot) => valued::push_frame(hot, phase, (call, callee), below, handler),
            None => {}
        }
        let reached = match phase {
            Phase::PushedCall | Phase::PairedCall => Phase::Pushed,
            _ => Phase::Committed,
        };
        self.after_event(hot, reached, around, place, below, handler)
    }

    /// The same around a call of the kernel: as if the routine had returned.
    fn after_call_of_routine(
        &mut self,
        hot: Option<&Hot>,
        phase: Phase,
        around: &Around,
        (place, call): (&Place, SystemCall),
        below: u64,
        handler: &core::ops::Range<u64>,
    ) -> bool {
        let id = around.at(0);
        let frame = ShadowFrame {
            rsp: around.base + 8 + RED_ZONE_BYTES,
            id: id | FRAME_OPEN | FRAME_SYSTEM,
            callee: u64::from(around.at(-8) as u32),
        };
        match phase {
            Phase::Committed if id == place.exit => {
                hot.into_iter()
                    .for_each(|hot| interrupted::take_out(hot, frame.rsp));
            }
            Phase::Committed => {
                hot.into_iter()
                    .for_each(|hot| interrupted::put_in_once(hot, frame, handler));
            }
            Phase::Pushed => {
                hot.into_iter()
                    .for_each(|hot| interrupted::repair(hot, below, frame));
            }
            _ => {}
        }
        self.0[RIP] = id;
        self.out_of_system_call(hot, place, call)
    }

    /// The registers of the program, from where the routine has put them. What has been popped
    /// again still stands there: a signal leaves 128 bytes below the stack pointer alone.
    fn restore(&mut self, around: &Around, phase: Phase) {
        if phase == Phase::Saving {
            if around.base != self.0[RSP] {
                self.0[RAX] = around.at(-8);
            }
            return;
        }
        if matches!(phase, Phase::Silent | Phase::SilentDone) {
            self.0[RAX] = around.at(-16);
            self.0[RCX] = around.at(-24);
            if phase == Phase::SilentDone || around.base - self.0[RSP] >= 32 {
                self.0[RDX] = around.at(-32);
            }
            return;
        }
        self.0[RAX] = around.at(-8);
        self.0[RCX] = around.at(-24);
        self.0[RDX] = around.at(-32);
        if matches!(
            phase,
            Phase::DoorBefore | Phase::DoorAfter | Phase::DoorKept
        ) {
            self.0[RSI] = around.at(-48);
            self.0[RDI] = around.at(-56);
            for k in 0..4 {
                self.0[R8 + k] = around.at(-64 - 8 * k as i64);
            }
            self.0[FLAGS] = around.at(-96);
            self.0[RBP] = around.at(-104);
            self.0[RBX] = around.at(-112);
        }
        if phase == Phase::DoorSaving && around.base - self.0[RSP] >= 96 {
            self.0[FLAGS] = around.at(-96);
        }
        self.restore_flags(around.at(-16));
    }

    /// The flags, from what lahf and seto have put into rax.
    pub(super) fn restore_flags(&mut self, image: u64) {
        let arithmetic = image >> 8 & 0xd5 | (image & 1) << 11;
        self.0[FLAGS] = self.0[FLAGS] & !ARITHMETIC | arithmetic;
    }

    /// To the patched instruction: it will come to the slot again.
    pub(super) fn back(&mut self, place: &Place) -> bool {
        if place.keep_call {
            let pushed = stack_word(self.0[RSP]).get();
            self.0[RSP] += 8;
            // Its filling begins there; what stood there before may be another instruction than the
            // call.
            self.0[RIP] = if place.text != 0 {
                place.text
            } else {
                pushed - 5
            };
            return true;
        }
        self.0[RIP] = place.text;
        place.text != 0
    }

    /// Does what the instruction at `id` does, the call or jump that follows the routine's.
    fn forward(&mut self, place: &Place, id: u64) -> bool {
        if place.special {
            // Its entry again: what the agent does there may be done twice.
            self.0[RIP] = place.text;
            return true;
        }
        let code = modules::area(id).and_then(|area| area.code::<2>(id));
        let operand = || stack_word(self.0[RSP] - 8).get();
        let (target, call) = match code {
            Some([0xe8, _]) => (slot::direct_target(id), 5),
            Some([0xe9, _]) => (slot::direct_target(id), 0),
            Some([0xff, 0x54]) => (operand(), 4),
            Some([0xff, 0x64]) => (operand(), 0),
            Some(PUSH_WORD) => (slot::back_of(id), 0),
            _ => return false,
        };
        if modules::is_in_area(target) {
            return false;
        }
        if call != 0 {
            // Below the stack pointer stands what the routine has left.
            let left = self.0[RSP] - if call == 5 { 8 } else { 16 };
            if stack_word(left).get() != id {
                return false;
            }
            // The original: the frame is armed again like those that the walker is given.
            let original = slot::original_return(id + call);
            if original == 0 {
                return false;
            }
            self.0[RSP] -= 8;
            stack_word(self.0[RSP]).set(original);
        }
        self.0[RIP] = target;
        true
    }

    /// The call goes ahead without its event, since the instructions before it have been executed.
    /// The operand stands at the stack pointer.
    fn forward_unrecorded(&mut self, hot: Option<&Hot>, place: &Place) -> bool {
        self.0[RSP] += if place.operand { 8 } else { 0 };
        let moved = self.forward(place, place.entry);
        if let Some(hot) = hot.filter(|_| moved) {
            loss::count(hot);
        }
        moved
    }

    /// Just before the routine is called: as if it had been, without the event.
    pub(super) fn skip_entry(&mut self, hot: Option<&Hot>, place: &Place) -> bool {
        write_ahead(self.0[RSP] - 8, place.entry) && self.forward_unrecorded(hot, place)
    }

    /// As `forward_unrecorded`, before the operand is pushed; only if it is a register.
    pub(super) fn forward_unpushed(&mut self, hot: Option<&Hot>, place: &Place) -> bool {
        if place.looks != 0 {
            return self.forward_looking(hot, place);
        }
        let area = modules::area(self.0[RIP]);
        let byte = |at: u64| area.and_then(|area| area.code(at)).map_or(0, |[byte]| byte);
        let push = self.0[RIP];
        let high = byte(push) == 0x41;
        let (opcode, modrm) = (
            byte(push + u64::from(high)),
            byte(push + 1 + u64::from(high)),
        );
        let number = modrm as usize & 7;
        if opcode != 0xff || modrm & 0xf8 != 0xf0 || !high && number == 4 {
            return false;
        }
        let Some(&register) = REGISTERS.get(number + if high { 8 } else { 0 }) else {
            return false;
        };
        if byte(place.entry + 1) == 0x54 {
            let original = slot::original_return(place.entry + 4);
            if original == 0 || !write_ahead(self.0[RSP] - 8, original) {
                return false;
            }
            self.0[RSP] -= 8;
        }
        self.0[RIP] = self.0.get(register).copied().unwrap_or(0);
        if let Some(hot) = hot {
            loss::count(hot);
        }
        true
    }

    /// The call is over and its exit goes unseen: the next event tells it.
    fn skip_exit(&mut self, hot: Option<&Hot>, place: &Place, rsp: u64) -> bool {
        self.0[RSP] = rsp;
        if !self.forward(place, place.exit) {
            return false;
        }
        interrupted::is_done(hot, rsp);
        true
    }

    /// A hooked function has returned to its slot, at most to the `ret` there: goes on at its
    /// caller. Unless the agent has done so already, its exit goes unseen.
    fn return_from_hook(&mut self, hot: Option<&Hot>, place: &Place, rip: u64) -> bool {
        let word = self.0[RSP] - if rip == place.start { 8 } else { 0 };
        let to = if rip == place.exit {
            stack_word(word).get()
        } else {
            slot::original(word)
        };
        if to == 0 {
            return false;
        }
        self.0[RSP] = word + 8;
        self.0[RIP] = to;
        if rip != place.exit {
            interrupted::is_done(hot, word + 8);
        }
        // The call may be over, too: this is the exit of its slot then.
        if let Some(m) = modules::of_area(to)
            && let Some(caller) = place::place(m, to)
        {
            self.out_of_slot(hot, &caller);
        }
        true
    }
}
