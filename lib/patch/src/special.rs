//! Functions known by name that need care: those which read their own return address, those which
//! walk the stack, and those at which something happens to the process.

use std::collections::HashSet;
use std::ops::Range;

use iced_x86::{
    Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register,
};
use sptrace_addr::Svma;
use sptrace_code::{Analysis, FunctionFlags};
use sptrace_image::Object;
use sptrace_wire::plan::*;

use crate::movable::movable;

/// Callees that look at their return address: dlopen(3) and dlsym(3) find the calling object by it,
/// the profiling hooks their caller, split stacks what to return to, libunwind where to begin.
const READS_RETURN: [&str; 14] = [
    "dlopen",
    "dlmopen",
    "dlsym",
    "dlvsym",
    "mcount",
    "_mcount",
    "__fentry__",
    "__morestack",
    "__gmon_start__",
    "_dl_mcount_wrapper",
    // Where a walk begins: libunwind does not go on from there.
    "_Ux86_64_getcontext",
    "_ULx86_64_getcontext",
    "unw_getcontext",
    "__unw_getcontext",
];

/// Stack walkers of libgcc, libunwind and LLVM's libunwind that leave the frames they pass for
/// good.
const UNWINDS: [&str; 7] = [
    "_Unwind_RaiseException",
    "_Unwind_Resume",
    "_Unwind_Resume_or_Rethrow",
    "_Unwind_ForcedUnwind",
    "_ULx86_64_resume",
    "unw_resume",
    "__unw_resume",
];

/// Those that only look.
const WALKS: [&str; 13] = [
    "_Unwind_Backtrace",
    "unw_backtrace",
    "unw_backtrace2",
    "_ULx86_64_init_local",
    "_ULx86_64_init_local2",
    "_ULx86_64_step",
    "_Ux86_64_init_local",
    "_Ux86_64_init_local2",
    "_Ux86_64_step",
    "unw_init_local",
    "unw_step",
    "__unw_init_local",
    "__unw_step",
];

/// True if a function of this name reads its return address.
pub fn reads_return(name: &str) -> bool {
    READS_RETURN.contains(&name)
}

/// True for functions that may return a second time, when their place on the stack serves another
/// call: what a hook puts there would be asked for the wrong return address.
pub fn returns_twice(name: &str) -> bool {
    const NAMES: [&str; 6] = [
        "setjmp",
        "sigsetjmp",
        "sigsetjmp_cancel",
        "vfork",
        "getcontext",
        "swapcontext",
    ];
    let plain = name.trim_start_matches('_');
    NAMES.contains(&plain.strip_prefix("libc_").unwrap_or(plain))
}

/// Entries of all functions that read their return address, by name or by what they do. Those that
/// save it to return to it another time are no such: it leads through the slot then.
pub fn returns_read(object: &Object<'_>, analysis: &Analysis) -> HashSet<u64> {
    let saves = |name: &str| {
        ["setjmp", "getcontext", "swapcontext"]
            .iter()
            .any(|s| name.contains(s))
            && !reads_return(name)
    };
    let named = |wanted: &dyn Fn(&str) -> bool| -> HashSet<u64> {
        let symbols = object.symbols.iter().filter(|s| wanted(s.name));
        symbols.map(|s| s.svma.0).collect()
    };
    let savers = named(&saves);
    let seen = analysis
        .functions
        .iter()
        .filter(|f| f.flags.contains(FunctionFlags::READS_RETURN) && !savers.contains(&f.entry.0));
    let mut found = named(&reads_return);
    found.extend(seen.map(|f| f.entry.0));
    found
}

/// Of a Go program, the routines whose callers keep rbp below the return address (`ADUFFZERO` and
/// `ADUFFCOPY` in `cmd/internal/obj/x86` of its source).
pub fn keep_below_return(object: &Object<'_>) -> Vec<Range<Svma>> {
    let is_named = |name| matches!(name, "runtime.duffzero" | "runtime.duffcopy");
    let symbols = object.symbols.iter();
    let found = symbols.filter(|s| is_named(s.name) && object.go_code.contains(&s.svma));
    found
        .map(|s| s.svma..Svma(s.svma.0.saturating_add(s.size_bytes)))
        .collect()
}

