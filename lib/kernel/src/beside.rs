//! A recording of the kernel's side of programs beside one of the programs themselves, into the
//! same trace.
//!
//! Given what shall be recorded; makes an instance of the kernel's tracing, which records nothing
//! until it is told whom to follow ([`Beside::follow`]), and then reads and writes until the other
//! recording has ended. Whatever fails, the instance goes away.
//!
//! Must not know: how programs are recorded, and who writes into the trace.

use crate::error::KernelError;
use crate::inside::Inside;
use crate::instance::Instance;
use crate::options::Options;
use crate::pipes::Pipes;
use crate::recorder::{self, Recorded};
use crate::source::Source;
use crate::tasks::Tasks;
use crate::trace::Trace;
use crate::tracefs::Tracefs;
use std::time::{Duration, Instant};

/// So long may pass until what was read is in the trace.
const WRITE_EVERY: Duration = Duration::from_millis(500);

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Events in the trace.
    pub events: u64,
    /// System calls that were left out, since who records made them.
    pub own_calls: u64,
    /// Records for which the kernel's buffers had no room.
    pub lost: u64,
    /// Times that some were lost, and nobody knows how many.
    pub lost_unknown: u64,
    /// Calls in the kernel were followed, as far as its text says what is called.
    pub follows_calls: bool,
    /// The kernel's events and functions that could not be recorded.
    pub missing: Vec<String>,
}

/// See the module. What is made first is dropped last.
pub struct Beside {
    pipes: Pipes,
    inside: Inside,
    source: Source,
    instance: Instance,
    switches: Option<Instance>,
    options: Options,
    write_every: Duration,
    followed: Vec<(u32, u32)>,
    _tracefs: Tracefs,
}

impl Beside {
    /// Prepares all that can fail.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn prepare(tracefs: Tracefs, options: Options) -> Result<Self, KernelError> {
        recorder::check_namespace()?;
        let instance = Instance::create(&tracefs)?;
        let switches = recorder::switches(&tracefs, &options);
        let instances = (&instance, switches.as_ref());
        let (source, inside) = recorder::switch_on(&tracefs, instances, &options)?;
        let pipes = Pipes::open(&recorder::folders(instances, &inside))?;
        Ok(Self {
            pipes,
            inside,
            source,
            instance,
            switches,
            options,
            write_every: WRITE_EVERY,
            followed: Vec::new(),
            _tracefs: tracefs,
        })
    }

    /// Records the tasks of these processes from now on, and what they start.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn follow(&mut self, pids: &[u32]) -> Result<(), KernelError> {
        self.followed = recorder::tasks_of(pids).collect();
        let tids: Vec<u32> = self.followed.iter().map(|(tid, _)| *tid).collect();
        let recorded = Recorded::new((&self.instance, self.switches.as_ref()), &self.inside);
        recorded.only(&tids)?;
        recorded.switch("1")
    }

    /// What is read is written at once, since what is written may be copied at any moment: blocks
    /// are small then, and what is missing of the last moments are some 20 ms.
    pub fn write_at_once(&mut self) {
        self.write_every = Duration::ZERO;
    }

    /// System calls with this for a sixth argument are made by who records the program: they are
    /// left out and counted.
    pub fn leave_out(&mut self, own_call: u64) {
        self.source.own_call = Some(own_call);
    }

    /// Reads and writes until `is_over`.
    ///
    /// # Errors
    /// The kernel refuses, or the trace cannot be written.
    pub fn read(
        mut self,
        trace: impl Trace,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Outcome, KernelError> {
        let mut tasks = Tasks::new(trace, false, recorder::own_tasks())?;
        tasks.describe(&self.inside.descriptions())?;
        tasks.show(self.inside.calls())?;
        for (tid, pid) in &self.followed {
            tasks.expect(*tid, *pid);
        }
        let recorded = Recorded::new((&self.instance, self.switches.as_ref()), &self.inside);
        let mut written = Instant::now();
        loop {
            let is_end = is_over();
            if is_end {
                recorded.switch("0")?;
            }
            let until = match is_end {
                true => u64::MAX,
                false => (self.options.now_tsc)(),
            };
            let sources = (&self.source, &self.inside);
            recorder::take(&mut self.pipes, sources, &mut tasks, until)?;
            if is_end {
                break;
            }
            if written.elapsed() > self.write_every {
                tasks.write_rest()?;
                written = Instant::now();
            }
            std::thread::sleep(recorder::PAUSE);
        }
        let outcome = Outcome {
            events: tasks.events,
            own_calls: tasks.own_calls,
            lost: self.pipes.lost + self.inside.missed(),
            lost_unknown: self.pipes.lost_unknown,
            follows_calls: self.inside.follows_calls(),
            missing: [self.source.missing.clone(), self.inside.refused()].concat(),
        };
        tasks.finish()?;
        Ok(outcome)
    }
}
