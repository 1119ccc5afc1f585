//! Calls of functions as lines: words and memory in, text out.

use sptrace_types::decode::call::{Line, Options};
use sptrace_types::decode::function_line::{Called, line};
use sptrace_types::decode::memory::{Captured, Chunk};
use sptrace_types::decode::types::Phase;
use sptrace_types::functions::known;
use sptrace_types::functions::parse::{Defined, prototype};
use sptrace_types::functions::prototype::Prototype;

fn shown(
    prototype: &Prototype,
    words: &[u64],
    result: Option<([u64; 3], u32)>,
    memory: &[(Phase, u64, &[u8])],
) -> String {
    let chunks = memory.iter().map(|(phase, address, bytes)| Chunk {
        phase: *phase,
        address: *address,
        bytes: bytes.to_vec(),
    });
    let memory = Captured {
        chunks: chunks.collect(),
    };
    let called = Called {
        words,
        result,
        memory: &memory,
    };
    let name = &prototype.name;
    let Line { call, result, .. } = line(prototype, name, &called, &Options::default());
    format!("{call} {result}").trim_end().to_owned()
}

fn read(text: &str) -> Prototype {
    prototype(text, &Defined::new()).unwrap()
}

#[test]
fn a_failure_is_shown_with_its_errno() {
    let open = known::by_symbol("open").unwrap();
    let path: (_, _, &[u8]) = (Phase::Entry, 0x1000, b"/etc/x\0");
    let words = [0x1000, 0, 0, 0, 0, 0];
    assert_eq!(
        shown(&open, &words, Some(([0xffff_ffff, 0, 0], 2)), &[path]),
        "open(\"/etc/x\", O_RDONLY) = -1 ENOENT (No such file or directory)"
    );
    assert_eq!(
        shown(&open, &words, Some(([3, 0, 0], 0)), &[path]),
        "open(\"/etc/x\", O_RDONLY) = 3"
    );
    let fopen = known::by_symbol("fopen").unwrap();
    assert_eq!(
        shown(&fopen, &[0, 0], Some(([0; 3], 13)), &[]),
        "fopen(NULL, NULL) = NULL EACCES (Permission denied)"
    );
}

#[test]
fn what_comes_out_is_known_after_the_call() {
    let read = known::by_symbol("read").unwrap();
    let words = [4, 0x2000, 100];
    assert_eq!(shown(&read, &words, None, &[]), "read(4, 0x2000, 100)");
    let filled: (_, _, &[u8]) = (Phase::Exit, 0x2000, b"abc");
    assert_eq!(
        shown(&read, &words, Some(([3, 0, 0], 0)), &[filled]),
        "read(4, \"abc\", 100) = 3"
    );
}

#[test]
fn formats_take_their_arguments_from_both_kinds_of_registers() {
    let printf = known::by_symbol("printf").unwrap();
    let mut words = [0; 16];
    words[0] = 0x1000;
    words[1] = 7;
    words[2] = 0x2000;
    words[10] = 2.5f64.to_bits();
    let memory: [(Phase, u64, &[u8]); 2] = [
        (Phase::Entry, 0x1000, b"%d %f %s\0"),
        (Phase::Entry, 0x2000, b"text\0"),
    ];
    assert_eq!(
        shown(&printf, &words, Some(([12, 0, 0], 0)), &memory),
        "printf(\"%d %f %s\", 7, 2.5, \"text\") = 12"
    );
    // A format that cannot be read says nothing of arguments.
    assert_eq!(shown(&printf, &words, None, &[]), "printf(0x1000)");
}

#[test]
fn numbers_have_the_width_and_sign_of_their_types() {
    let all = read("short f(i8, u16, bool, char, float, x32, oct(int))");
    let words = [
        0xff,
        0x1_ffff,
        1,
        u64::from(b'\n'),
        u64::from(1.5f32.to_bits()),
        0x1_0000_000a,
        8,
    ];
    assert_eq!(
        shown(&all, &words, Some(([0xfffe, 0, 0], 0)), &[]),
        "f(-1, 65535, true, '\\n', 1.5, 0xa, 010) = -2"
    );
    let double = read("double f(double)");
    let two = 2f64.to_bits();
    assert_eq!(
        shown(&double, &[two], Some(([9, 9, two], 0)), &[]),
        "f(2.0) = 2.0"
    );
}

#[test]
fn hidden_parameters_and_missing_words_are_no_harm() {
    let hidden = read("int f(hide(int), int, ...)");
    assert_eq!(shown(&hidden, &[1, 2], None, &[]), "f(2, ...)");
    assert_eq!(shown(&hidden, &[], None, &[]), "f(0, ...)");
}
