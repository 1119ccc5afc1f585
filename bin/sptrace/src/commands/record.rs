//! What `run` and `attach` have in common: the options of a recording, its file, and what is said
//! at its end.
//!
//! Given the options; gives a prepared [`Session`], or one line that says why there is none. A
//! former trace is moved out of the way only when nothing else can fail any more.

use std::io::{BufRead, BufReader, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{ArgGroup, Args, ValueEnum};
use sptrace_code::Places;
use sptrace_collect::acts::Payloads;
use sptrace_collect::between::MAX_RULES;
use sptrace_collect::bids::{Bid, Deed};
use sptrace_collect::captures::SystemCalls;
use sptrace_collect::event::Event;
use sptrace_collect::event::rule::Rule;
use sptrace_collect::modules::decide::Decide;
use sptrace_collect::react::{Prepared, keep_old};
use sptrace_collect::session::Finished;
use sptrace_collect::{OnEvents, Options, Request, Session, Stamps, clock};
use sptrace_script::Script;
use sptrace_trace::ring::LEAST_RING_BYTES;
use sptrace_trace::{EarlyEnd, Header, Level, TraceError};
use sptrace_tracee::TraceeError;
use sptrace_tracee::at_start::AtStart;
use sptrace_tracee::machine::has_fsgsbase;
use sptrace_types::decode::capture::Extent;

use crate::commands::duration::parse_time_ns;
use crate::commands::levels::LevelArgs;
use crate::commands::lines::{LineArgs, RESULT_COLUMN};
use crate::commands::live::{Live, Place, Shown};
use crate::commands::shows::Shows;
use crate::commands::size::parse_size;
use crate::commands::symbols::DebugArgs;
use crate::commands::top::Top;
use crate::commands::{cache, scripted, selection, values};
use crate::talk::say;

mod together;

static AGENT: &[u8] = include_bytes!(env!("SPTRACE_AGENT_IMAGE"));

/// What happens to events when no buffer is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnFull {
    /// The program waits; the time is recorded and taken out of durations. A thread that has waited
    /// two seconds goes on all the same; its events are then lost and counted
    Block,
    /// Events are lost, counted, and visible as gaps
    Drop,
}

/// For the help texts.
pub const EVENTS: &str = "\
Events:
  time:DURATION         so long after the recording's start, and again and again (500ms, 10s);
                        of --start-on: after the command's, then after the end of the last recording
  signal:NAME           sptrace receives a signal (USR1, USR2, HUP...); what INT, TERM, HUP and QUIT
                        do without an event, they do all the same
  key:KEY               a key on the controlling terminal (ctrl-t, alt-s, f5). The command does not
                        get it, but whatever else is typed: if it reads the terminal, it is given
                        one of its own
  ctl:WORD              `sptrace ctl WORD` from another terminal
  call:GLOB return:GLOB a function that matches is called or returns (raw or demangled name)
  slow:GLOB>DURATION    a call of such a function has taken longer
  crash                 the command or a process that it started is killed by a signal
  exit                  the command ends
Each may end in #N: every Nth time. 'EVENT & EVENT' is when all of them have happened, 'EVENT then
EVENT' when they have in this order (of --start-on: without calls).
What concerns calls is noticed when the thread's buffer of 64 KiB is full (of --start-on: within
50 ms); a process other than the command that lives for less than some 50 ms may crash unnoticed.
";

/// The groups of options in the help.
pub use crate::commands::levels::WHAT;
/// When that is, in time.
pub const WHEN: &str = "When it is recorded";
/// And how much of it.
pub const WHERE_TO: &str = "Where it is written, and how much";
/// What is shown meanwhile.
pub const LINES: &str = "Lines of system calls (report lines, --live)";
/// And what a script adds.
pub const SCRIPT: &str = "Scripts";

