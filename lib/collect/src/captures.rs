//! What the agents shall read of system calls: the descriptions of `sptrace-types`, as the table
//! that they look at (`sptrace_wire::values`).
//!
//! Given which calls are wanted, and how much of strings; gives the table's bytes. Must not know
//! what becomes of them.

use sptrace_types::calls::descriptors::{self, DescriptorSet};
use sptrace_types::calls::{self, Selection, followed};
use sptrace_types::decode::capture::{Extent, From, Length, Load as Description, all_captures};
use sptrace_types::decode::types::{Call, Len, Phase};
use sptrace_types::syscalls;
use sptrace_wire::values::{
    Arm, Begin, CallCaptures, CaptureTable, Count, DESCRIPTORS, Load, UNWANTED_FAILED,
    UNWANTED_SHORT, UNWANTED_SUCCESSFUL, Until, When,
};

/// Which system calls are recorded, and how.
#[derive(Clone, Debug)]
pub struct SystemCalls {
    /// Which.
    pub wanted: Selection,
    /// On which descriptors they must be to be recorded; `None`: on any or none.
    pub descriptors: Option<DescriptorSet>,
    /// On which paths calls that have descriptors must be to be recorded, as absolute ones: those
    /// that surely are not are left out. Empty: on any. Not together with descriptors.
    pub paths: Vec<String>,
    /// Whether they must have succeeded, or must have failed; `None`: either.
    pub succeeded: Option<bool>,
    /// How long they must have taken.
    pub least_ns: u64,
    /// How much of strings and structures.
    pub extent: Extent,
    /// No functions are recorded beside them.
    pub only: bool,
}

impl SystemCalls {
    /// True if calls may be left out when they have ended.
    pub fn leave_out(&self) -> bool {
        self.unwanted() != 0
    }

    fn unwanted(&self) -> u8 {
        let by_result = match self.succeeded {
            None => 0,
            Some(true) => UNWANTED_FAILED,
            Some(false) => UNWANTED_SUCCESSFUL,
        };
        by_result | if self.least_ns > 0 { UNWANTED_SHORT } else { 0 }
    }
}

/// The table, for a clock of so many ticks a second; `has_payload` says of a number whether
/// something runs at such calls.
pub fn table(asked: &SystemCalls, tsc_hz: u64, has_payload: &dyn Fn(u32) -> bool) -> Vec<u8> {
    let most = syscalls::all().iter().map(|call| call.number).max();
    let numbers = most.map_or(0, |most| most + 1);
    let mut calls = Vec::new();
    let mut rest = Rest {
        start: CaptureTable::BYTES + numbers as usize * CallCaptures::BYTES,
        bytes: Vec::new(),
    };
    for number in 0..numbers {
        let call = CallCaptures {
            has_payload: has_payload(number).into(),
            ..rest.call(number, asked)
        };
        calls.extend(call.to_bytes());
    }
    let head = CaptureTable {
        calls: numbers,
        asked_at: match &asked.descriptors {
            Some(set) => {
                // A common routine reads them by words, and the program may have set AC.
                let to_align = (rest.start + rest.bytes.len()).wrapping_neg() % size_of::<u64>();
                rest.put(&[0; size_of::<u64>()][..to_align]);
                rest.put(&bits_of(set))
            }
            None => 0,
        },
        asked_above: match &asked.descriptors {
            Some(set) => set.contains(i32::MAX).into(),
            None => 0,
        },
        paths: asked.paths.len() as u32,
        paths_at: match asked.paths.is_empty() {
            true => 0,
            false => rest.put(&paths_of(&asked.paths)),
        },
        unwanted: asked.unwanted(),
        least_ticks: ticks(asked.least_ns, tsc_hz),
    };
    [&head.to_bytes()[..], &calls, &rest.bytes].concat()
}

fn paths_of(paths: &[String]) -> Vec<u8> {
    let one = |path: &String| [&(path.len() as u32).to_le_bytes()[..], path.as_bytes()].concat();
    paths.iter().flat_map(one).collect()
}

fn ticks(ns: u64, tsc_hz: u64) -> u64 {
    let ticks = u128::from(ns) * u128::from(tsc_hz) / 1_000_000_000;
    u64::try_from(ticks).unwrap_or(u64::MAX)
}

/// A bit for each of the first descriptors, and none for others that are named.
fn bits_of(set: &DescriptorSet) -> Vec<u8> {
    let mut bits = vec![0; DESCRIPTORS as usize / 8];
    for fd in (0..DESCRIPTORS).filter(|fd| set.contains(*fd as i32)) {
        bits[fd as usize / 8] |= 1 << (fd % 8);
    }
    bits
}

