//! The language in which a call's parameters are described.
//!
//! All is data: a description can be walked to make captures, lines, and lists of fields. What
//! depends on another argument is a table of variants of the call, not code.
//!
//! Must not know: how anything is read or shown.

use crate::names::Names;

/// When memory is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Before the call: what goes in.
    Entry,
    /// After it: what comes out. Not read if the call failed.
    Exit,
    /// After it, also if the call failed.
    Always,
}

/// Where a length or a count comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Len {
    /// Known.
    Const(u32),
    /// An argument.
    Arg(u8),
    /// The product of two arguments.
    Product(u8, u8),
    /// What the call returned.
    Result,
    /// The lesser of an argument and what the call returned.
    ArgOrResult(u8),
    /// A number of this many bytes, at this offset of the structure that holds the pointer.
    Field(u16, u8),
    /// The 32-bit number that an argument points to.
    Behind(u8),
}

/// What a value is. Widths are in bytes.
#[derive(Clone, Copy, Debug)]
pub enum Type {
    /// A signed decimal number.
    Signed(u8),
    /// An unsigned decimal number.
    Unsigned(u8),
    /// A hexadecimal number; 0 is `0`.
    Hex(u8),
    /// Permissions, in octal.
    Octal,
    /// An address that is not followed.
    Address,
    /// A file descriptor.
    Fd,
    /// A file descriptor, or AT_FDCWD.
    DirFd,
    /// A user or group: all ones is -1.
    Id,
    /// The number of a signal.
    Signal,
    /// A kind of file and its permissions.
    Mode(u8),
    /// A device's numbers.
    Device(u8),
    /// A resource limit.
    Limit,
    /// Seconds, with the date beside them.
    Date,
    /// The same, with the nanoseconds that follow them in the date.
    Moment,
    /// Ticks of the kernel's clock, a hundred in a second.
    Ticks,
    /// Named constants.
    Named(&'static Names, u8),
    /// The bits under a mask are one of the first table, the others flags of the second.
    Parts(u64, &'static Names, &'static Names),
    /// A bit a table entry, by position: written as a set of names.
    Shown(Special),
    /// A pointer to a value, read in a phase.
    At(Phase, &'static Type),
    /// A character.
    Char,
    /// `true` or `false`.
    Bool,
    /// A number with a point, of 4 or 8 bytes; 2: two of 4 bytes.
    Float(u8),
    /// A number of which nothing is known: decimal if it is small, else hexadecimal.
    Unknown,
    /// A string whose pointer and length stand at these offsets of a structure.
    Owned(u16, u16),
    /// A format of printf's kind (false) or scanf's (true), whose arguments begin at this word.
    Format(bool, u8),
    /// A number behind a pointer, in brackets.
    Boxed(&'static Type),
    /// A string that ends with 0, whole.
    Path,
    /// A string that ends with 0, as far as the limit of strings goes.
    Str,
    /// Bytes.
    Bytes(Len),
    /// A string that ends with 0, or after so many bytes.
    Limited(Len),
    /// A sequence.
    Array(&'static Type, Len),
    /// Pointers to strings, up to a null pointer.
    Strings,
    /// As [`Type::Strings`], of which only the number is shown unless all is asked for.
    Environment,
    /// Buffers; the flag: only as far as the call's result goes.
    Buffers(Len, bool),
    /// A structure.
    Struct(&'static Struct),
    /// Shown only if an argument has one of these bits.
    If(u8, u64, &'static Type),
    /// The first if an argument has one of these bits, else the second.
    Either(u8, u64, &'static Type, &'static Type),
    /// Shown as it went in and, after `=>`, by another description, as it came out.
    Arrow(&'static Type, &'static Type),
    /// Read before the call also, for parts that are [`Type::Was`].
    Kept(&'static Type),
    /// A part of a structure, as it was before, and after `=>` as it is.
    Was(&'static Type),
    /// Shown as `name=` (without a name: as it is), and taken from this argument.
    Label(&'static str, u8, &'static Type),
    /// Shown as it went in and, if that differs, `=>` as it came out.
    Changed(&'static Type),
}

/// What is shown by code of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// A set of signals; its bytes.
    SignalSet(Len),
    /// Descriptors of select; the argument with their number.
    FdSet(u8),
    /// A socket's address.
    SocketAddress(Len),
    /// Entries of a directory.
    Entries,
    /// How a child ended.
    WaitStatus,
    /// A signal's description.
    SignalInfo,
    /// Flags of clone and the signal below them.
    CloneFlags,
    /// Operation of a futex.
    FutexOp,
    /// Operation of an ioctl.
    IoctlOp,
    /// Times of utimensat.
    FileTime,
    /// A time of statx, with its date.
    Stamp,
    /// Processors of an affinity mask; its bytes.
    CpuSet(Len),
    /// Permissions and flags of shared memory, queues, semaphores.
    IpcFlags,
    /// Protocol of a socket, by its family.
    Protocol,
    /// A terminal's settings.
    Termios,
    /// Ancillary data; its bytes.
    Control(Len),
    /// What epoll hands back.
    EpollData,
    /// A type of a file system.
    FileSystem,
    /// Three sets of capabilities, in two halves.
    Capabilities,
    /// Mode and flags of a policy on memory; its bytes.
    MemoryPolicy(u8),
    /// Class and level of a priority of input and output.
    IoPriority,
    /// Length of vectors, and flags, of prctl's SVE operations.
    SveLength,
    /// The same of its SME operations.
    SmeLength,
    /// How addresses with tags are treated.
    TaggedAddress,
    /// What kind of id an id is, to the scheduler.
    PidType,
    /// Flags of mount(2), below its magic number.
    MountFlags,
}

/// A structure.
#[derive(Debug)]
pub struct Struct {
    /// Bytes in memory.
    pub size: u16,
    /// What is in it.
    pub fields: &'static [Field],
}

/// A part of a structure.
#[derive(Debug)]
pub struct Field {
    /// Its name; an empty one: shown without.
    pub name: &'static str,
    /// Bytes before it.
    pub offset: u16,
    /// What it is.
    pub ty: Type,
    /// When it is shown.
    pub show: Show,
}

/// When a field is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// Always.
    Always,
    /// If all is asked for.
    Verbose,
    /// If the 32-bit number at this offset has one of these bits (true) or none (false).
    Bits(u16, u32, bool),
    /// If all is asked for and the 32-bit number at this offset has one of these bits.
    VerboseBits(u16, u32),
    /// If the kind of file in the mode at this offset is a device's (true) or not (false).
    Device(u16, bool),
}

/// What a call returns.
#[derive(Clone, Copy, Debug)]
pub enum Returns {
    /// A number.
    Number,
    /// A descriptor.
    Fd,
    /// An address, or a number in hexadecimal.
    Hex,
    /// A number in octal.
    Octal,
    /// The call does not return.
    Never,
    /// Flags, shown beside the number.
    Flags(&'static Type),
    /// A number, and `Timeout` if 0.
    Timeout,
    /// As poll: what was found.
    Poll,
    /// As select: what was found.
    Select,
    /// A priority of input and output.
    IoPriority,
}

/// A call.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its name.
    pub name: &'static str,
    /// What it returns.
    pub returns: Returns,
    /// Its parameters.
    pub parameters: &'static [Type],
    /// What depends on an argument.
    pub variants: Option<&'static Variants>,
}

/// How a call's parameters depend on the value of one or two of them.
#[derive(Debug)]
pub struct Variants {
    /// The argument that selects.
    pub selector: u8,
    /// The bits of it that select.
    pub mask: u64,
    /// A second argument that selects: the key is then `first << 32 | second`.
    pub second: Option<u8>,
    /// By value.
    pub arms: &'static [Variant],
}

/// A call's other parameters for some values of the selector.
#[derive(Debug)]
pub struct Variant {
    /// The values.
    pub values: &'static [u64],
    /// The parameters from this index on are replaced.
    pub from: u8,
    /// By these.
    pub parameters: &'static [Type],
    /// And what the call returns, if it is not as of the others.
    pub returns: Option<Returns>,
}

impl Call {
    /// The variant that these arguments select.
    pub fn variant(&self, args: &[u64]) -> Option<&'static Variant> {
        let variants = self.variants?;
        let mut key = args.get(variants.selector as usize)? & variants.mask;
        if let Some(second) = variants.second {
            key = key << 32 | (args.get(second as usize)? & 0xffff_ffff);
        }
        variants.arms.iter().find(|arm| arm.values.contains(&key))
    }

    /// Parameters and kind of result for these arguments.
    pub fn of(&self, args: &[u64]) -> (Vec<Type>, Returns) {
        self.with(self.variant(args))
    }

    /// Parameters and kind of result of a variant, or without one.
    pub fn with(&self, variant: Option<&Variant>) -> (Vec<Type>, Returns) {
        match variant {
            None => (self.parameters.to_vec(), self.returns),
            Some(arm) => {
                let kept = self.parameters.iter().take(arm.from as usize);
                let all = kept.chain(arm.parameters).copied().collect();
                (all, arm.returns.unwrap_or(self.returns))
            }
        }
    }
}

impl Type {
    /// Bytes in memory; `None`: it depends.
    pub fn size(&self) -> Option<u32> {
        Some(match self {
            Self::Signed(width) | Self::Unsigned(width) | Self::Hex(width) => u32::from(*width),
            Self::Named(_, width) | Self::Mode(width) | Self::Device(width) => u32::from(*width),
            Self::Octal | Self::Fd | Self::DirFd | Self::Id | Self::Signal => 4,
            Self::Float(2) => 8,
            Self::Float(width) => u32::from(*width),
            Self::Char | Self::Bool => 1,
            Self::Unknown => 8,
            Self::Owned(pointer, length) => u32::from(*pointer.max(length)) + 8,
            Self::Parts(..) | Self::Address | Self::At(..) | Self::Limit => 8,
            Self::Date | Self::Moment | Self::Ticks => 8,
            Self::Boxed(inner) | Self::Was(inner) => inner.size()?,
            Self::Struct(description) => u32::from(description.size),
            Self::Array(element, Len::Const(count)) => element.size()? * count,
            Self::Bytes(Len::Const(count)) => *count,
            Self::Shown(special) => special.size()?,
            _ => return None,
        })
    }
}

impl Special {
    fn size(self) -> Option<u32> {
        Some(match self {
            Self::SignalSet(Len::Const(bytes)) => bytes,
            Self::WaitStatus => 4,
            Self::SignalInfo => 128,
            Self::Capabilities => 24,
            Self::CloneFlags | Self::FileSystem | Self::EpollData => 8,
            Self::FileTime | Self::Stamp => 16,
            Self::Termios => 36,
            _ => return None,
        })
    }
}
