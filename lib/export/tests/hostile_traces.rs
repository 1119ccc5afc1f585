//! A trace with wrong content behind right checksums, or cut short, goes through every export
//! without a panic: either the reader refuses it or something is written.

mod every_export;
#[path = "../../trace/tests/hostile/mod.rs"]
mod hostile;

use every_export::export_all;
use hostile::{XorShift, corrupt, trace};

#[test]
fn hostile_traces_are_refused_or_exported() {
    for has_kernel in [false, true] {
        let good = trace(has_kernel);
        assert!(export_all(&good).unwrap() > 5000);
        let mut random = XorShift(0x7ace);
        let (mut refused, mut written) = (0, 0);
        for round in 0..300 {
            let mut bytes = good.clone();
            match round % 3 {
                0 => bytes.truncate(random.below(good.len() as u64) as usize),
                _ => corrupt(&mut bytes, &mut random),
            }
            match export_all(&bytes) {
                Ok(_) => written += 1,
                Err(_) => refused += 1,
            }
        }
        assert!(
            refused > 10 && written > 10,
            "{refused} refused, {written} written"
        );
    }
}
