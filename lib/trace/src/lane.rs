//! Streams of lanes: sequences of calls that threads take turns in running, as goroutines.
//!
//! A lane has its number in the place of a thread's id, above all numbers that threads can have
//! (Linux gives them up to 2^22): so whoever tells streams apart by process and thread tells lanes
//! apart, too. Gives that number, and how a reader is shown it: `g17` is goroutine 17.

use std::fmt::{self, Display, Formatter};

/// From here on a thread's id is a lane's.
const LANES: u32 = 1 << 30;

/// What a lane has for its thread's id.
pub fn lane_tid(number: u64) -> u32 {
    LANES | number as u32 & (LANES - 1)
}

/// What it is called.
pub fn lane_name(number: u64) -> String {
    format!("goroutine {number}")
}

/// The number of the lane that has this in the place of a thread's id.
pub fn lane_of(tid: u32) -> Option<u32> {
    (tid & LANES != 0).then_some(tid & (LANES - 1))
}

/// A thread's id, or a lane's, as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tid(pub u32);

impl Display for Tid {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match lane_of(self.0) {
            Some(number) => f.pad(&format!("g{number}")),
            None => self.0.fmt(f),
        }
    }
}

/// As it is shown, or the id alone.
///
/// # Errors
/// It is neither.
pub fn parse_tid(text: &str) -> Result<u32, String> {
    let (lane, digits) = match text.strip_prefix('g') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let number: u32 = digits
        .parse()
        .map_err(|_| "expected a thread's id, or g17 for goroutine 17".to_owned())?;
    Ok(if lane {
        lane_tid(number.into())
    } else {
        number
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_is_shown_by_its_number_and_found_by_that() {
        let tid = lane_tid(17);
        assert_eq!((lane_of(tid), lane_of(17)), (Some(17), None));
        assert_eq!(
            (Tid(tid).to_string(), Tid(17).to_string()),
            ("g17".into(), "17".into())
        );
        assert_eq!(format!("{:>5}{:<4}", Tid(tid), Tid(17)), "  g1717  ");
        assert_eq!((parse_tid("g17"), parse_tid("17")), (Ok(tid), Ok(17)));
        assert!(parse_tid("g").is_err() && parse_tid("x1").is_err());
    }
}
