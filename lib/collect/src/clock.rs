//! The TSC's frequency, measured against CLOCK_MONOTONIC_RAW.
//!
//! It is measured once while the machine runs, and kept in the user's folder of analyses: measuring
//! takes longer than all else that is done before a command begins. What is kept is used if it fits
//! to what has passed since we began.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::OnceLock;

/// How often both clocks are read for one point, of which the closest pair counts.
const TRIES: usize = 40;
/// The frequency is measured over so many milliseconds, by which a recording begins later. Measured
/// of two points like that: they err by 0.3 millionths, over 10 ms by 0.1.
const CALIBRATION_MILLIS: u64 = 2;

/// A frequency that is kept may be so many parts of itself away from what a short look says: such a
/// look errs by less, and another machine by more.
const FITS: u64 = 1000;
/// A shorter time than this says nothing, in ns.
const SHORTEST_LOOK_NS: u64 = 200_000;
/// Tells one start of the machine from another (random(4)).
const BOOT: &str = "/proc/sys/kernel/random/boot_id";
/// The file in the folder.
const FILE: &str = "clock";

static BEGUN: OnceLock<Point> = OnceLock::new();

/// Now, in ticks.
pub fn tsc() -> u64 {
    // SAFETY: user-mode rdtsc is available unless forbidden by prctl, which we do not do.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// A point in both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// Ticks.
    pub tsc: u64,
    /// Nanoseconds of CLOCK_MONOTONIC_RAW.
    pub ns: u64,
}

/// Reads both, as close together as a few tries allow.
pub fn point() -> Point {
    let mut best = (u64::MAX, Point { tsc: 0, ns: 0 });
    for _ in 0..TRIES {
        let before = tsc();
        let mut t = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: t is ours.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_RAW, &raw mut t) };
        let after = tsc();
        let ns = t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64;
        if after - before < best.0 {
            best = (
                after - before,
                Point {
                    tsc: before + (after - before) / 2,
                    ns,
                },
            );
        }
    }
    best.1
}

/// Ticks a second between two points; 0 if they are too close.
pub fn hertz(a: Point, b: Point) -> u64 {
    if b.ns <= a.ns {
        return 0;
    }
    (u128::from(b.tsc - a.tsc) * 1_000_000_000 / u128::from(b.ns - a.ns)) as u64
}

/// The frequency, measured over at least `millis`.
pub fn calibrate(millis: u64) -> u64 {
    let a = point();
    std::thread::sleep(std::time::Duration::from_millis(millis));
    hertz(a, point())
}

/// We begin: from here on a frequency that is kept can be compared with what passes.
pub fn begin() {
    BEGUN.get_or_init(point);
}

/// The frequency: as it is kept in `folder`, or measured and put there.
pub fn frequency(folder: Option<&Path>) -> u64 {
    let boot = fs::read_to_string(BOOT).unwrap_or_default();
    let file = folder.map(|folder| folder.join(FILE));
    let kept = file.as_ref().and_then(|file| fs::read_to_string(file).ok());
    if let Some(hz) = kept.and_then(|kept| of_boot(&kept, &boot))
        && let Some(begun) = BEGUN.get()
        && fits(hz, *begun, point())
    {
        return hz;
    }
    let hz = calibrate(CALIBRATION_MILLIS);
    if let Some(file) = file.filter(|_| !boot.is_empty()) {
        // Whole or not at all. If it cannot be written, it is measured again next time.
        let new = file.with_extension(format!("{}", std::process::id()));
        let mut options = OpenOptions::new();
        let opened = options.write(true).create_new(true).mode(0o600).open(&new);
        let text = format!("{} {hz}\n", boot.trim());
        let written = opened.and_then(|mut file| file.write_all(text.as_bytes()));
        if written.and_then(|()| fs::rename(&new, &file)).is_err() {
            let _ = fs::remove_file(&new);
        }
    }
    hz
}

/// What is kept, if it is of this start of the machine.
fn of_boot(kept: &str, boot: &str) -> Option<u64> {
    let (of, hz) = kept.trim().split_once(' ')?;
    (of == boot.trim()).then(|| hz.parse().ok())?
}

fn fits(hz: u64, a: Point, b: Point) -> bool {
    let is_long = b.ns.saturating_sub(a.ns) >= SHORTEST_LOOK_NS;
    is_long && hertz(a, b).abs_diff(hz) <= hz / FITS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_used_on_the_same_machine_since_the_same_start() {
        assert_eq!(of_boot("abc 2000\n", "abc\n"), Some(2000));
        assert_eq!(of_boot("abd 2000\n", "abc\n"), None);
        assert_eq!(of_boot("abc x", "abc"), None);
        let at = |ns: u64, tsc: u64| Point { tsc, ns };
        let hz = 2_000_000_000;
        assert!(fits(hz, at(0, 0), at(1_000_000, 2_000_100)));
        assert!(!fits(hz, at(0, 0), at(1_000_000, 2_010_000)));
        assert!(!fits(hz, at(0, 0), at(1000, 2000)));
    }

    #[test]
    fn it_is_measured_once() {
        let folder = std::env::temp_dir().join(format!("sptrace-clock-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        begin();
        let first = frequency(Some(&folder));
        assert!(first > 100_000_000);
        let kept = fs::read_to_string(folder.join(FILE)).unwrap();
        assert_eq!(
            of_boot(&kept, &fs::read_to_string(BOOT).unwrap()),
            Some(first)
        );
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert_eq!(frequency(Some(&folder)), first);
        fs::remove_dir_all(&folder).unwrap();
    }
}
