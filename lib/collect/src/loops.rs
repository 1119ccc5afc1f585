//! The threads of a recording beside the session: one drains chunks and writes the trace file, one
//! answers.
//!
//! Given what they share; they run until the recording has ended. Analysis, which may take seconds,
//! is done by the one that answers, so that nobody waits for it to drain.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sptrace_patch::special;
use sptrace_tracee::TraceeError;
use sptrace_tracee::arena::{Role, tell_of_death};
use sptrace_tracee::futex::futex_wait;
use sptrace_wire::control::HOST_STOPPED;

use crate::modules::answer;
use crate::react;
use crate::shared::Shared;
use sptrace_tracee::limits;

/// What begins a recording is looked for in what threads have not handed over yet so often.
const LOOK_FOR_START_EVERY: Duration = Duration::from_millis(40);

/// How often who is told of a recording while it is made hears of it.
const TELL_EVERY: Duration = Duration::from_millis(20);

/// How often all that was recorded is brought into the file, for who follows it, and for what a
/// program did before it hung.
const BRING_OUT_EVERY: Duration = Duration::from_millis(100);

/// Starts both.
///
/// # Errors
/// There cannot be as many threads, and none is left.
pub fn spawn(shared: &Arc<Shared>) -> Result<(JoinHandle<()>, JoinHandle<()>), TraceeError> {
    let drainer = spawn_one("drain", shared, drain_loop)?;
    match spawn_one("answer", shared, answer_loop) {
        Ok(answerer) => Ok((drainer, answerer)),
        Err(e) => {
            shared.end();
            let _ = drainer.join();
            Err(e)
        }
    }
}

fn spawn_one(
    name: &str,
    shared: &Arc<Shared>,
    body: fn(&Shared),
) -> Result<JoinHandle<()>, TraceeError> {
    let shared = Arc::clone(shared);
    let thread = std::thread::Builder::new().name(name.to_owned());
    let result = thread.spawn(move || body(&shared));
    result.map_err(|source| TraceeError::System {
        what: "starting a thread",
        source,
    })
}

/// Drains, beats, and finds threads that are gone.
pub fn drain_loop(shared: &Shared) {
    if shared.reactor.is_idle() {
        limits::own_descriptors(&[shared.wake, shared.output]);
    }
    tell_of_death(&shared.arena, Role::Drainer);
    let control = shared.arena.control();
    let (mut last_look, mut last_start) = (Instant::now(), Instant::now());
    let (mut last_told, mut last_out) = (Instant::now(), Instant::now());
    let is_read_meanwhile = shared.options.ring_bytes == 0 && shared.reactor.dumps().is_none();
    let at_most = match (&shared.options.tap, shared.options.limit) {
        (None, None) => Duration::from_millis(50),
        _ => TELL_EVERY,
    };
    loop {
        // Read first: who ends us rings after having said so.
        let bell = control.doorbell.load(Ordering::Acquire);
        if shared.ended.load(Ordering::Acquire) {
            break;
        }
        control.heartbeat.fetch_add(1, Ordering::Relaxed);
        shared.progress.look();
        let mut c = shared.lock();
        let is_awaited = || shared.is_awaited() || shared.bids.are_said(&shared.arena);
        let drained = c.drain_until(&shared.arena, &is_awaited);
        let at_most = c.bid_looks(&shared.arena).unwrap_or(at_most);
        if last_start.elapsed() > LOOK_FOR_START_EVERY {
            c.look_ahead_for_start(&shared.arena);
            last_start = Instant::now();
        }
        if last_told.elapsed() >= TELL_EVERY {
            c.tell(&shared.arena);
            last_told = Instant::now();
        }
        if is_read_meanwhile && last_out.elapsed() >= BRING_OUT_EVERY {
            c.bring_out(&shared.arena);
            last_out = Instant::now();
        }
        react::collected(shared, &mut c);
        if let Some(why) = shared.shall_stop(c.written_bytes()) {
            shared.stop(&mut c, why);
        }
        if c.has_failed() {
            control.host_state.store(HOST_STOPPED, Ordering::Release);
        }
        if last_look.elapsed() > Duration::from_millis(100) {
            c.end_ended(&shared.arena);
            last_look = Instant::now();
        }
        drop(c);
        see_to_chunks(shared, drained);
        if drained == 0 {
            futex_wait(&control.doorbell, bell, at_most);
        }
    }
    // Leaving for good: nobody shall wait for us.
    control.host_state.store(HOST_STOPPED, Ordering::Release);
}

/// Threads of the program shall find chunks: `drained` were full.
fn see_to_chunks(shared: &Shared, drained: usize) {
    shared.arena.make_ready();
    if drained == 0 && !shared.options.drop_when_full {
        // Nothing to drain and nothing free: every chunk is some thread's current one.
        shared.arena.grow();
    }
}

/// Answers the agents' questions.
pub fn answer_loop(shared: &Shared) {
    if shared.reactor.is_idle() {
        limits::own_descriptors(&[shared.wake]);
    }
    if shared.filters.makes_hooks() {
        // While the program is being prepared.
        special::get_ready();
    }
    let control = shared.arena.control();
    loop {
        let bell = control.question_bell.load(Ordering::Acquire);
        if shared.ended.load(Ordering::Acquire) {
            break;
        }
        if !answer::serve(shared) && !shared.make_one_ready() {
            futex_wait(&control.question_bell, bell, Duration::from_millis(50));
        }
    }
}