/// Options of every recording.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("repeated").multiple(true))]
pub struct RecordArgs {
    /// Record only functions matching GLOB and what they call, on the thread that does so; nothing
    /// else is patched before the first of them is entered (repeatable; raw or demangled name)
    #[arg(help_heading = WHAT, short = 'F', long = "filter", value_name = "GLOB")]
    within: Vec<String>,
    /// Leave out functions matching GLOB: they are not patched, nor what only they call; calls
    /// of them through pointers are seen all the same (repeatable)
    #[arg(help_heading = WHAT, short = 'N', long = "notrace", value_name = "GLOB")]
    without: Vec<String>,
    /// Patch only modules whose file name matches (repeatable; `*` stands for anything): from the
    /// program's main on; other functions that only code of other modules calls are not seen,
    /// but for those in which threads begin
    #[arg(help_heading = WHAT, short = 'l', long, value_name = "GLOB")]
    module: Vec<String>,
    /// Patch nothing that is first reached below this depth. With --stamps auto and none, and
    /// --count: record or count no call that is deeper
    #[arg(help_heading = WHAT, short = 'D', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    depth: Option<u32>,
    /// Record values of the functions that SPEC names: GLOB@arg1,arg2/s,retval/x32 and so on, or
    /// GLOB alone: as debug information and known prototypes have it ('*': all of those). Formats
    /// are d, u, x, o, f with 8 to 64 bits, s (string), S (std::string), c, b, p and {TYPE};
    /// arg2!=0 records those of such calls only (repeatable; see man sptrace-values)
    #[arg(help_heading = WHAT, short = 'A', long = "argument", value_name = "SPEC")]
    arguments: Vec<String>,
    /// Record what the functions that SPEC names give: GLOB@retval/x32, or GLOB alone (repeatable)
    #[arg(help_heading = WHAT, short = 'R', long = "retval", value_name = "SPEC")]
    results: Vec<String>,
    /// Take prototypes from FILE, in the form of ltrace.conf(5) (repeatable)
    #[arg(help_heading = WHAT, long, value_name = "FILE")]
    prototypes: Vec<PathBuf>,
    /// Record system calls too, with their arguments and results: all, or SET as of strace's
    /// -e trace= (names, %file, %process, %network, %memory, %desc, %signal, %ipc, !, /regex/)
    #[arg(help_heading = WHAT, long, value_name = "SET", num_args = 0..=1, require_equals = true, default_missing_value = "all")]
    syscalls: Option<String>,
    /// Record system calls, and no functions
    #[arg(help_heading = WHAT, long, value_name = "SET", num_args = 0..=1, require_equals = true, default_missing_value = "all", conflicts_with_all = ["syscalls", "within", "without", "module", "depth", "between", "arguments", "results"])]
    syscalls_only: Option<String>,
    /// Keep so many bytes of strings and buffers of system calls and values
    #[arg(help_heading = WHAT, short = 's', long = "string-limit", value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(..=16384))]
    string_limit: u32,
    /// Record functions matching GLOB and what they call, as -F does, but only their calls that
    /// begin between two events (see below; START may be `start`: the recording's): different
    /// functions each at its time, also beside -F. With --times N each does so N times. A call as
    /// an event is noticed at once here (repeatable, up to 7)
    #[arg(help_heading = WHEN, long, num_args = 3, value_names = ["GLOB", "START", "STOP"], group = "repeated")]
    between: Vec<String>,
    /// Keep the ring in memory and write it out as a trace when EVENT happens, while the program
    /// goes on (repeatable, see below). The second is FILE.2 and so on; without an event nothing is
    /// written
    #[arg(help_heading = WHEN, long, value_name = "EVENT", requires = "ring", group = "repeated")]
    dump_on: Vec<Event>,
    /// End the recording, not the program, when EVENT happens (repeatable, see below)
    #[arg(help_heading = WHEN, long, value_name = "EVENT")]
    stop_on: Vec<Event>,
    /// Each event of --dump-on does so N times, and each of --between; what lies between the events
    /// of --start-on and --stop-on (`run`) is recorded N times, into one trace
    #[arg(help_heading = WHEN, long, value_name = "N", default_value_t = 1, requires = "repeated", value_parser = clap::value_parser!(u64).range(1..))]
    times: u64,
    /// Trace file; a former one is kept as FILE.old
    #[arg(help_heading = WHERE_TO, short, long, value_name = "FILE", default_value = "sptrace.data")]
    pub output: PathBuf,
    /// Keep only the last SIZE bytes or so of the recording (2M or more); how much of the beginning
    /// was dropped is counted
    #[arg(help_heading = WHERE_TO, long, value_name = "SIZE", value_parser = parse_ring, conflicts_with = "max_size")]
    ring: Option<u64>,
    /// End the recording, not the program, when the trace file has this size
    #[arg(help_heading = WHERE_TO, long, value_name = "SIZE", value_parser = parse_size)]
    max_size: Option<u64>,
    /// Buffer memory for all threads together (64K to 256M)
    #[arg(help_heading = WHERE_TO, long, value_name = "SIZE", default_value = "16M", value_parser = parse_buffer)]
    buffer: u64,
    /// When the program calls faster than the trace can be written
    #[arg(help_heading = WHERE_TO, long, value_enum, default_value_t = OnFull::Block)]
    on_full: OnFull,
    /// Show the functions that take the most time while the program runs, in place of what is on
    /// the terminal: calls, times and rates, by keys ordered, filtered, and with their callers. A
    /// key pauses the recording (the
    /// program runs by its own code meanwhile) and lets it go on; another leaves the selected
    /// function out from there on, or records it again, where no other option says when or whose
    /// calls are recorded. The command should not read the terminal, nor write to it. The trace is
    /// written as always
    #[arg(help_heading = WHERE_TO, long, conflicts_with_all = ["ring", "live"])]
    top: bool,
    /// Print a line a system call, as `report lines` does, while the program runs: to standard
    /// error, to FILE, or to the input of a COMMAND ('|COMMAND'). Without --syscalls, record
    /// system calls alone, with -e only those of its SET. The trace is written as always
    #[arg(help_heading = LINES, long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    live: Option<String>,
    /// Write the lines of each process to a file of its own, FILE.PID
    #[arg(help_heading = LINES, long, requires = "live")]
    per_process: bool,
    /// Show only calls that took TIME or longer (as 5us, 1.5ms, 2s; a bare number is nanoseconds):
    /// others are not recorded
    #[arg(help_heading = LINES, long, value_name = "TIME", value_parser = parse_time_ns, default_value = "0", hide_default_value = true)]
    min_time: u64,
    /// Show results in this column
    #[arg(help_heading = LINES, short = 'a', long = "columns", value_name = "COLUMN", default_value_t = RESULT_COLUMN)]
    column: usize,
    #[command(flatten)]
    levels: LevelArgs,
    #[command(flatten)]
    debug: DebugArgs,
    #[command(flatten)]
    lines: LineArgs,
    /// Follow a script: what it says of the recording adds to these options, and its handlers are
    /// told of the recording when it has ended; what they print goes to standard error. A path or a
    /// name (`sptrace script list`), with the script's own options behind it: -S 'slow-calls
    /// --top=5'. See man sptrace-script
    #[arg(help_heading = SCRIPT, short = 'S', long, value_name = "FILE|NAME", conflicts_with = "eval")]
    pub script: Option<String>,
    /// The same with the script itself, as in --eval 'only("parse*"); depth(3)'
    #[arg(help_heading = SCRIPT, long, value_name = "TEXT")]
    pub eval: Option<String>,
    /// Let the script change what the program does: make calls fail, wait, or give something else,
    /// and raise signals. Each is marked INJECTED in the trace
    #[arg(help_heading = SCRIPT, long)]
    pub allow_active: bool,
    /// What the script decides about functions.
    #[arg(skip)]
    pub decide: Option<Decide>,
    /// What the script runs inside of the program.
    #[arg(skip)]
    pub payloads: Option<Payloads>,
    /// What that may ask of the recording.
    #[arg(skip)]
    pub bids: Vec<Bid>,
    /// The levels that functions have from the beginning.
    #[arg(skip)]
    pub first_levels: Vec<(String, Level)>,
    /// Say nothing but errors and an early end of the recording
    #[arg(short, long)]
    pub quiet: bool,
}

