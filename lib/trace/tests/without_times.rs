//! Runs of calls without times, told between other events, come out of the reader as what they are.

use sptrace_trace::{
    Begun, Entry, Event, FunctionId, Header, Item, Run, Span, Spread, StreamEncoder, StreamInfo,
    Summary, TraceReader, TraceWriter, Word, end_between,
};

struct XorShift(u64);

impl XorShift {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// What is told, and what shall be read.
struct Told {
    random: XorShift,
    /// Of the last event.
    tsc: u64,
    depth: u64,
    /// A program goes through the same calls again and again.
    pattern: Vec<(usize, u32, bool)>,
    /// Calls are told in words as far as that can be.
    in_words: bool,
    expected: Vec<Event>,
}

impl Told {
    fn new(seed: u64, in_words: bool) -> Self {
        let mut random = XorShift(seed);
        let pattern = (0..60).map(|_| {
            let returned = [0, 0, 1, 1, 1, 2, 3, 40][random.below(8) as usize];
            let callee = random.below(3000) as u32;
            (returned, callee, random.below(30) == 0)
        });
        Self {
            pattern: pattern.collect(),
            in_words,
            random,
            tsc: 5000,
            depth: 0,
            expected: Vec::new(),
        }
    }

    /// What comes next, of what the pattern says most often.
    fn next(&mut self, n: usize) -> (usize, FunctionId, bool) {
        let (returned, callee, is_tail) = self.pattern[n % self.pattern.len()];
        let callee = match self.random.below(20) {
            0 => self.random.below(3000) as u32,
            _ => callee,
        };
        let returned = returned.min(self.depth as usize);
        self.depth -= returned as u64;
        let is_tail = is_tail && self.depth > 0;
        self.depth += u64::from(!is_tail);
        (returned, FunctionId(callee), is_tail)
    }

    /// A call, before which so many return: at once, or since a moment of the span.
    fn expect(
        &mut self,
        (since, tsc): (u64, u64),
        returned: usize,
        callee: FunctionId,
        is_tail: bool,
    ) {
        let (since, ends) = (since.max(self.tsc).min(tsc), returned as u64);
        for number in 1..=ends {
            let tsc = end_between(since, tsc, number, ends);
            self.expected.push(Event::Exit { tsc });
        }
        let entry = if is_tail { Entry::Tail } else { Entry::Call };
        self.expected.push(Event::Enter { tsc, callee, entry });
        self.tsc = tsc;
    }

    fn between(&mut self, from: u64, to: u64) {
        let tsc = self.tsc.max(from);
        if tsc < to {
            let (back, ahead) = (tsc - from, to - tsc);
            self.expected.push(Event::Between { tsc, back, ahead });
        }
    }

    /// Two runs of one span, with an event between that is none of them.
    fn span(&mut self, encoder: &mut StreamEncoder) {
        let from = self.tsc - self.random.below(2) * self.random.below(100);
        let to = from + self.random.below(4) * self.random.below(100_000);
        let [first, second] = [0; 2].map(|_| 1 + self.random.below(300));
        let spread = Spread::new(from, to, first + second);
        let mut before = 0;
        for calls in [first, second] {
            self.between(from, to);
            let mut run = encoder.run();
            let told: Vec<_> = (0..calls).map(|n| self.next(n as usize)).collect();
            match self.in_words {
                true => in_words(&mut run, &told),
                false => told
                    .iter()
                    .for_each(|told| run.call(told.0, told.1, told.2)),
            }
            for (n, (returned, callee, is_tail)) in (0..).zip(told) {
                let tsc = spread.at(before + n + 1).max(self.tsc);
                let since = spread.at(before + n);
                self.expect((since, tsc), returned, callee, is_tail);
            }
            assert_eq!(run.stop(), calls);
            let span = Span {
                from_tsc: from,
                to_tsc: to,
                moments: first + second,
                before,
            };
            encoder.end_run(calls, span, spread.at(before + calls));
            before += calls;
            if self.random.below(3) == 0 {
                // What is told then is said to be in the span.
                self.between(from, to);
                encoder.lost(self.tsc, calls);
                self.expected.push(Event::Lost {
                    tsc: self.tsc,
                    events: calls,
                });
            }
        }
        let end = self.tsc.max(to);
        encoder.between(end, end);
    }

