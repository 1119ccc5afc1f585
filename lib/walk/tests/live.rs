//! Walks in real processes: threads that stand in known stacks (stacks.c), and every instruction of
//! a program that is stepped through, compared with the calls and returns that were seen.

mod process;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use iced_x86::{Decoder, DecoderOptions, FlowControl};
use nix::sys::ptrace;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use process::{Names, Process, registers, release, stop};
use sptrace_addr::Avma;
use sptrace_walk::{Cache, End, FoundBy, Frame, Module, PageCache, Unwinder, Walk};

/// Ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn build(name: &str, compiler: &str, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stacks.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut command = Command::new(compiler);
    command.args(["-O2", "-pthread"]).args(flags).arg("-o");
    let status = command.arg(&program).arg(source).status().unwrap();
    assert!(status.success());
    program
}

/// One thread's frames by name, repetitions left out, and the frames.
type Named = (Vec<String>, Walk);

/// Stops all threads of a program and walks them, when each stands where it will stand.
fn walk_all(program: &Path, by_code: bool, threads: usize) -> Vec<Named> {
    let running = Running(Command::new(program).spawn().unwrap());
    let pid = running.0.id() as i32;
    for _ in 0..100 {
        std::thread::sleep(Duration::from_millis(50));
        let process = Process::open(pid);
        let tids = process.threads();
        assert!(tids.iter().all(|tid| stop(*tid)));
        let walks = walk_stopped(&process, &tids, by_code);
        tids.iter().for_each(|tid| release(*tid));
        let standing = |(names, _): &&Named| names[0] == "f_stand";
        if walks.iter().filter(standing).count() == threads - 1 {
            return walks;
        }
    }
    panic!("the threads of {} do not come to stand", program.display());
}

fn walk_stopped(process: &Process, tids: &[i32], by_code: bool) -> Vec<Named> {
    let mapped = process.modules();
    let modules: Vec<Module> = mapped.iter().map(|m| m.0.clone()).collect();
    let without_header = modules.iter().cloned().map(|mut module| {
        module.tables.eh_frame_hdr = None;
        module
    });
    let unwinder = Unwinder::new(&modules);
    let by_index = Unwinder::new(&without_header.collect::<Vec<_>>());
    let names = Names::new(&mapped);
    let (mut cache, mut other_cache) = (Cache::default(), Cache::default());
    let mut memory = PageCache::new(|avma: u64, into: &mut [u8]| process.read(avma, into));
    let no_start = |_: Avma| None;
    let mut walk = |tid: &i32| {
        let registers = registers(*tid);
        let starts = by_code.then_some(&no_start as _);
        let walk = unwinder.walk(&registers, &mut memory, &mut cache, 256, starts);
        let again = by_index.walk(&registers, &mut memory, &mut other_cache, 256, starts);
        assert_eq!(walk, again, "without .eh_frame_hdr");
        check_frames(process, &walk);
        let mut named: Vec<String> = walk.frames.iter().map(|f| name(&names, f)).collect();
        named.dedup();
        (named, walk)
    };
    tids.iter().map(&mut walk).collect()
}

fn name(names: &Names<'_>, frame: &Frame) -> String {
    if frame.is_restorer {
        return "restorer".into();
    }
    let inside = frame.address.0 - u64::from(!frame.is_exact());
    names.of(frame.module, Avma(inside))
}

/// What holds of all frames.
fn check_frames(process: &Process, walk: &Walk) {
    for pair in walk.frames.windows(2) {
        let [inner, outer] = pair else { continue };
        if outer.found_by == FoundBy::SignalFrame {
            assert!(outer.return_word.is_none() && inner.is_restorer);
            continue;
        }
        assert_eq!(inner.cfa, Some(outer.stack_pointer));
        let word = outer.return_word.unwrap();
        assert_eq!(word.0 + 8, outer.stack_pointer.0);
        let mut bytes = [0; 8];
        process.read(word.0, &mut bytes).unwrap();
        assert_eq!(u64::from_le_bytes(bytes), outer.address.0);
    }
}

const STACKS: [&[&str]; 4] = [
    &["f_stand", "f_deep", "t_deep"],
    &["f_stand", "f_large", "f_aligned", "t_aligned"],
    &["f_stand", "f_deep", "f_saves", "f_by_rbx", "t_by_rbx"],
    &[
        "f_stand",
        "f_deep",
        "f_inner",
        "f_handler",
        "restorer",
        "fault_here",
        "t_fault",
    ],
];

/// `end`: how all stacks end that have tables as far as the library goes.
fn check_stacks(walks: &[Named], end: End) {
    for stack in STACKS {
        let found = walks.iter().filter(|(names, _)| {
            names.len() >= stack.len() && names.iter().zip(stack).all(|(a, b)| a == b)
        });
        let found: Vec<_> = found.collect();
        // on the thread's stack, and on another one
        let expected = if stack.contains(&"restorer") { 2 } else { 1 };
        assert_eq!(found.len(), expected, "{stack:?} of {walks:?}");
        assert!(found.iter().all(|(_, walk)| walk.end == end), "{found:?}");
    }
    let deep = walks
        .iter()
        .find(|(names, _)| names.contains(&"t_deep".into()));
    let (_, deep) = deep.unwrap();
    assert_eq!(
        deep.frames[1..42]
            .iter()
            .map(|f| f.found_by)
            .collect::<Vec<_>>(),
        [FoundBy::Table; 41]
    );
    assert_ne!(deep.frames[42].address, deep.frames[41].address);
}

