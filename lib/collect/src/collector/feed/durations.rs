//! How long the calls of a thread last, as far as their beginning and their end are in one row of
//! plain events, or come one by one.
//!
//! Given the beginnings and ends of calls, and how many are open around each; gives each length. A
//! call around which something else has happened (an exception, a context that was left) has none:
//! whoever asks knows by the number of calls how many these are. Must not know what follows.

use sptrace_trace::FunctionId;

/// Calls whose end is waited for.
#[derive(Clone, Default)]
pub(super) struct Durations {
    /// Calls around the next, each of which may have jumped to others.
    depth: u32,
    open: Vec<(u32, FunctionId, u64)>,
}

impl Durations {
    /// A call begins, or, `is_tail`, the innermost one jumps to another function.
    #[inline]
    pub(super) fn enter(&mut self, tsc: u64, function: FunctionId, is_tail: bool) {
        self.depth += u32::from(!is_tail);
        self.open.push((self.depth, function, tsc));
    }

    /// The innermost call ends, and what has jumped to it.
    #[inline]
    pub(super) fn exit(&mut self, tsc: u64, mut lasted: impl FnMut(FunctionId, u64)) {
        while let Some(&(depth, function, since)) = self.open.last()
            && depth >= self.depth
        {
            self.open.pop();
            lasted(function, tsc.saturating_sub(since));
        }
        self.depth = self.depth.saturating_sub(1);
    }

    /// Something else has happened: of what is open nothing is known.
    pub(super) fn forget(&mut self) {
        self.open.clear();
        self.depth = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const F: FunctionId = FunctionId(1);
    const G: FunctionId = FunctionId(2);

    fn ends(durations: &mut Durations, tsc: u64) -> Vec<(FunctionId, u64)> {
        let mut all = Vec::new();
        durations.exit(tsc, |function, ticks| all.push((function, ticks)));
        all
    }

    #[test]
    fn calls_within_calls_and_jumps_have_their_lengths() {
        let mut durations = Durations::default();
        durations.enter(10, F, false);
        durations.enter(20, G, false);
        durations.enter(25, F, true);
        assert_eq!(ends(&mut durations, 40), [(F, 15), (G, 20)]);
        durations.enter(50, G, false);
        assert_eq!(ends(&mut durations, 51), [(G, 1)]);
        assert_eq!(ends(&mut durations, 60), [(F, 50)]);
    }

    #[test]
    fn an_end_without_its_beginning_is_none_and_what_was_forgotten_has_no_length() {
        let mut durations = Durations::default();
        assert_eq!(ends(&mut durations, 5), []);
        durations.enter(10, F, false);
        durations.forget();
        durations.enter(20, G, false);
        assert_eq!(ends(&mut durations, 30), [(G, 10)]);
        assert_eq!(ends(&mut durations, 40), []);
    }
}
