//! Which memory shows a call's arguments: the description as a list of loads.
//!
//! Given a call's parameters; gives [`Load`]s. A load begins at an argument, or at pointers that
//! an earlier load has brought; it has a length from a constant, an argument, the result, or
//! memory loaded before; it is bounded. So it can be made into native code as it is: one loop over
//! the instances and elements of its parent, and a copy. [`run`] does the same as an interpreter.
//!
//! Must not know: how memory is read.

use super::memory::{Captured, Chunk};
use super::types::{Call, Len, Phase, Returns, Special, Type, Variant};

/// The most bytes that one load brings.
const MOST_BYTES: u64 = 65536;
/// The longest path.
const PATH_BYTES: u32 = 4096;
/// The longest format.
const FORMAT_BYTES: u32 = 1024;
/// Words of a call with a format: from this one on they are vector registers.
pub(crate) const VECTOR_WORDS: u8 = 10;
/// The most elements of an array of pointers, and of buffers.
const MOST_ELEMENTS: u64 = 4096;

/// Memory to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// When; if the result says that the call failed, loads of [`Phase::Exit`] are left out.
    pub phase: Phase,
    /// Where.
    pub from: From,
    /// How much.
    pub length: Length,
    /// Whether at all.
    pub only_if: Option<Condition>,
}

/// What must hold of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Which.
    pub argument: u8,
    /// Some of these bits of it.
    pub bits: u64,
    /// Are set (true), or none is.
    pub set: bool,
}

/// Where a load begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// At the address that is this argument.
    Argument(u8),
    /// At each pointer that is `offset` into each element, of `stride` bytes, of what the load
    /// with this index has brought.
    Pointers {
        /// Index in the list of loads.
        load: u16,
        /// Bytes of an element.
        stride: u16,
        /// Bytes before the pointer.
        offset: u16,
    },
}

/// How many bytes a load brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// Up to a byte 0, and no more than this.
    String(u32),
    /// Up to eight bytes 0 at a multiple of eight, and no more than this.
    Pointers(u32),
    /// A count times `each`, and no more than `most`.
    Counted {
        /// The count; [`Len::Field`] is relative to the parent's element.
        count: Len,
        /// Bytes of each.
        each: u32,
        /// The most bytes.
        most: u32,
    },
}

/// The loads for a call with these arguments.
pub fn captures(call: &Call, args: &[u64], extent: Extent) -> Vec<Load> {
    loads(call.with(call.variant(args)), extent)
}

/// The loads for a call with any arguments: those without a variant, and those of each variant,
/// which the arguments select as [`super::types::Variants`] says.
pub fn all_captures(call: &Call, extent: Extent) -> Vec<(Option<&'static Variant>, Vec<Load>)> {
    let arms: &'static [Variant] = call.variants.map_or(&[], |variants| variants.arms);
    let each = std::iter::once(None).chain(arms.iter().map(Some));
    each.map(|variant| (variant, loads(call.with(variant), extent)))
        .collect()
}

fn loads((parameters, returns): (Vec<Type>, Returns), extent: Extent) -> Vec<Load> {
    let mut maker = Maker {
        loads: Vec::new(),
        extent,
        only_if: None,
    };
    for (index, parameter) in (0u8..).zip(&parameters) {
        maker.parameter(parameter, index);
    }
    let mut after = |index, count, each, most| {
        let length = Length::Counted { count, each, most };
        maker.load(Phase::Exit, From::Argument(index), length);
    };
    match returns {
        Returns::Poll => {
            after(0, Len::Arg(1), 8, MOST_BYTES as u32);
            if parameters.len() > 3 {
                after(2, Len::Const(1), 16, 16);
            }
        }
        Returns::Select => {
            for index in 1..4 {
                after(index, Len::Const(1), 128, 128);
            }
            after(4, Len::Const(1), 16, 16);
        }
        _ => {}
    }
    maker.loads
}

