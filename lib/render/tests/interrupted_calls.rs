//! What a thread has told of calls and signals in, lines of strace's form out, where signals
//! interrupt calls: each case as the agent records it.

use sptrace_render::{
    Call, Calls, DescriptorNames, Lines, LinesOptions, Listener, Signal, Teller, ThreadColumn, Time,
};
use sptrace_trace::values::{Piece, Values, What};
use sptrace_trace::{Clock, ExitStatus, Header};
use sptrace_types::decode::call::Options;

const READ: u32 = 0;
const PAUSE: u32 = 34;
const WAIT4: u32 = 61;
const KILL: u32 = 62;
const SIGALRM: u32 = 14;
/// Where the context of a signal frame has rax, and where the mask lies.
const RAX_AT: u64 = 0x7000;
const MASK_AT: u64 = RAX_AT + 152;
const CALL_AT: u64 = 0x40_0000;
const EINTR: i64 = -4;

/// Where the handler goes back to.
#[derive(Clone, Copy)]
enum Back {
    /// Behind a call that has returned this.
    Behind(i64),
    /// To the call, which begins again.
    Again,
    /// To other code.
    Elsewhere,
}

struct Thread {
    calls: Calls<Written>,
    tsc: u64,
    tid: u32,
}

/// Lines, which are looked at afterwards.
struct Written(Lines<'static, Vec<u8>>);

impl Listener for Written {
    fn begins(&mut self, call: &Call) {
        self.0.begins(call);
    }
    fn ended(&mut self, call: &Call) {
        self.0.ended(call);
    }
    fn exited(&mut self, tsc: u64, tid: u32, status: ExitStatus) {
        self.0.exited(tsc, tid, status);
    }
    fn signal(&mut self, signal: &Signal) {
        self.0.signal(signal);
    }
    fn is_finished(&self) -> bool {
        false
    }
}

impl Thread {
    fn new() -> Self {
        let header = Header::default();
        let clock = Clock::of(&header);
        let options = LinesOptions {
            calls: Options::default(),
            thread: ThreadColumn::WhenSeveral,
            time: Time::None,
            is_relative: false,
            with_duration: false,
            column: 0,
            wanted: None,
            on_descriptors: None,
            succeeded: None,
            min_ticks: 0,
            with_number: false,
            limit: None,
            descriptors: DescriptorNames::None,
            paths: Vec::new(),
            resolve: |_| None,
            functions: None,
        };
        let lines = Lines::new(Vec::new(), &header, clock, options);
        Self {
            calls: Calls::new(Written(lines)),
            tsc: 0,
            tid: 7,
        }
    }

    fn tell(mut self, number: u32, what: What, pieces: &[(u8, u64, &[u8])]) -> Self {
        let pieces = pieces.iter().map(|(when, address, bytes)| Piece {
            when: *when,
            address: *address,
            bytes,
        });
        let values = Values {
            number,
            thread: 0,
            what,
            pieces: pieces.collect(),
        };
        let mut bytes = Vec::new();
        values.put(&mut bytes);
        self.tsc += 10;
        let tid = self.tid;
        let of = Teller {
            pid: tid,
            tid,
            ppid: 1,
        };
        self.calls.values(of, self.tsc, &bytes);
        self
    }

    /// What follows is told by another.
    fn of(mut self, tid: u32) -> Self {
        self.tid = tid;
        self
    }

    fn begins(self, number: u32, args: [u64; 3]) -> Self {
        let [a, b, c] = args;
        self.tell(number, What::Begins([a, b, c, 0, 0, 0]), &[])
    }

    fn returns(self, number: u32, result: i64) -> Self {
        self.tell(number, What::Returned(result), &[])
    }

    /// SIGALRM is delivered; `made`: memory of the call that it has interrupted.
    fn signal(self, number: u32, back: Back, mask: u64, made: &[(u8, u64, &[u8])]) -> Self {
        let [rax, rcx, rip] = match back {
            Back::Behind(result) => [result as u64, CALL_AT + 2, CALL_AT + 2],
            Back::Again => [number.into(), CALL_AT + 2, CALL_AT],
            Back::Elsewhere => [0, 0, CALL_AT + 100],
        };
        let registers: Vec<u8> = [rax, rcx, 0x7fff_0000, rip]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        let mask = mask.to_le_bytes();
        let mut pieces: Vec<(u8, u64, &[u8])> = vec![(2, RAX_AT, &registers), (2, MASK_AT, &mask)];
        pieces.extend(made);
        self.tell(SIGALRM, What::Signal, &pieces)
    }

    fn lines(self) -> Vec<String> {
        let text = String::from_utf8(self.calls.finish().0.into_inner()).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

const DELIVERED: &str = "--- SIGALRM {si_signo=SIGALRM, ...} ---";

#[test]
fn an_interrupted_call_ends_before_the_signal_and_the_handler_after_it() {
    let lines = Thread::new()
        .begins(PAUSE, [0; 3])
        .signal(PAUSE, Back::Behind(EINTR), 1 << 16, &[])
        .returns(PAUSE, EINTR)
        .lines();
    let want = [
        "pause() = ? ERESTARTNOHAND (To be restarted if no handler)",
        DELIVERED,
        "rt_sigreturn({mask=[CHLD]}) = -1 EINTR (Interrupted system call)",
    ];
    assert_eq!(lines, want);
}

#[test]
fn a_call_that_begins_again_is_shown_again() {
    let lines = Thread::new()
        .begins(READ, [3, 0x6000, 8])
        .signal(READ, Back::Again, 0, &[])
        .begins(KILL, [1, 0, 0])
        .returns(KILL, 0)
        .tell(READ, What::Returned(2), &[(1, 0x6000, b"hi")])
        .lines();
    let want = [
        "read(3, 0x6000, 8) = ? ERESTARTSYS (To be restarted if SA_RESTART is set)",
        DELIVERED,
        "kill(1, 0) = 0",
        "rt_sigreturn({mask=[]}) = 0",
        "read(3, \"hi\", 8) = 2",
    ];
    assert_eq!(lines, want);
}

#[test]
fn two_signals_interrupt_one_call_twice() {
    let lines = Thread::new()
        .begins(READ, [3, 0x6000, 8])
        .signal(READ, Back::Again, 0, &[])
        .signal(READ, Back::Again, 0, &[])
        .returns(READ, 0)
        .lines();
    let interrupted = "read(3, 0x6000, 8) = ? ERESTARTSYS (To be restarted if SA_RESTART is set)";
    let returned = "rt_sigreturn({mask=[]}) = 0";
    let want = [
        interrupted,
        DELIVERED,
        returned,
        interrupted,
        DELIVERED,
        returned,
        "read(3, \"\", 8) = 0",
    ];
    assert_eq!(lines, want);
}

#[test]
fn what_a_call_has_made_before_the_signal_is_shown_before_it() {
    let status = 0x300u32.to_le_bytes();
    let lines = Thread::new()
        .of(9)
        .begins(KILL, [1, 0, 0])
        .returns(KILL, 0)
        .of(7)
        .begins(WAIT4, [u64::MAX, 0x6000, 0])
        .signal(WAIT4, Back::Behind(9), 0, &[(1, 0x6000, &status)])
        .tell(WAIT4, What::Returned(9), &[(1, 0x6000, &status)])
        .lines();
    let want = [
        "kill(1, 0) = 0",
        "7     wait4(-1,  <unfinished ...>",
        "9     +++ exited with 3 +++",
        "7     <... wait4 resumed>[{WIFEXITED(s) && WEXITSTATUS(s) == 3}], 0, NULL) = 9",
        "7     --- SIGALRM {si_signo=SIGALRM, ...} ---",
        "7     rt_sigreturn({mask=[]}) = 9",
    ];
    assert_eq!(lines, want);
}

#[test]
fn no_return_is_shown_of_a_handler_that_has_jumped_away() {
    let lines = Thread::new()
        .begins(PAUSE, [0; 3])
        .signal(PAUSE, Back::Behind(EINTR), 0, &[])
        .tell(PAUSE, What::Left, &[])
        .lines();
    assert_eq!(lines.len(), 2, "{lines:?}");
}

#[test]
fn a_signal_in_other_code_says_nothing_of_the_call() {
    let lines = Thread::new()
        .begins(PAUSE, [0; 3])
        .signal(PAUSE, Back::Elsewhere, 0, &[])
        .returns(PAUSE, EINTR)
        .lines();
    let want = [
        "pause( <unfinished ...>",
        DELIVERED,
        "<... pause resumed>) = -1 EINTR (Interrupted system call)",
    ];
    assert_eq!(lines, want);
}
