//! Leads one thread of a running process, the *carrier*, through code of ours and back.
//!
//! Given a stopped thread and an errand: map arena and agent, call the agent, or unmap them. The
//! code lies in the vdso ([`crate::inside`]), with all data that it needs, and uses no stack but
//! the agent's. When the carrier is through it waits to be relieved: it gets its registers and its
//! signal mask back where it was, and the place becomes zeros again. If the host is gone it goes on
//! there by itself. It is not sent back by rt_sigreturn, after which the kernel could not begin a
//! system call with a timeout again (kernel: `restart_block`).
//!
//! Must not know what the agent is called for.

use crate::arena::{ARENA_AVMA, Arena};
use crate::error::TraceeError;
use crate::image::{AgentImage, IMAGE_AVMA};
use crate::inside::{self, Place, map_inside};
use crate::maps::{self, Mapping};
use crate::memory::open_to_write;
use crate::offer;
use crate::ptrace;
use crate::threads::{Thread, Threads, restarted};
use std::arch::global_asm;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

global_asm!(
    map_inside!(),
    r#"
    .section .rodata.sptrace_carrier,"a",@progbits
    .globl sptrace_carrier_start, sptrace_carrier_data, sptrace_carrier_end, sptrace_carrier_parked, sptrace_carrier_leaves
    .hidden sptrace_carrier_start, sptrace_carrier_data, sptrace_carrier_end, sptrace_carrier_parked, sptrace_carrier_leaves
    .p2align 4
sptrace_carrier_start:
    lea rsi, [rip+sptrace_carrier_data]         /* all signals wait */
    mov edi, 2
    xor edx, edx
    mov r10d, 8
    mov eax, 14
    syscall
    test byte ptr [rip+sptrace_carrier_data+8], 1
    jz 20f
    MAP_INSIDE sptrace_carrier_end, sptrace_carrier_data+48
    cmp r14d, 1
    jb 50f
    je 40f
20: test byte ptr [rip+sptrace_carrier_data+8], 2
    jz 30f
    lea r14, [rip+30f]
    mov rdi, [rip+sptrace_carrier_data+48]
    mov rsi, [rip+sptrace_carrier_data+24]
    jmp [rip+sptrace_carrier_data+16]
30: test byte ptr [rip+sptrace_carrier_data+8], 4
    jz 50f
    mov rbx, [rip+sptrace_carrier_data+32]
31: mov rdi, [rbx]
    test rdi, rdi
    jz 40f
    mov rsi, [rbx+8]
    mov eax, 11
    syscall
    add rbx, 16
    jmp 31b
40: lea rbx, [rip+sptrace_carrier_data+64]      /* what was mapped, and the arena last */
    mov ebp, 3
41: mov rdi, [rbx]
    mov rsi, [rbx+8]
    mov eax, 11
    syscall
    add rbx, 32
    dec ebp
    jnz 41b
    mov rdi, [rbx-112]          /* the data from 48 on: rbx is at 160 */
    mov rsi, [rbx-104]
    mov eax, 11
    syscall
50: mov ebx, 1 << 20
sptrace_carrier_parked:
    mov eax, 24
    syscall
    dec ebx
    jnz sptrace_carrier_parked
sptrace_carrier_leaves:
    lea rsi, [rip+sptrace_carrier_data+160]
    mov rbx, [rsi]
    mov rbp, [rsi+8]
    mov r8, [rsi+16]
    mov r9, [rsi+24]
    mov r12, [rsi+32]
    mov r13, [rsi+40]
    mov r14, [rsi+48]
    mov r15, [rsi+56]
    lea rsp, [rsi+64]           /* read only: nothing is pushed here */
    popfq
    mov rsp, [rsi+72]
    lea rsi, [rsi+80]           /* signals come from here on; no flag is changed any more */
    mov edi, 2
    mov edx, 0
    mov r10d, 8
    mov eax, 14
    syscall
    mov rax, [rsi+8]            /* the data from 248 on */
    mov rdi, [rsi+16]
    mov rdx, [rsi+32]
    mov r10, [rsi+40]
    mov rcx, [rsi+48]
    mov r11, [rsi+56]
    mov rsi, [rsi+24]
    jmp [rip+sptrace_carrier_data+304]
    .p2align 3
sptrace_carrier_data:
    .fill 39, 8, 0
sptrace_carrier_end:
    .text
    .purgem MAP_INSIDE
    "#
);

unsafe extern "C" {
    static sptrace_carrier_start: u8;
    static sptrace_carrier_data: u8;
    static sptrace_carrier_parked: u8;
    static sptrace_carrier_leaves: u8;
    static sptrace_carrier_end: u8;
}

