//! What comes next in a stream of calls in order, as its blocks have it: symbols, and a table that
//! foretells each from the two before it.
//!
//! Encoder and decoder of a block keep the table alike; it begins anew in each block. A symbol
//! holds how many calls have returned and what has happened then, so that in most programs four
//! of five need one bit. Must not know times and frames.

/// Symbols that can be foretold; a power of two.
const SLOTS: usize = 4096;
/// More calls than these that return at once are said beside the symbol.
pub const MOST_RETURNED: u64 = 31;

const WHAT_BITS: u32 = 3;
const RETURNED_BITS: u32 = 5;
const NUMBER_SHIFT: u32 = WHAT_BITS + RETURNED_BITS;

/// What happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// A call begins, at a time that is spread over its span.
    Call,
    /// A jump goes on with a call, at such a time.
    Tail,
    /// A call begins, at a time that is given.
    CallAt,
    /// A jump goes on with a call, at a time that is given.
    TailAt,
    /// Nothing but that calls return, at a time that is given.
    Exits,
    /// Another event, at a time that is given: the number is its operation.
    Other,
}

/// `number << 8 | returned << 3 | what`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Symbol(u64);

impl Symbol {
    /// No symbol.
    const NONE: Self = Self(u64::MAX);

    /// So many calls have returned, [`MOST_RETURNED`] if there are more, and then this happens.
    #[inline(always)]
    pub fn new(what: What, returned: usize, number: u32) -> Self {
        let returned = (returned as u64).min(MOST_RETURNED);
        Self(u64::from(number) << NUMBER_SHIFT | returned << WHAT_BITS | what as u64)
    }

    /// The same of a call without a time, or of a jump that goes on with one.
    #[inline(always)]
    pub fn of_call(returned: usize, callee: u32, goes_on: bool) -> Self {
        let what = [What::Call, What::Tail][usize::from(goes_on)];
        Self::new(what, returned, callee)
    }

    /// As it is written.
    #[inline(always)]
    pub fn bits(self) -> u64 {
        self.0
    }

    /// As it was written, if it can be one.
    pub fn of_bits(bits: u64) -> Option<Self> {
        let symbol = Self(bits);
        let is_known = bits & ((1 << WHAT_BITS) - 1) <= What::Other as u64;
        (is_known && bits >> NUMBER_SHIFT <= u64::from(u32::MAX)).then_some(symbol)
    }

    /// What happens.
    #[inline]
    pub fn what(self) -> What {
        match self.0 & ((1 << WHAT_BITS) - 1) {
            0 => What::Call,
            1 => What::Tail,
            2 => What::CallAt,
            3 => What::TailAt,
            4 => What::Exits,
            _ => What::Other,
        }
    }

    /// So many calls return before it; as many at least if [`Self::is_many`].
    #[inline]
    pub fn returned(self) -> u64 {
        self.0 >> WHAT_BITS & MOST_RETURNED
    }

    /// How many return stands beside it.
    #[inline(always)]
    pub fn is_many(self) -> bool {
        self.returned() == MOST_RETURNED
    }

    /// The function's, or the operation's.
    #[inline]
    pub fn number(self) -> u32 {
        (self.0 >> NUMBER_SHIFT) as u32
    }
}

#[inline(always)]
fn slot(last: u32, before: u32) -> usize {
    let mixed = last.wrapping_mul(0x9e37_79b1) ^ before.wrapping_mul(0x85eb_ca6b);
    (mixed >> 20) as usize % SLOTS
}

/// The table while several symbols come in a row, with what stands in registers beside it.
pub struct Row<'a> {
    table: &'a mut [Symbol; SLOTS],
    last: u32,
    before: u32,
}

impl Row<'_> {
    /// As [`Foretold::came`], of a symbol that says all by itself.
    #[inline(always)]
    pub fn came(&mut self, symbol: Symbol) -> bool {
        let known = &mut self.table[slot(self.last, self.before)];
        let is_foretold = *known == symbol;
        *known = symbol;
        (self.before, self.last) = (self.last, symbol.0 as u32);
        is_foretold
    }

    /// The last two.
    #[inline]
    pub fn last(&self) -> (u32, u32) {
        (self.before, self.last)
    }
}

/// The table.
#[derive(Clone)]
pub struct Foretold {
    table: Box<[Symbol; SLOTS]>,
    last: u32,
    before: u32,
}

impl Foretold {
    /// Nothing has come.
    pub fn new() -> Self {
        Self {
            table: Box::new([Symbol::NONE; SLOTS]),
            last: 0,
            before: 0,
        }
    }

    /// The same again.
    pub fn begin_block(&mut self) {
        self.table.fill(Symbol::NONE);
        (self.last, self.before) = (0, 0);
    }

    #[inline(always)]
    fn slot(&self) -> usize {
        slot(self.last, self.before)
    }

    /// What comes next, if it is as last time; `None`: nothing has come here before.
    #[inline]
    pub fn expected(&self) -> Option<Symbol> {
        let symbol = self.table[self.slot()];
        (symbol != Symbol::NONE).then_some(symbol)
    }

    /// For several symbols in a row.
    #[inline]
    pub fn row(&mut self) -> Row<'_> {
        Row {
            table: &mut self.table,
            last: self.last,
            before: self.before,
        }
    }

    /// They have come, and these were the last two of all.
    #[inline]
    pub fn end_row(&mut self, (before, last): (u32, u32)) {
        (self.before, self.last) = (before, last);
    }

    /// This has come; says whether it was foretold. A symbol that says not all by itself never is.
    #[inline(always)]
    pub fn came(&mut self, symbol: Symbol) -> bool {
        let slot = self.slot();
        let is_foretold = self.table[slot] == symbol && !symbol.is_many();
        self.table[slot] = symbol;
        (self.before, self.last) = (self.last, symbol.0 as u32);
        is_foretold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbol_has_its_parts() {
        let symbol = Symbol::new(What::TailAt, 7, 123_456);
        assert_eq!((symbol.what(), symbol.returned()), (What::TailAt, 7));
        assert_eq!(symbol.number(), 123_456);
        assert!(!symbol.is_many() && Symbol::new(What::Call, 31, 0).is_many());
        assert!(Symbol::new(What::Call, 1 << 40, 0).is_many());
        assert!(Symbol::of_bits(symbol.bits()) == Some(symbol));
        assert!(Symbol::of_bits(6).is_none() && Symbol::of_bits(1 << 40).is_none());
    }

    #[test]
    fn what_came_twice_is_foretold_but_for_what_says_not_all() {
        let mut foretold = Foretold::new();
        let [a, b] = [1, 2].map(|number| Symbol::new(What::Call, 0, number));
        let many = Symbol::new(What::Call, 100, 3);
        let told: Vec<bool> = [a, b, many, a, b, many, a, b, many]
            .map(|symbol| foretold.came(symbol))
            .to_vec();
        // The third time, since the first one begins in another context.
        let expected = [false, false, false, false, false, false, true, true, false];
        assert_eq!(told, expected);
        assert!(foretold.expected().is_some());
        foretold.begin_block();
        assert!(foretold.expected().is_none());
    }
}
