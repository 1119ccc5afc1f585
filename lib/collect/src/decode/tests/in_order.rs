//! Calls in order, alone and among others that have stamps.

use super::*;
use crate::decode::mixed::Length;

/// What a chunk with calls in order is told as, between 100 and the anchor's 1000.
fn in_order(thread: &mut Thread, calls: &[u32]) -> Vec<Told> {
    let chunk = [
        &control(100, ANCHOR, HIGH + 100)[..],
        calls,
        &control(1000, ANCHOR, HIGH + 1000),
    ]
    .concat();
    thread.chunk(&chunk)
}

#[test]
fn calls_in_order_end_where_the_stack_shows_it_and_their_times_lie_between_stamps() {
    const TOP: u32 = 0x7000_1000;
    let calls = [TOP, ORDERED, TOP - 16, ORDERED, TOP - 16, ORDERED];
    let more = [TOP - 16, ORDERED_TAIL, TOP, ORDERED];
    let calls = [&calls[..], &more].concat();
    let tail = PLACE_ENTRY | PLACE_TAIL;
    let want = [
        Between(100, 1000),
        Enter(250, PLACE_ENTRY, 4),
        Enter(400, PLACE_ENTRY, 4),
        Exit(475),
        Enter(550, PLACE_ENTRY, 4),
        Enter(700, tail, 5),
        Exit(750),
        Exit(800),
        Enter(850, PLACE_ENTRY, 4),
    ];
    for (takes_rows, takes_runs) in [(true, true), (true, false), (false, false)] {
        let mut thread = Thread::new();
        thread.sink.takes_rows = takes_rows;
        thread.sink.takes_runs = takes_runs;
        let mut told = in_order(&mut thread, &calls);
        if takes_runs {
            // The span is told again behind what had to be looked at by itself.
            assert_eq!(told.first(), want.first());
            told = without_spans(told);
            told.insert(0, Between(100, 1000));
        }
        assert_eq!(told, want);
        assert_eq!(thread.torn, Torn::default());
    }
}

#[test]
fn calls_with_stamps_and_calls_in_order_have_one_stack() {
    const TOP: u32 = 0x7000_1000;
    let placed = |place| [place, PLACED];
    let mut thread = Thread::new();
    thread.cursor = thread.cursor.mixed();
    let calls = [TOP - 16, ORDERED, TOP - 32, ORDERED];
    let chunk = [&placed(TOP)[..], &[100, ENTRY], &calls, &placed(TOP - 16)].concat();
    // The last call is made where the outer one of the two in order was.
    let chunk = [&chunk[..], &[400, ENTRY, 500, EXIT, 600, EXIT]].concat();
    let want = [
        Enter(100, PLACE_ENTRY, 1),
        Between(100, 400),
        Enter(200, PLACE_ENTRY, 4),
        Enter(300, PLACE_ENTRY, 4),
        Exit(333),
        Exit(366),
        Enter(400, PLACE_ENTRY, 1),
        Exit(500),
        Exit(600),
    ];
    assert_eq!(thread.chunk(&chunk), want);
    // A longjmp leaves a call with stamps, which the agent tells later.
    let chunk = [
        &placed(TOP)[..],
        &[700, ENTRY],
        &placed(TOP - 64),
        &[800, ENTRY],
    ]
    .concat();
    let chunk = [&chunk[..], &[TOP - 16, ORDERED], &control(1000, UNWOUND, 1)].concat();
    let chunk = [&chunk[..], &[1100, EXIT]].concat();
    let want = [
        Enter(700, PLACE_ENTRY, 1),
        Enter(800, PLACE_ENTRY, 1),
        Between(800, 1000),
        Exit(850),
        Enter(900, PLACE_ENTRY, 4),
        Exit(1050),
        Exit(1100),
    ];
    assert_eq!(thread.chunk(&chunk), want);
    assert_eq!(thread.torn, Torn::default());
}