pub(crate) fn parse_ring(text: &str) -> Result<u64, String> {
    let size_bytes = parse_size(text)?;
    if size_bytes < LEAST_RING_BYTES {
        return Err("less than 2M".to_owned());
    }
    Ok(size_bytes)
}

fn parse_buffer(text: &str) -> Result<u64, String> {
    let size_bytes = parse_size(text)?;
    if !(64 << 10..=256 << 20).contains(&size_bytes) {
        return Err("not between 64K and 256M".to_owned());
    }
    Ok(size_bytes)
}

/// Who is recorded.
pub enum Subject {
    /// A command that will be started.
    Launched {
        /// Its arguments.
        command: Vec<String>,
        /// --loader
        loader: bool,
        /// --start-on
        start_on: Vec<Event>,
        /// --shadow
        shadow: bool,
    },
    /// Processes that run already.
    Running,
}

impl RecordArgs {
    /// What is asked for: the one place where options become a recording.
    ///
    /// # Errors
    /// One line for the user.
    pub fn request(self, subject: Subject, at_start: AtStart) -> Result<Request, String> {
        self.debug.apply().map_err(|why| why.to_string())?;
        let between = self.rules()?;
        let values = self.values()?;
        let (is_launched, command, loader, start_on, shadow) = match subject {
            Subject::Launched {
                command,
                loader,
                start_on,
                shadow,
            } => (true, command, loader, start_on, shadow),
            Subject::Running => (false, Vec::new(), false, Vec::new(), false),
        };
        let shadow = self.is_followed(&start_on, shadow)?;
        let options = Options {
            system_calls: self.system_calls()?,
            limit: self.limit(),
            counts_records: self.counts_records(),
            output: self.output,
            chunks: (self.buffer >> 16).clamp(2, 4096) as u32,
            drop_when_full: self.on_full == OnFull::Drop,
            loader,
            depth_limit: self.depth.unwrap_or(0),
            max_bytes: self.max_size.unwrap_or(0),
            ring_bytes: self.ring.unwrap_or(0),
            cache: cache::places(),
            modules: self.module,
            within: self.within,
            without: self.without,
            decide: self.decide,
            payloads: self.payloads,
            bids: self.bids,
            levels: self.first_levels,
            values,
            counts: self.levels.count,
            stamps: Stamps::Full,
            keeps_returns: false,
            at_start,
            tap: None,
            helper: None,
            show_progress: progress_of(self.quiet),
        };
        let events = OnEvents {
            is_launched,
            start_on,
            shadow,
            between,
            dump_on: self.dump_on,
            stop_on: self.stop_on,
            times: self.times,
            switch: None,
            say: if self.quiet { |_| {} } else { say },
            warn: say,
        };
        Ok(Request {
            command,
            options,
            events,
        })
    }

