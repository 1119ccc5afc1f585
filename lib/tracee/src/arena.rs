//! The host's view of the shared arena.
//!
//! Gives typed access to the tables of `sptrace-wire`. Everything in here may change under our
//! hands, since the tracee can write it: fields that both sides use are atomics, others are read
//! once and checked.

use crate::error::TraceeError;
use crate::futex::futex_wake;
use crate::pages::{self, HUGE_BYTES, Pages};
use sptrace_wire::attach::AttachBlock;
use sptrace_wire::bids::{BIDS, Bid, bid_offset};
use sptrace_wire::control::*;
use sptrace_wire::counts::{CELLS, FIRST_CELL, REGION_BYTES, REGIONS, RegionHead, region_offset};
use sptrace_wire::levels::{
    Entry, LEVELS, LEVELS_OFFSET, SWITCHES, SWITCHES_OFFSET, UNTOLD, VALUES_LEFT_OUT, VALUES_SHOWN,
};
use sptrace_wire::{MAGIC, VERSION};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Where the arena lies in every tracee: below where the kernel puts programs that may lie anywhere
/// (from 0x5555_5555_4000 on: ELF_ET_DYN_BASE), and far from the rest. Of the places that nobody
/// uses it is the one that the sanitizers permit: ThreadSanitizer wants the program's memory there
/// and ends a program that has a mapping elsewhere, and for AddressSanitizer and MemorySanitizer
/// it is application memory, too.
pub const ARENA_AVMA: u64 = 0x5510_0000_0000;

/// So many chunks are made ready before any is used, and so many at once later.
const READY_FIRST: u32 = 64;
/// The same by huge pages: 20 threads fill so many before any is drained.
const READY_FIRST_HUGE: u32 = 160;
/// They are made by whole huge pages, the first of which begins with the first chunk.
const CHUNKS_AT_ONCE: u32 = (HUGE_BYTES / CHUNK_BYTES) as u32;
const _: () = assert!(CHUNK_DATA_OFFSET.is_multiple_of(HUGE_BYTES));
/// And so many more for each thread, of so many: if all processors are busy with the program, the
/// host is late to make any, and each thread that makes them for itself pays for it.
const READY_A_THREAD: u32 = 8;
const READY_THREADS: u32 = 32;

/// The mapped arena. Shared between the host's threads.
pub struct Arena {
    fd: OwnedFd,
    base: *mut u8,
    pages: Pages,
    size: Size,
    plans_used: AtomicU64,
    chunks_used: AtomicU32,
    commands: Mutex<Vec<CommandPlace>>,
    /// Wishes that were written.
    wished: AtomicU64,
    /// Regions of counts that were taken at any time: the first ones.
    regions_seen: AtomicU32,
}

/// Room among the plans that a command has, or had.
struct CommandPlace {
    offset: u64,
    bytes: u64,
    is_free: bool,
}

// SAFETY: the mapping lives as long as the value; all shared fields are atomics or owned by one
// side at a time by protocol (sptrace-wire).
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

/// How the host wants to record.
#[derive(Clone, Copy, Debug)]
pub struct ArenaOptions {
    /// Number of chunks to record into.
    pub chunks: u32,
    /// Drop events when all chunks are full, instead of waiting.
    pub drop_when_full: bool,
    /// 0, or the depth below which nothing is instrumented.
    pub depth_limit: u32,
    /// Record ld.so's start-up work.
    pub loader: bool,
    /// Bytes of address space that a process may have in which it is mapped.
    pub memory_limit: u64,
    /// Record inside hooked functions only.
    pub roots_only: bool,
    /// Calls are counted, not recorded.
    pub counts: bool,
    /// Calls of some functions are counted at times, those of others recorded.
    pub levels: bool,
    /// Calls are recorded in order, without stamps and ends.
    pub in_order: bool,
    /// Calls are recorded, those of some functions in order at times.
    pub mixed: bool,
    /// Calls of some functions are counted at times, by us: they are recorded in order for that.
    pub counted_in_order: bool,
    /// Calls keep their return addresses.
    pub keeps_returns: bool,
    /// Functions that were met before are instrumented ahead.
    pub ahead: bool,
}

