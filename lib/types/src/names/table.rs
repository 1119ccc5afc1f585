//! Made by `cargo run -p xtask -- constants`; not to be changed by hand.

use super::Names;

/// `O_???`.
#[rustfmt::skip]
pub static OPEN: Names = Names::flags("O_???", &[
    (0x40, "O_CREAT"),
    (0x80, "O_EXCL"),
    (0x100, "O_NOCTTY"),
    (0x200, "O_TRUNC"),
    (0x400, "O_APPEND"),
    (0x800, "O_NONBLOCK"),
    (0x101000, "O_SYNC"),
    (0x1000, "O_DSYNC"),
    (0x4000, "O_DIRECT"),
    (0x8000, "O_LARGEFILE"),
    (0x20000, "O_NOFOLLOW"),
    (0x40000, "O_NOATIME"),
    (0x80000, "O_CLOEXEC"),
    (0x200000, "O_PATH"),
    (0x410000, "O_TMPFILE"),
    (0x100000, "__O_SYNC"),
    (0x400000, "__O_TMPFILE"),
    (0x10000, "O_DIRECTORY"),
    (0x2000, "FASYNC"),
]);

/// `O_???`.
#[rustfmt::skip]
pub static ACCMODE: Names = Names::choice("O_???", &[
    (0x0, "O_RDONLY"),
    (0x1, "O_WRONLY"),
    (0x2, "O_RDWR"),
    (0x3, "O_ACCMODE"),
]);

/// `FD_???`.
#[rustfmt::skip]
pub static FD_FLAGS: Names = Names::flags("FD_???", &[
    (0x1, "FD_CLOEXEC"),
]);

/// `PROT_???`.
#[rustfmt::skip]
pub static PROT: Names = Names::flags("PROT_???", &[
    (0x0, "PROT_NONE"),
    (0x1, "PROT_READ"),
    (0x2, "PROT_WRITE"),
    (0x4, "PROT_EXEC"),
    (0x8, "PROT_SEM"),
    (0x1000000, "PROT_GROWSDOWN"),
    (0x2000000, "PROT_GROWSUP"),
]);

/// `MAP_???`.
#[rustfmt::skip]
pub static MAP_TYPE: Names = Names::choice("MAP_???", &[
    (0x1, "MAP_SHARED"),
    (0x2, "MAP_PRIVATE"),
    (0x3, "MAP_SHARED_VALIDATE"),
]);

/// `MAP_???`.
#[rustfmt::skip]
pub static MAP: Names = Names::flags("MAP_???", &[
    (0x10, "MAP_FIXED"),
    (0x20, "MAP_ANONYMOUS"),
    (0x40, "MAP_32BIT"),
    (0x4000, "MAP_NORESERVE"),
    (0x8000, "MAP_POPULATE"),
    (0x10000, "MAP_NONBLOCK"),
    (0x100, "MAP_GROWSDOWN"),
    (0x800, "MAP_DENYWRITE"),
    (0x1000, "MAP_EXECUTABLE"),
    (0x2000, "MAP_LOCKED"),
    (0x20000, "MAP_STACK"),
    (0x40000, "MAP_HUGETLB"),
    (0x80000, "MAP_SYNC"),
    (0x100000, "MAP_FIXED_NOREPLACE"),
]);

/// `MS_???`.
#[rustfmt::skip]
pub static MSYNC: Names = Names::flags("MS_???", &[
    (0x4, "MS_SYNC"),
    (0x1, "MS_ASYNC"),
    (0x2, "MS_INVALIDATE"),
]);

/// `MREMAP_???`.
#[rustfmt::skip]
pub static MREMAP: Names = Names::flags("MREMAP_???", &[
    (0x1, "MREMAP_MAYMOVE"),
    (0x2, "MREMAP_FIXED"),
    (0x4, "MREMAP_DONTUNMAP"),
]);

/// `MADV_???`.
#[rustfmt::skip]
pub static MADV: Names = Names::choice("MADV_???", &[
    (0x0, "MADV_NORMAL"),
    (0x1, "MADV_RANDOM"),
    (0x2, "MADV_SEQUENTIAL"),
    (0x3, "MADV_WILLNEED"),
    (0x4, "MADV_DONTNEED"),
    (0x8, "MADV_FREE"),
    (0x9, "MADV_REMOVE"),
    (0xa, "MADV_DONTFORK"),
    (0xb, "MADV_DOFORK"),
    (0xc, "MADV_MERGEABLE"),
    (0xd, "MADV_UNMERGEABLE"),
    (0xe, "MADV_HUGEPAGE"),
    (0xf, "MADV_NOHUGEPAGE"),
    (0x10, "MADV_DONTDUMP"),
    (0x11, "MADV_DODUMP"),
    (0x12, "MADV_WIPEONFORK"),
    (0x13, "MADV_KEEPONFORK"),
    (0x14, "MADV_COLD"),
    (0x15, "MADV_PAGEOUT"),
    (0x16, "MADV_POPULATE_READ"),
    (0x17, "MADV_POPULATE_WRITE"),
    (0x18, "MADV_DONTNEED_LOCKED"),
    (0x19, "MADV_COLLAPSE"),
    (0x64, "MADV_HWPOISON"),
    (0x65, "MADV_SOFT_OFFLINE"),
]);

/// `MCL_???`.
#[rustfmt::skip]
pub static MLOCKALL: Names = Names::flags("MCL_???", &[
    (0x1, "MCL_CURRENT"),
    (0x2, "MCL_FUTURE"),
    (0x4, "MCL_ONFAULT"),
]);

/// `MLOCK_???`.
#[rustfmt::skip]
pub static MLOCK2: Names = Names::flags("MLOCK_???", &[
    (0x1, "MLOCK_ONFAULT"),
]);

/// `SEEK_???`.
#[rustfmt::skip]
pub static WHENCE: Names = Names::choice("SEEK_???", &[
    (0x0, "SEEK_SET"),
    (0x1, "SEEK_CUR"),
    (0x2, "SEEK_END"),
    (0x3, "SEEK_DATA"),
    (0x4, "SEEK_HOLE"),
]);

/// `?_OK`.
#[rustfmt::skip]
pub static ACCESS_ALL: Names = Names::flags("?_OK", &[
    (0x0, "F_OK"),
    (0x4, "R_OK"),
    (0x2, "W_OK"),
    (0x1, "X_OK"),
]);

/// `AT_???`.
#[rustfmt::skip]
pub static AT: Names = Names::flags("AT_???", &[
    (0x100, "AT_SYMLINK_NOFOLLOW"),
    (0x200, "AT_REMOVEDIR"),
    (0x400, "AT_SYMLINK_FOLLOW"),
    (0x800, "AT_NO_AUTOMOUNT"),
    (0x1000, "AT_EMPTY_PATH"),
    (0x8000, "AT_RECURSIVE"),
]);

/// `AT_???`.
#[rustfmt::skip]
pub static AT_ACCESS: Names = Names::flags("AT_???", &[
    (0x100, "AT_SYMLINK_NOFOLLOW"),
    (0x200, "AT_EACCESS"),
    (0x1000, "AT_EMPTY_PATH"),
]);

/// `AT_STATX_???`.
#[rustfmt::skip]
pub static AT_STATX_SYNC: Names = Names::choice("AT_STATX_???", &[
    (0x0, "AT_STATX_SYNC_AS_STAT"),
    (0x2000, "AT_STATX_FORCE_SYNC"),
    (0x4000, "AT_STATX_DONT_SYNC"),
]);

/// `STATX_???`.
#[rustfmt::skip]
pub static STATX: Names = Names::flags("STATX_???", &[
    (0xfff, "STATX_ALL"),
    (0x7ff, "STATX_BASIC_STATS"),
    (0x1, "STATX_TYPE"),
    (0x2, "STATX_MODE"),
    (0x4, "STATX_NLINK"),
    (0x8, "STATX_UID"),
    (0x10, "STATX_GID"),
    (0x20, "STATX_ATIME"),
    (0x40, "STATX_MTIME"),
    (0x80, "STATX_CTIME"),
    (0x100, "STATX_INO"),
    (0x200, "STATX_SIZE"),
    (0x400, "STATX_BLOCKS"),
    (0x800, "STATX_BTIME"),
    (0x1000, "STATX_MNT_ID"),
    (0x2000, "STATX_DIOALIGN"),
]);

/// `STATX_ATTR_???`.
#[rustfmt::skip]
pub static STATX_ATTR: Names = Names::flags("STATX_ATTR_???", &[
    (0x4, "STATX_ATTR_COMPRESSED"),
    (0x10, "STATX_ATTR_IMMUTABLE"),
    (0x20, "STATX_ATTR_APPEND"),
    (0x40, "STATX_ATTR_NODUMP"),
    (0x800, "STATX_ATTR_ENCRYPTED"),
    (0x1000, "STATX_ATTR_AUTOMOUNT"),
    (0x2000, "STATX_ATTR_MOUNT_ROOT"),
    (0x100000, "STATX_ATTR_VERITY"),
    (0x200000, "STATX_ATTR_DAX"),
]);

/// `S_???`.
#[rustfmt::skip]
pub static S_IFMT: Names = Names::choice("S_???", &[
    (0x1000, "S_IFIFO"),
    (0x2000, "S_IFCHR"),
    (0x4000, "S_IFDIR"),
    (0x6000, "S_IFBLK"),
    (0x8000, "S_IFREG"),
    (0xa000, "S_IFLNK"),
    (0xc000, "S_IFSOCK"),
]);

/// `S_???`.
#[rustfmt::skip]
pub static S_ISUGID: Names = Names::flags("S_???", &[
    (0x800, "S_ISUID"),
    (0x400, "S_ISGID"),
    (0x200, "S_ISVTX"),
]);

/// `RENAME_???`.
#[rustfmt::skip]
pub static RENAME: Names = Names::flags("RENAME_???", &[
    (0x1, "RENAME_NOREPLACE"),
    (0x2, "RENAME_EXCHANGE"),
    (0x4, "RENAME_WHITEOUT"),
]);

/// `SIG_0`.
#[rustfmt::skip]
pub static SIGNALS: Names = Names::choice("SIG_0", &[
    (0x1, "SIGHUP"),
    (0x2, "SIGINT"),
    (0x3, "SIGQUIT"),
    (0x4, "SIGILL"),
    (0x5, "SIGTRAP"),
    (0x6, "SIGABRT"),
    (0x7, "SIGBUS"),
    (0x8, "SIGFPE"),
    (0x9, "SIGKILL"),
    (0xa, "SIGUSR1"),
    (0xb, "SIGSEGV"),
    (0xc, "SIGUSR2"),
    (0xd, "SIGPIPE"),
    (0xe, "SIGALRM"),
    (0xf, "SIGTERM"),
    (0x10, "SIGSTKFLT"),
    (0x11, "SIGCHLD"),
    (0x12, "SIGCONT"),
    (0x13, "SIGSTOP"),
    (0x14, "SIGTSTP"),
    (0x15, "SIGTTIN"),
    (0x16, "SIGTTOU"),
    (0x17, "SIGURG"),
    (0x18, "SIGXCPU"),
    (0x19, "SIGXFSZ"),
    (0x1a, "SIGVTALRM"),
    (0x1b, "SIGPROF"),
    (0x1c, "SIGWINCH"),
    (0x1d, "SIGIO"),
    (0x1e, "SIGPWR"),
    (0x1f, "SIGSYS"),
]);

/// `SIG_???`.
#[rustfmt::skip]
pub static SIGPROCMASK: Names = Names::choice("SIG_???", &[
    (0x0, "SIG_BLOCK"),
    (0x1, "SIG_UNBLOCK"),
    (0x2, "SIG_SETMASK"),
]);

/// `SA_???`.
#[rustfmt::skip]
pub static SA: Names = Names::flags("SA_???", &[
    (0x4000000, "SA_RESTORER"),
    (0x8000000, "SA_ONSTACK"),
    (0x10000000, "SA_RESTART"),
    (0x20000000, "SA_INTERRUPT"),
    (0x40000000, "SA_NODEFER"),
    (0x80000000, "SA_RESETHAND"),
    (0x4, "SA_SIGINFO"),
    (0x1, "SA_NOCLDSTOP"),
    (0x2, "SA_NOCLDWAIT"),
]);

/// `SS_???`.
#[rustfmt::skip]
pub static SS: Names = Names::flags("SS_???", &[
    (0x1, "SS_ONSTACK"),
    (0x2, "SS_DISABLE"),
    (0x80000000, "SS_AUTODISARM"),
]);

/// `SI_???`.
#[rustfmt::skip]
pub static SI_CODE: Names = Names::choice("SI_???", &[
    (0x0, "SI_USER"),
    (0x80, "SI_KERNEL"),
    (0xfffffffa, "SI_TKILL"),
    (0xfffffffb, "SI_SIGIO"),
    (0xfffffffc, "SI_ASYNCIO"),
    (0xfffffffd, "SI_MESGQ"),
    (0xfffffffe, "SI_TIMER"),
    (0xffffffff, "SI_QUEUE"),
]);

/// `CLD_???`.
#[rustfmt::skip]
pub static CLD: Names = Names::choice("CLD_???", &[
    (0x1, "CLD_EXITED"),
    (0x2, "CLD_KILLED"),
    (0x3, "CLD_DUMPED"),
    (0x4, "CLD_TRAPPED"),
    (0x5, "CLD_STOPPED"),
    (0x6, "CLD_CONTINUED"),
]);

/// `SEGV_???`.
#[rustfmt::skip]
pub static SEGV: Names = Names::choice("SEGV_???", &[
    (0x1, "SEGV_MAPERR"),
    (0x2, "SEGV_ACCERR"),
    (0x3, "SEGV_BNDERR"),
    (0x4, "SEGV_PKUERR"),
]);

/// `BUS_???`.
#[rustfmt::skip]
pub static BUS: Names = Names::choice("BUS_???", &[
    (0x1, "BUS_ADRALN"),
    (0x2, "BUS_ADRERR"),
    (0x3, "BUS_OBJERR"),
    (0x4, "BUS_MCEERR_AR"),
    (0x5, "BUS_MCEERR_AO"),
]);

/// `FPE_???`.
#[rustfmt::skip]
pub static FPE: Names = Names::choice("FPE_???", &[
    (0x1, "FPE_INTDIV"),
    (0x2, "FPE_INTOVF"),
    (0x3, "FPE_FLTDIV"),
    (0x4, "FPE_FLTOVF"),
    (0x5, "FPE_FLTUND"),
    (0x6, "FPE_FLTRES"),
    (0x7, "FPE_FLTINV"),
    (0x8, "FPE_FLTSUB"),
]);

/// `ILL_???`.
#[rustfmt::skip]
pub static ILL: Names = Names::choice("ILL_???", &[
    (0x1, "ILL_ILLOPC"),
    (0x2, "ILL_ILLOPN"),
    (0x3, "ILL_ILLADR"),
    (0x4, "ILL_ILLTRP"),
    (0x5, "ILL_PRVOPC"),
    (0x6, "ILL_PRVREG"),
    (0x7, "ILL_COPROC"),
    (0x8, "ILL_BADSTK"),
]);

