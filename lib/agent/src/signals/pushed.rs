//! The middle of the instructions by which a slot pushes a return address.
//!
//! Given where a thread stands in them, and its registers; gives those that it has behind them, and
//! the return address. The instructions are `Builder::push_address` of lib/patch:
//!
//! ```text
//!   +0   lea rsp, [rsp-8]
//!   +5   push rax
//!   +6   lea rax, [rip+ADDRESS]
//!   +13  mov [rsp+8], rax
//!   +18  pop rax
//! ```

/// Their length.
pub const BYTES: u64 = sptrace_wire::plan::PUSHED_BACK_BYTES;
/// Where the displacement of ADDRESS stands, and where it counts from.
pub const ADDRESS_AT: u64 = 9;
const ADDRESS_FROM: u64 = 13;

/// What a thread has behind them: the address lies at the stack pointer, when it is written there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pushed {
    /// The stack pointer.
    pub rsp: u64,
    /// rax.
    pub rax: u64,
    /// The return address.
    pub back: u64,
}

/// The same, of a thread at `offset` of the instructions at `start`, with this displacement; given
/// its stack pointer, rax, and the word on top of its stack. `None`: no instruction begins there.
pub fn finish(
    (start, offset): (u64, u64),
    displacement: i32,
    (rsp, rax, on_top): (u64, u64, u64),
) -> Option<Pushed> {
    let (rsp, rax) = match offset {
        0 => (rsp.wrapping_sub(8), rax),
        5 => (rsp, rax),
        6 => (rsp.wrapping_add(8), rax),
        13 | 18 => (rsp.wrapping_add(8), on_top),
        _ => return None,
    };
    let back = start.wrapping_add(ADDRESS_FROM);
    let back = back.wrapping_add_signed(displacement.into());
    Some(Pushed { rsp, rax, back })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_everywhere_it_comes_to_the_same() {
        // At the start rsp is 0x1000 and rax 7; the address is 0x4000.
        let displacement = 0x4000 - (0x2000 + 13);
        let expected = Some(Pushed {
            rsp: 0xff8,
            rax: 7,
            back: 0x4000,
        });
        for (offset, rsp, rax, on_top) in [
            (0, 0x1000, 7, 1),
            (5, 0xff8, 7, 2),
            (6, 0xff0, 7, 7),
            (13, 0xff0, 0x4000, 7),
            (18, 0xff0, 0x4000, 7),
        ] {
            let found = finish((0x2000, offset), displacement, (rsp, rax, on_top));
            assert_eq!(found, expected, "{offset}");
        }
        assert_eq!(finish((0x2000, 7), 0, (0, 0, 0)), None);
    }
}