    /// Values of calls to be recorded.
    fn values(&self) -> Result<Option<sptrace_collect::values::Asked>, String> {
        let of_calls = [&self.arguments[..], &self.results];
        values::asked(of_calls, &self.prototypes, self.string_limit)
    }

    /// Adds what a script asks for to these options; gives the events that begin the recording.
    ///
    /// # Errors
    /// What does not fit together.
    pub fn follow(&mut self, script: &Arc<Script>) -> Result<Vec<Event>, String> {
        let policy = &script.policy;
        let read = |texts: &[String]| {
            let events = texts.iter().map(|text| text.parse::<Event>());
            let events: Result<Vec<_>, _> = events.collect();
            events.map_err(|e| format!("{}: {e}", script.name))
        };
        self.dump_on.extend(read(&policy.dump)?);
        self.stop_on.extend(read(&policy.stop)?);
        self.within.extend_from_slice(&policy.only);
        self.without.extend_from_slice(&policy.without);
        self.module.extend_from_slice(&policy.modules);
        self.arguments.extend_from_slice(&policy.values);
        self.results.extend_from_slice(&policy.results);
        self.between
            .extend(policy.between.iter().flatten().cloned());
        // What the user has written counts more.
        self.depth = self.depth.or(policy.depth);
        self.ring = self.ring.or(policy.ring_bytes);
        if !self.levels.count && self.levels.limit().is_none() {
            self.levels.hot_limit = policy.hot_limit;
            self.levels.short_limit = policy.short_limit_ns;
        }
        self.max_size = self.max_size.or(policy.most_bytes);
        self.string_limit = policy.string_bytes.unwrap_or(self.string_limit);
        if let (Some(times), 1) = (policy.times, self.times) {
            self.times = times;
        }
        if let (None, None, Some(set)) = (&self.syscalls, &self.syscalls_only, &policy.system_calls)
        {
            match policy.system_calls_only {
                true => self.syscalls_only = Some(set.clone()),
                false => self.syscalls = Some(set.clone()),
            }
        }
        self.check_system_payloads(script)?;
        if policy.decides_functions() {
            self.decide = Some(scripted::decider(script));
        }
        self.payloads = scripted::payloads(script);
        self.bids = scripted::bids(script);
        self.first_levels = scripted::levels(script);
        let mut start_on = read(&policy.start)?;
        for (number, bid) in self.bids.iter().enumerate() {
            let event = Event::bidden(number, &bid.text);
            match bid.deed {
                Deed::Start => start_on.push(event),
                Deed::Stop => self.stop_on.push(event),
                Deed::Dump => self.dump_on.push(event),
                Deed::Level(..) => {}
            }
        }
        self.check_together(!start_on.is_empty())
            .map_err(|why| format!("{}: {why}", script.name))?;
        Ok(start_on)
    }