/// The last calls before a recording was stopped were missing: their times were estimates up to
/// where they were read.
#[test]
fn calls_in_order_that_may_be_of_before_the_end_are_part_of_the_recording() {
    let entered = |told: &[Told]| told.iter().filter(|told| matches!(told, Enter(..))).count();
    let calls = [0x1000, ORDERED, 0x0f00, ORDERED, 0x0f00, ORDERED];
    let mut thread = Thread::new();
    thread.sink.takes_rows = false;
    thread.sink.until_tsc = HIGH + 300;
    assert_eq!(entered(&in_order(&mut thread, &calls)), 0, "by their times");
    let mut thread = Thread::new();
    thread.sink.takes_rows = false;
    thread.sink.until_tsc = HIGH + 300;
    thread.cursor.ends_at = Some(HIGH + 300);
    let told = in_order(&mut thread, &calls);
    assert_eq!(told.first(), Some(&Between(100, 300)));
    assert_eq!(entered(&told), 3);
    // What comes then was recorded later.
    thread.cursor.ends_at = None;
    thread.cursor.later_than = HIGH + 310;
    thread.cursor.until_tsc = HIGH + 2000;
    assert_eq!(entered(&thread.chunk(&calls)), 0);
    assert_eq!(thread.torn, Torn::default());
}

#[test]
fn a_call_in_order_may_name_its_callee() {
    let mut thread = Thread::new();
    let low = CODE as u32 + 8;
    let calls = [0x1000, ORDERED_POINTER, low, 0x0f00, ORDERED_POINTER, low];
    let told = in_order(&mut thread, &calls);
    let want = [
        Between(100, 1000),
        Enter(400, PLACE_ENTRY, NAMED),
        Enter(700, PLACE_ENTRY, NAMED),
    ];
    assert_eq!(told, want);
    assert_eq!(thread.sink.named, [CODE + 8]);
}

#[test]
fn a_hole_among_calls_in_order_is_passed_over() {
    let mut thread = Thread::new();
    let calls = [0x1000, ORDERED, 0x0f00, 0, 0, 0, 0x0f00, ORDERED];
    let told = in_order(&mut thread, &calls);
    let entered = told.iter().filter(|told| matches!(told, Enter(..))).count();
    assert_eq!((entered, thread.torn), (2, Torn::default()));
    assert!(told.iter().all(|told| match told {
        Enter(tsc, ..) => (100..1000).contains(tsc),
        _ => true,
    }));
}

#[test]
fn a_function_that_is_called_where_nobody_sees_it_lies_where_the_stack_says() {
    let mut thread = Thread::new();
    let entered = |place: u32| {
        [
            control(200, AT_STACK, place.into()),
            control(200, ENTERED, CODE),
        ]
        .concat()
    };
    let calls = [&entered(0x1000)[..], &[0x0f00, ORDERED], &entered(0x1000)].concat();
    let told = in_order(&mut thread, &calls);
    let want = [
        Enter(200, PLACE_ENTRY, NAMED),
        Between(200, 200),
        Enter(200, PLACE_ENTRY, 4),
        Exit(200),
        Exit(200),
        Enter(200, PLACE_ENTRY, NAMED),
    ];
    assert_eq!(told, want);
}

/// A thread that makes up what it does, as the agent would write it.
struct Program {
    random: u64,
    tsc: u64,
    /// Open calls, the innermost last: where the stack pointer stood, and whether it has a stamp.
    open: Vec<(u32, bool)>,
    written: Vec<u32>,
    calls: usize,
    /// None of its calls has a stamp.
    is_in_order: bool,
    /// Of those that may have one, one of so many has.
    rarely: u64,
}

impl Program {
    fn new(seed: u64, tsc: u64) -> Self {
        Self {
            is_in_order: false,
            rarely: 1,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            tsc,
            open: Vec::new(),
            written: Vec::new(),
            calls: 0,
        }
    }

