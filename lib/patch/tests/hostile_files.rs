//! An ELF file whose bytes were changed or cut goes through reader, analysis and plan without a
//! panic and in bounded time: it is refused, or a poorer plan comes out that its reader accepts.
//!
//! Changes go where structures are: headers, section table, dynamic section, relocations, unwind
//! tables; and anywhere.

use sptrace_image::Object;
use sptrace_patch::build_plan;
use sptrace_wire::plan::PlanView;

struct XorShift(u64);

impl XorShift {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound.max(1)
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// File ranges of the headers, the section table and each section but the code.
fn structures(bytes: &[u8]) -> Vec<(usize, usize)> {
    let table = word(bytes, 40) as usize;
    let count = usize::from(u16::from_le_bytes([bytes[60], bytes[61]]));
    let mut out = vec![(0, 64), (64, 64 + 13 * 56), (table, table + count * 64)];
    for n in 0..count {
        let at = table + n * 64;
        let (is_code, is_bss) = (word(bytes, at + 8) & 4 != 0, bytes[at + 4] == 8);
        let (start, length) = (word(bytes, at + 24) as usize, word(bytes, at + 32) as usize);
        if !is_code && !is_bss && length > 0 {
            out.push((start, (start + length).min(start + 4096)));
        }
    }
    out
}

/// All that is done with a file. True: a plan came out.
fn use_file(bytes: &[u8]) -> bool {
    let Ok(object) = Object::parse(bytes) else {
        return false;
    };
    let analysis = sptrace_code::analyze(&object);
    let plan = build_plan(&object, &analysis);
    let view = PlanView::new(&plan).expect("our own plan");
    for i in 0..view.header().sites {
        let site = view.site(i).expect("a site that the header counts");
        let _ = view.ids(&site);
    }
    let _ = view.specials().count();
    true
}

fn change(bytes: &mut [u8], (start, end): (usize, usize), random: &mut XorShift) {
    let at = start + random.below((end - start) as u64) as usize;
    const VALUES: [u64; 8] = [
        0,
        1,
        u64::MAX,
        1 << 63,
        0x7fff_ffff,
        0xffff_ffff,
        u64::MAX - 7,
        0xffff_ffff_ffff_f000,
    ];
    match random.below(3) {
        0 => bytes[at] = random.below(256) as u8,
        1 => bytes[at] ^= 1 << random.below(8),
        _ => {
            let value = VALUES[random.below(8) as usize].to_le_bytes();
            let at = at & !7;
            if let Some(place) = bytes.get_mut(at..at + 8) {
                place.copy_from_slice(&value);
            }
        }
    }
}

fn fuzz(path: &str, rounds: usize) {
    let good = std::fs::read(path).unwrap();
    assert!(use_file(&good), "{path} itself gives a plan");
    let places = structures(&good);
    let mut random = XorShift(0xe1f);
    let mut plans = 0;
    for round in 0..rounds {
        let mut bytes = good.clone();
        for _ in 0..1 + random.below(4) {
            let place = if round % 4 == 0 {
                (0, bytes.len())
            } else {
                places[random.below(places.len() as u64) as usize]
            };
            change(&mut bytes, place, &mut random);
        }
        plans += usize::from(use_file(&bytes));
    }
    assert!(
        plans > rounds / 10 && plans < rounds,
        "{plans} plans from {rounds} files"
    );
}

#[test]
fn changed_programs() {
    fuzz("/bin/true", 2500);
}

#[test]
fn changed_libraries_with_exceptions() {
    let gcc_s = "/lib/x86_64-linux-gnu/libgcc_s.so.1";
    if std::path::Path::new(gcc_s).exists() {
        fuzz(gcc_s, 250);
    }
}

#[test]
fn cut_programs() {
    let good = std::fs::read("/bin/true").unwrap();
    let mut random = XorShift(0xc07);
    for length in (0..300).chain((0..200).map(|_| random.below(good.len() as u64) as usize)) {
        use_file(&good[..length]);
    }
}