/// How much of strings and structures is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The most bytes of a string or buffer.
    pub string_bytes: u32,
    /// Whether also what is only shown on demand.
    pub verbose: bool,
}

struct Maker {
    loads: Vec<Load>,
    extent: Extent,
    only_if: Option<Condition>,
}

impl Maker {
    fn parameter(&mut self, ty: &Type, index: u8) {
        match ty {
            Type::If(argument, bits, inner) => {
                self.conditional(inner, index, *argument, *bits, true);
            }
            Type::Either(argument, bits, yes, no) => {
                self.conditional(yes, index, *argument, *bits, true);
                self.conditional(no, index, *argument, *bits, false);
            }
            Type::Label(_, arg, inner) => self.parameter(inner, *arg),
            Type::At(phase, inner) => self.pointee(inner, From::Argument(index), *phase),
            Type::Format(scans, first) => self.formatted(index, *scans, *first),
            _ => {}
        }
    }

    /// A format, and what the arguments that follow may lead to: that it does not say which are
    /// pointers is found out when it is shown.
    fn formatted(&mut self, index: u8, scans: bool, first: u8) {
        let limit = self.extent.string_bytes;
        self.load(
            Phase::Entry,
            From::Argument(index),
            Length::String(FORMAT_BYTES),
        );
        for word in first..VECTOR_WORDS {
            let (phase, length) = match scans {
                false => (Phase::Entry, Length::String(limit + 1)),
                true => {
                    let (count, each, most) = (Len::Const(limit.max(8)), 1, limit.max(8));
                    (Phase::Exit, Length::Counted { count, each, most })
                }
            };
            self.load(phase, From::Argument(word), length);
        }
    }

    fn conditional(&mut self, ty: &Type, index: u8, argument: u8, bits: u64, set: bool) {
        let outer = self.only_if.replace(Condition {
            argument,
            bits,
            set,
        });
        self.parameter(ty, index);
        self.only_if = outer;
    }

    fn load(&mut self, phase: Phase, from: From, length: Length) -> u16 {
        self.loads.push(Load {
            phase,
            from,
            length,
            only_if: self.only_if,
        });
        u16::try_from(self.loads.len() - 1).unwrap_or(u16::MAX)
    }

    /// What a pointer leads to.
    fn pointee(&mut self, ty: &Type, from: From, phase: Phase) {
        let limit = self.extent.string_bytes;
        let counted = |count, each, most| Length::Counted { count, each, most };
        let most = MOST_BYTES as u32;
        match ty {
            Type::Path => drop(self.load(phase, from, Length::String(PATH_BYTES))),
            Type::Str => drop(self.load(phase, from, Length::String(limit + 1))),
            Type::Bytes(count) | Type::Limited(count) => {
                self.load(phase, from, counted(*count, 1, limit));
            }
            Type::Strings | Type::Environment => {
                let load = self.load(phase, from, Length::Pointers(most));
                if matches!(ty, Type::Strings) || self.extent.verbose {
                    let from = From::Pointers {
                        load,
                        stride: 8,
                        offset: 0,
                    };
                    self.load(phase, from, Length::String(limit + 1));
                }
            }
            Type::Buffers(count, _) => {
                let load = self.load(phase, from, counted(*count, 16, 16 * 1024));
                let from = From::Pointers {
                    load,
                    stride: 16,
                    offset: 0,
                };
                self.load(phase, from, counted(Len::Field(8, 8), 1, limit));
            }
            Type::Array(element, count) => {
                let each = element.size().unwrap_or(1);
                let load = self.load(phase, from, counted(*count, each, most));
                self.inside(element, load, each as u16, 0, phase);
            }
            Type::Changed(inner) => {
                self.pointee(inner, from, Phase::Entry);
                self.pointee(inner, from, Phase::Exit);
            }
            Type::Arrow(before, after) => {
                self.pointee(before, from, Phase::Entry);
                self.pointee(after, from, Phase::Exit);
            }
            Type::Kept(inner) => {
                let each = inner.size().unwrap_or(8);
                self.load(Phase::Entry, from, counted(Len::Const(1), each, each));
                self.pointee(inner, from, phase);
            }
            Type::Shown(special) => self.special(*special, from, phase),
            Type::Owned(pointer, length) => self.owned(from, phase, *pointer, *length),
            _ => {
                let each = ty.size().unwrap_or(8);
                let load = self.load(phase, from, counted(Len::Const(1), each, each));
                self.inside(ty, load, each as u16, 0, phase);
            }
        }
    }

