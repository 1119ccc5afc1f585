//! Strings and numbers of Rust. Each f_* prints itself as `sptrace report tree` has it.
use std::hint::black_box;

#[inline(never)]
fn f_str(s: &str, n: i32) -> i32 {
    println!("f_str({s:?}, {n}) = {}", s.len() as i32 + n);
    black_box(s.len() as i32 + n)
}

#[inline(never)]
fn f_string(s: &String) -> usize {
    println!("f_string({s:?}) = {}", s.len());
    black_box(s.len())
}

#[inline(never)]
fn f_numbers(a: u8, b: f64, c: bool) -> bool {
    println!("f_numbers({a}, {b:?}, {c}) = {}", !c);
    black_box(!c)
}

#[inline(never)]
fn f_part(s: &str) -> &str {
    println!("f_part({s:?}) = {:?}", &s[1..]);
    black_box(&s[1..])
}

fn main() {
    black_box(f_str(black_box("some text"), black_box(-5)));
    black_box(f_string(black_box(&String::from("owned"))));
    black_box(f_numbers(black_box(200), black_box(2.5), black_box(true)));
    black_box(f_part(black_box("part")));
}
