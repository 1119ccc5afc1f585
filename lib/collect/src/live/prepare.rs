//! Prepares a running process for being attached to: its modules are analysed and known to the
//! agent, its unwind tables are opened, and arena, agent and patch areas are mapped into it.
//!
//! [`Looked`] is made by any thread of ours and may take as long as an analysis. The session's
//! thread makes [`Prepared`] of it, for which one thread of the process is led to the agent and
//! back. If the process has other modules by then, it is looked at and prepared again. Nothing that
//! the program executes is changed.
//!
//! Must not know when the process will be stopped, and what for.

use std::fs::File;

use sptrace_addr::Avma;
use sptrace_tracee::arena::ARENA_AVMA;
use sptrace_tracee::carrier::{Carrier, Errand};
use sptrace_tracee::command::{Command, Sent};
use sptrace_tracee::image::IMAGE_AVMA;
use sptrace_tracee::maps::{self, CodeMap, LiveMaps, Mapping};
use sptrace_tracee::threads::Thread;
use sptrace_tracee::{TraceeError, entry, memory, program, seccomp};
use sptrace_walk::Cache;
use sptrace_wire::attach::*;

use crate::live::stacks::{Copied, Stacks, Walker};
use crate::modules::answer;
use crate::session::Session;
use crate::shared::Shared;

/// Of a stack, copied to try the walk.
const REHEARSED_BYTES: usize = 64 << 10;

/// Code that a process has mapped from a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Code {
    start: u64,
    end: u64,
    file: (String, u64),
}

/// The code of all modules. What sptrace has mapped is none: the agent, and patch areas, those of a
/// former one too.
pub(crate) fn code_of(maps: &[Mapping]) -> Vec<Code> {
    let code = |m: &Mapping| Code {
        start: m.start,
        end: m.end,
        file: m.file.clone(),
    };
    maps.iter().filter(is_code).map(code).collect()
}

/// A file that is mapped, and where it begins.
type Begun<'a> = (u64, &'a (String, u64));

/// The files of all modules whose code is not copied altogether.
fn files_of(maps: &[Mapping]) -> Vec<&(String, u64)> {
    maps.iter().filter(is_code).map(|m| &m.file).collect()
}

/// Where these files begin.
fn beginnings<'a>(maps: &'a [Mapping], files: &[&(String, u64)]) -> Vec<Begun<'a>> {
    let is_one = |m: &&Mapping| m.offset == 0 && m.file.1 != 0 && files.contains(&&m.file);
    let first = maps.iter().filter(is_one);
    first.map(|m| (m.start, &m.file)).collect()
}

/// Images are mapped as private memory; patch areas, and what else generates code at two places,
/// share it.
fn is_code(m: &&Mapping) -> bool {
    let is_agent = (IMAGE_AVMA..ARENA_AVMA).contains(&m.start);
    m.access[2] && !m.access[1] && m.file.1 != 0 && !m.is_shared && !is_agent
}

/// A process as it was a moment ago, with its modules analysed.
pub(crate) struct Looked {
    pub(crate) pid: u32,
    pub(crate) maps: Vec<Mapping>,
    /// Tells whether it is the same program still.
    memory: File,
    walker: Walker,
    /// Its code, and an address in the text of each module.
    modules: Vec<(Code, u64)>,
}

impl Looked {
    /// Looks at a process: into the cache, and into the recording, before the agent asks.
    pub(crate) fn at(shared: &Shared, pid: u32) -> Result<Self, TraceeError> {
        let memory = memory::open(pid)?;
        if !program::is_loaded(pid) {
            return Err(TraceeError::Replaced);
        }
        let maps = maps::read(pid)?;
        program::check(pid, &memory)?;
        let walker = Walker::open(pid, &maps);
        let code = maps.iter().filter(is_code);
        let addresses: Vec<u64> = code.map(|m| text_of(shared, pid, &maps, m)).collect();
        Ok(Self {
            pid,
            walker,
            modules: code_of(&maps).into_iter().zip(addresses).collect(),
            maps,
            memory,
        })
    }
}