/// `TRAP_???`.
#[rustfmt::skip]
pub static TRAP: Names = Names::choice("TRAP_???", &[
    (0x1, "TRAP_BRKPT"),
    (0x2, "TRAP_TRACE"),
    (0x3, "TRAP_BRANCH"),
    (0x4, "TRAP_HWBKPT"),
]);

/// `CLONE_???`.
#[rustfmt::skip]
pub static CLONE: Names = Names::flags("CLONE_???", &[
    (0x100, "CLONE_VM"),
    (0x200, "CLONE_FS"),
    (0x400, "CLONE_FILES"),
    (0x800, "CLONE_SIGHAND"),
    (0x1000, "CLONE_PIDFD"),
    (0x2000, "CLONE_PTRACE"),
    (0x4000, "CLONE_VFORK"),
    (0x8000, "CLONE_PARENT"),
    (0x10000, "CLONE_THREAD"),
    (0x20000, "CLONE_NEWNS"),
    (0x40000, "CLONE_SYSVSEM"),
    (0x80000, "CLONE_SETTLS"),
    (0x100000, "CLONE_PARENT_SETTID"),
    (0x200000, "CLONE_CHILD_CLEARTID"),
    (0x400000, "CLONE_DETACHED"),
    (0x800000, "CLONE_UNTRACED"),
    (0x1000000, "CLONE_CHILD_SETTID"),
    (0x2000000, "CLONE_NEWCGROUP"),
    (0x4000000, "CLONE_NEWUTS"),
    (0x8000000, "CLONE_NEWIPC"),
    (0x10000000, "CLONE_NEWUSER"),
    (0x20000000, "CLONE_NEWPID"),
    (0x40000000, "CLONE_NEWNET"),
    (0x80000000, "CLONE_IO"),
    (0x100000000, "CLONE_CLEAR_SIGHAND"),
    (0x200000000, "CLONE_INTO_CGROUP"),
]);

/// `CLONE_???`.
#[rustfmt::skip]
pub static UNSHARE: Names = Names::flags("CLONE_???", &[
    (0x80, "CLONE_NEWTIME"),
    (0x100, "CLONE_VM"),
    (0x200, "CLONE_FS"),
    (0x400, "CLONE_FILES"),
    (0x800, "CLONE_SIGHAND"),
    (0x10000, "CLONE_THREAD"),
    (0x20000, "CLONE_NEWNS"),
    (0x40000, "CLONE_SYSVSEM"),
    (0x2000000, "CLONE_NEWCGROUP"),
    (0x4000000, "CLONE_NEWUTS"),
    (0x8000000, "CLONE_NEWIPC"),
    (0x10000000, "CLONE_NEWUSER"),
    (0x20000000, "CLONE_NEWPID"),
    (0x40000000, "CLONE_NEWNET"),
]);

/// `CLONE_???`.
#[rustfmt::skip]
pub static NAMESPACES: Names = Names::flags("CLONE_???", &[
    (0x80, "CLONE_NEWTIME"),
    (0x20000, "CLONE_NEWNS"),
    (0x2000000, "CLONE_NEWCGROUP"),
    (0x4000000, "CLONE_NEWUTS"),
    (0x8000000, "CLONE_NEWIPC"),
    (0x10000000, "CLONE_NEWUSER"),
    (0x20000000, "CLONE_NEWPID"),
    (0x40000000, "CLONE_NEWNET"),
]);

/// `SYNC_FILE_RANGE_???`.
#[rustfmt::skip]
pub static SYNC_FILE_RANGE: Names = Names::flags("SYNC_FILE_RANGE_???", &[
    (0x1, "SYNC_FILE_RANGE_WAIT_BEFORE"),
    (0x2, "SYNC_FILE_RANGE_WRITE"),
    (0x4, "SYNC_FILE_RANGE_WAIT_AFTER"),
]);

/// `OPEN_TREE_???`.
#[rustfmt::skip]
pub static OPEN_TREE: Names = Names::flags("OPEN_TREE_???", &[
    (0x1, "OPEN_TREE_CLONE"),
    (0x80000, "OPEN_TREE_CLOEXEC"),
    (0x100, "AT_SYMLINK_NOFOLLOW"),
    (0x200, "AT_REMOVEDIR"),
    (0x400, "AT_SYMLINK_FOLLOW"),
    (0x800, "AT_NO_AUTOMOUNT"),
    (0x1000, "AT_EMPTY_PATH"),
    (0x8000, "AT_RECURSIVE"),
]);

/// `MOVE_MOUNT_???`.
#[rustfmt::skip]
pub static MOVE_MOUNT: Names = Names::flags("MOVE_MOUNT_???", &[
    (0x1, "MOVE_MOUNT_F_SYMLINKS"),
    (0x2, "MOVE_MOUNT_F_AUTOMOUNTS"),
    (0x4, "MOVE_MOUNT_F_EMPTY_PATH"),
    (0x10, "MOVE_MOUNT_T_SYMLINKS"),
    (0x20, "MOVE_MOUNT_T_AUTOMOUNTS"),
    (0x40, "MOVE_MOUNT_T_EMPTY_PATH"),
    (0x100, "MOVE_MOUNT_SET_GROUP"),
]);

/// `FSOPEN_???`.
#[rustfmt::skip]
pub static FSOPEN: Names = Names::flags("FSOPEN_???", &[
    (0x1, "FSOPEN_CLOEXEC"),
]);

/// `FSMOUNT_???`.
#[rustfmt::skip]
pub static FSMOUNT: Names = Names::flags("FSMOUNT_???", &[
    (0x1, "FSMOUNT_CLOEXEC"),
]);

/// `FSPICK_???`.
#[rustfmt::skip]
pub static FSPICK: Names = Names::flags("FSPICK_???", &[
    (0x1, "FSPICK_CLOEXEC"),
    (0x2, "FSPICK_SYMLINK_NOFOLLOW"),
    (0x4, "FSPICK_NO_AUTOMOUNT"),
    (0x8, "FSPICK_EMPTY_PATH"),
]);

/// `FSCONFIG_???`.
#[rustfmt::skip]
pub static FSCONFIG: Names = Names::choice("FSCONFIG_???", &[
    (0x0, "FSCONFIG_SET_FLAG"),
    (0x1, "FSCONFIG_SET_STRING"),
    (0x2, "FSCONFIG_SET_BINARY"),
    (0x3, "FSCONFIG_SET_PATH"),
    (0x4, "FSCONFIG_SET_PATH_EMPTY"),
    (0x5, "FSCONFIG_SET_FD"),
    (0x6, "FSCONFIG_CMD_CREATE"),
    (0x7, "FSCONFIG_CMD_RECONFIGURE"),
]);

/// `MOUNT_ATTR_???`.
#[rustfmt::skip]
pub static MOUNT_ATTR: Names = Names::flags("MOUNT_ATTR_???", &[
    (0x1, "MOUNT_ATTR_RDONLY"),
    (0x2, "MOUNT_ATTR_NOSUID"),
    (0x4, "MOUNT_ATTR_NODEV"),
    (0x8, "MOUNT_ATTR_NOEXEC"),
    (0x10, "MOUNT_ATTR_NOATIME"),
    (0x20, "MOUNT_ATTR_STRICTATIME"),
    (0x80, "MOUNT_ATTR_NODIRATIME"),
    (0x100000, "MOUNT_ATTR_IDMAP"),
    (0x200000, "MOUNT_ATTR_NOSYMFOLLOW"),
]);

/// `SEM_???`.
#[rustfmt::skip]
pub static SEM: Names = Names::flags("SEM_???", &[
    (0x1000, "SEM_UNDO"),
    (0x800, "IPC_NOWAIT"),
]);

/// `MSG_???`.
#[rustfmt::skip]
pub static MSGQ: Names = Names::flags("MSG_???", &[
    (0x1000, "MSG_NOERROR"),
    (0x2000, "MSG_EXCEPT"),
    (0x4000, "MSG_COPY"),
    (0x800, "IPC_NOWAIT"),
]);

/// `MEMBARRIER_CMD_FLAG_???`.
#[rustfmt::skip]
pub static MEMBARRIER_FLAGS: Names = Names::flags("MEMBARRIER_CMD_FLAG_???", &[
    (0x1, "MEMBARRIER_CMD_FLAG_CPU"),
]);

/// `SECCOMP_FILTER_FLAG_???`.
#[rustfmt::skip]
pub static SECCOMP_FLAGS: Names = Names::flags("SECCOMP_FILTER_FLAG_???", &[
    (0x1, "SECCOMP_FILTER_FLAG_TSYNC"),
    (0x2, "SECCOMP_FILTER_FLAG_LOG"),
    (0x4, "SECCOMP_FILTER_FLAG_SPEC_ALLOW"),
    (0x8, "SECCOMP_FILTER_FLAG_NEW_LISTENER"),
    (0x10, "SECCOMP_FILTER_FLAG_TSYNC_ESRCH"),
    (0x20, "SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV"),
]);

/// `PERF_FLAG_???`.
#[rustfmt::skip]
pub static PERF_FLAG: Names = Names::flags("PERF_FLAG_???", &[
    (0x1, "PERF_FLAG_FD_NO_GROUP"),
    (0x2, "PERF_FLAG_FD_OUTPUT"),
    (0x4, "PERF_FLAG_PID_CGROUP"),
    (0x8, "PERF_FLAG_FD_CLOEXEC"),
]);

/// `MODULE_INIT_???`.
#[rustfmt::skip]
pub static MODULE_FLAGS: Names = Names::flags("MODULE_INIT_???", &[
    (0x1, "MODULE_INIT_IGNORE_MODVERSIONS"),
    (0x2, "MODULE_INIT_IGNORE_VERMAGIC"),
    (0x4, "MODULE_INIT_COMPRESSED_FILE"),
]);

/// `W???`.
#[rustfmt::skip]
pub static WAIT: Names = Names::flags("W???", &[
    (0x1, "WNOHANG"),
    (0x4, "WEXITED"),
    (0x2, "WSTOPPED"),
    (0x8, "WCONTINUED"),
    (0x1000000, "WNOWAIT"),
    (0x80000000, "__WCLONE"),
    (0x40000000, "__WALL"),
    (0x20000000, "__WNOTHREAD"),
]);

/// `W???`.
#[rustfmt::skip]
pub static WAIT4: Names = Names::flags("W???", &[
    (0x1, "WNOHANG"),
    (0x2, "WSTOPPED"),
    (0x4, "WEXITED"),
    (0x8, "WCONTINUED"),
    (0x1000000, "WNOWAIT"),
    (0x80000000, "__WCLONE"),
    (0x40000000, "__WALL"),
    (0x20000000, "__WNOTHREAD"),
]);

/// `P_???`.
#[rustfmt::skip]
pub static WAITID: Names = Names::choice("P_???", &[
    (0x0, "P_ALL"),
    (0x1, "P_PID"),
    (0x2, "P_PGID"),
    (0x3, "P_PIDFD"),
]);

/// `AF_???`.
#[rustfmt::skip]
pub static AF: Names = Names::choice("AF_???", &[
    (0x0, "AF_UNSPEC"),
    (0x1, "AF_UNIX"),
    (0x2, "AF_INET"),
    (0x3, "AF_AX25"),
    (0x4, "AF_IPX"),
    (0x5, "AF_APPLETALK"),
    (0x6, "AF_NETROM"),
    (0x7, "AF_BRIDGE"),
    (0x8, "AF_ATMPVC"),
    (0x9, "AF_X25"),
    (0xa, "AF_INET6"),
    (0xb, "AF_ROSE"),
    (0xc, "AF_DECnet"),
    (0xd, "AF_NETBEUI"),
    (0xe, "AF_SECURITY"),
    (0xf, "AF_KEY"),
    (0x10, "AF_NETLINK"),
    (0x11, "AF_PACKET"),
    (0x12, "AF_ASH"),
    (0x13, "AF_ECONET"),
    (0x14, "AF_ATMSVC"),
    (0x15, "AF_RDS"),
    (0x16, "AF_SNA"),
    (0x17, "AF_IRDA"),
    (0x18, "AF_PPPOX"),
    (0x19, "AF_WANPIPE"),
    (0x1a, "AF_LLC"),
    (0x1b, "AF_IB"),
    (0x1c, "AF_MPLS"),
    (0x1d, "AF_CAN"),
    (0x1e, "AF_TIPC"),
    (0x1f, "AF_BLUETOOTH"),
    (0x20, "AF_IUCV"),
    (0x21, "AF_RXRPC"),
    (0x22, "AF_ISDN"),
    (0x23, "AF_PHONET"),
    (0x24, "AF_IEEE802154"),
    (0x25, "AF_CAIF"),
    (0x26, "AF_ALG"),
    (0x27, "AF_NFC"),
    (0x28, "AF_VSOCK"),
    (0x29, "AF_KCM"),
    (0x2a, "AF_QIPCRTR"),
    (0x2b, "AF_SMC"),
    (0x2c, "AF_XDP"),
]);

/// `SOCK_???`.
#[rustfmt::skip]
pub static SOCK_TYPE: Names = Names::choice("SOCK_???", &[
    (0x1, "SOCK_STREAM"),
    (0x2, "SOCK_DGRAM"),
    (0x3, "SOCK_RAW"),
    (0x4, "SOCK_RDM"),
    (0x5, "SOCK_SEQPACKET"),
    (0x6, "SOCK_DCCP"),
    (0xa, "SOCK_PACKET"),
]);

/// `SOCK_???`.
#[rustfmt::skip]
pub static SOCK_FLAGS: Names = Names::flags("SOCK_???", &[
    (0x80000, "SOCK_CLOEXEC"),
    (0x800, "SOCK_NONBLOCK"),
]);

/// `IPPROTO_???`.
#[rustfmt::skip]
pub static IPPROTO: Names = Names::choice("IPPROTO_???", &[
    (0x0, "IPPROTO_IP"),
    (0x1, "IPPROTO_ICMP"),
    (0x2, "IPPROTO_IGMP"),
    (0x4, "IPPROTO_IPIP"),
    (0x6, "IPPROTO_TCP"),
    (0x8, "IPPROTO_EGP"),
    (0xc, "IPPROTO_PUP"),
    (0x11, "IPPROTO_UDP"),
    (0x16, "IPPROTO_IDP"),
    (0x1d, "IPPROTO_TP"),
    (0x21, "IPPROTO_DCCP"),
    (0x29, "IPPROTO_IPV6"),
    (0x2e, "IPPROTO_RSVP"),
    (0x2f, "IPPROTO_GRE"),
    (0x32, "IPPROTO_ESP"),
    (0x33, "IPPROTO_AH"),
    (0x3a, "IPPROTO_ICMPV6"),
    (0x5c, "IPPROTO_MTP"),
    (0x5e, "IPPROTO_BEETPH"),
    (0x62, "IPPROTO_ENCAP"),
    (0x67, "IPPROTO_PIM"),
    (0x6c, "IPPROTO_COMP"),
    (0x84, "IPPROTO_SCTP"),
    (0x88, "IPPROTO_UDPLITE"),
    (0x89, "IPPROTO_MPLS"),
    (0xff, "IPPROTO_RAW"),
    (0x106, "IPPROTO_MPTCP"),
]);