/// What the calls point to.
pub(crate) struct Rest {
    pub(crate) start: usize,
    pub(crate) bytes: Vec<u8>,
}

impl Rest {
    /// Keeps bytes; gives where they are.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> u32 {
        let at = self.start + self.bytes.len();
        self.bytes.extend(bytes);
        at as u32
    }

    fn call(&mut self, number: u32, asked: &SystemCalls) -> CallCaptures {
        let is_wanted = u8::from(asked.wanted.contains(number));
        let Some(call) = calls::by_number(number) else {
            return CallCaptures {
                is_wanted,
                second: u8::MAX,
                ..CallCaptures::default()
            };
        };
        let captures = self.captures_of(call, asked.extent);
        let descriptors = match asked.paths.is_empty() {
            true => captures.descriptors,
            false => followed::on_descriptors_alone(call),
        };
        CallCaptures {
            is_wanted,
            descriptors,
            ..captures
        }
    }

    /// What is read for a call of this description.
    pub(crate) fn captures_of(&mut self, call: &Call, extent: Extent) -> CallCaptures {
        let mut arms = Vec::new();
        let all = all_captures(call, extent);
        let count = all.len() as u16;
        for (variant, loads) in all {
            let values = variant.map_or(&[][..], |v| v.values);
            let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
            let values_at = self.put(&bytes);
            let rows: Vec<u8> = loads.iter().flat_map(|l| load(l).to_bytes()).collect();
            arms.extend(
                Arm {
                    values_at,
                    values: values.len() as u32,
                    loads_at: self.put(&rows),
                    loads: loads.len() as u32,
                }
                .to_bytes(),
            );
        }
        let variants = call.variants;
        CallCaptures {
            arms_at: self.put(&arms),
            arms: count,
            is_wanted: 1,
            selector: variants.map_or(0, |v| v.selector),
            second: variants.and_then(|v| v.second).unwrap_or(u8::MAX),
            has_payload: 0,
            mask: variants.map_or(0, |v| v.mask),
            descriptors: descriptors::arguments(call),
        }
    }
}

fn load(d: &Description) -> Load {
    let (begin, from, stride, offset) = match d.from {
        From::Argument(index) => (Begin::Argument, index, 0, 0),
        From::Pointers {
            load,
            stride,
            offset,
        } => (Begin::Pointers, load as u8, stride, offset),
    };
    let (until, (count_kind, count_from, count), each, most) = match d.length {
        Length::String(most) => (Until::String, (Count::Constant, 0, 0), 1, most),
        Length::Pointers(most) => (Until::Null, (Count::Constant, 0, 0), 1, most),
        Length::Counted { count, each, most } => (Until::Count, counted(count), each, most),
    };
    let condition = d.only_if;
    Load {
        when: match d.phase {
            Phase::Entry => When::Before,
            Phase::Exit => When::After,
            Phase::Always => When::AfterAll,
        },
        begin,
        from,
        stride,
        offset,
        until,
        count_kind,
        count_from,
        count,
        each,
        most,
        condition: condition.map_or(0, |c| if c.set { 1 } else { 2 }),
        condition_of: condition.map_or(0, |c| c.argument),
        bits: condition.map_or(0, |c| c.bits),
    }
}

