//! What a recording with a budget has cost, as a sentence.
//!
//! Given a trace's summary; gives the text, or none without a budget. Must not know where it
//! stands.

use sptrace_trace::{
    BUDGET_ASKED, BUDGET_COUNTS, BUDGET_HOST, BUDGET_SPENT, BUDGET_SPENT_AT_START, Section, Summary,
};

/// What was to be spent on the recording, and was; `None`: there was no budget.
pub(crate) fn budget_text(summary: &Summary) -> Option<String> {
    let share = |key: &str| {
        let mut rows = summary.rows_of(Section::Budget);
        let millionths = rows.find(|row| row.key == key)?.count;
        Some(millionths as f64 / 1e4)
    };
    let asked = share(BUDGET_ASKED)?;
    let (spent, when) = match (share(BUDGET_SPENT), share(BUDGET_SPENT_AT_START)) {
        (Some(spent), _) => (spent, "in steady state"),
        (None, spent) => (spent?, "in its start, and it was no longer"),
    };
    let (counts, host) = (share(BUDGET_COUNTS)?, share(BUDGET_HOST)?);
    let over = match spent > asked {
        false => "",
        true if counts > asked => "; over it: counted calls alone cost more",
        true => "; over it",
    };
    Some(format!(
        "{asked:.1} % of the program's CPU time; {spent:.1} % spent {when}, of which \
         {counts:.1} % by counted calls and {host:.1} % by sptrace's process{over}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_says_what_was_spent_and_whether_that_is_too_much() {
        let text = |spent: u64, counts: u64| {
            let mut summary = Summary::default();
            summary.row(Section::Budget, BUDGET_ASKED, 50_000);
            summary.row(Section::Budget, BUDGET_SPENT, spent);
            summary.row(Section::Budget, BUDGET_COUNTS, counts);
            summary.row(Section::Budget, BUDGET_HOST, 10_000);
            budget_text(&summary).unwrap_or_default()
        };
        assert_eq!(
            text(42_000, 5_000),
            "5.0 % of the program's CPU time; 4.2 % spent in steady state, of which 0.5 % by \
             counted calls and 1.0 % by sptrace's process"
        );
        assert!(text(80_000, 5_000).ends_with("; over it"));
        assert!(text(80_000, 60_000).ends_with("counted calls alone cost more"));
        assert_eq!(budget_text(&Summary::default()), None);
        let mut short = Summary::default();
        short.row(Section::Budget, BUDGET_ASKED, 50_000);
        short.row(Section::Budget, BUDGET_SPENT_AT_START, 900_000);
        short.row(Section::Budget, BUDGET_COUNTS, 0);
        short.row(Section::Budget, BUDGET_HOST, 800_000);
        let text = budget_text(&short).unwrap_or_default();
        assert!(
            text.contains("90.0 % spent in its start, and it was no longer"),
            "{text}"
        );
    }
}