/// `NETLINK_???`.
#[rustfmt::skip]
pub static NETLINK: Names = Names::choice("NETLINK_???", &[
    (0x0, "NETLINK_ROUTE"),
    (0x1, "NETLINK_UNUSED"),
    (0x2, "NETLINK_USERSOCK"),
    (0x3, "NETLINK_FIREWALL"),
    (0x4, "NETLINK_SOCK_DIAG"),
    (0x5, "NETLINK_NFLOG"),
    (0x6, "NETLINK_XFRM"),
    (0x7, "NETLINK_SELINUX"),
    (0x8, "NETLINK_ISCSI"),
    (0x9, "NETLINK_AUDIT"),
    (0xa, "NETLINK_FIB_LOOKUP"),
    (0xb, "NETLINK_CONNECTOR"),
    (0xc, "NETLINK_NETFILTER"),
    (0xd, "NETLINK_IP6_FW"),
    (0xe, "NETLINK_DNRTMSG"),
    (0xf, "NETLINK_KOBJECT_UEVENT"),
    (0x10, "NETLINK_GENERIC"),
    (0x12, "NETLINK_SCSITRANSPORT"),
    (0x13, "NETLINK_ECRYPTFS"),
    (0x14, "NETLINK_RDMA"),
    (0x15, "NETLINK_CRYPTO"),
    (0x16, "NETLINK_SMC"),
]);

/// `MSG_???`.
#[rustfmt::skip]
pub static MSG: Names = Names::flags("MSG_???", &[
    (0x1, "MSG_OOB"),
    (0x2, "MSG_PEEK"),
    (0x4, "MSG_DONTROUTE"),
    (0x8, "MSG_CTRUNC"),
    (0x10, "MSG_PROBE"),
    (0x20, "MSG_TRUNC"),
    (0x40, "MSG_DONTWAIT"),
    (0x80, "MSG_EOR"),
    (0x100, "MSG_WAITALL"),
    (0x200, "MSG_FIN"),
    (0x400, "MSG_SYN"),
    (0x800, "MSG_CONFIRM"),
    (0x1000, "MSG_RST"),
    (0x2000, "MSG_ERRQUEUE"),
    (0x4000, "MSG_NOSIGNAL"),
    (0x8000, "MSG_MORE"),
    (0x10000, "MSG_WAITFORONE"),
    (0x20000, "MSG_SENDPAGE_NOTLAST"),
    (0x40000, "MSG_BATCH"),
    (0x80000, "MSG_NO_SHARED_FRAGS"),
    (0x4000000, "MSG_ZEROCOPY"),
    (0x20000000, "MSG_FASTOPEN"),
    (0x40000000, "MSG_CMSG_CLOEXEC"),
    (0x80000000, "MSG_CMSG_COMPAT"),
]);

/// `SHUT_???`.
#[rustfmt::skip]
pub static SHUTDOWN: Names = Names::choice("SHUT_???", &[
    (0x0, "SHUT_RD"),
    (0x1, "SHUT_WR"),
    (0x2, "SHUT_RDWR"),
]);

/// `SOL_??`.
#[rustfmt::skip]
pub static SOL: Names = Names::choice("SOL_??", &[
    (0x0, "SOL_IP"),
    (0x1, "SOL_SOCKET"),
    (0x6, "SOL_TCP"),
    (0x11, "SOL_UDP"),
    (0x29, "SOL_IPV6"),
    (0xff, "SOL_RAW"),
    (0x107, "SOL_PACKET"),
    (0x10e, "SOL_NETLINK"),
    (0x117, "SOL_ALG"),
    (0x11f, "SOL_VSOCK"),
]);

/// `SO_???`.
#[rustfmt::skip]
pub static SO: Names = Names::choice("SO_???", &[
    (0x1, "SO_DEBUG"),
    (0x2, "SO_REUSEADDR"),
    (0x3, "SO_TYPE"),
    (0x4, "SO_ERROR"),
    (0x5, "SO_DONTROUTE"),
    (0x6, "SO_BROADCAST"),
    (0x7, "SO_SNDBUF"),
    (0x8, "SO_RCVBUF"),
    (0x9, "SO_KEEPALIVE"),
    (0xa, "SO_OOBINLINE"),
    (0xb, "SO_NO_CHECK"),
    (0xc, "SO_PRIORITY"),
    (0xd, "SO_LINGER"),
    (0xe, "SO_BSDCOMPAT"),
    (0xf, "SO_REUSEPORT"),
    (0x10, "SO_PASSCRED"),
    (0x11, "SO_PEERCRED"),
    (0x12, "SO_RCVLOWAT"),
    (0x13, "SO_SNDLOWAT"),
    (0x14, "SO_RCVTIMEO_OLD"),
    (0x15, "SO_SNDTIMEO_OLD"),
    (0x19, "SO_BINDTODEVICE"),
    (0x1a, "SO_ATTACH_FILTER"),
    (0x1b, "SO_DETACH_FILTER"),
    (0x1c, "SO_PEERNAME"),
    (0x1d, "SO_TIMESTAMP_OLD"),
    (0x1e, "SO_ACCEPTCONN"),
    (0x1f, "SO_PEERSEC"),
    (0x20, "SO_SNDBUFFORCE"),
    (0x21, "SO_RCVBUFFORCE"),
    (0x22, "SO_PASSSEC"),
    (0x23, "SO_TIMESTAMPNS_OLD"),
    (0x24, "SO_MARK"),
    (0x25, "SO_TIMESTAMPING_OLD"),
    (0x26, "SO_PROTOCOL"),
    (0x27, "SO_DOMAIN"),
    (0x28, "SO_RXQ_OVFL"),
    (0x29, "SO_WIFI_STATUS"),
    (0x2a, "SO_PEEK_OFF"),
    (0x2b, "SO_NOFCS"),
    (0x2c, "SO_LOCK_FILTER"),
    (0x2d, "SO_SELECT_ERR_QUEUE"),
    (0x2e, "SO_BUSY_POLL"),
    (0x2f, "SO_MAX_PACING_RATE"),
    (0x30, "SO_BPF_EXTENSIONS"),
    (0x31, "SO_INCOMING_CPU"),
    (0x32, "SO_ATTACH_BPF"),
    (0x38, "SO_INCOMING_NAPI_ID"),
    (0x39, "SO_COOKIE"),
    (0x3b, "SO_PEERGROUPS"),
    (0x3c, "SO_ZEROCOPY"),
    (0x3d, "SO_TXTIME"),
    (0x3e, "SO_BINDTOIFINDEX"),
]);

/// `TCP_???`.
#[rustfmt::skip]
pub static SO_TCP: Names = Names::choice("TCP_???", &[
    (0x1, "TCP_NODELAY"),
    (0x2, "TCP_MAXSEG"),
    (0x3, "TCP_CORK"),
    (0x4, "TCP_KEEPIDLE"),
    (0x5, "TCP_KEEPINTVL"),
    (0x6, "TCP_KEEPCNT"),
    (0x7, "TCP_SYNCNT"),
    (0x8, "TCP_LINGER2"),
    (0x9, "TCP_DEFER_ACCEPT"),
    (0xa, "TCP_WINDOW_CLAMP"),
    (0xb, "TCP_INFO"),
    (0xc, "TCP_QUICKACK"),
    (0xd, "TCP_CONGESTION"),
    (0xe, "TCP_MD5SIG"),
    (0x10, "TCP_THIN_LINEAR_TIMEOUTS"),
    (0x11, "TCP_THIN_DUPACK"),
    (0x12, "TCP_USER_TIMEOUT"),
    (0x13, "TCP_REPAIR"),
    (0x14, "TCP_REPAIR_QUEUE"),
    (0x15, "TCP_QUEUE_SEQ"),
    (0x16, "TCP_REPAIR_OPTIONS"),
    (0x17, "TCP_FASTOPEN"),
    (0x18, "TCP_TIMESTAMP"),
    (0x19, "TCP_NOTSENT_LOWAT"),
    (0x1a, "TCP_CC_INFO"),
    (0x1b, "TCP_SAVE_SYN"),
    (0x1c, "TCP_SAVED_SYN"),
    (0x1d, "TCP_REPAIR_WINDOW"),
    (0x1e, "TCP_FASTOPEN_CONNECT"),
    (0x1f, "TCP_ULP"),
    (0x21, "TCP_FASTOPEN_KEY"),
    (0x22, "TCP_FASTOPEN_NO_COOKIE"),
    (0x23, "TCP_ZEROCOPY_RECEIVE"),
    (0x24, "TCP_INQ"),
    (0x25, "TCP_TX_DELAY"),
]);

/// `IP_???`.
#[rustfmt::skip]
pub static SO_IP: Names = Names::choice("IP_???", &[
    (0x1, "IP_TOS"),
    (0x2, "IP_TTL"),
    (0x3, "IP_HDRINCL"),
    (0x4, "IP_OPTIONS"),
    (0x5, "IP_ROUTER_ALERT"),
    (0x6, "IP_RECVOPTS"),
    (0x7, "IP_RETOPTS"),
    (0x8, "IP_PKTINFO"),
    (0x9, "IP_PKTOPTIONS"),
    (0xa, "IP_MTU_DISCOVER"),
    (0xb, "IP_RECVERR"),
    (0xc, "IP_RECVTTL"),
    (0xd, "IP_RECVTOS"),
    (0xe, "IP_MTU"),
    (0xf, "IP_FREEBIND"),
    (0x13, "IP_TRANSPARENT"),
    (0x18, "IP_BIND_ADDRESS_NO_PORT"),
    (0x20, "IP_MULTICAST_IF"),
    (0x21, "IP_MULTICAST_TTL"),
    (0x22, "IP_MULTICAST_LOOP"),
    (0x23, "IP_ADD_MEMBERSHIP"),
    (0x24, "IP_DROP_MEMBERSHIP"),
]);

/// `IPV6_???`.
#[rustfmt::skip]
pub static SO_IPV6: Names = Names::choice("IPV6_???", &[
    (0x1, "IPV6_ADDRFORM"),
    (0x7, "IPV6_CHECKSUM"),
    (0x10, "IPV6_UNICAST_HOPS"),
    (0x11, "IPV6_MULTICAST_IF"),
    (0x12, "IPV6_MULTICAST_HOPS"),
    (0x13, "IPV6_MULTICAST_LOOP"),
    (0x17, "IPV6_MTU_DISCOVER"),
    (0x18, "IPV6_MTU"),
    (0x19, "IPV6_RECVERR"),
    (0x1a, "IPV6_V6ONLY"),
    (0x31, "IPV6_RECVPKTINFO"),
    (0x32, "IPV6_PKTINFO"),
    (0x33, "IPV6_RECVHOPLIMIT"),
    (0x34, "IPV6_HOPLIMIT"),
    (0x42, "IPV6_RECVTCLASS"),
    (0x43, "IPV6_TCLASS"),
]);

/// `NETLINK_???`.
#[rustfmt::skip]
pub static SO_NETLINK: Names = Names::choice("NETLINK_???", &[
    (0x1, "NETLINK_ADD_MEMBERSHIP"),
    (0x2, "NETLINK_DROP_MEMBERSHIP"),
    (0x3, "NETLINK_PKTINFO"),
    (0x4, "NETLINK_BROADCAST_ERROR"),
    (0x5, "NETLINK_NO_ENOBUFS"),
    (0x8, "NETLINK_LISTEN_ALL_NSID"),
    (0x9, "NETLINK_LIST_MEMBERSHIPS"),
    (0xa, "NETLINK_CAP_ACK"),
    (0xb, "NETLINK_EXT_ACK"),
    (0xc, "NETLINK_GET_STRICT_CHK"),
]);

/// `SCM_???`.
#[rustfmt::skip]
pub static SCM: Names = Names::choice("SCM_???", &[
    (0x1, "SCM_RIGHTS"),
    (0x2, "SCM_CREDENTIALS"),
]);

/// `F_???`.
#[rustfmt::skip]
pub static FCNTL: Names = Names::choice("F_???", &[
    (0x0, "F_DUPFD"),
    (0x1, "F_GETFD"),
    (0x2, "F_SETFD"),
    (0x3, "F_GETFL"),
    (0x4, "F_SETFL"),
    (0x5, "F_GETLK"),
    (0x6, "F_SETLK"),
    (0x7, "F_SETLKW"),
    (0x8, "F_SETOWN"),
    (0x9, "F_GETOWN"),
    (0xa, "F_SETSIG"),
    (0xb, "F_GETSIG"),
    (0xf, "F_SETOWN_EX"),
    (0x10, "F_GETOWN_EX"),
    (0x11, "F_GETOWNER_UIDS"),
    (0x24, "F_OFD_GETLK"),
    (0x25, "F_OFD_SETLK"),
    (0x26, "F_OFD_SETLKW"),
    (0x400, "F_SETLEASE"),
    (0x401, "F_GETLEASE"),
    (0x402, "F_NOTIFY"),
    (0x405, "F_CANCELLK"),
    (0x406, "F_DUPFD_CLOEXEC"),
    (0x407, "F_SETPIPE_SZ"),
    (0x408, "F_GETPIPE_SZ"),
    (0x409, "F_ADD_SEALS"),
    (0x40a, "F_GET_SEALS"),
    (0x40b, "F_GET_RW_HINT"),
    (0x40c, "F_SET_RW_HINT"),
    (0x40d, "F_GET_FILE_RW_HINT"),
    (0x40e, "F_SET_FILE_RW_HINT"),
]);

/// `F_???`.
#[rustfmt::skip]
pub static LOCK: Names = Names::choice("F_???", &[
    (0x0, "F_RDLCK"),
    (0x1, "F_WRLCK"),
    (0x2, "F_UNLCK"),
    (0x4, "F_EXLCK"),
    (0x8, "F_SHLCK"),
]);

/// `F_SEAL_???`.
#[rustfmt::skip]
pub static SEALS: Names = Names::flags("F_SEAL_???", &[
    (0x1, "F_SEAL_SEAL"),
    (0x2, "F_SEAL_SHRINK"),
    (0x4, "F_SEAL_GROW"),
    (0x8, "F_SEAL_WRITE"),
    (0x10, "F_SEAL_FUTURE_WRITE"),
]);

/// `LOCK_???`.
#[rustfmt::skip]
pub static FLOCK: Names = Names::flags("LOCK_???", &[
    (0x1, "LOCK_SH"),
    (0x2, "LOCK_EX"),
    (0x4, "LOCK_NB"),
    (0x8, "LOCK_UN"),
    (0x20, "LOCK_MAND"),
    (0xc0, "LOCK_RW"),
    (0x40, "LOCK_READ"),
    (0x80, "LOCK_WRITE"),
]);

/// `MFD_???`.
#[rustfmt::skip]
pub static MFD: Names = Names::flags("MFD_???", &[
    (0x1, "MFD_CLOEXEC"),
    (0x2, "MFD_ALLOW_SEALING"),
    (0x4, "MFD_HUGETLB"),
]);

/// `GRND_???`.
#[rustfmt::skip]
pub static GRND: Names = Names::flags("GRND_???", &[
    (0x1, "GRND_NONBLOCK"),
    (0x2, "GRND_RANDOM"),
    (0x4, "GRND_INSECURE"),
]);