/// How large an arena is, and how many chunks it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    /// Up to the end of the plans.
    bytes: u64,
    chunks_max: u32,
    /// Regions of counts behind them.
    regions: u32,
}

impl Size {
    /// It is counted against the limit on the address space of all that have it: it shall take no
    /// more than a quarter of that, as long as it can hold the plans of a small program.
    const LEAST_BYTES: u64 = 8 << 20;

    fn within(memory_limit: u64, counts: bool) -> Self {
        let bytes = (memory_limit / 4).clamp(Self::LEAST_BYTES, ARENA_BYTES) & !0xffff;
        let regions = (memory_limit / 4 / REGION_BYTES).clamp(2, REGIONS.into()) as u32;
        Self {
            bytes,
            chunks_max: (bytes / 4 / CHUNK_BYTES) as u32,
            regions: if counts { regions } else { 0 },
        }
    }

    /// Of all of it.
    fn whole_bytes(self) -> u64 {
        region_offset(self.bytes, self.regions)
    }

    /// Where the plans begin.
    fn plans_at(self) -> u64 {
        CHUNK_DATA_OFFSET + u64::from(self.chunks_max) * CHUNK_BYTES
    }
}

impl Arena {
    /// Makes the arena and its free list.
    ///
    /// # Errors
    /// memfd_create, ftruncate or mmap failed.
    pub fn new(options: ArenaOptions) -> Result<Self, TraceeError> {
        // SAFETY: a constant name; the fd is ours.
        let fd = unsafe {
            let fd = libc::memfd_create(c"sptrace".as_ptr(), libc::MFD_CLOEXEC);
            if fd < 0 {
                return Err(TraceeError::last("memfd_create"));
            }
            OwnedFd::from_raw_fd(fd)
        };
        let size = Size::within(options.memory_limit, options.counts || options.levels);
        // SAFETY: our own fd.
        if unsafe { libc::ftruncate(fd.as_raw_fd(), size.whole_bytes() as i64) } != 0 {
            return Err(TraceeError::last("ftruncate"));
        }
        let base = pages::map_shared(&fd, size.whole_bytes())?;
        let arena = Self {
            fd,
            base,
            pages: Pages::new(),
            size,
            plans_used: AtomicU64::new(size.plans_at()),
            chunks_used: AtomicU32::new(0),
            commands: Mutex::default(),
            wished: AtomicU64::new(0),
            regions_seen: AtomicU32::new(0),
        };
        arena.prepare(options);
        Ok(arena)
    }

    fn prepare(&self, options: ArenaOptions) {
        let chunks = options.chunks.clamp(2, self.size.chunks_max);
        let control = self.base.cast::<Control>();
        // SAFETY: nobody else has the arena yet; the page is zero.
        unsafe {
            (*control).magic = MAGIC;
            (*control).version = VERSION;
            (*control).on_full = u32::from(options.drop_when_full);
            (*control).depth_limit = options.depth_limit;
            (*control).loader = u32::from(options.loader);
            (*control).roots_only = u32::from(options.roots_only);
            (*control).arena_bytes = self.size.bytes;
            (*control).regions_offset = self.size.bytes;
            (*control).regions = self.size.regions;
            (*control).has_levels =
                u32::from(options.levels || options.mixed || options.counted_in_order);
            (*control).in_order = u32::from(options.in_order);
            (*control).keeps_returns = u32::from(options.keeps_returns);
            (*control).ahead = u32::from(options.ahead);
            (*control).mixed = match (options.counted_in_order, options.mixed) {
                (true, _) => MIXED_COUNTED,
                (false, true) => MIXED_PLACED,
                (false, false) => 0,
            };
            (*control).pid = libc::getpid() as u32;
            // Another recording's processes have other numbers.
            let start = (libc::getpid() as u32) << 14;
            (*control).last_number.store(start, Ordering::Relaxed);
        }
        let c = self.control();
        c.full_chunks.store(NONE, Ordering::Relaxed);
        c.free_chunks.store(u64::from(NONE), Ordering::Relaxed);
        c.host_state.store(HOST_RECORDING, Ordering::Relaxed);
        self.chunks_used.store(chunks, Ordering::Relaxed);
        for i in (0..chunks).rev() {
            self.free_chunk(i);
        }
    }