    fn one_of(&mut self, choices: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 20) % choices
    }

    /// A stamp, behind the anchor that it needs.
    fn stamp(&mut self) -> u32 {
        let before = self.tsc;
        self.tsc += self.one_of(300);
        if before >> 32 != self.tsc >> 32 {
            self.written
                .extend(control(self.tsc as u32, ANCHOR, self.tsc));
        }
        self.tsc as u32
    }

    fn call(&mut self) {
        let outer = self.open.last().map_or(0x7000_1000, |(place, _)| *place);
        let place = outer - 16 * (1 + self.one_of(3) as u32);
        let low = CODE as u32 + 8 * self.one_of(3) as u32;
        let kind = self.one_of(10);
        let is_stamped = kind < 3 && !self.is_in_order && self.one_of(self.rarely) == 0;
        if is_stamped {
            // The anchor is before the pair.
            let stamp = self.stamp();
            self.written.extend([place, PLACED]);
            match kind {
                0 => self.written.extend([stamp, POINTER, low]),
                _ => self.written.extend([stamp, ENTRY]),
            }
        } else if kind == 3 {
            self.written.extend([place, ORDERED_POINTER, low]);
        } else {
            self.written.extend([place, ORDERED]);
        }
        self.open.push((place, is_stamped));
        self.calls += 1;
    }

    fn end(&mut self) {
        if let Some((_, true)) = self.open.pop() {
            let stamp = self.stamp();
            self.written.extend([stamp, EXIT]);
        }
    }

    /// What runs goes on with another function.
    fn jump(&mut self) {
        match self.open.last() {
            Some((place, false)) => self.written.extend([*place, ORDERED_TAIL]),
            Some((_, true)) => {
                let stamp = self.stamp();
                self.written.extend([stamp, TAIL]);
            }
            None => return,
        }
        self.calls += 1;
    }

    /// Some calls are left at once.
    fn leave(&mut self) {
        let kept = self.one_of(self.open.len() as u64 + 1) as usize;
        let left = self.open.split_off(kept);
        let stamped = left.iter().filter(|(_, is_stamped)| *is_stamped).count();
        if stamped > 0 {
            let stamp = self.stamp();
            self.written.extend(control(stamp, UNWOUND, stamped as u64));
        }
    }

    /// What is in its next chunk.
    fn chunk(&mut self) -> Vec<u32> {
        for _ in 0..3000 {
            match self.one_of(64) {
                0 => self.leave(),
                1..4 => self.jump(),
                n if n < 34 && self.open.len() < 40 => self.call(),
                _ => self.end(),
            }
        }
        std::mem::take(&mut self.written)
    }
}

#[test]
fn calls_with_stamps_and_in_order_are_told_alike_one_by_one_and_in_a_row() {
    for seed in 1..20 {
        let start = HIGH + 0xfff0_0000;
        let mut program = Program::new(seed, start);
        let mut threads = [true, false].map(|takes_rows| {
            let mut thread = Thread::new();
            thread.cursor = Cursor::new(PID, start).mixed();
            thread.sink.takes_rows = takes_rows;
            thread
        });
        let (mut calls, mut ends) = (0, 0);
        for _ in 0..4 {
            let (tsc, chunk) = (program.tsc, program.chunk());
            let [in_rows, one_by_one] = threads.each_mut().map(|thread| {
                thread.cursor.begin_chunk(tsc);
                thread.cursor.until_tsc = program.tsc;
                let mut told = thread.chunk(&chunk);
                // In a row nobody asks how it is known what is called.
                for told in &mut told {
                    if let Enter(_, kind, _) = told {
                        *kind &= !PLACE_INDIRECT;
                    }
                }
                let lengths: Vec<(FunctionId, Length)> = thread.cursor.take_lengths().collect();
                assert_eq!(thread.torn, Torn::default());
                (told, lengths)
            });
            assert!(in_rows == one_by_one, "{seed}");
            let is_call = |told: &&Told| matches!(told, Enter(..));
            let is_end = |told: &&Told| matches!(told, Exit(_));
            calls += in_rows.0.iter().filter(is_call).count();
            ends += in_rows.0.iter().filter(is_end).count();
        }
        assert_eq!(calls, program.calls);
        assert!(ends > 0 && ends <= calls);
    }
}

#[test]
fn rows_that_are_mostly_long_are_told_alike_one_by_one_and_in_runs() {
    let mut runs = 0;
    for seed in 1..12 {
        let start = HIGH + 0xfff0_0000;
        let mut program = Program::new(seed, start);
        program.rarely = 20;
        let mut threads = [true, false].map(|takes_runs| {
            let mut thread = Thread::new();
            thread.cursor = Cursor::new(PID, start).mixed();
            thread.sink.takes_rows = takes_runs;
            thread.sink.takes_runs = takes_runs;
            thread
        });
        let mut calls = 0;
        for n in 0..40 {
            let (tsc, chunk) = (program.tsc, program.chunk());
            calls += calls_alike(
                &mut threads,
                &chunk,
                tsc..program.tsc,
                &format!("{n} of {seed}"),
            );
            // Whichever way they are taken, it is asked of the same calls how long they last. (Of
            // what goes on by a jump in a run that is not known.)
            let [in_runs, one_by_one] = threads.each_mut().map(|thread| {
                let lengths = thread.cursor.take_lengths();
                let calls = lengths.map(|(_, l)| u64::from(l.stamped) + u64::from(l.in_order));
                calls.sum::<u64>()
            });
            let differing = in_runs.abs_diff(one_by_one);
            assert!(differing * 50 <= one_by_one, "{in_runs} for {one_by_one}");
        }
        assert_eq!(calls, program.calls);
        runs += threads[0].sink.runs;
    }
    assert!(runs > 1000, "{runs} runs");
}