    /// Opens what shows the recording while it is made.
    ///
    /// # Errors
    /// What does not fit together, or cannot be opened: one line for the user.
    pub fn shown(&mut self) -> Result<Shows, String> {
        // Before a terminal is looked for.
        self.check_levels(&[], false)?;
        let lines = self.live()?;
        Ok(Shows::of(
            lines,
            self.top.then(|| Top::open(&self.output)).transpose()?,
        ))
    }

    /// Opens what the lines of `--live` go to, and has the system calls recorded that they need.
    fn live(&mut self) -> Result<Option<Live>, String> {
        let Some(text) = self.live.clone() else {
            let is_plain = self.column == RESULT_COLUMN && self.min_time == 0;
            return match self.lines.is_default() && is_plain {
                true => Ok(None),
                false => Err("options of lines need --live (or `sptrace report lines`)".to_owned()),
            };
        };
        let place = Place::of(&text, self.per_process)?;
        let shown = Shown {
            lines: self.lines.clone(),
            string_limit: self.string_limit as usize,
            column: self.column,
            min_ns: self.min_time,
        };
        let live = Live::open(place, shown)?;
        let recorded = self.lines.recorded().map_err(|e| e.to_string())?;
        self.default_to_system_calls(&recorded);
        Ok(Some(live))
    }

    /// Records these system calls, if none are asked for; and nothing else, if nothing else is.
    pub fn default_to_system_calls(&mut self, set: &str) {
        if self.syscalls.is_some() || self.syscalls_only.is_some() {
            return;
        }
        let lists = [&self.within, &self.without, &self.module, &self.between];
        let has_choice = self.depth.is_some() || lists.iter().any(|list| !list.is_empty());
        let calls = match has_choice {
            true => &mut self.syscalls,
            false => &mut self.syscalls_only,
        };
        *calls = Some(set.to_owned());
    }

    /// The system calls of --syscalls or --syscalls-only.
    fn system_calls(&self) -> Result<Option<SystemCalls>, String> {
        let (option, text, only) = match (&self.syscalls, &self.syscalls_only) {
            (Some(text), _) => ("--syscalls", text, false),
            (None, Some(text)) => ("--syscalls-only", text, true),
            (None, None) => return Ok(None),
        };
        let wanted = selection::parse(text).map_err(|e| format!("{option}={text}: {e}"))?;
        let extent = Extent {
            string_bytes: self.string_limit,
            verbose: true,
        };
        let descriptors = self.lines.recorded_descriptors();
        let succeeded = self.lines.recorded_results();
        Ok(Some(SystemCalls {
            wanted,
            descriptors: descriptors.map_err(|e| e.to_string())?,
            paths: self.lines.recorded_paths(),
            succeeded: succeeded.map_err(|e| e.to_string())?,
            least_ns: self.lines.recorded_length(self.min_time),
            extent,
            only,
        }))
    }