    /// A string whose pointer and length are in memory.
    fn owned(&mut self, from: From, phase: Phase, pointer: u16, length: u16) {
        let each = u32::from(pointer.max(length)) + 8;
        let (count, most) = (Len::Const(1), each);
        let load = self.load(phase, from, Length::Counted { count, each, most });
        let from = From::Pointers {
            load,
            stride: each as u16,
            offset: pointer,
        };
        let (count, each, most) = (Len::Field(length, 8), 1, self.extent.string_bytes);
        self.load(phase, from, Length::Counted { count, each, most });
    }

    fn special(&mut self, special: Special, from: From, phase: Phase) {
        let (count, each, most) = match special {
            Special::SignalSet(count) => (count, 1, 128),
            Special::CpuSet(count) => (count, 1, 1024),
            Special::FdSet(_) => (Len::Const(1), 128, 128),
            Special::SocketAddress(count) => (count, 1, 128),
            Special::Control(count) => (count, 1, 4096),
            Special::Entries => (Len::Result, 1, MOST_BYTES as u32),
            other => {
                let bytes = Type::Shown(other).size().unwrap_or(8);
                (Len::Const(1), bytes, bytes)
            }
        };
        self.load(phase, from, Length::Counted { count, each, most });
    }

    /// Pointers inside what a load brings.
    fn inside(&mut self, ty: &Type, load: u16, stride: u16, offset: u16, phase: Phase) {
        match ty {
            Type::At(_, inner) => {
                self.pointee(
                    inner,
                    From::Pointers {
                        load,
                        stride,
                        offset,
                    },
                    phase,
                );
            }
            Type::Struct(description) => {
                for field in description.fields {
                    self.inside(&field.ty, load, stride, offset + field.offset, phase);
                }
            }
            Type::Boxed(inner) => self.inside(inner, load, stride, offset, phase),
            Type::Owned(pointer, length) => {
                let from = From::Pointers {
                    load,
                    stride,
                    offset: offset + pointer,
                };
                let (count, each, most) =
                    (Len::Field(offset + length, 8), 1, self.extent.string_bytes);
                self.load(phase, from, Length::Counted { count, each, most });
            }
            _ => {}
        }
    }
}

/// Reads memory: fills as much of the buffer as there is from the address on, and says how much.
pub type Reader<'a> = dyn FnMut(u64, &mut [u8]) -> usize + 'a;

/// Performs the loads of one phase (entry, or what follows the call) and adds what they bring to
/// `captured`. `result` is what the call returned, after it.
pub fn run(
    loads: &[Load],
    args: &[u64],
    result: Option<i64>,
    captured: &mut Captured,
    read: &mut Reader<'_>,
) {
    let failed = result.is_some_and(|value| (-4095..0).contains(&value));
    // The chunks that each load has brought in this run.
    let mut brought: Vec<Vec<Chunk>> = Vec::new();
    for load in loads {
        let now = match load.phase {
            Phase::Entry => result.is_none(),
            Phase::Exit => result.is_some() && !failed,
            Phase::Always => result.is_some(),
        } && load.only_if.is_none_or(|only_if| {
            let value = args.get(only_if.argument as usize).copied().unwrap_or(0);
            (value & only_if.bits != 0) == only_if.set
        });
        let mut chunks = Vec::new();
        for (address, element) in places(load, args, &brought) {
            if !now || address == 0 {
                continue;
            }
            let mut bytes = Vec::new();
            let wanted = amount(load.length, args, result, &element, read);
            fill(address, wanted, load.length, &mut bytes, read);
            chunks.push(Chunk {
                phase: load.phase,
                address,
                bytes,
            });
        }
        captured.chunks.extend(chunks.iter().cloned());
        brought.push(chunks);
    }
}