/// `EFD_???`.
#[rustfmt::skip]
pub static EFD: Names = Names::flags("EFD_???", &[
    (0x1, "EFD_SEMAPHORE"),
    (0x80000, "EFD_CLOEXEC"),
    (0x800, "EFD_NONBLOCK"),
]);

/// `SFD_???`.
#[rustfmt::skip]
pub static SFD: Names = Names::flags("SFD_???", &[
    (0x80000, "SFD_CLOEXEC"),
    (0x800, "SFD_NONBLOCK"),
]);

/// `TFD_???`.
#[rustfmt::skip]
pub static TFD: Names = Names::flags("TFD_???", &[
    (0x1, "TFD_TIMER_ABSTIME"),
    (0x2, "TFD_TIMER_CANCEL_ON_SET"),
    (0x80000, "TFD_CLOEXEC"),
    (0x800, "TFD_NONBLOCK"),
]);

/// `IN_???`.
#[rustfmt::skip]
pub static IN_INIT: Names = Names::flags("IN_???", &[
    (0x800, "IN_NONBLOCK"),
    (0x80000, "IN_CLOEXEC"),
]);

/// `IN_???`.
#[rustfmt::skip]
pub static INOTIFY: Names = Names::flags("IN_???", &[
    (0x1, "IN_ACCESS"),
    (0x2, "IN_MODIFY"),
    (0x4, "IN_ATTRIB"),
    (0x8, "IN_CLOSE_WRITE"),
    (0x10, "IN_CLOSE_NOWRITE"),
    (0x20, "IN_OPEN"),
    (0x40, "IN_MOVED_FROM"),
    (0x80, "IN_MOVED_TO"),
    (0x100, "IN_CREATE"),
    (0x200, "IN_DELETE"),
    (0x400, "IN_DELETE_SELF"),
    (0x800, "IN_MOVE_SELF"),
    (0x2000, "IN_UNMOUNT"),
    (0x4000, "IN_Q_OVERFLOW"),
    (0x8000, "IN_IGNORED"),
    (0x1000000, "IN_ONLYDIR"),
    (0x2000000, "IN_DONT_FOLLOW"),
    (0x4000000, "IN_EXCL_UNLINK"),
    (0x10000000, "IN_MASK_CREATE"),
    (0x20000000, "IN_MASK_ADD"),
    (0x40000000, "IN_ISDIR"),
    (0x80000000, "IN_ONESHOT"),
]);

/// `EPOLL_???`.
#[rustfmt::skip]
pub static EPOLL_FLAGS: Names = Names::flags("EPOLL_???", &[
    (0x80000, "EPOLL_CLOEXEC"),
]);

/// `EPOLL_CTL_???`.
#[rustfmt::skip]
pub static EPOLL_CTL: Names = Names::choice("EPOLL_CTL_???", &[
    (0x1, "EPOLL_CTL_ADD"),
    (0x2, "EPOLL_CTL_DEL"),
    (0x3, "EPOLL_CTL_MOD"),
]);

/// `EPOLL???`.
#[rustfmt::skip]
pub static EPOLL: Names = Names::flags("EPOLL???", &[
    (0x1, "EPOLLIN"),
    (0x2, "EPOLLPRI"),
    (0x4, "EPOLLOUT"),
    (0x8, "EPOLLERR"),
    (0x10, "EPOLLHUP"),
    (0x20, "EPOLLNVAL"),
    (0x40, "EPOLLRDNORM"),
    (0x80, "EPOLLRDBAND"),
    (0x100, "EPOLLWRNORM"),
    (0x200, "EPOLLWRBAND"),
    (0x400, "EPOLLMSG"),
    (0x2000, "EPOLLRDHUP"),
    (0x10000000, "EPOLLEXCLUSIVE"),
    (0x20000000, "EPOLLWAKEUP"),
    (0x40000000, "EPOLLONESHOT"),
    (0x80000000, "EPOLLET"),
]);

/// `POLL???`.
#[rustfmt::skip]
pub static POLL: Names = Names::flags("POLL???", &[
    (0x1, "POLLIN"),
    (0x2, "POLLPRI"),
    (0x4, "POLLOUT"),
    (0x8, "POLLERR"),
    (0x10, "POLLHUP"),
    (0x20, "POLLNVAL"),
    (0x40, "POLLRDNORM"),
    (0x80, "POLLRDBAND"),
    (0x100, "POLLWRNORM"),
    (0x200, "POLLWRBAND"),
    (0x400, "POLLMSG"),
    (0x1000, "POLLREMOVE"),
    (0x2000, "POLLRDHUP"),
    (0x8000, "POLL_BUSY_LOOP"),
]);

/// `SPLICE_F_???`.
#[rustfmt::skip]
pub static SPLICE: Names = Names::flags("SPLICE_F_???", &[
    (0x1, "SPLICE_F_MOVE"),
    (0x2, "SPLICE_F_NONBLOCK"),
    (0x4, "SPLICE_F_MORE"),
    (0x8, "SPLICE_F_GIFT"),
]);

/// `CLOSE_RANGE_???`.
#[rustfmt::skip]
pub static CLOSE_RANGE: Names = Names::flags("CLOSE_RANGE_???", &[
    (0x2, "CLOSE_RANGE_UNSHARE"),
    (0x4, "CLOSE_RANGE_CLOEXEC"),
]);

/// `MS_???`.
#[rustfmt::skip]
pub static MOUNT: Names = Names::flags("MS_???", &[
    (0x1, "MS_RDONLY"),
    (0x2, "MS_NOSUID"),
    (0x4, "MS_NODEV"),
    (0x8, "MS_NOEXEC"),
    (0x10, "MS_SYNCHRONOUS"),
    (0x20, "MS_REMOUNT"),
    (0x40, "MS_MANDLOCK"),
    (0x80, "MS_DIRSYNC"),
    (0x100, "MS_NOSYMFOLLOW"),
    (0x400, "MS_NOATIME"),
    (0x800, "MS_NODIRATIME"),
    (0x1000, "MS_BIND"),
    (0x2000, "MS_MOVE"),
    (0x4000, "MS_REC"),
    (0x8000, "MS_SILENT"),
    (0x10000, "MS_POSIXACL"),
    (0x20000, "MS_UNBINDABLE"),
    (0x40000, "MS_PRIVATE"),
    (0x80000, "MS_SLAVE"),
    (0x100000, "MS_SHARED"),
    (0x200000, "MS_RELATIME"),
    (0x400000, "MS_KERNMOUNT"),
    (0x800000, "MS_I_VERSION"),
    (0x1000000, "MS_STRICTATIME"),
    (0x2000000, "MS_LAZYTIME"),
    (0x4000000, "MS_SUBMOUNT"),
    (0x8000000, "MS_NOREMOTELOCK"),
    (0x10000000, "MS_NOSEC"),
    (0x20000000, "MS_BORN"),
    (0x40000000, "MS_ACTIVE"),
    (0x80000000, "MS_NOUSER"),
]);

/// `MNT_???`.
#[rustfmt::skip]
pub static UMOUNT: Names = Names::flags("MNT_???", &[
    (0x1, "MNT_FORCE"),
    (0x2, "MNT_DETACH"),
    (0x4, "MNT_EXPIRE"),
    (0x8, "UMOUNT_NOFOLLOW"),
]);

/// `RWF_???`.
#[rustfmt::skip]
pub static RWF: Names = Names::flags("RWF_???", &[
    (0x1, "RWF_HIPRI"),
    (0x2, "RWF_DSYNC"),
    (0x4, "RWF_SYNC"),
    (0x8, "RWF_NOWAIT"),
    (0x10, "RWF_APPEND"),
]);

/// `FUTEX_???`.
#[rustfmt::skip]
pub static FUTEX: Names = Names::choice("FUTEX_???", &[
    (0x0, "FUTEX_WAIT"),
    (0x1, "FUTEX_WAKE"),
    (0x2, "FUTEX_FD"),
    (0x3, "FUTEX_REQUEUE"),
    (0x4, "FUTEX_CMP_REQUEUE"),
    (0x5, "FUTEX_WAKE_OP"),
    (0x6, "FUTEX_LOCK_PI"),
    (0x7, "FUTEX_UNLOCK_PI"),
    (0x8, "FUTEX_TRYLOCK_PI"),
    (0x9, "FUTEX_WAIT_BITSET"),
    (0xa, "FUTEX_WAKE_BITSET"),
    (0xb, "FUTEX_WAIT_REQUEUE_PI"),
    (0xc, "FUTEX_CMP_REQUEUE_PI"),
    (0xd, "FUTEX_LOCK_PI2"),
    (0x80, "FUTEX_WAIT_PRIVATE"),
    (0x81, "FUTEX_WAKE_PRIVATE"),
    (0x83, "FUTEX_REQUEUE_PRIVATE"),
    (0x84, "FUTEX_CMP_REQUEUE_PRIVATE"),
    (0x85, "FUTEX_WAKE_OP_PRIVATE"),
    (0x86, "FUTEX_LOCK_PI_PRIVATE"),
    (0x87, "FUTEX_UNLOCK_PI_PRIVATE"),
    (0x88, "FUTEX_TRYLOCK_PI_PRIVATE"),
    (0x89, "FUTEX_WAIT_BITSET_PRIVATE"),
    (0x8a, "FUTEX_WAKE_BITSET_PRIVATE"),
    (0x8b, "FUTEX_WAIT_REQUEUE_PI_PRIVATE"),
    (0x8c, "FUTEX_CMP_REQUEUE_PI_PRIVATE"),
    (0x8d, "FUTEX_LOCK_PI2_PRIVATE"),
]);

/// `CLOCK_???`.
#[rustfmt::skip]
pub static CLOCK: Names = Names::choice("CLOCK_???", &[
    (0x0, "CLOCK_REALTIME"),
    (0x1, "CLOCK_MONOTONIC"),
    (0x2, "CLOCK_PROCESS_CPUTIME_ID"),
    (0x3, "CLOCK_THREAD_CPUTIME_ID"),
    (0x4, "CLOCK_MONOTONIC_RAW"),
    (0x5, "CLOCK_REALTIME_COARSE"),
    (0x6, "CLOCK_MONOTONIC_COARSE"),
    (0x7, "CLOCK_BOOTTIME"),
    (0x8, "CLOCK_REALTIME_ALARM"),
    (0x9, "CLOCK_BOOTTIME_ALARM"),
    (0xa, "CLOCK_SGI_CYCLE"),
    (0xb, "CLOCK_TAI"),
]);

/// `TIMER_???`.
#[rustfmt::skip]
pub static TIMER: Names = Names::flags("TIMER_???", &[
    (0x1, "TIMER_ABSTIME"),
]);

/// `ITIMER_???`.
#[rustfmt::skip]
pub static ITIMER: Names = Names::choice("ITIMER_???", &[
    (0x0, "ITIMER_REAL"),
    (0x1, "ITIMER_VIRTUAL"),
    (0x2, "ITIMER_PROF"),
]);

/// `RLIMIT_???`.
#[rustfmt::skip]
pub static RLIMIT: Names = Names::choice("RLIMIT_???", &[
    (0x0, "RLIMIT_CPU"),
    (0x1, "RLIMIT_FSIZE"),
    (0x2, "RLIMIT_DATA"),
    (0x3, "RLIMIT_STACK"),
    (0x4, "RLIMIT_CORE"),
    (0x5, "RLIMIT_RSS"),
    (0x6, "RLIMIT_NPROC"),
    (0x7, "RLIMIT_NOFILE"),
    (0x8, "RLIMIT_MEMLOCK"),
    (0x9, "RLIMIT_AS"),
    (0xa, "RLIMIT_LOCKS"),
    (0xb, "RLIMIT_SIGPENDING"),
    (0xc, "RLIMIT_MSGQUEUE"),
    (0xd, "RLIMIT_NICE"),
    (0xe, "RLIMIT_RTPRIO"),
    (0xf, "RLIMIT_RTTIME"),
]);

/// `RUSAGE_???`.
#[rustfmt::skip]
pub static RUSAGE: Names = Names::choice("RUSAGE_???", &[
    (0x0, "RUSAGE_SELF"),
    (0x1, "RUSAGE_THREAD"),
    (0xfffffffe, "RUSAGE_BOTH"),
    (0xffffffff, "RUSAGE_CHILDREN"),
]);

/// `PRIO_???`.
#[rustfmt::skip]
pub static PRIORITY: Names = Names::choice("PRIO_???", &[
    (0x0, "PRIO_PROCESS"),
    (0x1, "PRIO_PGRP"),
    (0x2, "PRIO_USER"),
]);

/// `SCHED_???`.
#[rustfmt::skip]
pub static SCHED: Names = Names::choice("SCHED_???", &[
    (0x0, "SCHED_OTHER"),
    (0x1, "SCHED_FIFO"),
    (0x2, "SCHED_RR"),
    (0x3, "SCHED_BATCH"),
    (0x5, "SCHED_IDLE"),
    (0x6, "SCHED_DEADLINE"),
]);

/// `POSIX_FADV_???`.
#[rustfmt::skip]
pub static FADVISE: Names = Names::choice("POSIX_FADV_???", &[
    (0x0, "POSIX_FADV_NORMAL"),
    (0x1, "POSIX_FADV_RANDOM"),
    (0x2, "POSIX_FADV_SEQUENTIAL"),
    (0x3, "POSIX_FADV_WILLNEED"),
    (0x4, "POSIX_FADV_DONTNEED"),
    (0x5, "POSIX_FADV_NOREUSE"),
]);

/// `FALLOC_FL_???`.
#[rustfmt::skip]
pub static FALLOCATE: Names = Names::flags("FALLOC_FL_???", &[
    (0x1, "FALLOC_FL_KEEP_SIZE"),
    (0x2, "FALLOC_FL_PUNCH_HOLE"),
    (0x4, "FALLOC_FL_NO_HIDE_STALE"),
    (0x8, "FALLOC_FL_COLLAPSE_RANGE"),
    (0x10, "FALLOC_FL_ZERO_RANGE"),
    (0x20, "FALLOC_FL_INSERT_RANGE"),
    (0x40, "FALLOC_FL_UNSHARE_RANGE"),
]);