/// Both threads tell the same of a chunk of that time; gives how many calls are in it.
fn calls_alike(
    threads: &mut [Thread; 2],
    chunk: &[u32],
    time: std::ops::Range<u64>,
    which: &str,
) -> usize {
    let [in_runs, one_by_one] = threads.each_mut().map(|thread| {
        thread.cursor.begin_chunk(time.start);
        thread.cursor.until_tsc = time.end;
        let mut told = without_spans(thread.chunk(chunk));
        for told in &mut told {
            if let Enter(_, kind, _) = told {
                *kind &= !PLACE_INDIRECT;
            }
        }
        assert_eq!(thread.torn, Torn::default());
        told
    });
    let first = in_runs.iter().zip(&one_by_one).position(|(a, b)| a != b);
    assert_eq!(first, None, "chunk {which}");
    assert_eq!(in_runs.len(), one_by_one.len());
    let is_call = |told: &&Told| matches!(told, Enter(..));
    in_runs.iter().filter(is_call).count()
}

/// What was told, without where spans of time begin, which are told again in a run.
fn without_spans(told: Vec<Told>) -> Vec<Told> {
    let is_event = |told: &Told| !matches!(told, Between(..));
    told.into_iter().filter(is_event).collect()
}

#[test]
fn calls_in_order_are_told_alike_one_by_one_and_in_runs() {
    for seed in 1..20 {
        let start = HIGH + 0xfff0_0000;
        let mut program = Program::new(seed, start);
        program.is_in_order = true;
        let mut threads = [true, false].map(|takes_runs| {
            let mut thread = Thread::new();
            thread.cursor = Cursor::new(PID, start);
            thread.sink.takes_rows = takes_runs;
            thread.sink.takes_runs = takes_runs;
            thread
        });
        let mut calls = 0;
        for n in 0..6 {
            let tsc = program.tsc;
            let mut chunk = program.chunk();
            program.tsc += 5_000_000;
            // A number of a callee that must not be known any more, and a stack that is another.
            if n == 2 {
                for thread in &mut threads {
                    thread.book.forget_recent();
                }
                chunk.extend([0x1000_0000, ORDERED, 0x7000_0f00, ORDERED]);
                program.calls += 2;
            }
            calls += calls_alike(
                &mut threads,
                &chunk,
                tsc..program.tsc,
                &format!("{n} of {seed}"),
            );
        }
        assert_eq!(calls, program.calls);
    }
}

#[test]
fn a_record_without_an_id_is_no_call() {
    for takes_runs in [true, false] {
        let mut thread = Thread::new();
        thread.sink.takes_runs = takes_runs;
        let calls = [0x1000, ORDERED, 0x0f00, ORDERED, 0x0e00, 0];
        let told = in_order(&mut thread, &[&calls[..], &[0x0e00, ORDERED]].concat());
        let callees = told.iter().filter_map(|told| match told {
            Enter(_, _, callee) => Some(*callee),
            _ => None,
        });
        assert!(callees.clone().all(|callee| callee == 4) && callees.count() > 0);
    }
}

#[test]
fn returns_of_many_at_once_are_told_one_by_one() {
    const DEEP: u32 = 100_000;
    let mut thread = Thread::new();
    thread.sink.takes_runs = true;
    let deeper = (0..DEEP).flat_map(|n| [0x7000_0000 - 16 * n, ORDERED]);
    let calls: Vec<u32> = deeper.chain([0x7000_0000, ORDERED]).collect();
    let told = in_order(&mut thread, &calls);
    let exits = told.iter().filter(|told| matches!(told, Exit(_)));
    assert_eq!(exits.count(), DEEP as usize);
    assert_eq!(thread.torn, Torn::default());
}