    /// How many are mapped of it.
    pub fn bytes(&self) -> u64 {
        self.size.whole_bytes()
    }

    /// Wishes that the calls of a function of a process, or of a site, are recorded at this level.
    /// The program hears of it by [`Self::tell_wishes`].
    pub fn wish(&self, process: u32, avma: u64, level: u32) {
        let index = self.wished.load(Ordering::Relaxed);
        if index - self.control().levels_written.load(Ordering::Relaxed) == UNTOLD {
            self.tell_wishes();
        }
        let offset = LEVELS_OFFSET + index % LEVELS * size_of::<Entry>() as u64;
        // SAFETY: within the arena, aligned; shared by atomics.
        let entry = unsafe { &*self.base.add(offset as usize).cast::<Entry>() };
        entry.avma.store(avma, Ordering::Relaxed);
        entry.process.store(process, Ordering::Relaxed);
        entry.level.store(level, Ordering::Relaxed);
        self.wished.store(index + 1, Ordering::Relaxed);
    }

    /// Calls that begin from here on bring values or do not, of the functions with this switch.
    pub fn switch_values(&self, number: u16, are_shown: bool) {
        let offset = SWITCHES_OFFSET + u64::from(number) % SWITCHES;
        // SAFETY: within the arena; shared by atomics.
        let switch = unsafe { &*self.base.add(offset as usize).cast::<AtomicU8>() };
        let value = if are_shown {
            VALUES_SHOWN
        } else {
            VALUES_LEFT_OUT
        };
        switch.store(value, Ordering::Relaxed);
    }

    /// The program is to carry out what was wished, all at once.
    pub fn tell_wishes(&self) {
        let wished = self.wished.load(Ordering::Relaxed);
        let told = &self.control().levels_written;
        if told.load(Ordering::Relaxed) != wished {
            told.store(wished, Ordering::Release);
        }
    }

    /// So many bids there may be.
    pub fn set_bids(&self, count: usize) {
        let control = self.base.cast::<Control>();
        // SAFETY: nobody else has the arena yet.
        unsafe { (*control).bids = count.min(BIDS) as u32 };
    }

    /// The slot in which one of them is said.
    pub fn bid(&self, number: usize) -> &Bid {
        let offset = bid_offset(number.min(BIDS - 1)) as usize;
        // SAFETY: within the arena, aligned; shared by atomics.
        unsafe { &*self.base.add(offset).cast::<Bid>() }
    }

    /// The heads of all regions of counts that were ever taken, by their numbers. Who needs one
    /// takes the first that is free, and only we give them back: before one that was never taken
    /// there is none that we have not seen. The others are not touched: each touch would be a page.
    pub fn regions(&self) -> impl Iterator<Item = (u32, &RegionHead)> {
        let is_taken = |i: &u32| self.region(*i).state.load(Ordering::Acquire) != 0;
        let seen = self.regions_seen.load(Ordering::Relaxed);
        let more = (seen..self.size.regions).take_while(is_taken).count() as u32;
        self.regions_seen.fetch_max(seen + more, Ordering::Relaxed);
        (0..seen + more).map(|i| (i, self.region(i)))
    }

    fn region(&self, i: u32) -> &RegionHead {
        // SAFETY: within the arena; shared by atomics.
        unsafe { &*self.region_at(i).cast::<RegionHead>() }
    }

