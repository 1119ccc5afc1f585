//! A Rust program: a panic caught with destructors run, trait objects, closures, threads and
//! channels, a panicking thread joined, a captured backtrace's depth; ends with status 5.
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;

trait Step {
    fn step(&self, x: u64) -> u64;
}
struct Add(u64);
struct Mul(u64);
impl Step for Add {
    #[inline(never)]
    fn step(&self, x: u64) -> u64 {
        x.wrapping_add(self.0)
    }
}
impl Step for Mul {
    #[inline(never)]
    fn step(&self, x: u64) -> u64 {
        x.wrapping_mul(self.0)
    }
}
struct Announce(u32);
impl Drop for Announce {
    fn drop(&mut self) {
        println!("dropped {}", self.0);
    }
}

#[inline(never)]
fn f_panics(depth: u32) -> u32 {
    let _announce = Announce(depth);
    if depth == 0 {
        panic!("at the bottom");
    }
    f_panics(depth - 1) + 1
}

fn main() {
    std::panic::set_hook(Box::new(|info| println!("hook: {}", info.payload().downcast_ref::<&str>().unwrap_or(&"?"))));
    let caught = catch_unwind(|| f_panics(10));
    println!("caught {}", caught.is_err());
    for _ in 0..100 {
        let hidden = AssertUnwindSafe(|| std::panic::resume_unwind(Box::new(3u8)));
        assert!(catch_unwind(hidden).is_err());
    }
    let steps: Vec<Box<dyn Step>> = vec![Box::new(Add(3)), Box::new(Mul(7)), Box::new(Add(1))];
    println!("steps {}", (0..1000u64).fold(1, |x, i| steps[(i % 3) as usize].step(x)));
    let (sender, receiver) = mpsc::channel();
    for id in 0..8u64 {
        let sender = sender.clone();
        thread::spawn(move || sender.send((0..1000).map(|i| i * id).sum::<u64>()));
    }
    drop(sender);
    println!("sum {}", receiver.iter().sum::<u64>());
    println!("thread panicked {}", thread::spawn(|| f_panics(3)).join().is_err());
    std::process::exit(5);
}
