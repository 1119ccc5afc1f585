//! A stopped process for tests and examples: its modules, threads and memory, by ptrace and /proc.

#![allow(dead_code, reason = "each user needs its part")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use sptrace_addr::{Avma, Bias};
use sptrace_image::{Object, UnwindTables};
use sptrace_walk::{Module, Registers, Unreadable};

/// A file that is mapped, or the vdso.
pub struct Mapped {
    pub path: String,
    pub bytes: Vec<u8>,
    pub start: Avma,
}

pub struct Process {
    pub pid: i32,
    pub mapped: Vec<Mapped>,
    memory: File,
}

impl Process {
    pub fn open(pid: i32) -> Self {
        let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        let mut mapped = BTreeMap::new();
        for line in maps.lines() {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let Some(path) = fields
                .get(5)
                .filter(|p| p.starts_with('/') || **p == "[vdso]")
            else {
                continue;
            };
            let (start, end) = fields[0].split_once('-').unwrap();
            let hex = |text| u64::from_str_radix(text, 16).unwrap();
            let entry = mapped.entry(path.to_string()).or_insert((0, 0, false));
            if hex(fields[2]) == 0 && entry.1 == 0 {
                (entry.0, entry.1) = (hex(start), hex(end));
            }
            entry.2 |= fields[1].contains('x');
        }
        let mapped = mapped.into_iter().filter(|(_, m)| m.2 && m.1 != 0);
        let mapped = mapped.filter_map(|(path, (start, end, _))| {
            let bytes = if path == "[vdso]" {
                let mut bytes = vec![0; (end - start) as usize];
                memory.read_exact_at(&mut bytes, start).ok()?;
                bytes
            } else {
                fs::read(format!("/proc/{pid}/root{path}")).ok()?
            };
            Some(Mapped {
                path,
                bytes,
                start: Avma(start),
            })
        });
        Self {
            pid,
            mapped: mapped.collect(),
            memory,
        }
    }

    /// Modules with the files that they are of; files that are no images are left out.
    pub fn modules(&self) -> Vec<(Module<'_>, &Mapped)> {
        let files = self.mapped.iter();
        files.filter_map(|f| Some((module_of(f)?, f))).collect()
    }

    pub fn read(&self, avma: u64, into: &mut [u8]) -> Result<(), Unreadable> {
        let read = self.memory.read_exact_at(into, avma);
        read.map_err(|_| Unreadable)
    }

    pub fn threads(&self) -> Vec<i32> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid)).unwrap();
        let mut tids: Vec<i32> = tasks
            .filter_map(|t| t.ok()?.file_name().to_str()?.parse().ok())
            .collect();
        tids.sort_unstable();
        tids
    }
}

fn module_of(file: &Mapped) -> Option<Module<'_>> {
    let tables = UnwindTables::read(&file.bytes).ok()?;
    let bias = Bias::between(tables.base, file.start);
    Some(Module { tables, bias })
}

/// Names of functions, for comparing.
pub struct Names<'a>(Vec<Option<(Object<'a>, Bias)>>);

impl<'a> Names<'a> {
    pub fn new(modules: &[(Module<'a>, &'a Mapped)]) -> Self {
        let objects = modules.iter();
        Self(
            objects
                .map(|(m, f)| Some((Object::parse(&f.bytes).ok()?, m.bias)))
                .collect(),
        )
    }

    /// The symbol that covers `avma` of a module, or the one before it.
    pub fn of(&self, module: Option<usize>, avma: Avma) -> String {
        let name = || {
            let (object, bias) = self.0[module?].as_ref()?;
            let svma = bias.to_svma(avma);
            let before = object.symbols.iter().rev().find(|s| s.svma <= svma)?;
            Some(before.name.to_string())
        };
        name().unwrap_or_else(|| "?".into())
    }
}

/// Seizes and stops a thread.
pub fn stop(tid: i32) -> bool {
    let pid = Pid::from_raw(tid);
    ptrace::seize(pid, ptrace::Options::empty()).is_ok()
        && ptrace::interrupt(pid).is_ok()
        && waitpid(pid, Some(WaitPidFlag::__WALL)).is_ok()
}

/// Lets it run again.
pub fn release(tid: i32) {
    let _ = ptrace::detach(Pid::from_raw(tid), None);
}

pub fn registers(tid: i32) -> Registers {
    let r = ptrace::getregs(Pid::from_raw(tid)).unwrap();
    let general = [
        r.rax, r.rdx, r.rcx, r.rbx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8, r.r9, r.r10, r.r11, r.r12,
        r.r13, r.r14, r.r15,
    ];
    Registers::all(r.rip, general)
}