    /// The cells of a process's edges that are taken, and its head's words before them. The program
    /// may have written anything there: at most all words of the region.
    pub fn used_cells(&self, i: u32) -> &[AtomicU64] {
        let used = self.region(i).next.load(Ordering::Acquire) as usize;
        let all = self.cells(i);
        all.get(..used).unwrap_or(all)
    }

    fn region_at(&self, i: u32) -> *mut u8 {
        assert!(i < self.size.regions);
        let offset = region_offset(self.size.bytes, i);
        // SAFETY: within the arena.
        unsafe { self.base.add(offset as usize) }
    }

    /// The words of a region, its head's among them.
    pub fn cells(&self, i: u32) -> &[AtomicU64] {
        let first = self.region_at(i).cast::<AtomicU64>();
        // SAFETY: within the arena, aligned; relaxed loads of words the tracee may be writing.
        unsafe { std::slice::from_raw_parts(first, CELLS as usize) }
    }

    /// Makes all words of a region zero behind its head, and gives their memory back.
    pub fn clear_cells(&self, i: u32) {
        const PAGE: usize = 4096;
        let head = FIRST_CELL as usize;
        let first_page = self.cells(i).iter().take(PAGE / 8).skip(head);
        first_page.for_each(|cell| cell.store(0, Ordering::Relaxed));
        let at = region_offset(self.size.bytes, i) as i64 + PAGE as i64;
        let rest = REGION_BYTES as i64 - PAGE as i64;
        let how = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: our own file.
        if unsafe { libc::fallocate(self.fd.as_raw_fd(), how, at, rest) } != 0 {
            let cells = self.cells(i).iter().skip(PAGE / 8);
            cells.for_each(|cell| cell.store(0, Ordering::Relaxed));
        }
    }

    /// True if there may be a chunk of this number, which somebody else has written.
    pub fn is_chunk(&self, i: u32) -> bool {
        i < self.size.chunks_max
    }

    /// The control block.
    pub fn control(&self) -> &Control {
        // SAFETY: lies at the start of the arena; shared by atomics.
        unsafe { &*self.base.add(CONTROL_OFFSET as usize).cast::<Control>() }
    }

    /// Question slot `i` (below [`QUESTIONS`]).
    pub fn question(&self, i: usize) -> &Question {
        assert!(i < QUESTIONS);
        // SAFETY: within the arena.
        unsafe {
            &*self
                .base
                .add(QUESTIONS_OFFSET as usize)
                .cast::<Question>()
                .add(i)
        }
    }

    /// Stream entry `i` (below [`STREAMS`]).
    pub fn stream(&self, i: usize) -> &Stream {
        assert!(i < STREAMS);
        // SAFETY: within the arena.
        unsafe {
            &*self
                .base
                .add(STREAMS_OFFSET as usize)
                .cast::<Stream>()
                .add(i)
        }
    }

    /// Chunk entry `i` (below [`CHUNKS_MAX`]).
    pub fn chunk(&self, i: u32) -> &Chunk {
        assert!((i as usize) < CHUNKS_MAX);
        // SAFETY: within the arena.
        unsafe {
            &*self
                .base
                .add(CHUNKS_OFFSET as usize)
                .cast::<Chunk>()
                .add(i as usize)
        }
    }

    /// The 4-byte halves of words of chunk `i`.
    pub fn halves(&self, i: u32) -> &[AtomicU32] {
        assert!(i < self.size.chunks_max);
        // SAFETY: within the arena, aligned; relaxed loads of words the tracee may be writing.
        unsafe {
            std::slice::from_raw_parts(
                self.base.add(chunk_offset(i) as usize).cast::<AtomicU32>(),
                CHUNK_BYTES as usize / 4,
            )
        }
    }

    /// Zeroes a chunk and gives it back to the agents.
    pub fn recycle(&self, i: u32) {
        self.give_back(i);
        self.wake_waiting();
    }

