//! Calls on processes, threads, signals, time and limits.

use super::basic::*;
use super::structs::*;
use crate::decode::types::{Call, Len, Phase, Returns, Special, Type, Variant, Variants};
use crate::names::table;

const CLOCK: Type = one!(&table::CLOCK);
const RES: Type = one!(&table::RLIMIT);
const SET4: Type = into!(&Type::Shown(Special::SignalSet(Len::Arg(3))));
const STATUS: Type = out!(&Type::Shown(Special::WaitStatus));
const USAGE: Type = out!(&RUSAGE);
const GROUPS_IN: Type = into!(&Type::Array(&ID, Len::Arg(0)));
const CLONE_FLAGS: Type = Type::Shown(Special::CloneFlags);
const ADDRESS: Type = ADDR;
const TID_OUT: Type = out!(&Type::Boxed(&INT));
const ARGV: Type = into!(&Type::Strings);
const ENVP: Type = into!(&Type::Environment);
const CPUS: Type = into!(&Type::Shown(Special::CpuSet(Len::Arg(1))));

#[rustfmt::skip]
pub(super) static CALLS: &[Call] = &[
    c!("execve", &[PATH, ARGV, ENVP]), c!("execveat", &[DIR, PATH, ARGV, ENVP, one!(&table::AT)]),
    c!("fork", &[]), c!("vfork", &[]),
    c!("clone", &[Type::Label("child_stack", 1, &ADDRESS), Type::Label("flags", 0, &CLONE_FLAGS),
        Type::If(0, 0x0010_1000, &Type::Label("parent_tid", 2, &TID_OUT)),
        Type::If(0, 0x0008_0000, &Type::Label("tls", 4, &Type::Hex(8))),
        Type::If(0, 0x0120_0000, &Type::Label("child_tidptr", 3, &ADDRESS))]),
    c!("clone3", &[into!(&Type::Arrow(&CLONE_ARGS, &CLONE_OUT)), ULONG]),
    r!("exit", Returns::Never, &[INT]), r!("exit_group", Returns::Never, &[INT]),
    c!("wait4", &[INT, STATUS, one!(&table::WAIT), USAGE]),
    c!("waitid", &[one!(&table::WAITID), INT, out!(&Type::Shown(Special::SignalInfo)), one!(&table::WAIT), USAGE]),
    c!("kill", &[INT, SIG]), c!("tkill", &[INT, SIG]), c!("tgkill", &[INT, INT, SIG]),
    c!("rt_sigaction", &[SIG, into!(&SIGACTION), out!(&SIGACTION), ULONG]),
    c!("rt_sigprocmask", &[one!(&table::SIGPROCMASK), SET4, out!(&Type::Shown(Special::SignalSet(Len::Arg(3)))), ULONG]),
    c!("rt_sigpending", &[out!(&Type::Shown(Special::SignalSet(Len::Arg(1)))), ULONG]),
    c!("rt_sigsuspend", &[into!(&Type::Shown(Special::SignalSet(Len::Arg(1)))), ULONG]),
    c!("rt_sigreturn", &[Type::At(Phase::Always, &RESTORED)]),
    r!("rt_sigtimedwait", Returns::Number, &[SET4, out!(&Type::Shown(Special::SignalInfo)), into!(&TIMESPEC), ULONG]),
    c!("rt_sigqueueinfo", &[INT, SIG, into!(&Type::Shown(Special::SignalInfo))]), c!("rt_tgsigqueueinfo", &[INT, INT, SIG, into!(&Type::Shown(Special::SignalInfo))]),
    c!("sigaltstack", &[into!(&STACK), out!(&STACK)]), c!("pause", &[]), c!("alarm", &[UINT]),
    c!("getpid", &[]), c!("getppid", &[]), c!("gettid", &[]), c!("getpgrp", &[]), c!("getpgid", &[INT]), c!("setpgid", &[INT, INT]), c!("getsid", &[INT]), c!("setsid", &[]),
    c!("getuid", &[]), c!("geteuid", &[]), c!("getgid", &[]), c!("getegid", &[]), c!("setuid", &[ID]), c!("setgid", &[ID]), c!("setreuid", &[ID, ID]), c!("setregid", &[ID, ID]),
    c!("setresuid", &[ID, ID, ID]), c!("setresgid", &[ID, ID, ID]), c!("getresuid", &[BOX_ID, BOX_ID, BOX_ID]), c!("getresgid", &[BOX_ID, BOX_ID, BOX_ID]),
    c!("setfsuid", &[ID]), c!("setfsgid", &[ID]), c!("getgroups", &[INT, out!(&Type::Array(&ID, Len::Result))]), c!("setgroups", &[INT, GROUPS_IN]),
    c!("capget", &[into!(&CAP_HEADER), out!(&Type::Shown(Special::Capabilities))]), c!("capset", &[into!(&CAP_HEADER), into!(&Type::Shown(Special::Capabilities))]),
    c!("uname", &[out!(&UTSNAME)]), c!("sysinfo", &[out!(&SYSINFO)]), c!("times", &[out!(&TMS)]),
    c!("getrusage", &[one!(&table::RUSAGE), USAGE]), c!("getrlimit", &[RES, out!(&RLIMIT)]), c!("setrlimit", &[RES, into!(&RLIMIT)]),
    c!("prlimit64", &[INT, RES, into!(&RLIMIT), out!(&RLIMIT)]),
    c!("getpriority", &[one!(&table::PRIORITY), INT]), c!("setpriority", &[one!(&table::PRIORITY), INT, INT]),
    c!("nanosleep", &[into!(&TIMESPEC), ADDR]), c!("clock_nanosleep", &[CLOCK, one!(&table::TIMER), into!(&TIMESPEC), ADDR]),
    c!("clock_gettime", &[CLOCK, out!(&TIMESPEC)]), c!("clock_getres", &[CLOCK, out!(&TIMESPEC)]), c!("clock_settime", &[CLOCK, into!(&TIMESPEC)]), c!("clock_adjtime", &[CLOCK, ADDR]), c!("adjtimex", &[ADDR]),
    c!("gettimeofday", &[out!(&TIMEVAL), out!(&TIMEZONE)]), c!("settimeofday", &[into!(&TIMEVAL), into!(&TIMEZONE)]), c!("time", &[out!(&Type::Boxed(&Type::Date))]),
    c!("getitimer", &[one!(&table::ITIMER), out!(&ITIMERVAL)]), c!("setitimer", &[one!(&table::ITIMER), into!(&ITIMERVAL), out!(&ITIMERVAL)]),
    c!("timer_create", &[CLOCK, into!(&SIGEVENT), out!(&Type::Boxed(&INT))]), c!("timer_settime", &[INT, one!(&table::TIMER), into!(&ITIMERSPEC), out!(&ITIMERSPEC)]),
    c!("timer_gettime", &[INT, out!(&ITIMERSPEC)]), c!("timer_getoverrun", &[INT]), c!("timer_delete", &[INT]),
    c!("sched_yield", &[]), c!("sched_getaffinity", &[INT, UINT, out!(&Type::Shown(Special::CpuSet(Len::Result)))]), c!("sched_setaffinity", &[INT, UINT, CPUS]),
    c!("sched_setscheduler", &[INT, one!(&table::SCHED), into!(&SCHED_PARAM)]), c!("sched_getscheduler", &[INT]), c!("sched_setparam", &[INT, into!(&SCHED_PARAM)]), c!("sched_getparam", &[INT, out!(&SCHED_PARAM)]),
    c!("sched_get_priority_max", &[one!(&table::SCHED)]), c!("sched_get_priority_min", &[one!(&table::SCHED)]), c!("sched_rr_get_interval", &[INT, out!(&TIMESPEC)]),
    c!("sched_setattr", &[INT, ADDR, UINT]), c!("sched_getattr", &[INT, ADDR, UINT, UINT]),
    c!("set_tid_address", &[ADDR]), c!("set_robust_list", &[ADDR, ULONG]), c!("get_robust_list", &[INT, out!(&Type::Boxed(&ADDR)), out!(&Type::Boxed(&ULONG))]),
    c!("rseq", &[ADDR, HEX4, one!(&table::RSEQ), HEX4]), c!("restart_syscall", &[LABEL_RESTART]),
    v!("prctl", &[one!(&table::PRCTL), HEX, HEX, HEX, HEX], &PRCTL), v!("arch_prctl", &[one!(&table::ARCH_PRCTL), HEX], &ARCH),
    c!("unshare", &[one!(&table::UNSHARE)]), c!("setns", &[FD, one!(&table::NAMESPACES)]),
    c!("ptrace", &[one!(&table::PTRACE), INT, ADDR, ADDR]), c!("seccomp", &[one!(&table::SECCOMP), one!(&table::SECCOMP_FLAGS), ADDR]), c!("personality", &[HEX4]), c!("kcmp", &[INT, INT, one!(&table::KCMP), HEX, HEX]),
    r!("pidfd_open", Returns::Fd, &[INT, one!(&table::PIDFD)]), c!("pidfd_send_signal", &[FD, SIG, into!(&Type::Shown(Special::SignalInfo)), HEX4]), r!("pidfd_getfd", Returns::Fd, &[FD, INT, HEX4]),
    r!("ioprio_get", Returns::IoPriority, &[one!(&table::IOPRIO_WHO), INT]), c!("ioprio_set", &[one!(&table::IOPRIO_WHO), INT, Type::Shown(Special::IoPriority)]),
    c!("getrandom", &[FILLED, ULONG, one!(&table::GRND)]), c!("getcpu", &[out!(&Type::Boxed(&UINT)), out!(&Type::Boxed(&UINT)), ADDR]),
];

