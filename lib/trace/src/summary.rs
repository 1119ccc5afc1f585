//! The summary of a trace: what was counted of coverage and loss, how recording ended, and its
//! bytes.
//!
//! The collector adds rows, in the order in which they are shown; views take them by their section.
//! A row's key names what was counted; which section it stands in is a type.

use crate::error::Malformed;
use crate::format::{Cursor, put_string, put_v};
use crate::note::EarlyEnd;

/// What a row of a [`Summary`] is about. The numbers are those of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Section {
    /// Call sites that were patched, by tactic.
    Sites = 1,
    /// Call sites that were left alone, by reason.
    Refused = 2,
    /// What is not seen, by reason.
    Hole = 3,
    /// Modules that are not traced, each with its reason.
    LeftOut = 4,
    /// Programs that were executed and not followed, each with its reason.
    NotFollowed = 5,
    /// A module of which not everything is seen, and why; so many of its calls have no end.
    SeenInPart = 6,
    /// Why calls have no recorded end.
    WithoutEnd = 7,
    /// Functions that were instrumented.
    Functions = 8,
    /// Events that were recorded.
    Events = 9,
    /// What the records took before they became events.
    Memory = 10,
    /// Events that were lost, by reason.
    Loss = 11,
    /// Events of before the recording's start, which were followed for the open calls.
    Shadow = 12,
    /// What a ring dropped.
    Ring = 13,
    /// The trace is a copy of a ring made while recording went on; the key is the event that
    /// caused it.
    Dump = 14,
    /// Recorded with pauses, so often.
    Recorded = 15,
    /// The ticks of all recordings together, without the pauses.
    RecordedFor = 16,
    /// What a recording with a budget was to cost and has cost, each in millionths of the program's
    /// CPU time: see [`BUDGET_ASKED`] and those beside it.
    Budget = 17,
    /// Calls that a script has changed, by what was done.
    Changed = 18,
    /// What payloads of a script have asked of the recording, how often, and how often it was done.
    Bidden = 19,
    /// Call sites whose return addresses stayed on the stack, by where the ends of their calls are
    /// seen.
    Ends = 20,
}

/// Key of [`Section::Budget`]: what was asked for.
pub const BUDGET_ASKED: &str = "asked for";
/// Key of [`Section::Budget`]: what was spent in steady state.
pub const BUDGET_SPENT: &str = "spent in steady state";
/// The same where the recording was no longer than its start.
pub const BUDGET_SPENT_AT_START: &str = "spent in its start";
/// Key of [`Section::Budget`]: of that, by calls that were counted.
pub const BUDGET_COUNTS: &str = "by counted calls";
/// Key of [`Section::Budget`]: of that, by sptrace's own process.
pub const BUDGET_HOST: &str = "by sptrace's process";

impl Section {
    /// All, with the names that are shown and that stand in tables for other programs.
    pub const NAMES: [(Self, &'static str); 20] = [
        (Self::Sites, "sites"),
        (Self::Refused, "refused"),
        (Self::Hole, "hole"),
        (Self::LeftOut, "left out"),
        (Self::NotFollowed, "not followed"),
        (Self::SeenInPart, "seen in part"),
        (Self::WithoutEnd, "calls without an end"),
        (Self::Functions, "functions"),
        (Self::Events, "events"),
        (Self::Memory, "memory"),
        (Self::Loss, "loss"),
        (Self::Shadow, "shadow mode"),
        (Self::Ring, "ring"),
        (Self::Dump, "dump"),
        (Self::Recorded, "recorded"),
        (Self::RecordedFor, "recorded for"),
        (Self::Budget, "budget"),
        (Self::Changed, "changed by the script"),
        (Self::Bidden, "asked by the script"),
        (Self::Ends, "ends of calls"),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        let named = Self::NAMES.iter().find(|(section, _)| *section == self);
        named.map_or("", |(_, name)| name)
    }

    fn from_byte(byte: u8) -> Option<Self> {
        let mut sections = Self::NAMES.iter().map(|(section, _)| *section);
        sections.find(|section| *section as u8 == byte)
    }
}

/// One counted fact of coverage or loss.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SummaryRow {
    /// What it is about.
    pub section: Section,
    /// What was counted.
    pub key: String,
    /// How often.
    pub count: u64,
}

/// What the collector knew at the end.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// When recording ended.
    pub end_tsc: u64,
    /// Why, if it ended before the command did.
    pub ended_early: Option<EarlyEnd>,
    /// Coverage and loss, in the order to be shown.
    pub rows: Vec<SummaryRow>,
}

impl Summary {
    /// Adds a row.
    pub fn row(&mut self, section: Section, key: &str, count: u64) {
        self.rows.push(SummaryRow {
            section,
            key: key.to_owned(),
            count,
        });
    }

    /// The rows of a section.
    pub fn rows_of(&self, section: Section) -> impl Iterator<Item = &SummaryRow> {
        self.rows.iter().filter(move |row| row.section == section)
    }

    /// The sum of a section's counts.
    pub fn total(&self, section: Section) -> u64 {
        let rows = self.rows_of(section);
        rows.fold(0, |sum, row| sum.saturating_add(row.count))
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        put_v(out, self.end_tsc);
        match &self.ended_early {
            Some(why) => why.write(out),
            None => out.push(0),
        }
        put_v(out, self.rows.len() as u64);
        for row in &self.rows {
            out.push(row.section as u8);
            put_string(out, &row.key);
            put_v(out, row.count);
        }
    }

    pub(crate) fn read(mut from: Cursor<'_>) -> Result<Self, Malformed> {
        let end_tsc = from.v()?;
        let ended_early = match from.u8()? {
            0 => None,
            tag => Some(EarlyEnd::read(tag, &mut from)?),
        };
        let count = from.v()?;
        let mut rows = Vec::new();
        for _ in 0..count {
            let section = Section::from_byte(from.u8()?);
            rows.push(SummaryRow {
                section: section.ok_or(Malformed("unknown section of the summary"))?,
                key: from.string()?,
                count: from.v()?,
            });
        }
        Ok(Self {
            end_tsc,
            ended_early,
            rows,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_section_has_a_name_and_comes_back_with_its_rows() {
        let mut summary = Summary {
            end_tsc: 1 << 50,
            ended_early: Some(EarlyEnd::AtEvent("crash".to_owned())),
            rows: Vec::new(),
        };
        for (count, (section, name)) in Section::NAMES.into_iter().enumerate() {
            assert!(!name.is_empty() && section.name() == name);
            summary.row(section, name, count as u64);
        }
        for ended_early in [summary.ended_early.clone(), None] {
            let written = Summary {
                ended_early,
                ..summary.clone()
            };
            let mut bytes = Vec::new();
            written.write(&mut bytes);
            assert_eq!(Summary::read(Cursor::new(&bytes)).unwrap(), written);
        }
        assert_eq!(Section::from_byte(0), None);
        assert_eq!(Section::from_byte(21), None);
    }
}