const DATA_WORDS: usize = 39;
const MAP: u64 = 1;
const CALL: u64 = 2;
const UNMAP: u64 = 4;
/// What the agent does beside the program may take long: it asks, and the host analyses.
const CALL_LIMIT: Duration = Duration::from_secs(120);
/// What is done while all threads stand still takes about so long.
const SHORT: Duration = Duration::from_millis(1);
/// Mapping takes less.
const MAP_LIMIT: Duration = Duration::from_millis(20);
/// So does what the code does after the agent.
const LEAVE_LIMIT: Duration = Duration::from_secs(2);

/// What the carrier shall do.
#[derive(Clone, Copy)]
pub enum Errand {
    /// Map arena and image and call the agent; `block` is the arena offset of the command.
    MapAndCall {
        /// Arena offset of the command.
        block: u64,
    },
    /// Call the agent.
    Call {
        /// Arena offset of the command.
        block: u64,
    },
    /// Unmap the ranges listed at this arena offset, the image and the arena.
    Unmap {
        /// Arena offset of the list.
        ranges: u64,
    },
}

/// What makes up a call of the agent.
pub struct Carrier<'a> {
    /// The arena.
    pub arena: &'a Arena,
    /// The agent.
    pub image: &'a AgentImage,
    memory: File,
    /// Where the code goes.
    place: Place,
}

/// Waits for the end of an errand, or for the certainty that it could not be begun.
fn wait_until_done(
    threads: &mut Threads,
    tid: u32,
    is_done: &dyn Fn() -> bool,
) -> Result<(), TraceeError> {
    let start = Instant::now();
    let mut looked = false;
    while !is_done() {
        threads.keep_running(tid)?;
        if start.elapsed() > CALL_LIMIT {
            return Err(TraceeError::NoRoom("its agent does not answer"));
        }
        let is_late = start.elapsed() > MAP_LIMIT && !looked;
        looked |= is_late;
        if is_late && !maps::is_traced(&maps::read(threads.pid)?) {
            // It could not be mapped.
            break;
        }
        match start.elapsed() {
            // All threads may stand still meanwhile, and the shortest sleep lasts longer than most
            // errands.
            time if time < SHORT => std::thread::yield_now(),
            time if time < 10 * MAP_LIMIT => std::thread::sleep(Duration::from_micros(10)),
            _ => std::thread::sleep(Duration::from_micros(500)),
        }
    }
    Ok(())
}

impl<'a> Carrier<'a> {
    /// Finds the place. In a process that holds the arena already, it may still hold what led
    /// there.
    ///
    /// # Errors
    /// There is none.
    pub fn new(
        pid: u32,
        arena: &'a Arena,
        image: &'a AgentImage,
        maps: &[Mapping],
    ) -> Result<Self, TraceeError> {
        let memory = open_to_write(pid)?;
        let bytes = code().len() + DATA_WORDS * 8 + arena.path().len() + 1;
        let place = Place::find(&memory, maps, bytes)?;
        let is_left_over = maps::is_traced(maps);
        if !is_left_over && !place.is_unused {
            return Err(TraceeError::NoRoom(
                "its vdso is in use: a former sptrace was killed while it traced it",
            ));
        }
        Ok(Self {
            arena,
            image,
            memory,
            place,
        })
    }

    /// Leads a stopped thread through the errand. The thread is stopped again afterwards, where it
    /// was, and its place is clean. `is_done` tells of the errand's end.
    ///
    /// # Errors
    /// The process is gone, or the program that the agent was in; or it does not come back in time.
    pub fn lead(
        &self,
        threads: &mut Threads,
        thread: Thread,
        errand: Errand,
        is_done: &dyn Fn() -> bool,
    ) -> Result<(), TraceeError> {
        if !matches!(errand, Errand::MapAndCall { .. }) && !self.has_agent() {
            return Err(TraceeError::Gone);
        }
        let stub_bytes = self.put_on_the_way(threads, &thread, errand)?;
        threads.run(thread.tid)?;
        wait_until_done(threads, thread.tid, is_done)?;
        self.take_back(threads, &thread, stub_bytes)
    }

    /// The thread will begin with the errand when it runs. Gives the bytes of our code.
    fn put_on_the_way(
        &self,
        threads: &mut Threads,
        thread: &Thread,
        errand: Errand,
    ) -> Result<usize, TraceeError> {
        let tid = thread.tid;
        let after = restarted(thread, threads.pid);
        let stub = self.stub(&after, thread.mask, errand);
        inside::write(&self.memory, &stub, self.place.start)?;
        let mut there = thread.regs;
        there.rip = self.place.start;
        there.orig_rax = u64::MAX;
        ptrace::set_registers(tid, &there)?;
        // Also at the first instructions no handler shall run: it would find no stack to unwind.
        ptrace::set_signal_mask(tid, u64::MAX)?;
        if matches!(errand, Errand::MapAndCall { .. })
            && let Err(e) = offer::give(threads.pid, tid, &self.memory, self.arena)
        {
            // If it has ended, that is taken note of here.
            threads.keep_running(tid)?;
            return Err(e);
        }
        Ok(stub.len())
    }