/// `PR_???`.
#[rustfmt::skip]
pub static PRCTL: Names = Names::choice("PR_???", &[
    (0x1, "PR_SET_PDEATHSIG"),
    (0x2, "PR_GET_PDEATHSIG"),
    (0x3, "PR_GET_DUMPABLE"),
    (0x4, "PR_SET_DUMPABLE"),
    (0x5, "PR_GET_UNALIGN"),
    (0x6, "PR_SET_UNALIGN"),
    (0x7, "PR_GET_KEEPCAPS"),
    (0x8, "PR_SET_KEEPCAPS"),
    (0x9, "PR_GET_FPEMU"),
    (0xa, "PR_SET_FPEMU"),
    (0xb, "PR_GET_FPEXC"),
    (0xc, "PR_SET_FPEXC"),
    (0xd, "PR_GET_TIMING"),
    (0xe, "PR_SET_TIMING"),
    (0xf, "PR_SET_NAME"),
    (0x10, "PR_GET_NAME"),
    (0x13, "PR_GET_ENDIAN"),
    (0x14, "PR_SET_ENDIAN"),
    (0x15, "PR_GET_SECCOMP"),
    (0x16, "PR_SET_SECCOMP"),
    (0x17, "PR_CAPBSET_READ"),
    (0x18, "PR_CAPBSET_DROP"),
    (0x19, "PR_GET_TSC"),
    (0x1a, "PR_SET_TSC"),
    (0x1b, "PR_GET_SECUREBITS"),
    (0x1c, "PR_SET_SECUREBITS"),
    (0x1d, "PR_SET_TIMERSLACK"),
    (0x1e, "PR_GET_TIMERSLACK"),
    (0x1f, "PR_TASK_PERF_EVENTS_DISABLE"),
    (0x20, "PR_TASK_PERF_EVENTS_ENABLE"),
    (0x21, "PR_MCE_KILL"),
    (0x22, "PR_MCE_KILL_GET"),
    (0x23, "PR_SET_MM"),
    (0x24, "PR_SET_CHILD_SUBREAPER"),
    (0x25, "PR_GET_CHILD_SUBREAPER"),
    (0x26, "PR_SET_NO_NEW_PRIVS"),
    (0x27, "PR_GET_NO_NEW_PRIVS"),
    (0x28, "PR_GET_TID_ADDRESS"),
    (0x29, "PR_SET_THP_DISABLE"),
    (0x2a, "PR_GET_THP_DISABLE"),
    (0x2b, "PR_MPX_ENABLE_MANAGEMENT"),
    (0x2c, "PR_MPX_DISABLE_MANAGEMENT"),
    (0x2d, "PR_SET_FP_MODE"),
    (0x2e, "PR_GET_FP_MODE"),
    (0x2f, "PR_CAP_AMBIENT"),
    (0x32, "PR_SVE_SET_VL"),
    (0x33, "PR_SVE_GET_VL"),
    (0x34, "PR_GET_SPECULATION_CTRL"),
    (0x35, "PR_SET_SPECULATION_CTRL"),
    (0x36, "PR_PAC_RESET_KEYS"),
    (0x37, "PR_SET_TAGGED_ADDR_CTRL"),
    (0x38, "PR_GET_TAGGED_ADDR_CTRL"),
    (0x39, "PR_SET_IO_FLUSHER"),
    (0x3a, "PR_GET_IO_FLUSHER"),
    (0x3b, "PR_SET_SYSCALL_USER_DISPATCH"),
    (0x3c, "PR_PAC_SET_ENABLED_KEYS"),
    (0x3d, "PR_PAC_GET_ENABLED_KEYS"),
    (0x3e, "PR_SCHED_CORE"),
    (0x3f, "PR_SME_SET_VL"),
    (0x40, "PR_SME_GET_VL"),
    (0x53564d41, "PR_SET_VMA"),
    (0x59616d61, "PR_SET_PTRACER"),
]);

/// `SUID_DUMP_???`.
#[rustfmt::skip]
pub static DUMPABLE: Names = Names::choice("SUID_DUMP_???", &[
    (0x0, "SUID_DUMP_DISABLE"),
    (0x1, "SUID_DUMP_USER"),
    (0x2, "SUID_DUMP_ROOT"),
]);

/// `PR_PAC_???`.
#[rustfmt::skip]
pub static PAC_KEYS: Names = Names::flags("PR_PAC_???", &[
    (0x1, "PR_PAC_APIAKEY"),
    (0x2, "PR_PAC_APIBKEY"),
    (0x4, "PR_PAC_APDAKEY"),
    (0x8, "PR_PAC_APDBKEY"),
    (0x10, "PR_PAC_APGAKEY"),
]);

/// `PR_PAC_???`.
#[rustfmt::skip]
pub static PAC_ENABLED: Names = Names::flags("PR_PAC_???", &[
    (0x1, "PR_PAC_APIAKEY"),
    (0x2, "PR_PAC_APIBKEY"),
    (0x4, "PR_PAC_APDAKEY"),
    (0x8, "PR_PAC_APDBKEY"),
]);

/// `PR_SVE_???`.
#[rustfmt::skip]
pub static SVE: Names = Names::flags("PR_SVE_???", &[
    (0x40000, "PR_SVE_SET_VL_ONEXEC"),
    (0x20000, "PR_SVE_VL_INHERIT"),
]);

/// `PR_SME_???`.
#[rustfmt::skip]
pub static SME: Names = Names::flags("PR_SME_???", &[
    (0x40000, "PR_SME_SET_VL_ONEXEC"),
    (0x20000, "PR_SME_VL_INHERIT"),
]);

/// `PR_MTE_TCF_???`.
#[rustfmt::skip]
pub static MTE_TCF: Names = Names::choice("PR_MTE_TCF_???", &[
    (0x0, "PR_MTE_TCF_NONE"),
    (0x2, "PR_MTE_TCF_SYNC"),
    (0x4, "PR_MTE_TCF_ASYNC"),
    (0x6, "PR_MTE_TCF_MASK"),
]);

/// `PR_SCHED_CORE_???`.
#[rustfmt::skip]
pub static SCHED_CORE: Names = Names::choice("PR_SCHED_CORE_???", &[
    (0x0, "PR_SCHED_CORE_GET"),
    (0x1, "PR_SCHED_CORE_CREATE"),
    (0x2, "PR_SCHED_CORE_SHARE_TO"),
    (0x3, "PR_SCHED_CORE_SHARE_FROM"),
]);

/// `PIDTYPE_???`.
#[rustfmt::skip]
pub static PIDTYPE: Names = Names::choice("PIDTYPE_???", &[
    (0x0, "PIDTYPE_PID"),
    (0x1, "PIDTYPE_TGID"),
    (0x2, "PIDTYPE_PGID"),
    (0x3, "PIDTYPE_SID"),
]);

/// `PR_CAP_AMBIENT_???`.
#[rustfmt::skip]
pub static CAP_AMBIENT: Names = Names::choice("PR_CAP_AMBIENT_???", &[
    (0x1, "PR_CAP_AMBIENT_IS_SET"),
    (0x2, "PR_CAP_AMBIENT_RAISE"),
    (0x3, "PR_CAP_AMBIENT_LOWER"),
    (0x4, "PR_CAP_AMBIENT_CLEAR_ALL"),
]);

/// `CAP_???`.
#[rustfmt::skip]
pub static CAPABILITY: Names = Names::choice("CAP_???", &[
    (0x0, "CAP_CHOWN"),
    (0x1, "CAP_DAC_OVERRIDE"),
    (0x2, "CAP_DAC_READ_SEARCH"),
    (0x3, "CAP_FOWNER"),
    (0x4, "CAP_FSETID"),
    (0x5, "CAP_KILL"),
    (0x6, "CAP_SETGID"),
    (0x7, "CAP_SETUID"),
    (0x8, "CAP_SETPCAP"),
    (0x9, "CAP_LINUX_IMMUTABLE"),
    (0xa, "CAP_NET_BIND_SERVICE"),
    (0xb, "CAP_NET_BROADCAST"),
    (0xc, "CAP_NET_ADMIN"),
    (0xd, "CAP_NET_RAW"),
    (0xe, "CAP_IPC_LOCK"),
    (0xf, "CAP_IPC_OWNER"),
    (0x10, "CAP_SYS_MODULE"),
    (0x11, "CAP_SYS_RAWIO"),
    (0x12, "CAP_SYS_CHROOT"),
    (0x13, "CAP_SYS_PTRACE"),
    (0x14, "CAP_SYS_PACCT"),
    (0x15, "CAP_SYS_ADMIN"),
    (0x16, "CAP_SYS_BOOT"),
    (0x17, "CAP_SYS_NICE"),
    (0x18, "CAP_SYS_RESOURCE"),
    (0x19, "CAP_SYS_TIME"),
    (0x1a, "CAP_SYS_TTY_CONFIG"),
    (0x1b, "CAP_MKNOD"),
    (0x1c, "CAP_LEASE"),
    (0x1d, "CAP_AUDIT_WRITE"),
    (0x1e, "CAP_AUDIT_CONTROL"),
    (0x1f, "CAP_SETFCAP"),
    (0x20, "CAP_MAC_OVERRIDE"),
    (0x21, "CAP_MAC_ADMIN"),
    (0x22, "CAP_SYSLOG"),
    (0x23, "CAP_WAKE_ALARM"),
    (0x24, "CAP_BLOCK_SUSPEND"),
    (0x25, "CAP_AUDIT_READ"),
    (0x26, "CAP_PERFMON"),
    (0x27, "CAP_BPF"),
    (0x28, "CAP_CHECKPOINT_RESTORE"),
]);

/// `ARCH_???`.
#[rustfmt::skip]
pub static ARCH_PRCTL: Names = Names::choice("ARCH_???", &[
    (0x1001, "ARCH_SET_GS"),
    (0x1002, "ARCH_SET_FS"),
    (0x1003, "ARCH_GET_FS"),
    (0x1004, "ARCH_GET_GS"),
    (0x1011, "ARCH_GET_CPUID"),
    (0x1012, "ARCH_SET_CPUID"),
    (0x1021, "ARCH_GET_XCOMP_SUPP"),
    (0x1022, "ARCH_GET_XCOMP_PERM"),
    (0x1023, "ARCH_REQ_XCOMP_PERM"),
    (0x1024, "ARCH_GET_XCOMP_GUEST_PERM"),
    (0x1025, "ARCH_REQ_XCOMP_GUEST_PERM"),
    (0x2001, "ARCH_MAP_VDSO_X32"),
    (0x2002, "ARCH_MAP_VDSO_32"),
    (0x2003, "ARCH_MAP_VDSO_64"),
]);

/// `PTRACE_???`.
#[rustfmt::skip]
pub static PTRACE: Names = Names::choice("PTRACE_???", &[
    (0x0, "PTRACE_TRACEME"),
    (0x1, "PTRACE_PEEKTEXT"),
    (0x2, "PTRACE_PEEKDATA"),
    (0x3, "PTRACE_PEEKUSR"),
    (0x4, "PTRACE_POKETEXT"),
    (0x5, "PTRACE_POKEDATA"),
    (0x6, "PTRACE_POKEUSR"),
    (0x7, "PTRACE_CONT"),
    (0x8, "PTRACE_KILL"),
    (0x9, "PTRACE_SINGLESTEP"),
    (0x10, "PTRACE_ATTACH"),
    (0x11, "PTRACE_DETACH"),
    (0x18, "PTRACE_SYSCALL"),
    (0x4200, "PTRACE_SETOPTIONS"),
    (0x4201, "PTRACE_GETEVENTMSG"),
    (0x4202, "PTRACE_GETSIGINFO"),
    (0x4203, "PTRACE_SETSIGINFO"),
    (0x4204, "PTRACE_GETREGSET"),
    (0x4205, "PTRACE_SETREGSET"),
    (0x4206, "PTRACE_SEIZE"),
    (0x4207, "PTRACE_INTERRUPT"),
    (0x4208, "PTRACE_LISTEN"),
]);

/// `SECCOMP_SET_MODE_???`.
#[rustfmt::skip]
pub static SECCOMP: Names = Names::choice("SECCOMP_SET_MODE_???", &[
    (0x0, "SECCOMP_SET_MODE_STRICT"),
    (0x1, "SECCOMP_SET_MODE_FILTER"),
    (0x2, "SECCOMP_GET_ACTION_AVAIL"),
    (0x3, "SECCOMP_GET_NOTIF_SIZES"),
]);

/// `IPC_???`.
#[rustfmt::skip]
pub static IPC: Names = Names::flags("IPC_???", &[
    (0x200, "IPC_CREAT"),
    (0x400, "IPC_EXCL"),
    (0x800, "IPC_NOWAIT"),
]);

/// `SHM_???`.
#[rustfmt::skip]
pub static SHMAT: Names = Names::flags("SHM_???", &[
    (0x1000, "SHM_RDONLY"),
    (0x2000, "SHM_RND"),
    (0x4000, "SHM_REMAP"),
    (0x8000, "SHM_EXEC"),
]);

/// `IPC_???`.
#[rustfmt::skip]
pub static IPC_CMD: Names = Names::choice("IPC_???", &[
    (0x0, "IPC_RMID"),
    (0x1, "IPC_SET"),
    (0x2, "IPC_STAT"),
]);

/// `???`.
#[rustfmt::skip]
pub static FSMAGIC: Names = Names::choice("???", &[
    (0x1cd1, "DEVPTS_SUPER_MAGIC"),
    (0x4d44, "MSDOS_SUPER_MAGIC"),
    (0x6969, "NFS_SUPER_MAGIC"),
    (0x9660, "ISOFS_SUPER_MAGIC"),
    (0x9fa0, "PROC_SUPER_MAGIC"),
    (0xef53, "EXT2_SUPER_MAGIC"),
    (0x27e0eb, "CGROUP_SUPER_MAGIC"),
    (0x1021994, "TMPFS_MAGIC"),
    (0x9041934, "ANON_INODE_FS_MAGIC"),
    (0x2011bab0, "EXFAT_SUPER_MAGIC"),
    (0x50495045, "PIPEFS_MAGIC"),
    (0x58465342, "XFS_SUPER_MAGIC"),
    (0x62656572, "SYSFS_MAGIC"),
    (0x63677270, "CGROUP2_SUPER_MAGIC"),
    (0x64626720, "DEBUGFS_MAGIC"),
    (0x73636673, "SECURITYFS_MAGIC"),
    (0x73717368, "SQUASHFS_MAGIC"),
    (0x74726163, "TRACEFS_MAGIC"),
    (0x794c7630, "OVERLAYFS_SUPER_MAGIC"),
    (0x858458f6, "RAMFS_MAGIC"),
    (0x9123683e, "BTRFS_SUPER_MAGIC"),
    (0x958458f6, "HUGETLBFS_MAGIC"),
    (0xcafe4a11, "BPF_FS_MAGIC"),
    (0xf2f52010, "F2FS_SUPER_MAGIC"),
    (0xf97cff8c, "SELINUX_MAGIC"),
]);

/// `ST_???`.
#[rustfmt::skip]
pub static ST: Names = Names::flags("ST_???", &[
    (0x20, "ST_VALID"),
    (0x1, "ST_RDONLY"),
    (0x2, "ST_NOSUID"),
    (0x4, "ST_NODEV"),
    (0x8, "ST_NOEXEC"),
    (0x10, "ST_SYNCHRONOUS"),
    (0x40, "ST_MANDLOCK"),
    (0x400, "ST_NOATIME"),
    (0x800, "ST_NODIRATIME"),
    (0x1000, "ST_RELATIME"),
]);

/// `XATTR_???`.
#[rustfmt::skip]
pub static XATTR: Names = Names::flags("XATTR_???", &[
    (0x1, "XATTR_CREATE"),
    (0x2, "XATTR_REPLACE"),
]);

/// `DT_???`.
#[rustfmt::skip]
pub static DT: Names = Names::choice("DT_???", &[
    (0x0, "DT_UNKNOWN"),
    (0x1, "DT_FIFO"),
    (0x2, "DT_CHR"),
    (0x4, "DT_DIR"),
    (0x6, "DT_BLK"),
    (0x8, "DT_REG"),
    (0xa, "DT_LNK"),
    (0xc, "DT_SOCK"),
    (0xe, "DT_WHT"),
]);

