//! Out of the middle of moved instructions: the rest of them is executed on the saved registers.
//!
//! Part of [`crate::signals::context`]; [`crate::signals::moved`] knows the instructions. Must not
//! know what follows them in the slot.

use crate::memory::thread::Hot;
use crate::memory::{live, sys};
use crate::plans::{modules, place};
use crate::signals::context::{Context, REGISTERS};
use crate::signals::moved;
use crate::signals::sigframe::{FLAGS, RIP};

impl Context<'_> {
    /// Executes the moved instructions that are left, up to the text or to another part of a slot.
    pub(super) fn execute_moved(&mut self, hot: Option<&Hot>, end: u64) -> bool {
        let registers = REGISTERS.map(|i| self.0[i]);
        let mut run = moved::Run::new(registers, self.0[RIP], self.0[FLAGS]);
        let mut goes_on_at = None;
        while let Some(m) = modules::of_area(run.rip).filter(|_| goes_on_at.is_none()) {
            let mut code = [0; moved::LONGEST_BYTES];
            let Some(has_jumped) = run.step(m.area().read(run.rip, &mut code), sys::read_word)
            else {
                return false;
            };
            if (has_jumped || run.rip == end)
                && let Some(m) = modules::of_area(run.rip)
            {
                let Some(here) = place::place(m, run.rip) else {
                    return false;
                };
                goes_on_at = Some(here);
            }
        }
        for (at, value, bytes) in run.stores() {
            let value = value.to_le_bytes();
            // SAFETY: words of the interrupted stack that were read just now, and that the program
            // is about to overwrite with the same.
            unsafe { live::write(*at, value.get(..*bytes).unwrap_or(&value)) };
        }
        for (&i, value) in REGISTERS.iter().zip(run.registers) {
            self.0[i] = value;
        }
        self.0[RIP] = run.rip;
        self.0[FLAGS] = run.flags;
        goes_on_at.is_none_or(|here| self.out_of_slot(hot, &here))
    }
}