/// Addresses at which a load begins, each with the element that holds the pointer.
fn places(load: &Load, args: &[u64], brought: &[Vec<Chunk>]) -> Vec<(u64, Vec<u8>)> {
    match load.from {
        From::Argument(index) => {
            let address = args.get(index as usize).copied().unwrap_or(0);
            vec![(address, Vec::new())]
        }
        From::Pointers {
            load: parent,
            stride,
            offset,
        } => {
            let mut found = Vec::new();
            for chunk in brought.get(parent as usize).into_iter().flatten() {
                for element in chunk.bytes.chunks_exact(usize::from(stride)) {
                    if found.len() as u64 == MOST_ELEMENTS {
                        return found;
                    }
                    found.push((number(element, offset, 8), element.to_vec()));
                }
            }
            found
        }
    }
}

/// A little-endian number inside bytes; 0 where there are none.
pub(crate) fn number(bytes: &[u8], offset: u16, width: u8) -> u64 {
    let from = usize::from(offset);
    let part = bytes.get(from..from + usize::from(width)).unwrap_or(&[]);
    part.iter()
        .rev()
        .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

fn amount(
    length: Length,
    args: &[u64],
    result: Option<i64>,
    element: &[u8],
    read: &mut Reader<'_>,
) -> usize {
    let arg = |index: u8| args.get(index as usize).copied().unwrap_or(0);
    let returned = u64::try_from(result.unwrap_or(0)).unwrap_or(0);
    let bytes = match length {
        Length::String(most) | Length::Pointers(most) => u64::from(most),
        Length::Counted { count, each, most } => {
            let count = match count {
                Len::Const(count) => u64::from(count),
                Len::Arg(index) => arg(index) & 0xffff_ffff,
                Len::Product(a, b) => arg(a).saturating_mul(arg(b)),
                Len::Result => returned,
                Len::ArgOrResult(index) => returned.min(arg(index)),
                Len::Field(offset, width) => number(element, offset, width),
                Len::Behind(index) => {
                    let mut value = [0; 4];
                    let read = read(arg(index), &mut value);
                    if read == 4 {
                        u64::from(u32::from_le_bytes(value))
                    } else {
                        0
                    }
                }
            };
            count.saturating_mul(u64::from(each)).min(u64::from(most))
        }
    };
    usize::try_from(bytes.min(MOST_BYTES)).unwrap_or(0)
}

/// Reads up to `wanted` bytes, and of strings and lists of pointers only up to their end, page by
/// page, so that what follows the last mapped page is not missed for its sake.
fn fill(address: u64, wanted: usize, length: Length, bytes: &mut Vec<u8>, read: &mut Reader<'_>) {
    const PAGE_BYTES: u64 = 4096;
    let mut at = address;
    while bytes.len() < wanted {
        let room = usize::try_from(PAGE_BYTES - at % PAGE_BYTES).unwrap_or(1);
        let step = room.min(wanted - bytes.len());
        let mut part = vec![0; step];
        let got = read(at, &mut part).min(step);
        part.truncate(got);
        bytes.extend(part);
        let end = match length {
            Length::String(_) => bytes.iter().position(|b| *b == 0).map(|i| i + 1),
            Length::Pointers(_) => {
                let zero = bytes
                    .chunks_exact(8)
                    .position(|p| p.iter().all(|b| *b == 0));
                zero.map(|index| index * 8 + 8)
            }
            Length::Counted { .. } => None,
        };
        if let Some(end) = end {
            bytes.truncate(end);
            return;
        }
        let Some(next) = at.checked_add(step as u64) else {
            return;
        };
        if got < step {
            return;
        }
        at = next;
    }
}
