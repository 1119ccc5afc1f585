//! Calls as bytes for the page: columns of numbers, compressed, as base64.
//!
//! Given items, gives a [`Packed`] part of them. A part is read by `data.js` beside this file: raw
//! DEFLATE around six columns of variable-length numbers (seven bits a byte, lowest first): flags,
//! depth, function, start (the difference to the item before, zigzag), length, and what the flags
//! say that there is more.

use miniz_oxide::deflate::compress_to_vec;

/// There is a count: the item stands for that many calls, or lost events.
pub const COUNT: u32 = 1;
/// There is a duration: it is not the length (the thread waited for sptrace meanwhile).
pub const TOTAL: u32 = 2;
/// There is an own time: it is not the duration.
pub const OWN: u32 = 4;
/// The function runs below, too: its time counts there.
pub const INNER: u32 = 8;
/// Ended by a longjmp or a throw.
pub const UNWOUND: u32 = 16;
/// The end was not seen.
pub const END_UNSEEN: u32 = 32;
/// The own time is not known.
pub const OWN_UNKNOWN: u32 = 64;
/// It ran until its process ended.
pub const UNTIL_PROCESS_END: u32 = 128;
/// It began before its stream.
pub const BEGIN_UNSEEN: u32 = 256;
/// It began by a jump out of the function below.
pub const TAIL: u32 = 512;
/// Only beginnings of such calls are recorded.
pub const ENTRY_ONLY: u32 = 1024;

/// Raw DEFLATE: 1 is fast and takes a quarter more than 6.
const COMPRESSION_LEVEL: u8 = 3;

/// A rectangle of the page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// Its row within the thread.
    pub depth: u32,
    /// Its left edge.
    pub start_ns: u64,
    /// Its right edge.
    pub end_ns: u64,
    /// What ran, as a number of the page.
    pub function: u32,
    /// The constants of this file.
    pub flags: u32,
    /// If it is not the length.
    pub total_ns: u64,
    /// If it is not the duration.
    pub own_ns: u64,
    /// How many calls or events it stands for.
    pub count: u64,
}

/// Items that are not packed yet.
#[derive(Default)]
pub struct Columns {
    columns: [Vec<u8>; 6],
    last_start_ns: u64,
    /// So many.
    pub items: u32,
    start_ns: u64,
    end_ns: u64,
}

/// Packed items.
pub struct Packed {
    /// The first start.
    pub start_ns: u64,
    /// The last end.
    pub end_ns: u64,
    /// So many.
    pub items: u32,
    /// Base64.
    pub text: String,
}

impl Columns {
    /// Adds an item.
    pub fn push(&mut self, item: &Item) {
        let [flags, depth, function, start, length, more] = &mut self.columns;
        put(flags, u64::from(item.flags));
        put(depth, u64::from(item.depth));
        put(function, u64::from(item.function));
        let difference = item.start_ns.wrapping_sub(self.last_start_ns) as i64;
        put(start, ((difference << 1) ^ (difference >> 63)) as u64);
        put(length, item.end_ns.saturating_sub(item.start_ns));
        for (flag, number) in [
            (COUNT, item.count),
            (TOTAL, item.total_ns),
            (OWN, item.own_ns),
        ] {
            if item.flags & flag != 0 {
                put(more, number);
            }
        }
        self.start_ns = match self.items {
            0 => item.start_ns,
            _ => self.start_ns.min(item.start_ns),
        };
        self.end_ns = self.end_ns.max(item.end_ns);
        self.last_start_ns = item.start_ns;
        self.items += 1;
    }

    /// Packs all items and forgets them; `None` if there are none.
    pub fn pack(&mut self) -> Option<Packed> {
        let whole = std::mem::take(self);
        (whole.items > 0).then(|| Packed {
            start_ns: whole.start_ns,
            end_ns: whole.end_ns,
            items: whole.items,
            text: pack_bytes(&whole.columns.concat()),
        })
    }
}

/// Compressed, as base64.
pub fn pack_bytes(bytes: &[u8]) -> String {
    base64(&compress_to_vec(bytes, COMPRESSION_LEVEL))
}

fn put(column: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        column.push(number as u8 | 0x80);
        number >>= 7;
    }
    column.push(number as u8);
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let is_there = digit <= group.len();
            let value = bits >> (18 - 6 * digit) & 63;
            text.push(if is_there {
                char::from(DIGITS[value as usize])
            } else {
                '='
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_rfc_4648() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn a_part_spans_its_items_in_whatever_order() {
        let mut columns = Columns::default();
        assert!(columns.pack().is_none());
        for (start_ns, end_ns) in [(50, 60), (10, 70), (u64::MAX - 1, u64::MAX)] {
            columns.push(&Item {
                start_ns,
                end_ns,
                ..Item::default()
            });
        }
        let packed = columns.pack().unwrap();
        assert_eq!(
            (packed.start_ns, packed.end_ns, packed.items),
            (10, u64::MAX, 3)
        );
        assert!(columns.pack().is_none());
    }
}
