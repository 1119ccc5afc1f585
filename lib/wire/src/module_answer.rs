//! The answer to the question which module lies at an address ([`crate::control::ASK_MODULE`]).
//!
//! Given as six words in a question's slot; a value on both sides of the border. Must not know who
//! asks, or what either side does with it.

/// What the host says of the module at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModuleAnswer {
    /// Its call sites shall be patched.
    Planned(PlannedModule),
    /// It is left alone.
    LeftAlone {
        /// True where there is code of no file: made at run time, or anonymous memory.
        is_without_file: bool,
        /// First address that this is said of; equal to `end` if only of the one asked for.
        start: u64,
        /// Behind the last one.
        end: u64,
        /// Calls through pointers into it are recorded with full addresses: the low halves do not
        /// tell it from another module.
        is_wide: bool,
        /// It is the kernel's, and calls nothing of the program's.
        is_kernels: bool,
    },
}

/// A module with a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedModule {
    /// Offset of the plan in the arena.
    pub plan_offset: u64,
    /// What is added to an address in the file to have it in the process.
    pub bias: u64,
    /// Where the patch area shall lie in the process.
    pub area_at: u64,
    /// Its bytes.
    pub area_bytes: u64,
    /// An address in an unwinder that should be asked for next, or 0.
    pub unwinder: u64,
    /// As in [`ModuleAnswer::LeftAlone`].
    pub is_wide: bool,
    /// The area lies there already, left by an agent that is gone.
    pub is_left: bool,
}

const WITHOUT_FILE: u64 = 0;
const PLANNED: u64 = 1;
const LEFT_ALONE: u64 = 2;
const KIND: u64 = 0xff;
const IS_WIDE: u64 = 1 << 8;
const IS_LEFT: u64 = 1 << 9;
const IS_KERNELS: u64 = 1 << 10;

impl ModuleAnswer {
    /// Left alone, and nothing is known of what lies around the address.
    pub const NOTHING: Self = Self::LeftAlone {
        is_without_file: true,
        start: 0,
        end: 0,
        is_wide: false,
        is_kernels: false,
    };

    /// As it stands in the slot.
    #[must_use]
    pub fn to_words(self) -> [u64; 6] {
        let flag = |is_set, bit| if is_set { bit } else { 0 };
        match self {
            Self::Planned(m) => [
                PLANNED | flag(m.is_wide, IS_WIDE) | flag(m.is_left, IS_LEFT),
                m.plan_offset,
                m.bias,
                m.area_at,
                m.area_bytes,
                m.unwinder,
            ],
            Self::LeftAlone {
                is_without_file,
                start,
                end,
                is_wide,
                is_kernels,
            } => {
                let kind = match is_without_file {
                    true => WITHOUT_FILE,
                    false => LEFT_ALONE,
                };
                let flags = flag(is_wide, IS_WIDE) | flag(is_kernels, IS_KERNELS);
                [kind | flags, start, end, 0, 0, 0]
            }
        }
    }

    /// Reads it from there. What no host writes counts as nothing known.
    #[must_use]
    pub fn from_words(words: [u64; 6]) -> Self {
        let [first, a, b, c, d, e] = words;
        let is_wide = first & IS_WIDE != 0;
        match first & KIND {
            PLANNED => Self::Planned(PlannedModule {
                plan_offset: a,
                bias: b,
                area_at: c,
                area_bytes: d,
                unwinder: e,
                is_wide,
                is_left: first & IS_LEFT != 0,
            }),
            kind @ (WITHOUT_FILE | LEFT_ALONE) => Self::LeftAlone {
                is_without_file: kind == WITHOUT_FILE,
                start: a,
                end: b,
                is_wide,
                is_kernels: first & IS_KERNELS != 0,
            },
            _ => Self::NOTHING,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let planned = PlannedModule {
            plan_offset: 1 << 20,
            bias: 0x5555_0000_0000,
            area_at: 0x5555_1000_0000,
            area_bytes: 4096,
            unwinder: 7,
            is_wide: false,
            is_left: true,
        };
        let wide = PlannedModule {
            is_wide: true,
            is_left: false,
            ..planned
        };
        let left_alone = |is_without_file, is_wide| ModuleAnswer::LeftAlone {
            is_without_file,
            start: 1,
            end: u64::MAX,
            is_wide,
            is_kernels: is_wide,
        };
        for answer in [
            ModuleAnswer::NOTHING,
            ModuleAnswer::Planned(planned),
            ModuleAnswer::Planned(wide),
            left_alone(true, false),
            left_alone(false, true),
        ] {
            assert_eq!(ModuleAnswer::from_words(answer.to_words()), answer);
        }
    }

    #[test]
    fn an_empty_slot_says_nothing() {
        assert_eq!(ModuleAnswer::from_words([0; 6]), ModuleAnswer::NOTHING);
        assert_eq!(ModuleAnswer::from_words([99; 6]), ModuleAnswer::NOTHING);
    }
}