    /// The thread is stopped again, where it was, and its place is clean.
    fn take_back(
        &self,
        threads: &mut Threads,
        thread: &Thread,
        stub_bytes: usize,
    ) -> Result<(), TraceeError> {
        let tid = thread.tid;
        let start = Instant::now();
        loop {
            let now = threads.stop_again(tid)?;
            if self.is_parked(now.regs.rip) {
                let mut regs = thread.regs;
                regs.gs_base = now.regs.gs_base;
                threads.put(tid, &regs, thread.mask)?;
                return inside::write(&self.memory, &vec![0; stub_bytes], self.place.start);
            }
            if !self.is_inside(now.regs.rip) {
                // It has waited for us in vain and gone on; a handler may still come back to its
                // last instructions.
                return Ok(());
            }
            if start.elapsed() > LEAVE_LIMIT {
                return Err(TraceeError::NoRoom("its agent does not come back"));
            }
            threads.run(tid)?;
            std::thread::sleep(Duration::from_micros(20));
        }
    }

    /// The agent is where it would be called. A process that was looked at may have executed
    /// another program before its threads were stopped: then there is nothing of ours in it, and
    /// nothing to be led to.
    fn has_agent(&self) -> bool {
        let is_there = |avma| self.memory.read_exact_at(&mut [0; 8], avma).is_ok();
        is_there(self.image.command_avma) && is_there(ARENA_AVMA)
    }

    /// True where the code waits to be relieved.
    fn is_parked(&self, rip: u64) -> bool {
        let offset = |label: *const u8| label as u64 - &raw const sptrace_carrier_start as u64;
        let start = self.place.start + offset(&raw const sptrace_carrier_parked);
        let end = self.place.start + offset(&raw const sptrace_carrier_leaves);
        (start..end).contains(&rip)
    }

    fn stub(&self, after: &libc::user_regs_struct, mask: u64, errand: Errand) -> Vec<u8> {
        let (flags, block, ranges) = match errand {
            Errand::MapAndCall { block } => (MAP | CALL, block, 0),
            Errand::Call { block } => (CALL, block, 0),
            Errand::Unmap { ranges } => (UNMAP, 0, ranges),
        };
        let arena = |offset: u64| ARENA_AVMA + offset;
        let entry = self.image.command_avma;
        let mut words = vec![u64::MAX, flags, entry, arena(block), arena(ranges), 0];
        words.extend(inside::words(self.arena, self.image));
        let r = after;
        words.extend([r.rbx, r.rbp, r.r8, r.r9, r.r12, r.r13, r.r14, r.r15]);
        words.extend([
            r.eflags, r.rsp, mask, r.rax, r.rdi, r.rsi, r.rdx, r.r10, r.rcx, r.r11, r.rip,
        ]);
        debug_assert!(words.len() == DATA_WORDS);
        let mut bytes = code().to_vec();
        bytes.extend(words.iter().flat_map(|w| w.to_le_bytes()));
        bytes.extend(self.arena.path().as_bytes());
        bytes.push(0);
        bytes
    }
}

impl Carrier<'_> {
    /// True if `rip` lies in the agent's image or on the way there.
    pub fn is_inside(&self, rip: u64) -> bool {
        (self.place.start..self.place.end).contains(&rip) || is_image(rip)
    }
}

/// True if `rip` lies where the agent's image is mapped.
fn is_image(rip: u64) -> bool {
    (IMAGE_AVMA..ARENA_AVMA).contains(&rip)
}

fn code() -> &'static [u8] {
    let start = &raw const sptrace_carrier_start;
    let (data, end) = (
        &raw const sptrace_carrier_data,
        &raw const sptrace_carrier_end,
    );
    debug_assert!(end as usize - data as usize == DATA_WORDS * 8);
    // SAFETY: the symbols delimit bytes of our own image.
    unsafe { std::slice::from_raw_parts(start, data as usize - start as usize) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Debian 13's kernel 6.12 leaves at the end of its vdso.
    const LEAST_ROOM_BYTES: usize = 1007;

    #[test]
    fn the_code_has_room_where_the_vdso_is_long() {
        let path = "/proc/4194303/fd/1023".len() + 1;
        let bytes = code().len() + DATA_WORDS * 8 + path;
        assert!(bytes.next_multiple_of(16) <= LEAST_ROOM_BYTES, "{bytes}");
    }
}
