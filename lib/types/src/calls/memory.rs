//! Calls on memory, and what several processes share of it.

use super::basic::*;
use crate::decode::types::{Call, Len, Returns, Special, Type, Variant, Variants};
use crate::names::table;

const IPC: Type = Type::Shown(Special::IpcFlags);
const REMOTE: Type = into!(&Type::Buffers(Len::Arg(4), false));

#[rustfmt::skip]
pub(super) static CALLS: &[Call] = &[
    r!("mmap", Returns::Hex, &[ADDR, ULONG, PROT_, Type::Parts(15, &table::MAP_TYPE, &table::MAP), FD, HEX]),
    c!("mprotect", &[ADDR, ULONG, PROT_]), c!("pkey_mprotect", &[ADDR, ULONG, PROT_, INT]), c!("munmap", &[ADDR, ULONG]),
    r!("brk", Returns::Hex, &[ADDR]),
    r!("mremap", Returns::Hex, &[ADDR, ULONG, ULONG, one!(&table::MREMAP), Type::If(3, 6, &ADDR)]),
    c!("msync", &[ADDR, ULONG, one!(&table::MSYNC)]), c!("mincore", &[ADDR, ULONG, ADDR]),
    c!("madvise", &[ADDR, ULONG, one!(&table::MADV)]), c!("process_madvise", &[FD, ADDR, ULONG, one!(&table::MADV), HEX4]),
    c!("mlock", &[ADDR, ULONG]), c!("mlock2", &[ADDR, ULONG, one!(&table::MLOCK2)]), c!("munlock", &[ADDR, ULONG]),
    c!("mlockall", &[one!(&table::MLOCKALL)]), c!("munlockall", &[]), c!("remap_file_pages", &[ADDR, ULONG, Type::Named(&table::PROT, 8), ULONG, Type::Parts(15, &table::MAP_TYPE, &table::MAP)]),
    c!("mbind", &[ADDR, ULONG, Type::Shown(Special::MemoryPolicy(8)), ADDR, ULONG, one!(&table::MPOL_MF)]), c!("set_mempolicy", &[Type::Shown(Special::MemoryPolicy(4)), ADDR, ULONG]),
    c!("get_mempolicy", &[ADDR, ADDR, ULONG, ADDR, one!(&table::MPOL_FLAGS)]), c!("migrate_pages", &[INT, ULONG, ADDR, ADDR]),
    c!("move_pages", &[INT, ULONG, ADDR, ADDR, ADDR, one!(&table::MPOL_MF)]), c!("set_mempolicy_home_node", &[ADDR, ULONG, ULONG, HEX]),
    c!("pkey_alloc", &[HEX4, HEX4]), c!("pkey_free", &[INT]), c!("memfd_secret", &[OPEN_FLAGS]), c!("userfaultfd", &[OPEN_FLAGS]),
    c!("shmget", &[KEY, ULONG, IPC]), r!("shmat", Returns::Hex, &[INT, ADDR, one!(&table::SHMAT)]), c!("shmdt", &[ADDR]), c!("shmctl", &[INT, one!(&table::IPC_CMD), ADDR]),
    c!("semget", &[KEY, INT, IPC]), c!("semop", &[INT, SEMS, ULONG]), c!("semtimedop", &[INT, SEMS, UINT, WAIT]), c!("semctl", &[INT, INT, one!(&table::IPC_CMD), ADDR]),
    c!("msgget", &[KEY, IPC]), c!("msgsnd", &[INT, ADDR, ULONG, one!(&table::MSGQ)]), c!("msgrcv", &[INT, ADDR, ULONG, LONG, one!(&table::MSGQ)]), c!("msgctl", &[INT, one!(&table::IPC_CMD), ADDR]),
    c!("process_vm_readv", &[INT, into!(&Type::Buffers(Len::Arg(2), true)), ULONG, REMOTE, ULONG, ULONG]),
    c!("process_vm_writev", &[INT, into!(&Type::Buffers(Len::Arg(2), false)), ULONG, REMOTE, ULONG, ULONG]),
    c!("process_mrelease", &[FD, HEX4]), c!("membarrier", &[one!(&table::MEMBARRIER), one!(&table::MEMBARRIER_FLAGS), INT]),
    v!("futex", &[ADDR, OP, UINT, ADDR, ADDR, HEX4], &FUTEX), c!("futex_waitv", &[ADDR, UINT, HEX4, ADDR, one!(&table::CLOCK)]),
];

const SEMS: Type = into!(&Type::Array(&super::structs::SEMBUF, Len::Arg(2)));
const PROT_: Type = one!(&table::PROT);
const OP: Type = Type::Shown(Special::FutexOp);
static KEYS: crate::names::Names = crate::names::Names::choice("", &[(0, "IPC_PRIVATE")]);
const KEY: Type = Type::Named(&KEYS, 4);
static ANY: crate::names::Names =
    crate::names::Names::choice("", &[(0xffff_ffff, "FUTEX_BITSET_MATCH_ANY")]);
const BITS: Type = Type::Named(&ANY, 4);
const WAIT: Type = into!(&super::structs::TIMESPEC);

macro_rules! arm {
    ($values:expr, $parameters:expr) => {
        Variant {
            values: &$values,
            from: 2,
            parameters: &$parameters,
            returns: None,
        }
    };
}

/// By operation without FUTEX_PRIVATE_FLAG and FUTEX_CLOCK_REALTIME.
#[rustfmt::skip]
static FUTEX: Variants = Variants { selector: 1, mask: 0xffff_fe7f, second: None, arms: &[
    arm!([0], [UINT, WAIT]), arm!([1], [UINT]), arm!([3], [UINT, UINT, ADDR]),
    arm!([4], [UINT, UINT, ADDR, UINT]), arm!([5], [UINT, UINT, ADDR, HEX4]),
    arm!([6, 13], [Type::Label("", 3, &WAIT_)]), arm!([7, 8], []),
    arm!([9], [UINT, WAIT, Type::Label("", 5, &BITS_)]), arm!([10], [UINT, Type::Label("", 5, &BITS_)]),
    arm!([11], [UINT, WAIT, ADDR]), arm!([12], [UINT, UINT, ADDR, UINT]),
] };
const WAIT_: Type = WAIT;
const BITS_: Type = BITS;