/// `_LINUX_CAPABILITY_VERSION_???`.
#[rustfmt::skip]
pub static CAPVERSION: Names = Names::choice("_LINUX_CAPABILITY_VERSION_???", &[
    (0x19980330, "_LINUX_CAPABILITY_VERSION_1"),
    (0x20071026, "_LINUX_CAPABILITY_VERSION_2"),
    (0x20080522, "_LINUX_CAPABILITY_VERSION_3"),
]);

/// `RSEQ_FLAG_???`.
#[rustfmt::skip]
pub static RSEQ: Names = Names::flags("RSEQ_FLAG_???", &[
    (0x1, "RSEQ_FLAG_UNREGISTER"),
]);

/// `PIDFD_???`.
#[rustfmt::skip]
pub static PIDFD: Names = Names::flags("PIDFD_???", &[
    (0x800, "PIDFD_NONBLOCK"),
]);

/// `MEMBARRIER_CMD_???`.
#[rustfmt::skip]
pub static MEMBARRIER: Names = Names::choice("MEMBARRIER_CMD_???", &[
    (0x0, "MEMBARRIER_CMD_QUERY"),
    (0x1, "MEMBARRIER_CMD_GLOBAL"),
    (0x2, "MEMBARRIER_CMD_GLOBAL_EXPEDITED"),
    (0x4, "MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED"),
    (0x8, "MEMBARRIER_CMD_PRIVATE_EXPEDITED"),
    (0x10, "MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED"),
    (0x20, "MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE"),
    (0x40, "MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE"),
]);

/// `SIGEV_???`.
#[rustfmt::skip]
pub static SIGEV: Names = Names::choice("SIGEV_???", &[
    (0x0, "SIGEV_SIGNAL"),
    (0x1, "SIGEV_NONE"),
    (0x2, "SIGEV_THREAD"),
    (0x4, "SIGEV_THREAD_ID"),
]);

/// `MPOL_???`.
#[rustfmt::skip]
pub static MPOL: Names = Names::choice("MPOL_???", &[
    (0x0, "MPOL_DEFAULT"),
    (0x1, "MPOL_PREFERRED"),
    (0x2, "MPOL_BIND"),
    (0x3, "MPOL_INTERLEAVE"),
    (0x4, "MPOL_LOCAL"),
    (0x5, "MPOL_PREFERRED_MANY"),
]);

/// `MPOL_???`.
#[rustfmt::skip]
pub static MPOL_MODE_FLAGS: Names = Names::flags("MPOL_???", &[
    (0x8000, "MPOL_F_STATIC_NODES"),
    (0x4000, "MPOL_F_RELATIVE_NODES"),
    (0x2000, "MPOL_F_NUMA_BALANCING"),
]);

/// `MPOL_???`.
#[rustfmt::skip]
pub static MPOL_MF: Names = Names::flags("MPOL_???", &[
    (0x1, "MPOL_MF_STRICT"),
    (0x2, "MPOL_MF_MOVE"),
    (0x4, "MPOL_MF_MOVE_ALL"),
]);

/// `IOPRIO_CLASS_???`.
#[rustfmt::skip]
pub static IOPRIO_CLASS: Names = Names::choice("IOPRIO_CLASS_???", &[
    (0x0, "IOPRIO_CLASS_NONE"),
    (0x1, "IOPRIO_CLASS_RT"),
    (0x2, "IOPRIO_CLASS_BE"),
    (0x3, "IOPRIO_CLASS_IDLE"),
]);

/// `MPOL_???`.
#[rustfmt::skip]
pub static MPOL_FLAGS: Names = Names::flags("MPOL_???", &[
    (0x1, "MPOL_F_NODE"),
    (0x2, "MPOL_F_ADDR"),
    (0x4, "MPOL_F_MEMS_ALLOWED"),
]);

/// `KCMP_???`.
#[rustfmt::skip]
pub static KCMP: Names = Names::choice("KCMP_???", &[
    (0x0, "KCMP_FILE"),
    (0x1, "KCMP_VM"),
    (0x2, "KCMP_FILES"),
    (0x3, "KCMP_FS"),
    (0x4, "KCMP_SIGHAND"),
    (0x5, "KCMP_IO"),
    (0x6, "KCMP_SYSVSEM"),
    (0x7, "KCMP_EPOLL_TFD"),
]);

/// `IOPRIO_WHO_???`.
#[rustfmt::skip]
pub static IOPRIO_WHO: Names = Names::choice("IOPRIO_WHO_???", &[
    (0x1, "IOPRIO_WHO_PROCESS"),
    (0x2, "IOPRIO_WHO_PGRP"),
    (0x3, "IOPRIO_WHO_USER"),
]);

/// `B???`.
#[rustfmt::skip]
pub static BAUD: Names = Names::choice("B???", &[
    (0x0, "B0"),
    (0x1, "B50"),
    (0x2, "B75"),
    (0x3, "B110"),
    (0x4, "B134"),
    (0x5, "B150"),
    (0x6, "B200"),
    (0x7, "B300"),
    (0x8, "B600"),
    (0x9, "B1200"),
    (0xa, "B1800"),
    (0xb, "B2400"),
    (0xc, "B4800"),
    (0xd, "B9600"),
    (0xe, "B19200"),
    (0xf, "B38400"),
    (0x1001, "B57600"),
    (0x1002, "B115200"),
    (0x1003, "B230400"),
    (0x1004, "B460800"),
    (0x1005, "B500000"),
    (0x1006, "B576000"),
    (0x1007, "B921600"),
    (0x1008, "B1000000"),
    (0x1009, "B1152000"),
    (0x100a, "B1500000"),
    (0x100b, "B2000000"),
    (0x100c, "B2500000"),
    (0x100d, "B3000000"),
    (0x100e, "B3500000"),
    (0x100f, "B4000000"),
]);

/// `E???`.
#[rustfmt::skip]
pub static ERRNO: Names = Names::choice("E???", &[
    (0x1, "EPERM"),
    (0x2, "ENOENT"),
    (0x3, "ESRCH"),
    (0x4, "EINTR"),
    (0x5, "EIO"),
    (0x6, "ENXIO"),
    (0x7, "E2BIG"),
    (0x8, "ENOEXEC"),
    (0x9, "EBADF"),
    (0xa, "ECHILD"),
    (0xb, "EAGAIN"),
    (0xc, "ENOMEM"),
    (0xd, "EACCES"),
    (0xe, "EFAULT"),
    (0xf, "ENOTBLK"),
    (0x10, "EBUSY"),
    (0x11, "EEXIST"),
    (0x12, "EXDEV"),
    (0x13, "ENODEV"),
    (0x14, "ENOTDIR"),
    (0x15, "EISDIR"),
    (0x16, "EINVAL"),
    (0x17, "ENFILE"),
    (0x18, "EMFILE"),
    (0x19, "ENOTTY"),
    (0x1a, "ETXTBSY"),
    (0x1b, "EFBIG"),
    (0x1c, "ENOSPC"),
    (0x1d, "ESPIPE"),
    (0x1e, "EROFS"),
    (0x1f, "EMLINK"),
    (0x20, "EPIPE"),
    (0x21, "EDOM"),
    (0x22, "ERANGE"),
    (0x23, "EDEADLK"),
    (0x24, "ENAMETOOLONG"),
    (0x25, "ENOLCK"),
    (0x26, "ENOSYS"),
    (0x27, "ENOTEMPTY"),
    (0x28, "ELOOP"),
    (0x2a, "ENOMSG"),
    (0x2b, "EIDRM"),
    (0x2c, "ECHRNG"),
    (0x2d, "EL2NSYNC"),
    (0x2e, "EL3HLT"),
    (0x2f, "EL3RST"),
    (0x30, "ELNRNG"),
    (0x31, "EUNATCH"),
    (0x32, "ENOCSI"),
    (0x33, "EL2HLT"),
    (0x34, "EBADE"),
    (0x35, "EBADR"),
    (0x36, "EXFULL"),
    (0x37, "ENOANO"),
    (0x38, "EBADRQC"),
    (0x39, "EBADSLT"),
    (0x3b, "EBFONT"),
    (0x3c, "ENOSTR"),
    (0x3d, "ENODATA"),
    (0x3e, "ETIME"),
    (0x3f, "ENOSR"),
    (0x40, "ENONET"),
    (0x41, "ENOPKG"),
    (0x42, "EREMOTE"),
    (0x43, "ENOLINK"),
    (0x44, "EADV"),
    (0x45, "ESRMNT"),
    (0x46, "ECOMM"),
    (0x47, "EPROTO"),
    (0x48, "EMULTIHOP"),
    (0x49, "EDOTDOT"),
    (0x4a, "EBADMSG"),
    (0x4b, "EOVERFLOW"),
    (0x4c, "ENOTUNIQ"),
    (0x4d, "EBADFD"),
    (0x4e, "EREMCHG"),
    (0x4f, "ELIBACC"),
    (0x50, "ELIBBAD"),
    (0x51, "ELIBSCN"),
    (0x52, "ELIBMAX"),
    (0x53, "ELIBEXEC"),
    (0x54, "EILSEQ"),
    (0x55, "ERESTART"),
    (0x56, "ESTRPIPE"),
    (0x57, "EUSERS"),
    (0x58, "ENOTSOCK"),
    (0x59, "EDESTADDRREQ"),
    (0x5a, "EMSGSIZE"),
    (0x5b, "EPROTOTYPE"),
    (0x5c, "ENOPROTOOPT"),
    (0x5d, "EPROTONOSUPPORT"),
    (0x5e, "ESOCKTNOSUPPORT"),
    (0x5f, "EOPNOTSUPP"),
    (0x60, "EPFNOSUPPORT"),
    (0x61, "EAFNOSUPPORT"),
    (0x62, "EADDRINUSE"),
    (0x63, "EADDRNOTAVAIL"),
    (0x64, "ENETDOWN"),
    (0x65, "ENETUNREACH"),
    (0x66, "ENETRESET"),
    (0x67, "ECONNABORTED"),
    (0x68, "ECONNRESET"),
    (0x69, "ENOBUFS"),
    (0x6a, "EISCONN"),
    (0x6b, "ENOTCONN"),
    (0x6c, "ESHUTDOWN"),
    (0x6d, "ETOOMANYREFS"),
    (0x6e, "ETIMEDOUT"),
    (0x6f, "ECONNREFUSED"),
    (0x70, "EHOSTDOWN"),
    (0x71, "EHOSTUNREACH"),
    (0x72, "EALREADY"),
    (0x73, "EINPROGRESS"),
    (0x74, "ESTALE"),
    (0x75, "EUCLEAN"),
    (0x76, "ENOTNAM"),
    (0x77, "ENAVAIL"),
    (0x78, "EISNAM"),
    (0x79, "EREMOTEIO"),
    (0x7a, "EDQUOT"),
    (0x7b, "ENOMEDIUM"),
    (0x7c, "EMEDIUMTYPE"),
    (0x7d, "ECANCELED"),
    (0x7e, "ENOKEY"),
    (0x7f, "EKEYEXPIRED"),
    (0x80, "EKEYREVOKED"),
    (0x81, "EKEYREJECTED"),
    (0x82, "EOWNERDEAD"),
    (0x83, "ENOTRECOVERABLE"),
    (0x84, "ERFKILL"),
    (0x85, "EHWPOISON"),
]);

/// What strerror says of each.
#[rustfmt::skip]
pub static ERRNO_TEXTS: &[(u64, &str)] = &[
    (1, "Operation not permitted"),
    (2, "No such file or directory"),
    (3, "No such process"),
    (4, "Interrupted system call"),
    (5, "Input/output error"),
    (6, "No such device or address"),
    (7, "Argument list too long"),
    (8, "Exec format error"),
    (9, "Bad file descriptor"),
    (10, "No child processes"),
    (11, "Resource temporarily unavailable"),
    (12, "Cannot allocate memory"),
    (13, "Permission denied"),
    (14, "Bad address"),
    (15, "Block device required"),
    (16, "Device or resource busy"),
    (17, "File exists"),
    (18, "Invalid cross-device link"),
    (19, "No such device"),
    (20, "Not a directory"),
    (21, "Is a directory"),
    (22, "Invalid argument"),
    (23, "Too many open files in system"),
    (24, "Too many open files"),
    (25, "Inappropriate ioctl for device"),
    (26, "Text file busy"),
    (27, "File too large"),
    (28, "No space left on device"),
    (29, "Illegal seek"),
    (30, "Read-only file system"),
    (31, "Too many links"),
    (32, "Broken pipe"),
    (33, "Numerical argument out of domain"),
    (34, "Numerical result out of range"),
    (35, "Resource deadlock avoided"),
    (36, "File name too long"),
    (37, "No locks available"),
    (38, "Function not implemented"),
    (39, "Directory not empty"),
    (40, "Too many levels of symbolic links"),
    (42, "No message of desired type"),
    (43, "Identifier removed"),
    (44, "Channel number out of range"),
    (45, "Level 2 not synchronized"),
    (46, "Level 3 halted"),
    (47, "Level 3 reset"),
    (48, "Link number out of range"),
    (49, "Protocol driver not attached"),
    (50, "No CSI structure available"),
    (51, "Level 2 halted"),
    (52, "Invalid exchange"),
    (53, "Invalid request descriptor"),
    (54, "Exchange full"),
    (55, "No anode"),
    (56, "Invalid request code"),
    (57, "Invalid slot"),
    (59, "Bad font file format"),
    (60, "Device not a stream"),
    (61, "No data available"),
    (62, "Timer expired"),
    (63, "Out of streams resources"),
    (64, "Machine is not on the network"),
    (65, "Package not installed"),
    (66, "Object is remote"),
    (67, "Link has been severed"),
    (68, "Advertise error"),
    (69, "Srmount error"),
    (70, "Communication error on send"),
    (71, "Protocol error"),
    (72, "Multihop attempted"),
    (73, "RFS specific error"),
    (74, "Bad message"),
    (75, "Value too large for defined data type"),
    (76, "Name not unique on network"),
    (77, "File descriptor in bad state"),
    (78, "Remote address changed"),
    (79, "Can not access a needed shared library"),
    (80, "Accessing a corrupted shared library"),
    (81, ".lib section in a.out corrupted"),
    (82, "Attempting to link in too many shared libraries"),
    (83, "Cannot exec a shared library directly"),
    (84, "Invalid or incomplete multibyte or wide character"),
    (85, "Interrupted system call should be restarted"),
    (86, "Streams pipe error"),
    (87, "Too many users"),
    (88, "Socket operation on non-socket"),
    (89, "Destination address required"),
    (90, "Message too long"),
    (91, "Protocol wrong type for socket"),
    (92, "Protocol not available"),
    (93, "Protocol not supported"),
    (94, "Socket type not supported"),
    (95, "Operation not supported"),
    (96, "Protocol family not supported"),
    (97, "Address family not supported by protocol"),
    (98, "Address already in use"),
    (99, "Cannot assign requested address"),
    (100, "Network is down"),
    (101, "Network is unreachable"),
    (102, "Network dropped connection on reset"),
    (103, "Software caused connection abort"),
    (104, "Connection reset by peer"),
    (105, "No buffer space available"),
    (106, "Transport endpoint is already connected"),
    (107, "Transport endpoint is not connected"),
    (108, "Cannot send after transport endpoint shutdown"),
    (109, "Too many references: cannot splice"),
    (110, "Connection timed out"),
    (111, "Connection refused"),
    (112, "Host is down"),
    (113, "No route to host"),
    (114, "Operation already in progress"),
    (115, "Operation now in progress"),
    (116, "Stale file handle"),
    (117, "Structure needs cleaning"),
    (118, "Not a XENIX named type file"),
    (119, "No XENIX semaphores available"),
    (120, "Is a named type file"),
    (121, "Remote I/O error"),
    (122, "Disk quota exceeded"),
    (123, "No medium found"),
    (124, "Wrong medium type"),
    (125, "Operation canceled"),
    (126, "Required key not available"),
    (127, "Key has expired"),
    (128, "Key has been revoked"),
    (129, "Key was rejected by service"),
    (130, "Owner died"),
    (131, "State not recoverable"),
    (132, "Operation not possible due to RF-kill"),
    (133, "Memory page has hardware error"),
];