    /// The rules of --between.
    fn rules(&self) -> Result<Vec<Rule>, String> {
        let rules = self.between.chunks_exact(3).map(|words| {
            let error = |e| format!("--between '{}': {e}", words.join("' '"));
            Rule::parse(&words[0], &words[1], &words[2]).map_err(error)
        });
        let rules = rules.collect::<Result<Vec<_>, _>>()?;
        if rules.len() > MAX_RULES {
            return Err(format!("more than {MAX_RULES} of --between"));
        }
        Ok(rules)
    }
}

/// What shows a line of progress, where somebody looks.
fn progress_of(is_quiet: bool) -> fn(&str) {
    match !is_quiet && std::io::stderr().is_terminal() {
        true => show_progress,
        false => |_| {},
    }
}

/// Prepares the recording that is asked for, and what is shown of it.
///
/// # Errors
/// One line for the user.
pub fn prepare(mut request: Request, shows: &mut Shows) -> Result<Session, String> {
    has_fsgsbase()?;
    let begun = request.begun().map(Path::to_owned);
    request.options.tap = shows.lines.as_ref().map(Live::tap);
    request.options.helper = shows.lines.as_ref().and_then(Live::helper);
    let Request {
        command,
        options,
        mut events,
    } = request;
    let header = header(command, &options.cache);
    let output = options.output.clone();
    check_output(&output)?;
    if options.ring_bytes > 0 && output.exists() && !output.is_file() {
        return Err(no_output(&output, "--ring needs a regular file"));
    }
    if let Some(top) = &mut shows.top
        && !shows.is_steady
        && events.can_be_switched()
    {
        events.switch = Some(top.switch()?);
    }
    let events = Prepared::new(events, &output, &header).map_err(|e| e.to_string())?;
    if begun.is_some() {
        keep_old(&output);
    }
    if let Some(lines) = &mut shows.lines {
        lines.begin(&header)?;
    }
    if let Some(top) = &mut shows.top {
        top.begin()?;
    }
    let session = with_file_size_errors(|| Session::prepare(options, &header, AGENT, events));
    session.map_err(|e| {
        remove_begun(begun.as_deref());
        match &e {
            TraceeError::System { source, .. } if source.raw_os_error() == Some(libc::EFBIG) => {
                format!("cannot record: {}; raise `ulimit -f`", plain(&e))
            }
            _ => no_output(&output, &plain(&e)),
        }
    })
}

