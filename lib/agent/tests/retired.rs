//! The routines of a patch area without an agent: what comes back to a slot finds the way to the
//! program, with all registers and flags.
//!
//! An area is made as the agent makes it, and retired; slots are written by hand. No agent is
//! started.
#![allow(clippy::unwrap_used, reason = "a test: failing loudly is right")]

use sptrace_agent::memory::area::Area;
use sptrace_agent::memory::state;
use sptrace_agent::routines::{image, silent};
use sptrace_wire::plan::{AreaHeader, SLOTS_START, common as routine};
use std::arch::asm;

const AREA_BYTES: usize = SLOT + 0x2000;
const SLOT: usize = SLOTS_START as usize;
/// The program's text, for the test.
const TEXT: usize = SLOT + 0x1000;

struct Pages(*mut u8);

impl Pages {
    fn new() -> Self {
        // SAFETY: a new mapping, at a place that the kernel chooses.
        unsafe {
            let at = libc::mmap(
                std::ptr::null_mut(),
                AREA_BYTES,
                libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(at, libc::MAP_FAILED);
            assert!(image::install(std::slice::from_raw_parts_mut(
                at.cast(),
                AREA_BYTES
            )));
            Self(at.cast())
        }
    }

    /// It is executed where it is written.
    fn views(&self) -> Area {
        let at = self.0 as u64;
        // SAFETY: the mapping is writable and executable, and as long.
        unsafe { Area::new(at, at, AREA_BYTES as u64) }
    }

    fn put(&self, at: usize, bytes: &[u8]) -> usize {
        // SAFETY: all that is put here lies in the mapping, which nobody else uses.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0.add(at), bytes.len()) };
        at + bytes.len()
    }

    /// `opcode rel32`.
    fn put_jump(&self, at: usize, opcode: u8, to: usize) -> usize {
        let rel = (to as i32 - (at as i32 + 5)).to_le_bytes();
        self.put(at, &[opcode, rel[0], rel[1], rel[2], rel[3]])
    }

    fn put_call_of(&self, at: usize, number: i32) -> usize {
        self.put_jump(at, 0xe8, image::offset(number) as usize)
    }

    fn address(&self, at: usize) -> u64 {
        self.0 as u64 + at as u64
    }
}

/// Calls `at` with known registers; all but rax must be kept, and the flags that `at` has set.
/// Gives rax.
fn call(at: u64, rdi: u64) -> u64 {
    let (rax, rcx, rdx, rsi, flags): (u64, u64, u64, u64, u64);
    // SAFETY: what was put there keeps all but the registers that are named, and the stack pointer.
    unsafe {
        asm!(
            "call {at}", "pushfq", "pop {flags}",
            at = in(reg) at, flags = lateout(reg) flags, inlateout("rdi") rdi => _, lateout("rax") rax,
            inlateout("rcx") 0x11u64 => rcx, inlateout("rdx") 0x22u64 => rdx, inlateout("rsi") 0x33u64 => rsi,
            lateout("r8") _, lateout("r9") _, lateout("r10") _, lateout("r11") _,
        );
    }
    assert_eq!((rcx, rdx, rsi), (0x11, 0x22, 0x33));
    // What is called ends by stc; ret.
    assert_eq!(flags & 0x801, 1, "{flags:#x}");
    rax
}

/// `call ENTRY; call CALLEE; call EXIT; jmp back` behind three bytes of filling. Gives where its
/// exit begins.
fn put_direct_slot(area: &Pages, callee: usize, back: usize) -> usize {
    let at = area.put_call_of(SLOT + 3, routine::ENTRY);
    let exit = area.put_jump(at, 0xe8, callee);
    let at = area.put_call_of(exit, routine::EXIT);
    area.put_jump(at, 0xe9, back);
    exit
}

#[test]
fn a_call_leaves_the_programs_own_return_address() {
    let area = Pages::new();
    // The site: jmp slot; stc; ret. The callee gives its return address.
    let callee = TEXT + 0x100;
    let back = area.put_jump(TEXT, 0xe9, SLOT + 3);
    area.put(back, &[0xf9, 0xc3]);
    area.put(callee, &[0x48, 0x8b, 0x04, 0x24, 0xc3]);
    put_direct_slot(&area, callee, back);
    silent::retire(area.views());
    assert_eq!(call(area.address(TEXT), 0), area.address(back));
}

#[test]
fn an_old_return_address_leads_through_the_slot_to_the_program() {
    let area = Pages::new();
    let back = TEXT + 0x80;
    area.put(back, &[0xc3]);
    let exit = put_direct_slot(&area, TEXT + 0x100, back);
    // push rdi; mov eax, 7; stc; ret
    area.put(TEXT, &[0x57, 0xb8, 7, 0, 0, 0, 0xf9, 0xc3]);
    silent::retire(area.views());
    assert_eq!(call(area.address(TEXT), area.address(exit)), 7);
}

#[test]
fn a_hooked_function_returns_by_the_table() {
    let area = Pages::new();
    let mut table = vec![[0u64; 2]; state::ORIGINALS];
    // lea rsp, [rsp-8]; call HOOK_EXIT; ret
    let at = area.put(SLOT, &[0x48, 0x8d, 0x64, 0x24, 0xf8]);
    let at = area.put_call_of(at, routine::HOOK_EXIT);
    area.put(at, &[0xc3]);
    // SAFETY: the header of the area stands at the mapping's start, and the table lives on.
    unsafe {
        silent::retire(area.views());
        (*area.0.cast::<AreaHeader>()).originals = table.as_mut_ptr() as u64;
    }
    // Where its return address lies is known by running it once: mov rax, rsp; stc; ret
    area.put(TEXT, &[0x48, 0x89, 0xe0, 0xf9, 0xc3]);
    // The hooked function: mov rax, [rsp]; mov [rsp], rdi; stc; ret. And one that gives what it
    // returns to.
    area.put(
        TEXT + 0x40,
        &[0x48, 0x8b, 0x04, 0x24, 0x48, 0x89, 0x3c, 0x24, 0xf9, 0xc3],
    );
    area.put(TEXT + 0x80, &[0x48, 0x8b, 0x04, 0x24, 0xf9, 0xc3]);
    // Also where a thread was just asking about the entry at the fork that this process comes from.
    for (taken, asked) in (0..3).flat_map(|t| [(t, 0), (t, state::ASKED)]) {
        let mut results = Vec::new();
        for (round, code) in [TEXT, TEXT + 0x80, TEXT + 0x40].into_iter().enumerate() {
            if round == 2 {
                // Both from this very loop: the same place and the same return address.
                let (place, address): (u64, u64) = (results[0], results[1]);
                let hash = ((place >> 3) as u32).wrapping_mul(0x9E37_79B1) as usize >> state::SHIFT;
                table.fill([0; 2]);
                for k in 0..taken {
                    table[(hash + k) % state::ORIGINALS] = [place + 8 + k as u64 * 8, 1];
                }
                table[(hash + taken) % state::ORIGINALS] = [place | asked, address];
            }
            results.push(call(area.address(code), area.address(SLOT)));
        }
        assert_eq!(results[2], results[1]);
    }
}

#[test]
fn an_area_that_is_woken_is_as_it_was() {
    let area = Pages::new();
    // SAFETY: the image's bytes stand at the mapping's start.
    let bytes =
        |area: &Pages| unsafe { std::slice::from_raw_parts(area.0, image::bytes()).to_vec() };
    let before = bytes(&area);
    silent::retire(area.views());
    assert_ne!(bytes(&area), before);
    silent::wake(area.views());
    assert_eq!(bytes(&area), before);
}

#[test]
fn a_special_function_runs_on_or_finds_the_agent_of_a_child() {
    for number in [routine::SPECIAL, routine::TAIL_FIRST] {
        let area = Pages::new();
        // stc; jmp slot. The slot: call SPECIAL; mov eax, 7; ret
        let at = area.put(TEXT, &[0xf9]);
        area.put_jump(at, 0xe9, SLOT);
        let at = area.put_call_of(SLOT, number);
        area.put(at, &[0xb8, 7, 0, 0, 0, 0xc3]);
        // The agent counts, and takes off what SAVE and SLOW have pushed: inc; lea rsp, [rsp+40];
        // stc; ret
        let at = area.put(TEXT + 0x200, &[0xff, 0x05, 0xfa, 0, 0, 0]);
        area.put(at, &[0x48, 0x8d, 0x64, 0x24, 0x28, 0xf9, 0xc3]);
        // SAFETY: the header of the area stands at the mapping's start.
        unsafe {
            silent::retire(area.views());
            (*area.0.cast::<AreaHeader>()).agent_door = area.address(TEXT + 0x200);
        }
        // SAFETY: a word of the mapping.
        let count = || unsafe { area.0.add(TEXT + 0x300).cast::<u32>().read() };
        assert_eq!((call(area.address(TEXT), 0), count()), (7, 0));
        // A gs base of the program's own, then a thread block.
        for (table, calls) in [(5u64, 0), (6, 1)] {
            // SAFETY: the header of the area stands at the mapping's start.
            unsafe { (*area.0.cast::<AreaHeader>()).table = 6 };
            let mut block = vec![0u64; 0x2000 / 8];
            block[0x1028 / 8] = table;
            // SAFETY: nothing but the routines of the area uses gs in a test.
            unsafe { asm!("wrgsbase {}", in(reg) block.as_ptr()) };
            let result = call(area.address(TEXT), 0);
            // SAFETY: as before.
            unsafe { asm!("wrgsbase {}", in(reg) 0u64) };
            assert_eq!((result, count()), (7, calls));
        }
    }
}
