//! The structures of system calls, as x86-64 has them in memory.

use super::basic::*;
use crate::decode::types::{Field, Len, Show, Special, Struct, Type};
use crate::names::table;

macro_rules! when {
    ($name:literal, $offset:expr, $ty:expr, $show:expr) => {
        Field {
            name: $name,
            offset: $offset,
            ty: $ty,
            show: $show,
        }
    };
}
macro_rules! f {
    ($name:literal, $offset:expr, $ty:expr) => {
        when!($name, $offset, $ty, Show::Always)
    };
}
macro_rules! hidden {
    ($name:literal, $offset:expr, $ty:expr) => {
        when!($name, $offset, $ty, Show::Verbose)
    };
}

macro_rules! structs {
    ($($(#[$doc:meta])* $name:ident $size:literal = $fields:expr;)*) => {
        $($(#[$doc])* pub(super) const $name: Type =
            Type::Struct(&Struct { size: $size, fields: $fields });)*
    };
}

const BYTES_65: Type = Type::Bytes(Len::Const(65));

structs! {
    TIMESPEC 16 = &[f!("tv_sec", 0, LONG), f!("tv_nsec", 8, ULONG)];
    TIMEVAL 16 = &[f!("tv_sec", 0, LONG), f!("tv_usec", 8, ULONG)];
    TIMEZONE 8 = &[f!("tz_minuteswest", 0, INT), f!("tz_dsttime", 4, INT)];
    ITIMERVAL 32 = &[f!("it_interval", 0, TIMEVAL_), f!("it_value", 16, TIMEVAL_)];
    ITIMERSPEC 32 = &[f!("it_interval", 0, TIMESPEC_), f!("it_value", 16, TIMESPEC_)];
    RLIMIT 16 = &[f!("rlim_cur", 0, Type::Limit), f!("rlim_max", 8, Type::Limit)];
    STAT 144 = &[
        hidden!("st_dev", 0, Type::Device(8)), hidden!("st_ino", 8, ULONG),
        f!("st_mode", 24, Type::Mode(4)), hidden!("st_nlink", 16, ULONG),
        hidden!("st_uid", 28, UINT), hidden!("st_gid", 32, UINT),
        hidden!("st_blksize", 56, ULONG), hidden!("st_blocks", 64, ULONG),
        when!("st_rdev", 40, Type::Device(8), Show::Device(24, true)),
        when!("st_size", 48, ULONG, Show::Device(24, false)),
        hidden!("st_atime", 72, Type::Moment), hidden!("st_atime_nsec", 80, ULONG),
        hidden!("st_mtime", 88, Type::Moment), hidden!("st_mtime_nsec", 96, ULONG),
        hidden!("st_ctime", 104, Type::Moment), hidden!("st_ctime_nsec", 112, ULONG),
    ];
    STATX 256 = &[
        f!("stx_mask", 0, one!(&table::STATX)), hidden!("stx_blksize", 4, UINT),
        f!("stx_attributes", 8, Type::Named(&table::STATX_ATTR, 8)),
        hidden!("stx_nlink", 16, UINT), hidden!("stx_uid", 20, UINT), hidden!("stx_gid", 24, UINT),
        f!("stx_mode", 28, Type::Mode(2)), hidden!("stx_ino", 32, ULONG),
        f!("stx_size", 40, ULONG), hidden!("stx_blocks", 48, ULONG),
        hidden!("stx_attributes_mask", 56, Type::Named(&table::STATX_ATTR, 8)),
        hidden!("stx_atime", 64, Type::Shown(Special::Stamp)), when!("stx_btime", 80, Type::Shown(Special::Stamp), Show::VerboseBits(0, 0x800)),
        hidden!("stx_ctime", 96, Type::Shown(Special::Stamp)), hidden!("stx_mtime", 112, Type::Shown(Special::Stamp)),
        hidden!("stx_rdev_major", 128, UINT), hidden!("stx_rdev_minor", 132, UINT),
        hidden!("stx_dev_major", 136, UINT), hidden!("stx_dev_minor", 140, UINT),
        hidden!("stx_mnt_id", 144, HEX),
    ];
    STATFS 120 = &[
        f!("f_type", 0, Type::Shown(Special::FileSystem)), f!("f_bsize", 8, ULONG),
        f!("f_blocks", 16, ULONG), f!("f_bfree", 24, ULONG), f!("f_bavail", 32, ULONG),
        f!("f_files", 40, ULONG), f!("f_ffree", 48, ULONG), f!("f_fsid", 56, FSID_),
        f!("f_namelen", 64, ULONG), f!("f_frsize", 72, ULONG),
        f!("f_flags", 80, Type::Named(&table::ST, 8)),
    ];
    SIGACTION 32 = &[
        f!("sa_handler", 0, Type::Named(&HANDLERS, 8)),
        f!("sa_mask", 24, Type::Shown(Special::SignalSet(Len::Const(8)))),
        f!("sa_flags", 8, Type::Named(&table::SA, 8)),
        when!("sa_restorer", 16, ADDR, Show::Bits(8, 0x0400_0000, true)),
    ];
    RESTORED 8 = &[f!("mask", 0, Type::Shown(Special::SignalSet(Len::Const(8))))];
    STACK 24 = &[
        f!("ss_sp", 0, ADDR), f!("ss_flags", 8, one!(&table::SS)), f!("ss_size", 16, ULONG),
    ];
    RUSAGE 144 = &[
        f!("ru_utime", 0, TIMEVAL_), f!("ru_stime", 16, TIMEVAL_), hidden!("ru_maxrss", 32, ULONG),
        hidden!("ru_ixrss", 40, ULONG), hidden!("ru_idrss", 48, ULONG), hidden!("ru_isrss", 56, ULONG),
        hidden!("ru_minflt", 64, ULONG), hidden!("ru_majflt", 72, ULONG), hidden!("ru_nswap", 80, ULONG),
        hidden!("ru_inblock", 88, ULONG), hidden!("ru_oublock", 96, ULONG),
        hidden!("ru_msgsnd", 104, ULONG), hidden!("ru_msgrcv", 112, ULONG),
        hidden!("ru_nsignals", 120, ULONG), hidden!("ru_nvcsw", 128, ULONG),
        hidden!("ru_nivcsw", 136, ULONG),
    ];
    TMS 32 = &[
        f!("tms_utime", 0, Type::Ticks), f!("tms_stime", 8, Type::Ticks), f!("tms_cutime", 16, Type::Ticks),
        f!("tms_cstime", 24, Type::Ticks),
    ];
    SYSINFO 112 = &[
        f!("uptime", 0, LONG), f!("loads", 8, Type::Array(&ULONG, Len::Const(3))),
        f!("totalram", 32, ULONG), f!("freeram", 40, ULONG), f!("sharedram", 48, ULONG),
        f!("bufferram", 56, ULONG), f!("totalswap", 64, ULONG), f!("freeswap", 72, ULONG),
        f!("procs", 80, Type::Unsigned(2)), f!("totalhigh", 88, ULONG), f!("freehigh", 96, ULONG),
        f!("mem_unit", 104, UINT),
    ];
    UTSNAME 390 = &[
        f!("sysname", 0, BYTES_65), f!("nodename", 65, BYTES_65), hidden!("release", 130, BYTES_65),
        hidden!("version", 195, BYTES_65), hidden!("machine", 260, BYTES_65),
        hidden!("domainname", 325, BYTES_65),
    ];
    POLLFD 8 = &[f!("fd", 0, FD), when!("events", 4, Type::Named(&table::POLL, 2), Show::Bits(0, 1 << 31, false))];
    EPOLL_EVENT 12 = &[
        f!("events", 0, one!(&table::EPOLL)), f!("data", 4, Type::Shown(Special::EpollData)),
    ];
    FLOCK 32 = &[
        f!("l_type", 0, Type::Named(&table::LOCK, 2)), f!("l_whence", 2, Type::Named(&table::WHENCE, 2)),
        f!("l_start", 8, LONG), f!("l_len", 16, LONG),
    ];
    FLOCK_GOT 32 = &[
        f!("l_type", 0, Type::Named(&table::LOCK, 2)), f!("l_whence", 2, Type::Named(&table::WHENCE, 2)),
        f!("l_start", 8, LONG), f!("l_len", 16, LONG), f!("l_pid", 24, INT),
    ];
    CLONE_ARGS 88 = &[
        f!("flags", 0, Type::Named(&table::CLONE, 8)),
        when!("pidfd", 8, ADDR, Show::Bits(0, 0x1000, true)),
        when!("child_tid", 16, ADDR, Show::Bits(0, 0x0120_0000, true)),
        when!("parent_tid", 24, ADDR, Show::Bits(0, 0x0010_0000, true)),
        f!("exit_signal", 32, Type::Signal), f!("stack", 40, ADDR), f!("stack_size", 48, HEX),
        when!("tls", 56, HEX, Show::Bits(0, 0x0008_0000, true)),
    ];
    CLONE_OUT 88 = &[when!("parent_tid", 24, into!(&Type::Boxed(&INT)), Show::Bits(0, 0x0010_0000, true))];
    SIGEVENT 64 = &[
        when!("sigev_value", 0, SIGVAL_, Show::Bits(0, u32::MAX, true)), f!("sigev_signo", 8, SIG),
        f!("sigev_notify", 12, one!(&table::SIGEV)),
    ];
    SEMBUF 6 = &[
        f!("sem_num", 0, Type::Unsigned(2)), f!("sem_op", 2, Type::Signed(2)),
        f!("sem_flg", 4, Type::Named(&table::SEM, 2)),
    ];
    WINSIZE 8 = &[
        f!("ws_row", 0, Type::Unsigned(2)), f!("ws_col", 2, Type::Unsigned(2)),
        f!("ws_xpixel", 4, Type::Unsigned(2)), f!("ws_ypixel", 6, Type::Unsigned(2)),
    ];
    LINGER 8 = &[f!("l_onoff", 0, INT), f!("l_linger", 4, INT)];
    UCRED 12 = &[f!("pid", 0, INT), f!("uid", 4, ID), f!("gid", 8, ID)];
    MSGHDR_IN 56 = &[
        f!("msg_name", 0, into!(&Type::Shown(Special::SocketAddress(Len::Field(8, 4))))),
        f!("msg_namelen", 8, UINT), f!("msg_iov", 16, into!(&Type::Buffers(Len::Field(24, 8), false))),
        f!("msg_iovlen", 24, ULONG),
        when!("msg_control", 32, into!(&Type::Shown(Special::Control(Len::Field(40, 8)))), Show::Bits(40, u32::MAX, true)),
        f!("msg_controllen", 40, ULONG),
        f!("msg_flags", 48, one!(&table::MSG)),
    ];
    MSGHDR_OUT 56 = &[
        f!("msg_name", 0, into!(&Type::Shown(Special::SocketAddress(Len::Field(8, 4))))),
        f!("msg_namelen", 8, Type::Was(&UINT)), f!("msg_iov", 16, into!(&Type::Buffers(Len::Field(24, 8), true))),
        f!("msg_iovlen", 24, ULONG),
        when!("msg_control", 32, into!(&Type::Shown(Special::Control(Len::Field(40, 8)))), Show::Bits(40, u32::MAX, true)),
        f!("msg_controllen", 40, ULONG),
        f!("msg_flags", 48, one!(&table::MSG)),
    ];
    MMSGHDR 64 = &[f!("msg_hdr", 0, MSGHDR_), f!("msg_len", 56, UINT)];
    CAP_HEADER 8 = &[f!("version", 0, one!(&table::CAPVERSION)), f!("pid", 4, INT)];
    SIGSET_ARG 16 = &[
        f!("sigmask", 0, into!(&Type::Shown(Special::SignalSet(Len::Field(8, 8))))),
        f!("sigsetsize", 8, ULONG),
    ];
    OPEN_HOW 24 = &[f!("flags", 0, OPEN), f!("mode", 8, Type::Octal), f!("resolve", 16, HEX)];
    SCHED_PARAM 4 = &[f!("", 0, Type::Array(&INT, Len::Const(1)))];
}

const TIMEVAL_: Type = Type::Struct(&Struct {
    size: 16,
    fields: &[f!("tv_sec", 0, LONG), f!("tv_usec", 8, ULONG)],
});
const TIMESPEC_: Type = Type::Struct(&Struct {
    size: 16,
    fields: &[f!("tv_sec", 0, LONG), f!("tv_nsec", 8, ULONG)],
});
const SIGVAL_: Type = Type::Struct(&Struct {
    size: 8,
    fields: &[f!("sival_int", 0, INT), f!("sival_ptr", 0, ADDR)],
});
const FSID_: Type = Type::Struct(&Struct {
    size: 8,
    fields: &[f!("val", 0, Type::Array(&HEX4, Len::Const(2)))],
});
const MSGHDR_: Type = Type::Struct(&Struct {
    size: 56,
    fields: &[
        f!(
            "msg_name",
            0,
            into!(&Type::Shown(Special::SocketAddress(Len::Field(8, 4))))
        ),
        f!("msg_namelen", 8, UINT),
        f!(
            "msg_iov",
            16,
            into!(&Type::Buffers(Len::Field(24, 8), false))
        ),
        f!("msg_iovlen", 24, ULONG),
        f!("msg_controllen", 40, ULONG),
        f!("msg_flags", 48, one!(&table::MSG)),
    ],
});

/// What stands for a handler without being one.
pub(super) static HANDLERS: crate::names::Names =
    crate::names::Names::choice("", &[(0, "SIG_DFL"), (1, "SIG_IGN")]);
