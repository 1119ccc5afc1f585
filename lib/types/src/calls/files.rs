//! Calls on files, directories and descriptors.

use super::basic::*;
use super::structs::*;
use crate::decode::types::{Call, Len, Phase, Returns, Special, Type, Variant, Variants};
use crate::names::table;

const CREATES: u64 = 0o100 | 0o20_000_000;
const STAT_OUT: Type = out!(&STAT);
const AT: Type = one!(&table::AT);
const ACCESS_MODE: Type = one!(&table::ACCESS_ALL);
const BOXED_OFFSET: Type = into!(&Type::Boxed(&LONG));
const CHANGED_OFFSET: Type = into!(&Type::Changed(&LONG));
const SET: Type = into!(&Type::Shown(Special::FdSet(0)));
const MASK: Type = into!(&Type::Shown(Special::SignalSet(Len::Arg(4))));
const EVENTS: Type = out!(&Type::Array(&EPOLL_EVENT, Len::Result));
const FDS: Type = into!(&Type::Array(&POLLFD, Len::Arg(1)));
const PAIR: Type = out!(&Type::Array(&FD, Len::Const(2)));
const TIMES: Type = into!(&Type::Array(&Type::Shown(Special::FileTime), Len::Const(2)));
const LIST3: Type = Type::Either(2, u64::MAX, &FILLED, &ADDR);
const LIST4: Type = Type::Either(3, u64::MAX, &FILLED, &ADDR);
const IOV: Type = into!(&Type::Buffers(Len::Arg(2), false));
const IOV_OUT: Type = Type::At(Phase::Exit, &Type::Buffers(Len::Arg(2), true));