    /// The same; threads that wait for a chunk sleep on until [`Self::wake_waiting`].
    pub fn give_back(&self, i: u32) {
        assert!(i < self.size.chunks_max);
        // SAFETY: the chunk is ours: it was taken from the full list or its thread is gone.
        unsafe {
            self.base
                .add(chunk_offset(i) as usize)
                .write_bytes(0, CHUNK_BYTES as usize);
        }
        self.free_chunk(i);
        let freed = &self.control().chunks_freed;
        freed.fetch_add(1, Ordering::Release);
    }

    /// Wakes the threads that wait for a chunk.
    pub fn wake_waiting(&self) {
        futex_wake(&self.control().chunks_freed, i32::MAX);
    }

    /// How many chunks there are.
    pub fn chunks(&self) -> u32 {
        self.chunks_used.load(Ordering::Relaxed)
    }

    fn free_chunk(&self, i: u32) {
        let head = &self.control().free_chunks;
        let mut old = head.load(Ordering::Relaxed);
        loop {
            self.chunk(i).next.store(old as u32, Ordering::Relaxed);
            let new = ((old >> 32).wrapping_add(1) << 32) | u64::from(i);
            match head.compare_exchange_weak(old, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => old = now,
            }
        }
    }

    /// Adds a chunk if all are taken by running threads: so that there are always more chunks than
    /// threads. False: the arena is full.
    pub fn grow(&self) -> bool {
        if self.control().free_chunks.load(Ordering::Relaxed) as u32 != NONE {
            return true;
        }
        let next = self.chunks_used.load(Ordering::Relaxed);
        if next >= self.size.chunks_max {
            return false;
        }
        self.chunks_used.store(next + 1, Ordering::Relaxed);
        self.recycle(next);
        true
    }

    /// Has the kernel make the pages of chunks that will be taken next, as many again as were ever
    /// in use: a thread of the program that takes one finds them there. A few at each call.
    pub fn make_ready(&self) {
        let next = self.control().free_chunks.load(Ordering::Relaxed) as u32;
        let chunks_ready = &self.control().chunks_ready;
        let ready = chunks_ready.load(Ordering::Relaxed);
        // The list gives back what was given last: a chunk that is new is its end.
        let threads = self.control().streams_used.load(Ordering::Relaxed);
        let for_threads = threads.min(READY_THREADS) * READY_A_THREAD;
        let at_once = match self.pages.are_huge() {
            true => READY_FIRST_HUGE,
            false => READY_FIRST,
        };
        let wanted = next.saturating_mul(2).saturating_add(at_once + for_threads);
        let end = wanted.min(ready + at_once);
        let end = end.next_multiple_of(CHUNKS_AT_ONCE).min(self.chunks());
        if next == NONE || end <= ready {
            return;
        }
        let bytes = u64::from(end - ready) * CHUNK_BYTES;
        let at = self.base.wrapping_add(chunk_offset(ready) as usize);
        // SAFETY: pages of our own mapping.
        unsafe { self.pages.make(at, bytes) };
        chunks_ready.store(end, Ordering::Relaxed);
    }

    /// Takes all full chunks, oldest first.
    pub fn take_full(&self) -> Vec<u32> {
        let mut at = self.control().full_chunks.swap(NONE, Ordering::Acquire);
        let mut out = Vec::new();
        while at < self.size.chunks_max && out.len() < CHUNKS_MAX {
            out.push(at);
            at = self.chunk(at).next.load(Ordering::Relaxed);
        }
        out.reverse();
        out
    }

    /// Puts bytes into the plan region, with so many zeroes behind them at least; gives their
    /// offset, or None when it is full.
    pub fn add_plan(&self, bytes: &[u8], zeroes: u64) -> Option<u64> {
        let size = (bytes.len() as u64 + zeroes + 4095) & !4095;
        let at = self.plans_used.fetch_add(size, Ordering::Relaxed);
        if at + size > self.size.bytes {
            return None;
        }
        // By the file: its pages come whole, and need not be mapped here. (A limit of the size of
        // files may forbid that.)
        let file = self.fd.try_clone().map(File::from);
        if file.and_then(|file| file.write_all_at(bytes, at)).is_err() {
            self.write(at, bytes);
        }
        Some(at)
    }

