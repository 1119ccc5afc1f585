//! Numbers with units: durations are nanoseconds, sizes are bytes.
//!
//! Must not know what is measured.

use super::Vocabulary;

/// The largest number of them that is exact.
fn scaled(number: f64, factor: i64) -> i64 {
    (number * factor as f64).round() as i64
}

macro_rules! units {
    ($all:ident, $($form:literal $name:ident $factor:expr, $text:literal;)*) => {$(
        $all.property($form, $text, |n: &mut i64| n.saturating_mul($factor));
        $all.words.pop();
        $all.property($form, $text, |n: &mut f64| scaled(*n, $factor));
    )*};
}

/// Adds them.
pub fn add(all: &mut Vocabulary<'_>) {
    all.section("Units");
    units! { all,
        "200.ns" ns 1, "nanoseconds, in which all durations are counted";
        "5.us" us 1_000, "microseconds";
        "200.ms" ms 1_000_000, "milliseconds";
        "1.5.s" s 1_000_000_000, "seconds";
        "2.min" min 60_000_000_000, "minutes";
        "64.kb" kb 1 << 10, "KiB, of 1024 bytes";
        "16.mb" mb 1 << 20, "MiB";
        "1.gb" gb 1 << 30, "GiB";
    }
}
