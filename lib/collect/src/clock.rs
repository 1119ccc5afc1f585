//! The TSC's frequency, measured against CLOCK_MONOTONIC_RAW.

/// How often both clocks are read for one point, of which the closest pair counts.
const TRIES: usize = 40;
/// The frequency is measured over so many milliseconds, by which a recording begins later. Measured
/// of two points like that: they err by 0.3 millionths, over 10 ms by 0.1.
pub const CALIBRATION_MILLIS: u64 = 2;

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