    /// A call, or nothing but returns, at a time of their own.
    fn timed(&mut self, encoder: &mut StreamEncoder, n: usize) {
        self.tsc += self.random.below(50_000);
        let (returned, callee, is_tail) = self.next(n);
        (0..returned).for_each(|_| encoder.exit(self.tsc));
        match is_tail {
            true => encoder.tail(self.tsc, callee),
            false => encoder.enter(self.tsc, callee),
        }
        self.expect((self.tsc, self.tsc), returned, callee, is_tail);
        if self.random.below(4) == 0 && self.depth > 1 {
            self.depth -= 1;
            encoder.exit(self.tsc + 7);
            self.tsc += 7;
            self.expected.push(Event::Exit { tsc: self.tsc });
        }
    }
}

/// Tells of calls, before which so many return, by words where they have room.
fn in_words(run: &mut Run<'_>, mut calls: &[(usize, FunctionId, bool)]) {
    while let [(returned, callee, is_tail), others @ ..] = calls {
        let mut word = run.word().expect("a run is short");
        let room = word.room();
        let (mut ended, mut begun, mut older) = (0, Vec::new(), Vec::new());
        let fits = |call: &&(usize, FunctionId, bool)| call.0 <= Word::MOST_RETURNED;
        let fitting = calls.iter().take_while(fits).take(room).count();
        for (returned, callee, is_tail) in &calls[..fitting] {
            word.call(*returned, *callee, *is_tail);
            for _ in 0..*returned {
                let left = older.pop();
                ended += usize::from(left.is_none());
                begun.truncate(left.unwrap_or(0));
            }
            if !is_tail {
                older.push(begun.len());
            }
            begun.push(Begun::new(*callee, *is_tail));
        }
        let taken = word.end();
        assert_eq!(taken.calls, fitting);
        run.took(taken, ended, &begun);
        calls = &calls[fitting..];
        if fitting == 0 {
            run.call(*returned, *callee, *is_tail);
            calls = others;
        }
    }
}

fn told(seed: u64, rounds: usize, in_words: bool) -> (Vec<u8>, Vec<Event>) {
    let header = Header {
        start_tsc: 1000,
        ..Header::default()
    };
    let mut writer = TraceWriter::create(Vec::new(), &header).unwrap();
    let stream = writer.stream(&StreamInfo::default()).unwrap();
    let mut encoder = writer.encoder(stream);
    let mut told = Told::new(seed, in_words);
    // Not yet in such a block.
    encoder.enter(told.tsc, FunctionId(1));
    told.expect((told.tsc, told.tsc), 0, FunctionId(1), false);
    told.depth = 1;
    for n in 0..rounds {
        told.span(&mut encoder);
        for m in 0..told.random.below(6) as usize {
            told.timed(&mut encoder, n + m);
        }
        if encoder.is_full() || told.random.below(40) == 0 {
            writer.write_block(&mut encoder).unwrap();
        }
        assert_eq!(u64::from(encoder.depth()), told.depth);
    }
    writer.write_block(&mut encoder).unwrap();
    let bytes = writer.finish(&Summary::default()).unwrap();
    (bytes, told.expected)
}

#[test]
fn runs_and_what_is_between_them_survive() {
    for seed in 1..6 {
        let (bytes, expected) = told(seed, 1500, true);
        assert!(bytes == told(seed, 1500, false).0, "words of seed {seed}");
        let mut reader = TraceReader::new(&bytes[..]).unwrap();
        let (mut read, mut events, mut blocks) = (0, 0, 0);
        let mut open = Vec::new();
        while let Some(item) = reader.next_item().unwrap() {
            let Item::Block(block) = item else { continue };
            events += block.events;
            blocks += 1;
            let opening = block.opening();
            let opening = opening.map(|frame| (frame.function, frame.entry == Entry::Tail));
            let opening: Vec<(FunctionId, bool)> = opening.collect();
            let hidden = block.hidden() as usize;
            assert_eq!(opening[..], open[hidden..], "block {blocks} of seed {seed}");
            for event in block.events() {
                let event = event.unwrap();
                // Which spans are told again in a new block is the encoder's.
                let is_expected = expected.get(read) == Some(&event);
                if !is_expected && matches!(event, Event::Between { .. }) {
                    continue;
                }
                assert_eq!(
                    Some(&event),
                    expected.get(read),
                    "event {read} of seed {seed}"
                );
                follow(&mut open, &event);
                read += 1;
            }
            assert!(block.last_tsc >= block.first_tsc);
        }
        assert_eq!(read, expected.len());
        assert!(events >= read as u64 && blocks > 10);
    }
}

/// The functions that are open, and whether a jump led to each.
fn follow(open: &mut Vec<(FunctionId, bool)>, event: &Event) {
    match event {
        Event::Enter { callee, entry, .. } => open.push((*callee, *entry == Entry::Tail)),
        Event::Exit { .. } => while open.pop().is_some_and(|(_, is_tail)| is_tail) {},
        _ => {}
    }
}