    /// Tells the agents what to read of system calls (`sptrace_wire::values`), before there are
    /// any. False: no room.
    pub fn set_captures(&self, table: &[u8]) -> bool {
        let Some(offset) = self.add_plan(table, 0) else {
            return false;
        };
        // SAFETY: nobody else has the arena yet.
        unsafe { (*self.base.cast::<Control>()).captures_offset = offset };
        true
    }

    /// Makes room for the tables that payloads add to, of which a thread has `set_bytes`. Gives how
    /// many threads can have them at the same time.
    pub fn set_tables(&self, set_bytes: u32) -> u32 {
        let bytes = u64::from(set_bytes.max(1));
        let room = self.size.bytes / 4;
        let sets = (room / bytes).min(STREAMS as u64);
        let size = (sets * bytes + 4095) & !4095;
        let at = self.plans_used.fetch_add(size, Ordering::Relaxed);
        if at + size > self.size.bytes {
            return 0;
        }
        let control = self.base.cast::<Control>();
        // SAFETY: nobody else has the arena yet.
        unsafe {
            (*control).tables_offset = at;
            (*control).tables_set_bytes = set_bytes;
            (*control).tables_sets = sets as u32;
        }
        sets as u32
    }

    /// A word of a thread's set of tables, at an offset that is a multiple of eight; 0: there is
    /// none.
    pub fn table_word(&self, set: u32, offset: u32) -> u64 {
        let c = self.control();
        let (bytes, sets) = (c.tables_set_bytes, c.tables_sets);
        if set >= sets || offset.saturating_add(8) > bytes || !offset.is_multiple_of(8) {
            return 0;
        }
        let at = c.tables_offset + u64::from(set) * u64::from(bytes) + u64::from(offset);
        if at + 8 > self.size.bytes {
            return 0;
        }
        // SAFETY: within the arena, aligned; a relaxed load of a word the tracee may be writing.
        unsafe { &*self.base.add(at as usize).cast::<AtomicU64>() }.load(Ordering::Relaxed)
    }