#[test]
fn a_call_has_not_lasted_while_its_thread_waited_for_the_host() {
    let mut thread = Thread::new();
    thread.cursor = thread.cursor.mixed();
    let begins = [0x1000, PLACED, 100, ENTRY];
    let waits = control(700, BLOCKED, 550);
    let chunk = [&begins[..], &waits, &[800, EXIT]].concat();
    let told = thread.chunk(&chunk);
    assert_eq!(told.last(), Some(&Exit(800)));
    let lengths: Vec<_> = thread.cursor.take_lengths().collect();
    let length = Length {
        stamped: 1,
        in_order: 0,
        ticks: 150,
        longest: 150,
        longest_calls: 1,
    };
    assert_eq!(lengths, [(FunctionId(1), length)]);
}

/// Of calls that are taken in runs nobody asks how long each lasts; but one that is open where a
/// chunk ends may end in a chunk of which that is asked.
#[test]
fn a_short_call_that_is_open_where_a_run_ends_has_not_lasted_since_a_wait_before_it() {
    const TOP: u32 = 0x7000_1000;
    const CALLS: usize = 200;
    const WAIT: u64 = 1 << 24;
    let mut thread = Thread::new();
    thread.cursor = Cursor::new(PID, HIGH).mixed();
    thread.sink.takes_rows = true;
    thread.sink.takes_runs = true;
    let row = [TOP, ORDERED, TOP - 16, ORDERED].repeat(CALLS / 2);
    let mut now = HIGH + 1;
    let mut chunk = |before: &[u32], now: u64| {
        thread.cursor.begin_chunk(now);
        thread.cursor.until_tsc = now + 1000;
        thread.chunk(&[before, &row].concat());
        thread
            .cursor
            .take_lengths()
            .fold(Length::default(), |mut all, (_, length)| {
                all.add(length);
                all
            })
    };
    for _ in 0..40 {
        chunk(&[], now);
        now += 1000;
    }
    // A chunk that is not asked, with a wait before all calls, and then the first that is.
    let waited = control((now + WAIT) as u32, BLOCKED, WAIT);
    assert_eq!(chunk(&waited, now), Length::default());
    let length = chunk(&[], now + WAIT + 1000);
    assert!(length.calls() >= CALLS as u64, "{length:?}");
    let longest = length.longest / (length.calls() / CALLS as u64);
    assert!(longest <= 2000, "{longest} of {length:?}");
}

#[test]
fn a_call_of_the_kernel_is_inside_of_what_is_open_where_it_is_made() {
    const TOP: u32 = 0x7000_1000;
    const READ: u32 = 0;
    for takes_runs in [false, true] {
        let mut thread = Thread::new();
        thread.sink.takes_rows = takes_runs;
        thread.sink.takes_runs = takes_runs;
        thread.cursor = thread.cursor.with_ends();
        // The second has returned when the first one reads; a handler calls meanwhile.
        let calls = [TOP, ORDERED, TOP - 16, ORDERED];
        let first = u64::from(TOP - 16) << 32;
        let read = with_values(400, SYSTEM_CALL, READ, &[first, 0, 0, 0, 0, 0, 0], true);
        let handled = [TOP - 1000, ORDERED];
        let ended = with_values(600, SYSTEM_RETURN, RETURNED, &[READ.into(), 0], true);
        let after = [TOP - 16, ORDERED];
        let told = in_order(
            &mut thread,
            &[&calls[..], &read, &handled, &ended, &after].concat(),
        );
        let told: Vec<_> = told
            .into_iter()
            .filter(|told| !matches!(told, Values(..) | Between(..)))
            .collect();
        let want = [
            Enter(200, PLACE_ENTRY, 4),
            Enter(300, PLACE_ENTRY, 4),
            Exit(350),
            Enter(400, PLACE_ENTRY, NAMED),
            Enter(500, PLACE_ENTRY, 4),
            Exit(550),
            Exit(600),
            Enter(800, PLACE_ENTRY, 4),
        ];
        assert_eq!(told, want, "in runs: {takes_runs}");
        assert_eq!(thread.torn, Torn::default());
    }
}