/// What is known of a process before it is stopped.
pub(crate) struct Prepared {
    pub(crate) pid: u32,
    pub(crate) maps: Vec<Mapping>,
    pub(crate) memory: File,
    pub(crate) walker: Walker,
    pub(crate) cache: Cache,
    pub(crate) loader: u64,
    modules: Vec<(Code, u64)>,
    /// All executable mappings of files, ours included; empty: not known.
    pub(crate) mapped: CodeMap,
}

impl Prepared {
    /// A process that the agent is in already: what its stacks are walked by.
    pub(crate) fn of_followed(pid: u32) -> Result<Self, TraceeError> {
        let memory = memory::open(pid)?;
        if !program::is_loaded(pid) {
            return Err(TraceeError::Replaced);
        }
        let maps = maps::read(pid)?;
        program::check(pid, &memory)?;
        Ok(Self {
            pid,
            walker: Walker::open(pid, &maps),
            maps,
            memory,
            cache: Cache::default(),
            loader: entry::loader(pid).unwrap_or(0),
            modules: Vec::new(),
            mapped: CodeMap::default(),
        })
    }

    /// It has mapped or unmapped modules meanwhile. Pages of theirs that are patched are copies,
    /// which have no file, so all of a module's may be.
    pub(crate) fn has_other_modules(&self) -> bool {
        maps::read(self.pid).is_ok_and(|maps| {
            let mut known = files_of(&self.maps);
            known.dedup();
            let is_known = |file: &&(String, u64)| known.contains(file);
            let are_known = files_of(&maps).iter().all(is_known);
            !are_known || beginnings(&maps, &known) != beginnings(&self.maps, &known)
        })
    }

    /// Sets `mapped`, if the process has the modules still that it was prepared with.
    fn note_mapped(&mut self) -> Result<(), TraceeError> {
        let code = LiveMaps::open(self.pid)?.code_map()?;
        let known = self.modules.iter().map(|(code, _)| code);
        if code_of(&code.mappings).iter().eq(known) {
            self.mapped = code;
        }
        Ok(())
    }
}

impl Session {
    /// Prepares a process that nothing of ours is in.
    pub(crate) fn prepare_process(&self, looked: Looked) -> Result<Prepared, TraceeError> {
        let pid = looked.pid;
        if maps::is_traced(&looked.maps) {
            return Err(TraceeError::NoRoom(
                "an sptrace that ended has left its memory in it",
            ));
        }
        self.shared.lock().forget(pid);
        let memory = looked.memory;
        let loader = entry::loader(pid).unwrap_or(0);
        let stack = looked.maps.iter().find(|m| m.path == "[stack]");
        let command = Command {
            command: COMMAND_PREPARE,
            modules: looked.modules.iter().map(|m| m.1).collect(),
            stack_top: stack.map_or(0, |m| m.end),
            loader,
            ..Command::default()
        };
        let sent = command.send(&self.shared.arena)?;
        let block = sent.block;
        let errand = Errand::MapAndCall { block };
        let carrier = self.call_beside((pid, &memory), &looked.maps, sent, errand)?;
        let mut prepared = Prepared {
            pid,
            maps: maps::read(pid)?,
            memory,
            walker: looked.walker,
            cache: Cache::default(),
            loader,
            modules: looked.modules,
            mapped: CodeMap::default(),
        };
        prepared.note_mapped()?;
        self.rehearse(&mut prepared, &carrier);
        Ok(prepared)
    }

    /// Walks a stack as it was a moment ago: what is read and followed for the first time is so
    /// slowly, and all threads would stand still meanwhile.
    fn rehearse(&self, prepared: &mut Prepared, (thread, stack): &(Thread, Copied)) {
        let code: Vec<(u64, u64)> = prepared
            .modules
            .iter()
            .map(|(c, _)| (c.start, c.end))
            .collect();
        let starts = |at: Avma| self.shared.function_start(prepared.pid, at.0).map(Avma);
        let (unwinder, cache) = (prepared.walker.unwinder(), &mut prepared.cache);
        let memory = (&prepared.memory, stack);
        let end = thread.regs.rsp + REHEARSED_BYTES as u64;
        cache.learn_all(true);
        Stacks::as_copied(unwinder, cache, memory, &code, &starts).of(&thread.regs, end);
        prepared.cache.learn_all(false);
    }

