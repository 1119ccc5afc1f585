//! Calls on sockets.

use super::basic::*;
use super::structs::*;
use crate::decode::types::{Call, Len, Phase, Returns, Special, Type, Variant, Variants};
use crate::names::table;

const SOCKET_KIND: Type = Type::Parts(0xf, &table::SOCK_TYPE, &table::SOCK_FLAGS);
const FAMILY: Type = one!(&table::AF);
const FLAGS: Type = one!(&table::MSG);
const LEVEL: Type = one!(&table::SOL);
const NAME: Type = into!(&Type::Shown(Special::SocketAddress(Len::Arg(2))));
const NAME_OUT: Type = out!(&Type::Shown(Special::SocketAddress(Len::Behind(2))));
const LEN_OUT: Type = into!(&Type::Changed(&UINT));
const PAIR: Type = out!(&Type::Array(&FD, Len::Const(2)));

#[rustfmt::skip]
pub(super) static CALLS: &[Call] = &[
    r!("socket", Returns::Fd, &[FAMILY, SOCKET_KIND, Type::Shown(Special::Protocol)]),
    c!("socketpair", &[FAMILY, SOCKET_KIND, Type::Shown(Special::Protocol), PAIR]),
    c!("connect", &[FD, NAME, INT]), c!("bind", &[FD, NAME, INT]), c!("listen", &[FD, INT]),
    r!("accept", Returns::Fd, &[FD, NAME_OUT, LEN_OUT]), r!("accept4", Returns::Fd, &[FD, NAME_OUT, LEN_OUT, one!(&table::SOCK_FLAGS)]),
    c!("getsockname", &[FD, NAME_OUT, LEN_OUT]), c!("getpeername", &[FD, NAME_OUT, LEN_OUT]),
    c!("sendto", &[FD, buffer!(2), ULONG, FLAGS, into!(&Type::Shown(Special::SocketAddress(Len::Arg(5)))), UINT]),
    c!("recvfrom", &[FD, FILLED, ULONG, FLAGS, out!(&Type::Shown(Special::SocketAddress(Len::Behind(5)))), LEN_OUT]),
    c!("sendmsg", &[FD, into!(&MSGHDR_IN), FLAGS]), c!("recvmsg", &[FD, out!(&Type::Kept(&MSGHDR_OUT)), FLAGS]),
    c!("sendmmsg", &[FD, Type::At(Phase::Exit, &Type::Array(&MMSGHDR, Len::Result)), UINT, FLAGS]),
    c!("recvmmsg", &[FD, out!(&Type::Array(&MMSGHDR, Len::Result)), UINT, FLAGS, into!(&TIMESPEC)]),
    c!("shutdown", &[FD, one!(&table::SHUTDOWN)]),
    v!("setsockopt", &[FD, LEVEL, UINT, buffer!(4), INT], &SET),
    v!("getsockopt", &[FD, LEVEL, UINT, out!(&Type::Bytes(Len::Behind(4))), BOXED_LEN], &GET),
];

const BOXED_LEN: Type = LEN_OUT;

const SO: Type = one!(&table::SO);
const TCP: Type = one!(&table::SO_TCP);
const INT_IN: Type = into!(&Type::Boxed(&INT));
const INT_OUT: Type = out!(&Type::Boxed(&INT));

/// A level's options whose values are numbers.
macro_rules! ints {
    ($name:ident, $level:literal, [$($option:literal),* $(,)?]) => {
        const $name: &[u64] = &[$($level << 32 | $option),*];
    };
}

// Numbers of asm/socket.h, linux/tcp.h, linux/in.h and linux/in6.h.
ints!(
    SOCKET_INTS,
    1,
    [
        1, 2, 5, 6, 7, 8, 9, 10, 11, 12, 14, 15, 16, 18, 19, 29, 30, 32, 33, 34, 35, 36, 37, 40,
        42, 43, 44, 45, 46, 47, 48, 49, 56, 60, 62
    ]
);
ints!(
    TCP_INTS,
    6,
    [
        1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16, 17, 18, 19, 20, 21, 23, 24, 25, 27, 30, 34, 36, 37
    ]
);
ints!(
    IP_INTS,
    0,
    [
        1, 2, 3, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15, 18, 19, 24, 33, 34
    ]
);
ints!(
    IPV6_INTS,
    41,
    [1, 7, 16, 18, 19, 23, 24, 25, 26, 49, 51, 66, 67]
);
ints!(NETLINK_INTS, 270, [1, 2, 3, 4, 5, 8, 10, 11, 12]);

macro_rules! arm {
    ($values:expr, $parameters:expr) => {
        Variant {
            values: $values,
            from: 2,
            parameters: &$parameters,
            returns: None,
        }
    };
}

#[rustfmt::skip]
static SET: Variants = Variants { selector: 1, mask: 0xffff_ffff, second: Some(2), arms: &[
    arm!(SOCKET_INTS, [SO, INT_IN, INT]), arm!(TCP_INTS, [TCP, INT_IN, INT]),
    arm!(IP_INTS, [one!(&table::SO_IP), INT_IN, INT]), arm!(IPV6_INTS, [one!(&table::SO_IPV6), INT_IN, INT]),
    arm!(NETLINK_INTS, [one!(&table::SO_NETLINK), INT_IN, INT]),
    arm!(&[1 << 32 | 13], [SO, into!(&LINGER), INT]),
    arm!(&[1 << 32 | 20, 1 << 32 | 21], [SO, into!(&TIMEVAL), INT]),
    arm!(&[1 << 32 | 25], [SO, into!(&Type::Bytes(Len::Arg(4))), INT]),
] };
#[rustfmt::skip]
static GET: Variants = Variants { selector: 1, mask: 0xffff_ffff, second: Some(2), arms: &[
    arm!(&[1 << 32 | 4], [SO, out!(&Type::Boxed(&Type::Named(&ERRORS, 4))), LEN_OUT]),
    arm!(&[1 << 32 | 3], [SO, out!(&Type::Boxed(&Type::Named(&table::SOCK_TYPE, 4))), LEN_OUT]),
    arm!(SOCKET_INTS, [SO, INT_OUT, LEN_OUT]), arm!(TCP_INTS, [TCP, INT_OUT, LEN_OUT]),
    arm!(IP_INTS, [one!(&table::SO_IP), INT_OUT, LEN_OUT]), arm!(IPV6_INTS, [one!(&table::SO_IPV6), INT_OUT, LEN_OUT]),
    arm!(&[1 << 32 | 13], [SO, out!(&LINGER), LEN_OUT]), arm!(&[1 << 32 | 17], [SO, out!(&UCRED), LEN_OUT]),
    arm!(&[1 << 32 | 20, 1 << 32 | 21], [SO, out!(&TIMEVAL), LEN_OUT]),
    arm!(&[1 << 32 | 38], [SO, out!(&Type::Boxed(&INT)), LEN_OUT]),
    arm!(&[1 << 32 | 39], [SO, out!(&Type::Boxed(&Type::Named(&table::AF, 4))), LEN_OUT]),
    arm!(&[6 << 32 | 11, 6 << 32 | 13], [TCP, out!(&Type::Bytes(Len::Behind(4))), LEN_OUT]),
] };
static ERRORS: crate::names::Names = crate::names::Names::choice(
    "E???",
    &[
        (0, "0"),
        (111, "ECONNREFUSED"),
        (110, "ETIMEDOUT"),
        (113, "EHOSTUNREACH"),
        (32, "EPIPE"),
        (104, "ECONNRESET"),
    ],
);