/// `_IOC`.
#[rustfmt::skip]
pub static IOCTL: Names = Names::choice("_IOC", &[
    (0x0, "TCIFLUSH"),
    (0x0, "TCOOFF"),
    (0x0, "TCSANOW"),
    (0x0, "TIOCPKT_DATA"),
    (0x0, "RTC_BSM_DISABLED"),
    (0x0, "RTC_FEATURE_ALARM"),
    (0x0, "RTC_PARAM_FEATURES"),
    (0x0, "KD_FONT_OP_SET"),
    (0x0, "KD_TEXT"),
    (0x0, "VT_AUTO"),
    (0x1, "TCOFLUSH"),
    (0x1, "TCOON"),
    (0x1, "TCSADRAIN"),
    (0x1, "TIOCPKT_FLUSHREAD"),
    (0x1, "TIOCSER_TEMT"),
    (0x1, "FIBMAP"),
    (0x1, "RTC_BSM_DIRECT"),
    (0x1, "RTC_FEATURE_ALARM_RES_MINUTE"),
    (0x1, "RTC_PARAM_CORRECTION"),
    (0x1, "TUN_FLT_ALLMULTI"),
    (0x1, "TUN_F_CSUM"),
    (0x1, "TUN_PKT_STRIP"),
    (0x1, "TUN_TX_TIMESTAMP"),
    (0x1, "KD_FONT_FLAG_DONT_RECALC"),
    (0x1, "KD_FONT_OP_GET"),
    (0x1, "KD_GRAPHICS"),
    (0x1, "VT_EVENT_SWITCH"),
    (0x1, "VT_PROCESS"),
    (0x2, "TCIOFF"),
    (0x2, "TCIOFLUSH"),
    (0x2, "TCSAFLUSH"),
    (0x2, "TIOCPKT_FLUSHWRITE"),
    (0x2, "FIGETBSZ"),
    (0x2, "RTC_BSM_LEVEL"),
    (0x2, "RTC_FEATURE_NEED_WEEK_DAY"),
    (0x2, "RTC_PARAM_BACKUP_SWITCH_MODE"),
    (0x2, "TUN_F_TSO4"),
    (0x2, "KD_FONT_OP_SET_DEFAULT"),
    (0x2, "KD_TEXT0"),
    (0x2, "VT_ACKACQ"),
    (0x2, "VT_EVENT_BLANK"),
    (0x3, "TCION"),
    (0x3, "RTC_BSM_STANDBY"),
    (0x3, "RTC_FEATURE_ALARM_RES_2S"),
    (0x3, "KD_FONT_OP_COPY"),
    (0x3, "KD_TEXT1"),
    (0x4, "TIOCPKT_STOP"),
    (0x4, "RTC_FEATURE_UPDATE_INTERRUPT"),
    (0x4, "TUN_F_TSO6"),
    (0x4, "VT_EVENT_UNBLANK"),
    (0x5, "RTC_FEATURE_CORRECTION"),
    (0x6, "RTC_FEATURE_BACKUP_SWITCH_MODE"),
    (0x7, "BLK_IO_TRACE_VERSION"),
    (0x7, "RTC_FEATURE_ALARM_WAKEUP_ONLY"),
    (0x8, "TIOCPKT_START"),
    (0x8, "RTC_FEATURE_CNT"),
    (0x8, "TUN_F_TSO_ECN"),
    (0x8, "VT_EVENT_RESIZE"),
    (0xf, "TUN_TYPE_MASK"),
    (0xf, "VT_MAX_EVENT"),
    (0x10, "TIOCPKT_NOSTOP"),
    (0x10, "BLK_TC_SHIFT"),
    (0x10, "RTC_UF"),
    (0x10, "TUN_F_UFO"),
    (0x20, "TIOCPKT_DOSTOP"),
    (0x20, "BLKTRACE_BDEV_SIZE"),
    (0x20, "RTC_AF"),
    (0x40, "TIOCPKT_IOCTL"),
    (0x40, "RTC_PF"),
    (0x80, "RTC_IRQF"),
    (0x1f4, "TUN_READQ_SIZE"),
    (0x125d, "BLKROSET"),
    (0x125e, "BLKROGET"),
    (0x125f, "BLKRRPART"),
    (0x1260, "BLKGETSIZE"),
    (0x1261, "BLKFLSBUF"),
    (0x1262, "BLKRASET"),
    (0x1263, "BLKRAGET"),
    (0x1264, "BLKFRASET"),
    (0x1265, "BLKFRAGET"),
    (0x1266, "BLKSECTSET"),
    (0x1267, "BLKSECTGET"),
    (0x1268, "BLKSSZGET"),
    (0x1274, "BLKTRACESTART"),
    (0x1275, "BLKTRACESTOP"),
    (0x1276, "BLKTRACETEARDOWN"),
    (0x1277, "BLKDISCARD"),
    (0x1278, "BLKIOMIN"),
    (0x1279, "BLKIOOPT"),
    (0x127a, "BLKALIGNOFF"),
    (0x127b, "BLKPBSZGET"),
    (0x127c, "BLKDISCARDZEROES"),
    (0x127d, "BLKSECDISCARD"),
    (0x127e, "BLKROTATIONAL"),
    (0x127f, "BLKZEROOUT"),
    (0x2000, "RTC_MAX_FREQ"),
    (0x4b30, "KDMKTONE"),
    (0x4b31, "KDGETLED"),
    (0x4b32, "KDSETLED"),
    (0x4b33, "KDGKBTYPE"),
    (0x4b34, "KDADDIO"),
    (0x4b35, "KDDELIO"),
    (0x4b36, "KDENABIO"),
    (0x4b37, "KDDISABIO"),
    (0x4b3a, "KDSETMODE"),
    (0x4b3b, "KDGETMODE"),
    (0x4b3c, "KDMAPDISP"),
    (0x4b3d, "KDUNMAPDISP"),
    (0x4b44, "KDGKBMODE"),
    (0x4b45, "KDSKBMODE"),
    (0x4b46, "KDGKBENT"),
    (0x4b47, "KDSKBENT"),
    (0x4b48, "KDGKBSENT"),
    (0x4b49, "KDSKBSENT"),
    (0x4b4a, "KDGKBDIACR"),
    (0x4b4b, "KDSKBDIACR"),
    (0x4b4c, "KDGETKEYCODE"),
    (0x4b4d, "KDSETKEYCODE"),
    (0x4b4e, "KDSIGACCEPT"),
    (0x4b52, "KDKBDREP"),
    (0x4b62, "KDGKBMETA"),
    (0x4b63, "KDSKBMETA"),
    (0x4b64, "KDGKBLED"),
    (0x4b65, "KDSKBLED"),
    (0x4b72, "KDFONTOP"),
    (0x4bfa, "KDGKBDIACRUC"),
    (0x4bfb, "KDSKBDIACRUC"),
    (0x4c00, "LOOP_SET_FD"),
    (0x4c01, "LOOP_CLR_FD"),
    (0x4c02, "LOOP_SET_STATUS"),
    (0x4c03, "LOOP_GET_STATUS"),
    (0x4c04, "LOOP_SET_STATUS64"),
    (0x4c05, "LOOP_GET_STATUS64"),
    (0x4c06, "LOOP_CHANGE_FD"),
    (0x4c07, "LOOP_SET_CAPACITY"),
    (0x4c08, "LOOP_SET_DIRECT_IO"),
    (0x4c09, "LOOP_SET_BLOCK_SIZE"),
    (0x4c0a, "LOOP_CONFIGURE"),
    (0x4c80, "LOOP_CTL_ADD"),
    (0x4c81, "LOOP_CTL_REMOVE"),
    (0x4c82, "LOOP_CTL_GET_FREE"),
    (0x5204, "RNDZAPENTCNT"),
    (0x5206, "RNDCLEARPOOL"),
    (0x5207, "RNDRESEEDCRNG"),
    (0x5401, "TCGETS"),
    (0x5402, "TCSETS"),
    (0x5403, "TCSETSW"),
    (0x5404, "TCSETSF"),
    (0x5405, "TCGETA"),
    (0x5406, "TCSETA"),
    (0x5407, "TCSETAW"),
    (0x5408, "TCSETAF"),
    (0x5409, "TCSBRK"),
    (0x540a, "TCXONC"),
    (0x540b, "TCFLSH"),
    (0x540c, "TIOCEXCL"),
    (0x540d, "TIOCNXCL"),
    (0x540e, "TIOCSCTTY"),
    (0x540f, "TIOCGPGRP"),
    (0x5410, "TIOCSPGRP"),
    (0x5411, "TIOCOUTQ"),
    (0x5412, "TIOCSTI"),
    (0x5413, "TIOCGWINSZ"),
    (0x5414, "TIOCSWINSZ"),
    (0x5415, "TIOCMGET"),
    (0x5416, "TIOCMBIS"),
    (0x5417, "TIOCMBIC"),
    (0x5418, "TIOCMSET"),
    (0x5419, "TIOCGSOFTCAR"),
    (0x541a, "TIOCSSOFTCAR"),
    (0x541b, "FIONREAD"),
    (0x541c, "TIOCLINUX"),
    (0x541d, "TIOCCONS"),
    (0x541e, "TIOCGSERIAL"),
    (0x541f, "TIOCSSERIAL"),
    (0x5420, "TIOCPKT"),
    (0x5421, "FIONBIO"),
    (0x5422, "TIOCNOTTY"),
    (0x5423, "TIOCSETD"),
    (0x5424, "TIOCGETD"),
    (0x5425, "TCSBRKP"),
    (0x5427, "TIOCSBRK"),
    (0x5428, "TIOCCBRK"),
    (0x5429, "TIOCGSID"),
    (0x542e, "TIOCGRS485"),
    (0x542f, "TIOCSRS485"),
    (0x5432, "TCGETX"),
    (0x5433, "TCSETX"),
    (0x5434, "TCSETXF"),
    (0x5435, "TCSETXW"),
    (0x5437, "TIOCVHANGUP"),
    (0x5441, "TIOCGPTPEER"),
    (0x5450, "FIONCLEX"),
    (0x5451, "FIOCLEX"),
    (0x5452, "FIOASYNC"),
    (0x5453, "TIOCSERCONFIG"),
    (0x5454, "TIOCSERGWILD"),
    (0x5455, "TIOCSERSWILD"),
    (0x5456, "TIOCGLCKTRMIOS"),
    (0x5457, "TIOCSLCKTRMIOS"),
    (0x5458, "TIOCSERGSTRUCT"),
    (0x5459, "TIOCSERGETLSR"),
    (0x545a, "TIOCSERGETMULTI"),
    (0x545b, "TIOCSERSETMULTI"),
    (0x545c, "TIOCMIWAIT"),
    (0x545d, "TIOCGICOUNT"),
    (0x5460, "FIOQSIZE"),
    (0x54e3, "TUNGETDEVNETNS"),
    (0x5600, "VT_OPENQRY"),
    (0x5601, "VT_GETMODE"),
    (0x5602, "VT_SETMODE"),
    (0x5603, "VT_GETSTATE"),
    (0x5604, "VT_SENDSIG"),
    (0x5605, "VT_RELDISP"),
    (0x5606, "VT_ACTIVATE"),
    (0x5607, "VT_WAITACTIVE"),
    (0x5608, "VT_DISALLOCATE"),
    (0x5609, "VT_RESIZE"),
    (0x560a, "VT_RESIZEX"),
    (0x560b, "VT_LOCKSWITCH"),
    (0x560c, "VT_UNLOCKSWITCH"),
    (0x560d, "VT_GETHIFONTMASK"),
    (0x560e, "VT_WAITEVENT"),
    (0x560f, "VT_SETACTIVATE"),
    (0x7001, "RTC_AIE_ON"),
    (0x7002, "RTC_AIE_OFF"),
    (0x7003, "RTC_UIE_ON"),
    (0x7004, "RTC_UIE_OFF"),
    (0x7005, "RTC_PIE_ON"),
    (0x7006, "RTC_PIE_OFF"),
    (0x700f, "RTC_WIE_ON"),
    (0x7010, "RTC_WIE_OFF"),
    (0x7014, "RTC_VL_CLR"),
    (0x8901, "FIOSETOWN"),
    (0x8902, "SIOCSPGRP"),
    (0x8903, "FIOGETOWN"),
    (0x8904, "SIOCGPGRP"),
    (0x8905, "SIOCATMARK"),
    (0x8906, "SIOCGSTAMP_OLD"),
    (0x8907, "SIOCGSTAMPNS_OLD"),
    (0x890b, "SIOCADDRT"),
    (0x890c, "SIOCDELRT"),
    (0x890d, "SIOCRTMSG"),
    (0x8910, "SIOCGIFNAME"),
    (0x8911, "SIOCSIFLINK"),
    (0x8912, "SIOCGIFCONF"),
    (0x8913, "SIOCGIFFLAGS"),
    (0x8914, "SIOCSIFFLAGS"),
    (0x8915, "SIOCGIFADDR"),
    (0x8916, "SIOCSIFADDR"),
    (0x8917, "SIOCGIFDSTADDR"),
    (0x8918, "SIOCSIFDSTADDR"),
    (0x8919, "SIOCGIFBRDADDR"),
    (0x891a, "SIOCSIFBRDADDR"),
    (0x891b, "SIOCGIFNETMASK"),
    (0x891c, "SIOCSIFNETMASK"),
    (0x891d, "SIOCGIFMETRIC"),
    (0x891e, "SIOCSIFMETRIC"),
    (0x891f, "SIOCGIFMEM"),
    (0x8920, "SIOCSIFMEM"),
    (0x8921, "SIOCGIFMTU"),
    (0x8922, "SIOCSIFMTU"),
    (0x8923, "SIOCSIFNAME"),
    (0x8924, "SIOCSIFHWADDR"),
    (0x8925, "SIOCGIFENCAP"),
    (0x8926, "SIOCSIFENCAP"),
    (0x8927, "SIOCGIFHWADDR"),
    (0x8929, "SIOCGIFSLAVE"),
    (0x8930, "SIOCSIFSLAVE"),
    (0x8931, "SIOCADDMULTI"),
    (0x8932, "SIOCDELMULTI"),
    (0x8933, "SIOCGIFINDEX"),
    (0x8934, "SIOCSIFPFLAGS"),
    (0x8935, "SIOCGIFPFLAGS"),
    (0x8936, "SIOCDIFADDR"),
    (0x8937, "SIOCSIFHWBROADCAST"),
    (0x8938, "SIOCGIFCOUNT"),
    (0x8940, "SIOCGIFBR"),
    (0x8941, "SIOCSIFBR"),
    (0x8942, "SIOCGIFTXQLEN"),
    (0x8943, "SIOCSIFTXQLEN"),
    (0x8946, "SIOCETHTOOL"),
    (0x8947, "SIOCGMIIPHY"),
    (0x8948, "SIOCGMIIREG"),
    (0x8949, "SIOCSMIIREG"),
    (0x894a, "SIOCWANDEV"),
    (0x894b, "SIOCOUTQNSD"),
    (0x894c, "SIOCGSKNS"),
    (0x8953, "SIOCDARP"),
    (0x8954, "SIOCGARP"),
    (0x8955, "SIOCSARP"),
    (0x8960, "SIOCDRARP"),
    (0x8961, "SIOCGRARP"),
    (0x8962, "SIOCSRARP"),
    (0x8970, "SIOCGIFMAP"),
    (0x8971, "SIOCSIFMAP"),
    (0x8980, "SIOCADDDLCI"),
    (0x8981, "SIOCDELDLCI"),
    (0x8982, "SIOCGIFVLAN"),
    (0x8983, "SIOCSIFVLAN"),
    (0x8990, "SIOCBONDENSLAVE"),
    (0x8991, "SIOCBONDRELEASE"),
    (0x8992, "SIOCBONDSETHWADDR"),
    (0x8993, "SIOCBONDSLAVEINFOQUERY"),
    (0x8994, "SIOCBONDINFOQUERY"),
    (0x8995, "SIOCBONDCHANGEACTIVE"),
    (0x89a0, "SIOCBRADDBR"),
    (0x89a1, "SIOCBRDELBR"),
    (0x89a2, "SIOCBRADDIF"),
    (0x89a3, "SIOCBRDELIF"),
    (0x89b0, "SIOCSHWTSTAMP"),
    (0x89b1, "SIOCGHWTSTAMP"),
    (0x89e0, "SIOCPROTOPRIVATE"),
    (0x89f0, "SIOCDEVPRIVATE"),
    (0x9406, "BTRFS_IOC_TRANS_START"),
    (0x9407, "BTRFS_IOC_TRANS_END"),
    (0x9408, "BTRFS_IOC_SYNC"),
    (0x941c, "BTRFS_IOC_SCRUB_CANCEL"),
    (0x942e, "BTRFS_IOC_QUOTA_RESCAN_WAIT"),
    (0xb701, "NS_GET_USERNS"),
    (0xb702, "NS_GET_PARENT"),
    (0xb703, "NS_GET_NSTYPE"),
    (0xb704, "NS_GET_OWNER_UID"),
    (0x40042408, "PERF_EVENT_IOC_SET_BPF"),
    (0x40042409, "PERF_EVENT_IOC_PAUSE_OUTPUT"),
    (0x40045201, "RNDADDTOENTCNT"),
    (0x40045431, "TIOCSPTLCK"),
    (0x40045436, "TIOCSIG"),
    (0x400454c8, "TUNSETNOCSUM"),
    (0x400454c9, "TUNSETDEBUG"),
    (0x400454ca, "TUNSETIFF"),
    (0x400454cb, "TUNSETPERSIST"),
    (0x400454cc, "TUNSETOWNER"),
    (0x400454cd, "TUNSETLINK"),
    (0x400454ce, "TUNSETGROUP"),
    (0x400454d0, "TUNSETOFFLOAD"),
    (0x400454d1, "TUNSETTXFILTER"),
    (0x400454d4, "TUNSETSNDBUF"),
    (0x400454d8, "TUNSETVNETHDRSZ"),
    (0x400454d9, "TUNSETQUEUE"),
    (0x400454da, "TUNSETIFINDEX"),
    (0x400454dc, "TUNSETVNETLE"),
    (0x400454de, "TUNSETVNETBE"),
    (0x400454e2, "TUNSETCARRIER"),
    (0x40046602, "FS_IOC32_SETFLAGS"),
    (0x40047602, "FS_IOC32_SETVERSION"),
    (0x40049409, "FICLONE"),
    (0x40049409, "BTRFS_IOC_CLONE"),
    (0x40049421, "BTRFS_IOC_BALANCE_CTL"),
    (0x40081271, "BLKBSZSET"),
    (0x40082404, "PERF_EVENT_IOC_PERIOD"),
    (0x40082406, "PERF_EVENT_IOC_SET_FILTER"),
    (0x4008240b, "PERF_EVENT_IOC_MODIFY_ATTRIBUTES"),
    (0x40085203, "RNDADDENTROPY"),
    (0x40086602, "FS_IOC_SETFLAGS"),
    (0x4008700c, "RTC_IRQP_SET"),
    (0x4008700e, "RTC_EPOCH_SET"),
    (0x40087602, "FS_IOC_SETVERSION"),
    (0x40089413, "BTRFS_IOC_DEFAULT_SUBVOL"),
    (0x40089416, "BTRFS_IOC_WAIT_SYNC"),
    (0x4008941a, "BTRFS_IOC_SUBVOL_SETFLAGS"),
    (0x400c6615, "FS_IOC_GET_ENCRYPTION_POLICY"),
    (0x40101283, "BLKRESETZONE"),
    (0x40101286, "BLKOPENZONE"),
    (0x40101287, "BLKCLOSEZONE"),
    (0x40101288, "BLKFINISHZONE"),
    (0x401054d5, "TUNATTACHFILTER"),
    (0x401054d6, "TUNDETACHFILTER"),
    (0x40106614, "FS_IOC_GET_ENCRYPTION_PWSALT"),
    (0x4010942a, "BTRFS_IOC_QGROUP_CREATE"),
    (0x40187013, "RTC_PARAM_GET"),
    (0x40187014, "RTC_PARAM_SET"),
    (0x40189429, "BTRFS_IOC_QGROUP_ASSIGN"),
    (0x401c5820, "FS_IOC_FSSETXATTR"),
    (0x40207012, "RTC_PLL_SET"),
    (0x4020940d, "FICLONERANGE"),
    (0x4020940d, "BTRFS_IOC_CLONE_RANGE"),
    (0x40247007, "RTC_ALM_SET"),
    (0x4024700a, "RTC_SET_TIME"),
    (0x4028700f, "RTC_WKALM_SET"),
    (0x402c542b, "TCSETS2"),
    (0x402c542c, "TCSETSW2"),
    (0x402c542d, "TCSETSF2"),
    (0x40309410, "BTRFS_IOC_DEFRAG_RANGE"),
    (0x40309439, "BTRFS_IOC_SET_FEATURES"),
    (0x4040942c, "BTRFS_IOC_QUOTA_RESCAN"),
    (0x40489426, "BTRFS_IOC_SEND"),
    (0x40809440, "BTRFS_IOC_ENCODED_WRITE"),
    (0x41009432, "FS_IOC_SETFSLABEL"),
    (0x50009401, "BTRFS_IOC_SNAP_CREATE"),
    (0x50009402, "BTRFS_IOC_DEFRAG"),
    (0x50009403, "BTRFS_IOC_RESIZE"),
    (0x50009404, "BTRFS_IOC_SCAN_DEV"),
    (0x50009405, "BTRFS_IOC_FORGET_DEV"),
    (0x5000940a, "BTRFS_IOC_ADD_DEV"),
    (0x5000940b, "BTRFS_IOC_RM_DEV"),
    (0x5000940c, "BTRFS_IOC_BALANCE"),
    (0x5000940e, "BTRFS_IOC_SUBVOL_CREATE"),
    (0x5000940f, "BTRFS_IOC_SNAP_DESTROY"),
    (0x50009417, "BTRFS_IOC_SNAP_CREATE_V2"),
    (0x50009418, "BTRFS_IOC_SUBVOL_CREATE_V2"),
    (0x5000943a, "BTRFS_IOC_RM_DEV_V2"),
    (0x5000943f, "BTRFS_IOC_SNAP_DESTROY_V2"),
    (0x65617400, "BLK_IO_TRACE_MAGIC"),
    (0x80041284, "BLKGETZONESZ"),
    (0x80041285, "BLKGETNRZONES"),
    (0x80045200, "RNDGETENTCNT"),
    (0x80045430, "TIOCGPTN"),
    (0x80045432, "TIOCGDEV"),
    (0x80045438, "TIOCGPKT"),
    (0x80045439, "TIOCGPTLCK"),
    (0x80045440, "TIOCGEXCL"),
    (0x800454cf, "TUNGETFEATURES"),
    (0x800454d2, "TUNGETIFF"),
    (0x800454d3, "TUNGETSNDBUF"),
    (0x800454d7, "TUNGETVNETHDRSZ"),
    (0x800454dd, "TUNGETVNETLE"),
    (0x800454df, "TUNGETVNETBE"),
    (0x800454e0, "TUNSETSTEERINGEBPF"),
    (0x800454e1, "TUNSETFILTEREBPF"),
    (0x80045701, "WDIOC_GETSTATUS"),
    (0x80045702, "WDIOC_GETBOOTSTATUS"),
    (0x80045703, "WDIOC_GETTEMP"),
    (0x80045704, "WDIOC_SETOPTIONS"),
    (0x80045705, "WDIOC_KEEPALIVE"),
    (0x80045707, "WDIOC_GETTIMEOUT"),
    (0x80045709, "WDIOC_GETPRETIMEOUT"),
    (0x8004570a, "WDIOC_GETTIMELEFT"),
    (0x80046601, "FS_IOC32_GETFLAGS"),
    (0x80047013, "RTC_VL_READ"),
    (0x80047601, "FS_IOC32_GETVERSION"),
    (0x80081270, "BLKBSZGET"),
    (0x80081272, "BLKGETSIZE64"),
    (0x80081280, "BLKGETDISKSEQ"),
    (0x80082407, "PERF_EVENT_IOC_ID"),
    (0x80085202, "RNDGETPOOL"),
    (0x80086601, "FS_IOC_GETFLAGS"),
    (0x8008700b, "RTC_IRQP_READ"),
    (0x8008700d, "RTC_EPOCH_READ"),
    (0x80087601, "FS_IOC_GETVERSION"),
    (0x80089418, "BTRFS_IOC_START_SYNC"),
    (0x80089419, "BTRFS_IOC_SUBVOL_GETFLAGS"),
    (0x800c6613, "FS_IOC_SET_ENCRYPTION_POLICY"),
    (0x801054db, "TUNGETFILTER"),
    (0x8010661b, "FS_IOC_GET_ENCRYPTION_NONCE"),
    (0x80108906, "SIOCGSTAMP_NEW"),
    (0x80108907, "SIOCGSTAMPNS_NEW"),
    (0x8010aa01, "UFFDIO_UNREGISTER"),
    (0x8010aa02, "UFFDIO_WAKE"),
    (0x80189439, "BTRFS_IOC_GET_FEATURES"),
    (0x801c581f, "FS_IOC_FSGETXATTR"),
    (0x80207011, "RTC_PLL_GET"),
    (0x80247008, "RTC_ALM_READ"),
    (0x80247009, "RTC_RD_TIME"),
    (0x80285442, "TIOCGISO7816"),
    (0x80285700, "WDIOC_GETSUPPORT"),
    (0x80287010, "RTC_WKALM_RD"),
    (0x802c542a, "TCGETS2"),
    (0x8030942b, "BTRFS_IOC_QGROUP_LIMIT"),
    (0x8040942d, "BTRFS_IOC_QUOTA_RESCAN_STATUS"),
    (0x80489439, "BTRFS_IOC_GET_SUPPORTED_FEATURES"),
    (0x80809440, "BTRFS_IOC_ENCODED_READ"),
    (0x81009431, "FS_IOC_GETFSLABEL"),
    (0x81f8943c, "BTRFS_IOC_GET_SUBVOL_INFO"),
    (0x8400941f, "BTRFS_IOC_FS_INFO"),
    (0x84009422, "BTRFS_IOC_BALANCE_PROGRESS"),
    (0x90009427, "BTRFS_IOC_DEVICES_READY"),
    (0xc0045706, "WDIOC_SETTIMEOUT"),
    (0xc0045708, "WDIOC_SETPRETIMEOUT"),
    (0xc0045877, "FIFREEZE"),
    (0xc0045878, "FITHAW"),
    (0xc008240a, "PERF_EVENT_IOC_QUERY_BPF"),
    (0xc0096616, "FS_IOC_GET_ENCRYPTION_POLICY_EX"),
    (0xc0101282, "BLKREPORTZONE"),
    (0xc0109414, "BTRFS_IOC_SPACE_INFO"),
    (0xc0109428, "BTRFS_IOC_QUOTA_CTL"),
    (0xc0185879, "FITRIM"),
    (0xc0189436, "FIDEDUPERANGE"),
    (0xc0189436, "BTRFS_IOC_FILE_EXTENT_SAME"),
    (0xc018aa06, "UFFDIO_WRITEPROTECT"),
    (0xc018aa3f, "UFFDIO_API"),
    (0xc020660b, "FS_IOC_FIEMAP"),
    (0xc020aa00, "UFFDIO_REGISTER"),
    (0xc020aa04, "UFFDIO_ZEROPAGE"),
    (0xc020aa07, "UFFDIO_CONTINUE"),
    (0xc0285443, "TIOCSISO7816"),
    (0xc028aa03, "UFFDIO_COPY"),
    (0xc0389423, "BTRFS_IOC_INO_PATHS"),
    (0xc0389424, "BTRFS_IOC_LOGICAL_INO"),
    (0xc038943b, "BTRFS_IOC_LOGICAL_INO_V2"),
    (0xc0406618, "FS_IOC_REMOVE_ENCRYPTION_KEY"),
    (0xc0406619, "FS_IOC_REMOVE_ENCRYPTION_KEY_ALL_USERS"),
    (0xc0481273, "BLKTRACESETUP"),
    (0xc0506617, "FS_IOC_ADD_ENCRYPTION_KEY"),
    (0xc0709411, "BTRFS_IOC_TREE_SEARCH_V2"),
    (0xc080661a, "FS_IOC_GET_ENCRYPTION_KEY_STATUS"),
    (0xc0c89425, "BTRFS_IOC_SET_RECEIVED_SUBVOL"),
    (0xc400941b, "BTRFS_IOC_SCRUB"),
    (0xc400941d, "BTRFS_IOC_SCRUB_PROGRESS"),
    (0xc4009420, "BTRFS_IOC_BALANCE_V2"),
    (0xc4089434, "BTRFS_IOC_GET_DEV_STATS"),
    (0xca289435, "BTRFS_IOC_DEV_REPLACE"),
    (0xd0009411, "BTRFS_IOC_TREE_SEARCH"),
    (0xd0009412, "BTRFS_IOC_INO_LOOKUP"),
    (0xd000941e, "BTRFS_IOC_DEV_INFO"),
    (0xd000943d, "BTRFS_IOC_GET_SUBVOL_ROOTREF"),
    (0xd000943e, "BTRFS_IOC_INO_LOOKUP_USER"),
]);