    /// Makes words of a thread's set of tables zero, of a thread that is gone.
    pub fn clear_table_words(&self, set: u32, first: u32, bytes: u32) {
        let c = self.control();
        let (of_set, sets) = (c.tables_set_bytes, c.tables_sets);
        let start = c.tables_offset + u64::from(set) * u64::from(of_set);
        let is_inside = set < sets && start + u64::from(of_set) <= self.size.bytes;
        for at in (first..first.saturating_add(bytes).min(of_set)).step_by(8) {
            if is_inside && at.is_multiple_of(8) && at + 8 <= of_set {
                let word = self.base.wrapping_add((start + u64::from(at)) as usize);
                // SAFETY: within the arena, aligned; nobody but this thread writes it now.
                unsafe { &*word.cast::<AtomicU64>() }.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Puts a command there, where there was one before if that is over.
    pub fn add_command(&self, bytes: &[u8]) -> Option<u64> {
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |c: &&mut CommandPlace| c.is_free && c.bytes >= bytes.len() as u64;
        if let Some(place) = commands.iter_mut().filter(fits).min_by_key(|c| c.bytes) {
            place.is_free = false;
            self.write(place.offset, bytes);
            return Some(place.offset);
        }
        let offset = self.add_plan(bytes, 0)?;
        commands.push(CommandPlace {
            offset,
            bytes: bytes.len() as u64,
            is_free: false,
        });
        Some(offset)
    }

    /// No process has the arena any more: all commands are over.
    pub fn free_commands(&self) {
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        commands.iter_mut().for_each(|c| c.is_free = true);
    }

    /// Writes bytes that no tracee reads yet.
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        assert!(offset + bytes.len() as u64 <= self.size.bytes);
        // SAFETY: within the arena; the region is not yet in use (the caller's duty).
        unsafe {
            self.base
                .add(offset as usize)
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
    }

    /// The command at `offset`, which [`crate::command`] has put there.
    pub fn attach_block(&self, offset: u64) -> &AttachBlock {
        assert!(offset.is_multiple_of(4096) && offset + 4096 <= self.size.bytes);
        // SAFETY: within the arena, aligned; what the agent writes are atomics.
        unsafe { &*self.base.add(offset as usize).cast::<AttachBlock>() }
    }

    /// The word at `offset`.
    pub fn word(&self, offset: u64) -> u64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.size.bytes);
        // SAFETY: within the arena, aligned.
        unsafe { &*self.base.add(offset as usize).cast::<AtomicU64>() }.load(Ordering::Acquire)
    }

    /// The bytes at `offset`, each by itself.
    pub fn bytes_at(&self, offset: u64, count: u64) -> Vec<u8> {
        assert!(
            offset
                .checked_add(count)
                .is_some_and(|end| end <= self.size.bytes)
        );
        let at = |i: u64| self.base.wrapping_add((offset + i) as usize);
        // SAFETY: within the arena; a tracee may be writing it.
        let byte = |i| unsafe { &*at(i).cast::<AtomicU8>() }.load(Ordering::Relaxed);
        (0..count).map(byte).collect()
    }

    /// Its number among files.
    pub fn inode(&self) -> u64 {
        // SAFETY: the kernel fills the structure.
        unsafe {
            let mut stat = std::mem::zeroed::<libc::stat>();
            libc::fstat(self.fd.as_raw_fd(), &raw mut stat);
            stat.st_ino
        }
    }

    /// Its file.
    pub(crate) fn file(&self) -> &OwnedFd {
        &self.fd
    }

    /// Path by which a tracee opens the arena that cannot get it otherwise.
    pub fn path(&self) -> String {
        // SAFETY: no arguments.
        let pid = unsafe { libc::getpid() };
        format!("/proc/{pid}/fd/{}", self.fd.as_raw_fd())
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: our own mapping, not used after.
        unsafe { libc::munmap(self.base.cast(), self.size.whole_bytes() as usize) };
    }
}

/// What a robust futex of the arena tells of.
#[derive(Clone, Copy)]
pub enum Role {
    /// The thread that serves chunks and questions: `Control::host_alive`.
    Drainer,
    /// The thread that traces: `Control::tracer_alive`.
    Tracer,
}

#[repr(C)]
struct RobustList {
    next: *const u8,
    futex_offset: i64,
    pending: *const u8,
}

/// Makes the arena's word of `role` tell of the calling thread's death, which must not use robust
/// mutexes of its own: registers a robust list with this one futex (get_robust_list(2)); the kernel
/// sets FUTEX_OWNER_DIED in it when the thread ends. The entry and the futex need a fixed distance:
/// the list's node lies in the arena too.
pub fn tell_of_death(arena: &Arena, role: Role) {
    // The nodes: eight bytes each in the last part of the control pages that no structure uses.
    let (word, node) = match role {
        Role::Drainer => (&arena.control().host_alive, 0x1ff0),
        Role::Tracer => (&arena.control().tracer_alive, 0x1fe0),
    };
    let node = arena.base.wrapping_add(node).cast::<*const u8>();
    // For the thread's life: its end is when the kernel reads it.
    let list = Box::leak(Box::new(RobustList {
        next: node.cast(),
        futex_offset: word.as_ptr() as i64 - node as i64,
        pending: std::ptr::null(),
    }));
    // SAFETY: the word holds our tid, the circular list has one node that points back to the
    // head, and the head stays.
    unsafe {
        let tid = libc::syscall(libc::SYS_gettid) as u32;
        word.store(tid, Ordering::Release);
        *node = (&raw const *list).cast();
        libc::syscall(libc::SYS_set_robust_list, &raw mut *list, 24usize);
    }
}