const BOX_ID: Type = out!(&Type::Boxed(&ID));
const LABEL_RESTART: Type = HEX;

macro_rules! arm {
    ($values:expr, $parameters:expr) => {
        Variant {
            values: &$values,
            from: 1,
            parameters: &$parameters,
            returns: None,
        }
    };
}

/// The kernel keeps so many bytes of a task's name (TASK_COMM_LEN without its end).
const TASK_NAME_BYTES: u32 = 15;

/// By operation: numbers of linux/prctl.h.
#[rustfmt::skip]
static PRCTL: Variants = Variants { selector: 0, mask: 0xffff_ffff, second: None, arms: &[
    arm!([1], [SIG]), arm!([5, 9, 11, 19, 25, 37], [out!(&Type::Boxed(&INT))]), arm!([2], [out!(&Type::Boxed(&SIG))]),
    arm!([3, 7, 13, 21, 27, 30, 31, 32], []),
    arm!([4], [Type::Named(&table::DUMPABLE, 8)]),
    arm!([8, 28, 29, 36], [ULONG]), arm!([15], [into!(&Type::Limited(Len::Const(TASK_NAME_BYTES)))]), arm!([16], [out!(&Type::Str)]),
    arm!([23, 24], [Type::Named(&table::CAPABILITY, 8)]), arm!([38], [HEX, HEX, HEX, HEX]),
    arm!([39], [HEX, HEX, HEX, HEX]),
    arm!([50], [Type::Shown(Special::SveLength)]), arm!([63], [Type::Shown(Special::SmeLength)]), arm!([51, 64], []),
    arm!([54], [Type::Named(&table::PAC_KEYS, 8), HEX, HEX, HEX]),
    arm!([55], [Type::Shown(Special::TaggedAddress), HEX, HEX, HEX]),
    arm!([60], [Type::Named(&table::PAC_ENABLED, 8), Type::Named(&table::PAC_ENABLED, 8), HEX, HEX]),
    arm!([62], [one!(&table::SCHED_CORE), INT, Type::Shown(Special::PidType), out!(&Type::Boxed(&HEX))]),
    arm!([47], [one!(&table::CAP_AMBIENT), Type::Named(&table::CAPABILITY, 8), HEX, HEX]),
] };

/// By operation: numbers of asm/prctl.h.
#[rustfmt::skip]
static ARCH: Variants = Variants { selector: 0, mask: 0xffff_ffff, second: None, arms: &[
    arm!([0x1002, 0x1001], [HEX]), arm!([0x1003, 0x1004], [out!(&Type::Boxed(&ADDR))]), arm!([0x1011], []),
] };
