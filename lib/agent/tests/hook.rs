//! Replaced return addresses in the table that all threads share: one that is armed has its
//! original.
//!
//! One thread gives its return address back and arms it again, as around a stack walk, while
//! another takes over every entry that is not in use. Given no input; the number of rounds is
//! fixed.
#![allow(clippy::unwrap_used, reason = "a test: failing loudly is right")]

use sptrace_agent::memory::live::StackWord;
use sptrace_agent::memory::table::{Mapped, Module};
use sptrace_agent::memory::{mapped, state};
use sptrace_agent::plans::slot;
use sptrace_agent::record::originals;
use sptrace_agent::routines::image;
use sptrace_wire::plan::common::HOOK_EXIT;
use sptrace_wire::plan::{HOOK_EXIT_ID, PLAN_MAGIC, PLAN_VERSION, PlanHeader, PlanView};
use std::sync::atomic::{AtomicBool, Ordering};

const AREA_BYTES: usize = 1 << 16;
const ROUNDS: usize = 5_000_000;
const ORIGINAL: u64 = 0x1000;

/// Ends the other thread, also when an assertion fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A plan that says nothing.
fn plan() -> PlanView<'static> {
    let mut header = PlanHeader::read(&[0; PlanHeader::BYTES]).unwrap();
    header.magic = PLAN_MAGIC;
    header.version = PLAN_VERSION;
    header.total_bytes = PlanHeader::BYTES as u32;
    PlanView::new(header.to_bytes().to_vec().leak()).unwrap()
}

/// A patch area with one hook's return in it; gives its address.
fn hook_return() -> u64 {
    let area = vec![0u8; AREA_BYTES].leak();
    let base = area.as_ptr() as u64;
    let at = AREA_BYTES / 2;
    let after = base + at as u64 + HOOK_EXIT_ID;
    let routine = base + u64::from(image::offset(HOOK_EXIT));
    area[at..at + 6].copy_from_slice(&[0x48, 0x8d, 0x64, 0x24, 0xf8, 0xe8]);
    area[at + 6..at + 10].copy_from_slice(&(routine.wrapping_sub(after) as u32).to_le_bytes());
    let process = state::process();
    process.originals.set(mapped::make());
    let mapped = Mapped {
        plan: plan(),
        area: base,
        area_rw: base,
        area_bytes: AREA_BYTES as u64,
        functions: base,
        met: 0,
    };
    // SAFETY: no other thread has met a module yet.
    unsafe { process.modules[0].become_other(&Module::none().with(&mapped)) };
    process.module_count.set(1);
    base + at as u64
}

#[test]
fn armed_again_while_another_thread_takes_its_entry() {
    let hooked = hook_return();
    assert!(slot::is_return(hooked));
    // Words of another stack, none of them a hook's return: their entries can always be taken.
    let others = vec![0u64; 1 << 20].leak().as_ptr() as u64;
    let stack = Box::leak(Box::new(0u64)) as *mut u64;
    let place = stack as u64;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for other in (others..others + (8 << 20)).step_by(8) {
                    originals::remember(other, other);
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                }
            }
        });
        let _over = Over(&is_over);
        let mut armed = 0;
        for _ in 0..ROUNDS {
            // SAFETY: a word of the test's own, which the other thread does not write.
            unsafe {
                stack.write_volatile(hooked);
                if !originals::remember(place, ORIGINAL) {
                    continue;
                }
                assert_eq!(slot::original(place), ORIGINAL);
                // A walker is given it.
                stack.write_volatile(ORIGINAL);
                originals::arm_again(StackWord::at(place), hooked);
                if stack.read_volatile() == hooked {
                    assert_eq!(slot::original(place), ORIGINAL, "no way back");
                    armed += 1;
                }
            }
        }
        assert!(armed > ROUNDS / 2, "{armed} times armed");
    });
}