fn naked(walks: &[Named]) -> &Walk {
    let found = walks
        .iter()
        .find(|(names, _)| names.contains(&"f_naked".into()));
    &found.unwrap().1
}

#[test]
fn stacks_of_known_threads() {
    let walks = walk_all(&build("stacks", "cc", &[]), false, 7);
    check_stacks(&walks, End::Outermost);
    let (main, walk) = &walks[0];
    assert!(
        main.iter().any(|n| n == "main") && main.last().unwrap() == "_start",
        "{main:?}"
    );
    assert_eq!(walk.end, End::Outermost);
    assert_eq!(naked(&walks).end, End::NoTable);
    assert_eq!(naked(&walks).frames.len(), 6);
}

#[test]
fn code_is_looked_at_where_no_table_is() {
    let walks = walk_all(&build("stacks-code", "cc", &[]), true, 7);
    let walk = naked(&walks);
    assert_eq!(walk.end, End::Outermost, "{walks:?}");
    let by_code = walk.frames.iter().filter(|f| f.found_by == FoundBy::Code);
    assert_eq!(by_code.count(), 1);
    assert_eq!(walk.frames[6].found_by, FoundBy::Code);
}

#[test]
fn stacks_of_a_static_program() {
    let walks = walk_all(&build("stacks-static", "cc", &["-static"]), false, 7);
    check_stacks(&walks, End::Outermost);
}

#[test]
fn restorer_of_musl_has_no_table_and_is_passed() {
    if Command::new("musl-gcc").arg("--version").output().is_err() {
        return;
    }
    let walks = walk_all(&build("stacks-musl", "musl-gcc", &["-static"]), false, 7);
    check_stacks(&walks, End::NoTable);
}

/// Calls by lazily bound PLT stubs, ld.so's resolver, the vdso, prologues and epilogues.
#[test]
fn each_instruction_of_a_program_sees_the_stack_that_calls_have_made() {
    let program = build("stacks-stepped", "cc", &["-Wl,-z,lazy"]);
    let mut command = Command::new(program);
    let child = command
        .arg("step")
        .stdin(Stdio::piped())
        .env_remove("LD_BIND_NOW");
    let mut running = Running(child.spawn().unwrap());
    let tid = running.0.id() as i32;
    std::thread::sleep(Duration::from_millis(300)); // it waits in read(2)
    assert!(stop(tid));
    let process = Process::open(tid);
    let mapped = process.modules();
    let modules: Vec<Module> = mapped.iter().map(|m| m.0.clone()).collect();
    let (unwinder, mut cache) = (Unwinder::new(&modules), Cache::default());
    let mut memory = |avma: u64, into: &mut [u8]| process.read(avma, into);
    let mut walk =
        |cache: &mut Cache| unwinder.walk(&registers(tid), &mut memory, cache, 256, None);
    let first = walk(&mut cache);
    assert_eq!(first.end, End::Outermost);
    let mut open: Vec<u64> = words(&first);
    running.0.stdin.take().unwrap().write_all(b"x").unwrap();
    let vdso = mapped.iter().position(|m| m.1.path == "[vdso]");
    let (mut steps, mut in_vdso) = (0, 0);
    let names = Names::new(&mapped);
    loop {
        let is_call = is_call(&process, ptrace::getregs(Pid::from_raw(tid)).unwrap().rip);
        ptrace::step(Pid::from_raw(tid), None).unwrap();
        let status = waitpid(Pid::from_raw(tid), None).unwrap();
        assert!(matches!(status, WaitStatus::Stopped(..)), "{status:?}");
        let rsp = ptrace::getregs(Pid::from_raw(tid)).unwrap().rsp;
        if is_call {
            open.insert(0, rsp);
        }
        open.retain(|word| *word >= rsp);
        let found = walk(&mut cache);
        if name(&names, &found.frames[0]) == "__do_global_dtors_aux" {
            break; // gcc's start files have no tables
        }
        assert_eq!(words(&found), open, "after {steps} steps: {found:#x?}");
        assert_eq!(found.end, End::Outermost);
        steps += 1;
        in_vdso += u32::from(found.frames[0].module == vdso);
    }
    assert!(
        steps > 3000 && in_vdso > 10,
        "{steps} steps, {in_vdso} in the vdso"
    );
    println!("{steps} steps, {in_vdso} in the vdso");
}

fn words(walk: &Walk) -> Vec<u64> {
    let frames = walk.frames.iter().skip(1);
    frames.map(|f| f.return_word.map_or(0, |w| w.0)).collect()
}

fn is_call(process: &Process, rip: u64) -> bool {
    let mut bytes = [0; 15];
    process.read(rip, &mut bytes).unwrap();
    let flow = Decoder::new(64, &bytes, DecoderOptions::NONE)
        .decode()
        .flow_control();
    matches!(flow, FlowControl::Call | FlowControl::IndirectCall)
}