#[rustfmt::skip]
pub(super) static CALLS: &[Call] = &[
    c!("read", &[FD, FILLED, ULONG]),
    c!("write", &[FD, buffer!(2), ULONG]),
    r!("open", Returns::Fd, &[PATH, OPEN, Type::If(1, CREATES, &MODE)]),
    r!("openat", Returns::Fd, &[DIR, PATH, OPEN, Type::If(2, CREATES, &MODE)]),
    r!("openat2", Returns::Fd, &[DIR, PATH, into!(&OPEN_HOW), ULONG]),
    r!("creat", Returns::Fd, &[PATH, MODE]),
    c!("close", &[FD]),
    c!("stat", &[PATH, STAT_OUT]), c!("lstat", &[PATH, STAT_OUT]), c!("fstat", &[FD, STAT_OUT]),
    c!("newfstatat", &[DIR, PATH, STAT_OUT, AT]),
    c!("statx", &[DIR, PATH, Type::Parts(0x6000, &table::AT_STATX_SYNC, &table::AT), one!(&table::STATX), out!(&STATX)]),
    c!("statfs", &[PATH, out!(&STATFS)]), c!("fstatfs", &[FD, out!(&STATFS)]),
    c!("lseek", &[FD, LONG, one!(&table::WHENCE)]),
    c!("pread64", &[FD, FILLED, ULONG, LONG]),
    c!("pwrite64", &[FD, buffer!(2), ULONG, LONG]),
    c!("readv", &[FD, IOV_OUT, ULONG]), c!("writev", &[FD, IOV, ULONG]),
    c!("preadv", &[FD, IOV_OUT, ULONG, LONG]), c!("pwritev", &[FD, IOV, ULONG, LONG]),
    c!("preadv2", &[FD, IOV_OUT, ULONG, LONG, Type::Label("", 5, &RWF)]),
    c!("pwritev2", &[FD, IOV, ULONG, LONG, Type::Label("", 5, &RWF)]),
    c!("access", &[PATH, ACCESS_MODE]), c!("faccessat", &[DIR, PATH, ACCESS_MODE]),
    c!("faccessat2", &[DIR, PATH, ACCESS_MODE, one!(&table::AT_ACCESS)]),
    c!("pipe", &[PAIR]), c!("pipe2", &[PAIR, OPEN_FLAGS]),
    r!("dup", Returns::Fd, &[FD]), r!("dup2", Returns::Fd, &[FD, FD]), r!("dup3", Returns::Fd, &[FD, FD, OPEN_FLAGS]),
    r!("select", Returns::Select, &[INT, SET, SET, SET, into!(&TIMEVAL)]),
    r!("pselect6", Returns::Select, &[INT, SET, SET, SET, into!(&TIMESPEC), into!(&SIGSET_ARG)]),
    r!("poll", Returns::Poll, &[FDS, UINT, INT]),
    r!("ppoll", Returns::Poll, &[FDS, UINT, into!(&TIMESPEC), into!(&Type::Shown(Special::SignalSet(Len::Arg(4)))), ULONG]),
    v!("fcntl", &[FD, one!(&table::FCNTL), HEX], &FCNTL),
    v!("ioctl", &[FD, Type::Shown(Special::IoctlOp), HEX], &IOCTL),
    c!("flock", &[FD, one!(&table::FLOCK)]), c!("fsync", &[FD]), c!("fdatasync", &[FD]), c!("sync", &[]), c!("syncfs", &[FD]),
    c!("truncate", &[PATH, ULONG]), c!("ftruncate", &[FD, ULONG]),
    c!("getdents64", &[FD, out!(&Type::Shown(Special::Entries)), UINT]), c!("getdents", &[FD, ADDR, UINT]),
    c!("getcwd", &[out!(&Type::Path), ULONG]), c!("chdir", &[PATH]), c!("fchdir", &[FD]), c!("chroot", &[PATH]),
    c!("rename", &[PATH, PATH]), c!("renameat", &[DIR, PATH, DIR, PATH]),
    c!("renameat2", &[DIR, PATH, DIR, PATH, one!(&table::RENAME)]),
    c!("mkdir", &[PATH, MODE]), c!("mkdirat", &[DIR, PATH, MODE]), c!("rmdir", &[PATH]),
    c!("link", &[PATH, PATH]), c!("linkat", &[DIR, PATH, DIR, PATH, AT]), c!("unlink", &[PATH]), c!("unlinkat", &[DIR, PATH, AT]),
    c!("symlink", &[PATH, PATH]), c!("symlinkat", &[PATH, DIR, PATH]),
    c!("readlink", &[PATH, FILLED, ULONG]), c!("readlinkat", &[DIR, PATH, FILLED, ULONG]),
    c!("chmod", &[PATH, MODE]), c!("fchmod", &[FD, MODE]), c!("fchmodat", &[DIR, PATH, MODE]),
    c!("chown", &[PATH, ID, ID]), c!("lchown", &[PATH, ID, ID]), c!("fchown", &[FD, ID, ID]), c!("fchownat", &[DIR, PATH, ID, ID, AT]),
    r!("umask", Returns::Octal, &[MODE]),
    c!("mknod", &[PATH, Type::Mode(2), Type::If(1, 0o20_000, &Type::Device(4))]), c!("mknodat", &[DIR, PATH, Type::Mode(2), Type::If(2, 0o20_000, &Type::Device(4))]),
    c!("utimensat", &[DIR, PATH, TIMES, AT]), c!("utime", &[PATH, ADDR]), c!("utimes", &[PATH, into!(&Type::Array(&TIMEVAL, Len::Const(2)))]),
    c!("futimesat", &[DIR, PATH, into!(&Type::Array(&TIMEVAL, Len::Const(2)))]),
    c!("sendfile", &[FD, FD, CHANGED_OFFSET, ULONG]),
    c!("splice", &[FD, BOXED_OFFSET, FD, BOXED_OFFSET, ULONG, one!(&table::SPLICE)]), c!("tee", &[FD, FD, ULONG, one!(&table::SPLICE)]),
    c!("vmsplice", &[FD, IOV, ULONG, one!(&table::SPLICE)]),
    c!("copy_file_range", &[FD, BOXED_OFFSET, FD, BOXED_OFFSET, ULONG, UINT]),
    c!("fallocate", &[FD, one!(&table::FALLOCATE), LONG, LONG]), c!("fadvise64", &[FD, LONG, ULONG, one!(&table::FADVISE)]),
    c!("readahead", &[FD, LONG, ULONG]), c!("sync_file_range", &[FD, LONG, LONG, one!(&table::SYNC_FILE_RANGE)]),
    c!("close_range", &[UINT, UINT, one!(&table::CLOSE_RANGE)]),
    r!("epoll_create", Returns::Fd, &[INT]), r!("epoll_create1", Returns::Fd, &[one!(&table::EPOLL_FLAGS)]),
    v!("epoll_ctl", &[FD, one!(&table::EPOLL_CTL), FD, into!(&EPOLL_EVENT)], &EPOLL_CTL),
    c!("epoll_wait", &[FD, EVENTS, INT, INT]), c!("epoll_pwait", &[FD, EVENTS, INT, INT, into!(&Type::Shown(Special::SignalSet(Len::Arg(5)))), ULONG]),
    c!("epoll_pwait2", &[FD, EVENTS, INT, into!(&TIMESPEC), MASK, ULONG]),
    r!("eventfd", Returns::Fd, &[UINT]), r!("eventfd2", Returns::Fd, &[UINT, one!(&table::EFD)]),
    r!("signalfd", Returns::Fd, &[FD, into!(&Type::Shown(Special::SignalSet(Len::Arg(2)))), ULONG]),
    r!("signalfd4", Returns::Fd, &[FD, into!(&Type::Shown(Special::SignalSet(Len::Arg(2)))), ULONG, one!(&table::SFD)]),
    r!("timerfd_create", Returns::Fd, &[one!(&table::CLOCK), one!(&table::TFD)]),
    c!("timerfd_settime", &[FD, one!(&table::TFD), into!(&ITIMERSPEC), out!(&ITIMERSPEC)]), c!("timerfd_gettime", &[FD, out!(&ITIMERSPEC)]),
    r!("inotify_init", Returns::Fd, &[]), r!("inotify_init1", Returns::Fd, &[one!(&table::IN_INIT)]),
    c!("inotify_add_watch", &[FD, PATH, one!(&table::INOTIFY)]), c!("inotify_rm_watch", &[FD, INT]),
    r!("memfd_create", Returns::Fd, &[STR, one!(&table::MFD)]),
    c!("mount", &[PATH, PATH, Type::Either(3, NO_TYPE, &ADDR, &STR), Type::Shown(Special::MountFlags), Type::Either(3, NO_DATA, &ADDR, &STR)]), c!("umount2", &[PATH, one!(&table::UMOUNT)]), c!("pivot_root", &[PATH, PATH]),
    c!("getxattr", &[PATH, STR, LIST4, ULONG]), c!("lgetxattr", &[PATH, STR, LIST4, ULONG]), c!("fgetxattr", &[FD, STR, LIST4, ULONG]),
    c!("setxattr", &[PATH, STR, buffer!(3), ULONG, one!(&table::XATTR)]), c!("lsetxattr", &[PATH, STR, buffer!(3), ULONG, one!(&table::XATTR)]),
    c!("fsetxattr", &[FD, STR, buffer!(3), ULONG, one!(&table::XATTR)]),
    c!("listxattr", &[PATH, LIST3, ULONG]), c!("llistxattr", &[PATH, LIST3, ULONG]), c!("flistxattr", &[FD, LIST3, ULONG]),
    c!("removexattr", &[PATH, STR]), c!("lremovexattr", &[PATH, STR]), c!("fremovexattr", &[FD, STR]),
];