    /// Prepares a process again, which may have other modules than before.
    pub(crate) fn renew_process(
        &self,
        old: Prepared,
        looked: Looked,
    ) -> Result<Prepared, TraceeError> {
        let others = |of: &[(Code, u64)], than: &[(Code, u64)]| -> Vec<u64> {
            let others = of.iter().filter(|m| !than.contains(m));
            others.map(|m| m.1).collect()
        };
        let gone = others(&old.modules, &looked.modules);
        self.shared.lock().process(old.pid).unload(&gone);
        let command = Command {
            command: COMMAND_PREPARE,
            modules: others(&looked.modules, &old.modules),
            gone,
            ..Command::default()
        };
        let sent = command.send(&self.shared.arena)?;
        let block = sent.block;
        let carrier = {
            let process = (old.pid, &looked.memory);
            self.call_beside(process, &looked.maps, sent, Errand::Call { block })?
        };
        let mut prepared = Prepared {
            maps: maps::read(old.pid)?,
            memory: looked.memory,
            walker: looked.walker,
            cache: Cache::default(),
            modules: looked.modules,
            mapped: CodeMap::default(),
            ..old
        };
        prepared.note_mapped()?;
        self.rehearse(&mut prepared, &carrier);
        Ok(prepared)
    }

    /// Has the agent carry out a command, while the program runs but for one thread: that is given
    /// as it was.
    fn call_beside(
        &self,
        process: (u32, &File),
        maps: &[Mapping],
        sent: Sent,
        errand: Errand,
    ) -> Result<(Thread, Copied), TraceeError> {
        let (pid, memory) = process;
        self.try_call_beside(process, maps, sent, errand)
            .map_err(|e| program::cause(pid, memory, e))
    }

    fn try_call_beside(
        &self,
        (pid, memory): (u32, &File),
        maps: &[Mapping],
        sent: Sent,
        errand: Errand,
    ) -> Result<(Thread, Copied), TraceeError> {
        let arena = &self.shared.arena;
        let carrier = Carrier::new(pid, arena, &self.image, maps)?;
        let mut threads = self.stop_one(pid)?;
        let Some(thread) = threads.all().next().copied() else {
            return Err(TraceeError::Gone);
        };
        // What comes was made for the program that was looked at: another must not be led there.
        if let Err(e) = program::check(pid, memory).and_then(|()| Ok(seccomp::check(thread.tid)?)) {
            threads.release();
            return Err(e);
        }
        let stack = Copied::of(memory, thread.regs.rsp, REHEARSED_BYTES);
        self.shared.snapshots.begin_to_lead(pid);
        let led = carrier.lead(&mut threads, thread, errand, &|| sent.is_done(arena));
        self.shared.snapshots.led(pid);
        threads.release();
        led?;
        match sent.result(arena) {
            RESULT_DONE => Ok((thread, stack)),
            0 => Err(TraceeError::NoRoom(
                "it cannot open or map the arena (no /proc, or a memory limit)",
            )),
            RESULT_NOT_WRITABLE => Err(TraceeError::NotPermitted(NO_TEXT.to_owned())),
            _ => Err(TraceeError::NoRoom("no memory for the agent")),
        }
    }
}

/// Of a process that [`RESULT_NOT_WRITABLE`] is said of before anything is patched.
pub(crate) const NO_TEXT: &str =
    "it does not permit code to be changed (PR_SET_MDWE, systemd's MemoryDenyWriteExecute=)";

/// An address in the code of the module at `m`, which is analysed.
fn text_of(shared: &Shared, pid: u32, maps: &[Mapping], m: &Mapping) -> u64 {
    // Why one is left out is said when the agent asks.
    let known = match shared.is_needed(pid, m) {
        true => shared.module(pid, m).ok(),
        false => None,
    };
    if let Some(index) = known
        && !shared.options.leaves_out(&m.path)
    {
        shared.look_for_gates(index, pid, m);
    }
    let start = known.and_then(|index| {
        let c = shared.lock();
        let known = c.book.modules.get(index)?;
        let bias = answer::bias(maps, m, known.base_svma)?;
        Some(known.text.0.wrapping_add(bias))
    });
    start.map_or(m.start, |start| start.max(m.start))
}
