//! A trace with wrong content behind right checksums goes through every view without a panic:
//! either the reader refuses it or something is shown.

mod every_view;
#[path = "../../trace/tests/hostile/mod.rs"]
mod hostile;

use every_view::show_all;
use hostile::{XorShift, corrupt, trace};

#[test]
fn hostile_traces_are_refused_or_shown() {
    for has_kernel in [false, true] {
        let good = trace(has_kernel);
        assert!(show_all(&good).unwrap() > 5000);
        let mut random = XorShift(0x7ace);
        let (mut refused, mut shown) = (0, 0);
        for round in 0..1500 {
            let mut bytes = good.clone();
            match round % 4 {
                0 => bytes.truncate(random.below(good.len() as u64) as usize),
                _ => corrupt(&mut bytes, &mut random),
            }
            match show_all(&bytes) {
                Ok(_) => shown += 1,
                Err(_) => refused += 1,
            }
        }
        assert!(
            refused > 100 && shown > 100,
            "{refused} refused, {shown} shown"
        );
    }
}