fn counted(len: Len) -> (Count, u8, u32) {
    match len {
        Len::Const(count) => (Count::Constant, 0, count),
        Len::Arg(index) => (Count::Argument, index, 0),
        Len::Product(a, b) => (Count::Product, a, b.into()),
        Len::Result => (Count::Result, 0, 0),
        Len::ArgOrResult(index) => (Count::Lesser, index, 0),
        Len::Field(offset, width) => (Count::Field, width, offset.into()),
        Len::Behind(index) => (Count::Behind, index, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sptrace_wire::values::CaptureView;

    fn view(text: &str) -> Vec<u8> {
        let wanted = Selection::parse(text, &|_, _| Ok(false)).unwrap();
        let extent = Extent {
            string_bytes: 32,
            verbose: false,
        };
        let only = false;
        table(
            &SystemCalls {
                wanted,
                descriptors: None,
                paths: Vec::new(),
                succeeded: None,
                least_ns: 0,
                extent,
                only,
            },
            1,
            &|_| false,
        )
    }

    #[test]
    fn every_load_of_every_call_is_found_by_its_arguments() {
        let bytes = view("all");
        let table = CaptureView::new(&bytes);
        for call in syscalls::all() {
            let row = table.call(call.number).unwrap();
            let Some(description) = calls::by_number(call.number) else {
                continue;
            };
            let extent = Extent {
                string_bytes: 32,
                verbose: false,
            };
            for (variant, loads) in all_captures(description, extent) {
                let mut args = [u64::MAX; 6];
                if let (Some(variant), Some(variants)) = (variant, description.variants) {
                    let Some(value) = variant.values.first() else {
                        continue;
                    };
                    match variants.second {
                        Some(second) => {
                            args[variants.selector as usize] = value >> 32;
                            args[second as usize] = value & 0xffff_ffff;
                        }
                        None => args[variants.selector as usize] = *value,
                    }
                }
                let selected = description.variant(&args);
                if selected.map(std::ptr::from_ref) != variant.map(std::ptr::from_ref) {
                    continue;
                }
                let arm = table.arm(&row, &args).unwrap();
                assert_eq!(arm.loads as usize, loads.len(), "{}", call.name);
                for (i, expected) in (0..).zip(&loads) {
                    assert_eq!(table.load(&arm, i), Some(load(expected)), "{}", call.name);
                }
            }
        }
    }

    #[test]
    fn calls_on_other_descriptors_are_told_from_those_asked_for() {
        let asked = SystemCalls {
            wanted: Selection::parse("all", &|_, _| Ok(false)).unwrap(),
            descriptors: Some(DescriptorSet::parse("3,9").unwrap()),
            paths: Vec::new(),
            succeeded: Some(true),
            least_ns: 1500,
            extent: Extent {
                string_bytes: 32,
                verbose: false,
            },
            only: true,
        };
        let bytes = table(&asked, 2_000_000_000, &|_| false);
        let view = CaptureView::new(&bytes);
        let head = view.head().unwrap();
        let unwanted = UNWANTED_FAILED | UNWANTED_SHORT;
        assert_eq!((head.unwanted, head.least_ticks), (unwanted, 3000));
        for call in syscalls::all() {
            let row = view.call(call.number).unwrap();
            for args in [[3; 6], [4; 6], [9, 0, 0, 0, 0, 0], [2000; 6], [u64::MAX; 6]] {
                let expected = calls::by_number(call.number).is_some_and(|description| {
                    asked
                        .descriptors
                        .as_ref()
                        .unwrap()
                        .is_in(description, &args)
                });
                assert_eq!(
                    view.is_asked(&row, &args),
                    expected,
                    "{} {args:?}",
                    call.name
                );
            }
        }
        let all = view_of_all();
        let read = CaptureView::new(&all).call(0).unwrap();
        assert!(CaptureView::new(&all).is_asked(&read, &[7; 6]));
    }

    #[test]
    fn paths_are_in_the_table_and_bind_calls_that_are_about_descriptors_alone() {
        let paths = ["/srv/data", "/srv/a longer one", "/"].map(str::to_owned);
        let asked = SystemCalls {
            wanted: Selection::parse("all", &|_, _| Ok(false)).unwrap(),
            descriptors: None,
            paths: paths.to_vec(),
            succeeded: None,
            least_ns: 0,
            extent: Extent {
                string_bytes: 32,
                verbose: false,
            },
            only: true,
        };
        let bytes = table(&asked, 1, &|_| false);
        let view = CaptureView::new(&bytes);
        let head = view.head().unwrap();
        let wanted = paths.iter().map(String::as_bytes);
        assert!(head.asked_at == 0 && view.paths(&head).eq(wanted));
        let bound = |name: &str| {
            let call = syscalls::all().iter().find(|call| call.name == name);
            view.call(call.unwrap().number).unwrap().descriptors
        };
        let all = ["read", "mmap", "openat", "close", "newfstatat"].map(bound);
        assert_eq!(all, [1, 16, 0, 0, 0]);
        // What ends too early has fewer.
        let cut = &bytes[..bytes.len() - 1];
        assert_eq!(CaptureView::new(cut).paths(&head).count(), 2);
    }

    fn view_of_all() -> Vec<u8> {
        view("all")
    }

    #[test]
    fn what_is_not_wanted_is_marked() {
        let bytes = view("read");
        let table = CaptureView::new(&bytes);
        assert_eq!(table.call(0).map(|call| call.is_wanted), Some(1));
        assert_eq!(table.call(1).map(|call| call.is_wanted), Some(0));
        assert!(table.call(100_000).is_none());
    }
}