/// True for the unwinder's own functions, which are not traced: what they do on the stack must not
/// be changed by patched calls in them.
pub fn is_unwinder(name: &str) -> bool {
    ["_Unwind_", "uw_", "_ULx86_64_", "_Ux86_64_"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// Why the entry of a function of this name is intercepted.
pub fn kind(name: &str) -> Option<SpecialKind> {
    match name {
        n if UNWINDS.contains(&n) => Some(SpecialKind::Unwind),
        n if WALKS.contains(&n) => Some(SpecialKind::Walk),
        "execve" => Some(SpecialKind::Exec),
        "execveat" => Some(SpecialKind::ExecAt),
        "fexecve" => Some(SpecialKind::ExecFd),
        "dlclose" | "dlopen" | "dlmopen" => Some(SpecialKind::Unload),
        "dlsym" | "dlvsym" => Some(SpecialKind::Return),
        "prctl" => Some(SpecialKind::Prctl),
        "syscall" => Some(SpecialKind::Syscall),
        "clone" | "__clone" => Some(SpecialKind::Clone),
        "arch_prctl" => Some(SpecialKind::ArchPrctl),
        "madvise" | "__madvise" => Some(SpecialKind::Madvise),
        "mprotect" | "__mprotect" | "pkey_mprotect" => Some(SpecialKind::Protect),
        "seccomp_load" => Some(SpecialKind::Sandbox),
        "pthread_cancel" | "__pthread_cancel" => Some(SpecialKind::Cancel),
        "pthread_create" => Some(SpecialKind::Thread),
        "sigaction" | "__sigaction" => Some(SpecialKind::Sigaction),
        _ => None,
    }
}

/// Special functions by name, and the entry points of an unwinder without names; sorted.
pub fn entries(object: &Object<'_>) -> Vec<(Svma, SpecialKind)> {
    let named = object.symbols.iter();
    let mut found: Vec<_> = named
        .filter_map(|s| Some((s.svma, kind(s.name)?)))
        .collect();
    if !found.iter().any(|f| f.1 == SpecialKind::Unwind) && object.needed.is_empty() {
        let nameless = object.unwind.eh_return_functions();
        found.extend(nameless.into_iter().map(|svma| (svma, SpecialKind::Unwind)));
    }
    found.sort_unstable_by_key(|f| (f.0, f.1 as u8));
    found.dedup_by_key(|f| f.0);
    found
}

/// Where a jump can be written at the entry of a function, and the end of the instructions that it
/// covers. None: they cannot be moved, or are jumped to.
pub fn prologue(object: &Object<'_>, entry: Svma, end: Svma) -> Option<(Svma, Svma)> {
    let limit = (end.0.saturating_sub(entry.0)).min(4096) as usize;
    let code = object.code_from(entry)?;
    let code = code.get(..limit.min(code.len()))?;
    let mut decoder = Decoder::with_ip(64, code, entry.0, DecoderOptions::NONE);
    let mut start = entry;
    let mut covered = entry;
    while covered.0 - start.0 < 5 {
        if !decoder.can_decode() {
            return None;
        }
        let i = decoder.decode();
        if i.mnemonic() == Mnemonic::Endbr64 && i.ip() == entry.0 {
            start = Svma(i.next_ip());
            covered = start;
            continue;
        }
        // `syscall` may be moved here: it is not restarted at another address than its own, and
        // the kernel's restart goes back by its length.
        if !movable(&i) && i.mnemonic() != Mnemonic::Syscall {
            return None;
        }
        covered = Svma(i.next_ip());
    }
    while decoder.can_decode() {
        let i = decoder.decode();
        let target = i.near_branch_target();
        if target > start.0 && target < covered.0 {
            return None;
        }
    }
    Some((start, covered))
}

const ENDBR_BYTES: u64 = 4;
/// Bytes of the jump to a hook.
const HOOK_JUMP_BYTES: u64 = 5;

/// What a hook at a function's entry covers and moves.
#[derive(Clone, Copy, Debug)]
pub struct HookRange {
    /// Where the jump is written.
    pub start: Svma,
    /// End of the instructions that are moved.
    pub moved_end: Svma,
    /// Length of the `ret` that follows them if the function ends there, else 0.
    pub ret_bytes: usize,
    /// Where in the patch area the hook leads to instead: the entry of the slot of a site that
    /// begins at `moved_end`.
    pub leads_to: Option<u32>,
    /// That slot is one that a call leads to: what this call pushes.
    pub pushes: Option<Svma>,
    /// End of the bytes that the jump makes useless.
    pub covered: Svma,
}

/// A site that a hook can lead to.
#[derive(Clone, Copy, Debug)]
pub struct Joined {
    /// End of the bytes that its own jump would cover.
    pub end: Svma,
    /// Entry of its slot in the patch area.
    pub slot_entry: u32,
    /// It is reached by a call in the text, which pushes the address behind the site.
    pub is_called: bool,
}

/// Has ready what the first look at an instruction needs, which takes some milliseconds.
pub fn get_ready() {
    drop(Decoder::with_ip(64, &[], 0, DecoderOptions::NONE));
}

/// True if something may lie below the stack pointer at the entry of the function in `[entry,
/// end)`, where a hook would push: an argument, since what it does there first is to read; or what
/// it has put there itself before it jumped back to its entry.
pub fn may_have_data_below(object: &Object<'_>, (entry, end): (Svma, Svma)) -> bool {
    let length = end.0.saturating_sub(entry.0) as usize;
    let Some(code) = object.code_from(entry) else {
        return false;
    };
    let code = &code[..length.min(code.len())];
    let is_below = |i: &Instruction| {
        i.memory_base() == Register::RSP
            && (i.memory_displacement64() as i64) < 0
            && i.mnemonic() != Mnemonic::Lea
    };
    let decode = || Decoder::with_ip(64, code, entry.0, DecoderOptions::NONE);
    let Some(first) = decode().into_iter().find(is_below) else {
        return false;
    };
    // An endbr64 at the entry may be left out by the jump.
    let head = entry.0..=entry.0 + ENDBR_BYTES;
    let jumps_back = |i: Instruction| head.contains(&i.near_branch_target());
    let access = InstructionInfoFactory::new().info(&first).op0_access();
    let is_write = first.op0_kind() == OpKind::Memory
        && matches!(access, OpAccess::Write | OpAccess::CondWrite);
    !is_write || decode().into_iter().any(jumps_back)
}

/// As [`prologue`], for any function: conditional jumps may be moved, and a function that ends
/// before five bytes may be followed by filling. A site among the first instructions (`site_at`)
/// keeps its slot, to which the hook leads. Whether the hook may push there:
/// [`may_have_data_below`].
pub fn hook_range(
    object: &Object<'_>,
    entry: Svma,
    end: Svma,
    site_at: &dyn Fn(Svma) -> Option<Joined>,
) -> Option<HookRange> {
    let code = object.code_from(entry)?;
    let mut decoder = Decoder::with_ip(64, code, entry.0, DecoderOptions::NONE);
    let mut range = HookRange {
        start: entry,
        moved_end: entry,
        ret_bytes: 0,
        leads_to: None,
        pushes: None,
        covered: entry,
    };
    while range.covered.0 - range.start.0 < HOOK_JUMP_BYTES {
        if !decoder.can_decode() {
            return None;
        }
        if let Some(site) = site_at(Svma(decoder.ip())) {
            range.leads_to = Some(site.slot_entry);
            range.pushes = site.is_called.then_some(site.end);
            range.covered = site.end;
            break;
        }
        let i = decoder.decode();
        let next = Svma(i.next_ip());
        if i.mnemonic() == Mnemonic::Endbr64 && i.ip() == entry.0 {
            (range.start, range.moved_end, range.covered) = (next, next, next);
        } else if i.mnemonic() == Mnemonic::Ret {
            range.ret_bytes = i.len();
            range.covered = Svma(next.0.max(range.start.0 + HOOK_JUMP_BYTES));
            if range.covered > next && (next < end || !is_filling(object, next, range.covered)) {
                return None;
            }
            break;
        } else if movable(&i) || i.is_jcc_short_or_near() {
            range.moved_end = next;
            range.covered = next;
        } else {
            return None;
        }
    }
    if range.ret_bytes == 0 && range.covered > end {
        // It runs on into another function, or is no function.
        return None;
    }
    Some(range)
}

/// True if an instruction of the function in `[start, end)` jumps to between the first instructions
/// that a hook covers.
pub fn jumps_into(object: &Object<'_>, (start, end): (Svma, Svma), hook: &HookRange) -> bool {
    let length = end.0.saturating_sub(start.0) as usize;
    let code = object.code_from(start).unwrap_or(&[]);
    let code = &code[..length.min(code.len())];
    let covered = hook.start.0 + 1..hook.start.0 + HOOK_JUMP_BYTES;
    Decoder::with_ip(64, code, start.0, DecoderOptions::NONE)
        .iter()
        .any(|i| covered.contains(&i.near_branch_target()))
}

/// True if nothing but the forms of nop and int3 stands in `[start, end)`.
fn is_filling(object: &Object<'_>, start: Svma, end: Svma) -> bool {
    let code = object.code_from(start).unwrap_or(&[]);
    let mut decoder = Decoder::with_ip(64, code, start.0, DecoderOptions::NONE);
    while decoder.ip() < end.0 {
        if !decoder.can_decode()
            || !matches!(decoder.decode().mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
        {
            return false;
        }
    }
    true
}