/// Says how an analysis goes on, but never waits for the terminal: one that is held (ctrl-s), or
/// has another foreground, would hold us, and so the program.
fn show_progress(line: &str) {
    let mut stderr = libc::pollfd {
        fd: 2,
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: asks about a descriptor that we have.
    let is_foreground = unsafe { libc::tcgetpgrp(2) == libc::getpgrp() };
    // SAFETY: one entry of ours.
    if is_foreground && unsafe { libc::poll(&raw mut stderr, 1, 0) } == 1 {
        say(line);
    }
}

/// What is said at the end: an early end of the recording always, the rest unless `quiet`. `who`
/// ran.
pub fn report_end(finished: &Finished, output: &Path, quiet: bool, who: &str) {
    let output = output.display();
    if let Some(e) = &finished.output_error {
        say(&format!(
            "recording ended early: cannot write {output}: {} ({who} was not disturbed; \
             free some space or choose another place with -o)",
            cause(e)
        ));
    } else if let Some(stopped) = &finished.stopped {
        let why = match stopped {
            EarlyEnd::AtSize => format!("{output} has reached --max-size"),
            EarlyEnd::DiskLow => format!("the disk of {output} runs low"),
            asked @ EarlyEnd::AtEvent(_) => sptrace_render::early_end_text(asked),
        };
        say(&format!(
            "recording ended early: {why} ({who} was not disturbed)"
        ));
    }
    if !quiet {
        for remark in &finished.remarks {
            say(remark);
        }
        say(&finished.outcome.coverage_line());
        if let Some(line) = finished.outcome.budget_line() {
            say(&line);
        }
        say(&format!(
            "{}{}",
            finished.outcome.loss_line(),
            dumps_text(finished.dumps)
        ));
    }
}

/// What is said of dumps; nothing if there were to be none.
fn dumps_text(dumps: Option<u64>) -> String {
    match dumps {
        None => String::new(),
        Some(0) => ", none written: no event of --dump-on happened".to_owned(),
        Some(1) => ", 1 dump written".to_owned(),
        Some(n) => format!(", {n} dumps written"),
    }
}

/// Runs `action` so that a file size limit (ulimit -f) gives errors, not our end by SIGXFSZ; the
/// command shall inherit the disposition that we had.
fn with_file_size_errors<T>(action: impl FnOnce() -> T) -> T {
    // SAFETY: a disposition of our own process; no other thread exists yet.
    let former = unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let result = action();
    // SAFETY: puts back what signal(2) gave.
    unsafe { libc::signal(libc::SIGXFSZ, former) };
    result
}

pub(crate) fn no_output(output: &Path, why: &str) -> String {
    format!(
        "cannot record to {}: {why}; choose another place with -o FILE",
        output.display()
    )
}

/// What the system said, without the trace writer's words around it: ours name the file already.
fn cause(error: &std::io::Error) -> String {
    let inner = error.get_ref().and_then(|e| e.downcast_ref::<TraceError>());
    match inner {
        Some(TraceError::Write(e)) => e.to_string(),
        _ => error.to_string(),
    }
}

fn plain(error: &TraceeError) -> String {
    match error {
        TraceeError::System { source, .. } => cause(source),
        other => other.to_string(),
    }
}

/// Finds what is wrong with the output's place before a former trace is moved out of the way.
pub(crate) fn check_output(output: &Path) -> Result<(), String> {
    if output.is_dir() {
        return Err(no_output(output, "it is a directory"));
    }
    match output.parent() {
        Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => {
            Err(no_output(output, "its folder does not exist"))
        }
        _ => Ok(()),
    }
}

/// Removes a trace that never began, if a file was made for it.
pub fn remove_begun(begun: Option<&Path>) {
    if let Some(output) = begun {
        remove_unless_special(output);
    }
}

/// Removes it; a device or pipe that the user named stays.
fn remove_unless_special(output: &Path) {
    if std::fs::symlink_metadata(output).is_ok_and(|m| m.is_file()) {
        let _ = std::fs::remove_file(output);
    }
}

pub(crate) fn header(command: Vec<String>, places: &Places) -> Header {
    let read = |path: &str| {
        std::fs::read_to_string(path)
            .map(|s| s.trim().to_owned())
            .unwrap_or_default()
    };
    let model = |line: String| line.strip_prefix("model name").map(str::to_owned);
    // No more of it than that: the kernel makes it anew, for each processor.
    let cpu = std::fs::File::open("/proc/cpuinfo").ok();
    let mut lines = cpu
        .into_iter()
        .flat_map(|file| BufReader::new(file).lines().map_while(Result::ok));
    let cpu = lines.find_map(model).unwrap_or_default();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let tsc_hz = clock::frequency(places.own.as_deref());
    Header {
        command,
        cwd: std::env::current_dir()
            .map(|d| d.display().to_string())
            .unwrap_or_default(),
        host: read("/proc/sys/kernel/hostname"),
        kernel: read("/proc/sys/kernel/osrelease"),
        cpu: cpu.trim_start_matches([' ', '\t', ':']).to_owned(),
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        start_unix_ns: now.map_or(0, |d| d.as_nanos() as u64),
        tsc_hz,
        start_tsc: clock::tsc(),
    }
}