/// Flags of mount(2) with which it does not look at the type: MS_REMOUNT, MS_BIND, MS_MOVE, and
/// those of propagation.
const NO_TYPE: u64 = 0x20 | NO_DATA;
/// And with which it does not look at the data.
const NO_DATA: u64 = 0x1000 | 0x2000 | 0x20000 | 0x40000 | 0x80000 | 0x100000;
const RWF: Type = one!(&table::RWF);

macro_rules! arm {
    ($values:expr, $parameters:expr) => {
        Variant {
            values: &$values,
            from: 2,
            parameters: &$parameters,
            returns: None,
        }
    };
    ($values:expr, $parameters:expr, $returns:expr) => {
        Variant {
            values: &$values,
            from: 2,
            parameters: &$parameters,
            returns: Some($returns),
        }
    };
}

/// By operation: numbers of linux/fcntl.h.
static FCNTL: Variants = Variants {
    selector: 1,
    mask: 0xffff_ffff,
    second: None,
    arms: &[
        arm!([0, 1030], [INT], Returns::Fd),
        arm!([1], [], Returns::Flags(&FD_FLAGS)),
        arm!([2], [one!(&table::FD_FLAGS)]),
        arm!([3], [], Returns::Flags(&OPEN)),
        arm!([4], [OPEN]),
        arm!([5, 36], [out!(&FLOCK_GOT)]),
        arm!([6, 7, 37, 38], [into!(&FLOCK)]),
        arm!([8], [INT]),
        arm!([9, 11, 1032], []),
        arm!([10], [SIG]),
        arm!([1024], [one!(&table::LOCK)]),
        arm!([1025], [], Returns::Flags(&LOCKS)),
        arm!([1031], [INT]),
        arm!([1033], [one!(&table::SEALS)]),
        arm!([1034], [], Returns::Flags(&SEALS)),
    ],
};
const FD_FLAGS: Type = one!(&table::FD_FLAGS);
const LOCKS: Type = one!(&table::LOCK);
const SEALS: Type = one!(&table::SEALS);

/// By request: numbers of asm/ioctls.h and linux/fs.h.
static IOCTL: Variants = Variants {
    selector: 1,
    mask: 0xffff_ffff,
    second: None,
    arms: &[
        arm!([0x5401], [out!(&Type::Shown(Special::Termios))]),
        arm!(
            [0x5402, 0x5403, 0x5404],
            [into!(&Type::Shown(Special::Termios))]
        ),
        arm!([0x5413], [out!(&WINSIZE)]),
        arm!([0x5414], [into!(&WINSIZE)]),
        arm!([0x541b, 0x5411, 0x540f, 0x5429], [out!(&Type::Boxed(&INT))]),
        arm!([0x5421, 0x5410, 0x5452], [into!(&Type::Boxed(&INT))]),
        arm!([0x5450, 0x5451, 0x540c, 0x540d, 0x5422], []),
        arm!([0x5409, 0x540a, 0x540b, 0x540e], [INT]),
        arm!([0x40049409], [INT]),
    ],
};

/// What is deleted needs no event.
static EPOLL_CTL: Variants = Variants {
    selector: 1,
    mask: 0xffff_ffff,
    second: None,
    arms: &[arm!([2], [FD, ADDR])],
};
