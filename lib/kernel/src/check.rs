//! What this machine lets be recorded of its kernel, and what would allow more.
//!
//! Given nothing; looks, makes an instance for a moment, and says one line for each question, with
//! a remedy where the answer is no. Nothing of other users of tracing is touched.

use crate::error::KernelError;
use crate::instance::Instance;
use crate::level::{self, Level};
use crate::source::Source;
use crate::symbols::Symbols;
use crate::text::Text;
use crate::tracefs::Tracefs;

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What was looked for.
    pub what: &'static str,
    /// It is there.
    pub is_there: bool,
    /// Where or how; if it is not there: why, and what would help.
    pub how: String,
}

fn answer(what: &'static str, result: Result<String, String>) -> Answer {
    let is_there = result.is_ok();
    let how = result.unwrap_or_else(|why| why);
    Answer {
        what,
        is_there,
        how,
    }
}

/// Looks.
pub fn look() -> Vec<Answer> {
    let tracefs = match Tracefs::find() {
        Ok(tracefs) => tracefs,
        Err(e) => return vec![answer("tracefs", Err(e.to_string()))],
    };
    let place = match tracefs.is_ours() {
        true => "can be mounted (it is nowhere mounted for all)".to_owned(),
        false => format!("mounted at {}", tracefs.root().display()),
    };
    let mut answers = vec![answer("tracefs", Ok(place))];
    let instance = Instance::create(&tracefs);
    answers.push(match &instance {
        Ok(_) => answer("instance of our own", Ok("by the clock x86-tsc".to_owned())),
        Err(e) => answer("instance of our own", Err(e.to_string())),
    });
    if let Ok(instance) = &instance {
        answers.push(events(instance));
    }
    for (what, level) in [
        ("functions of the kernel", Level::Functions),
        ("probes in the kernel", Level::Probes),
    ] {
        let offered = level::offered(&tracefs, level);
        answers.push(answer(what, offered.map(str::to_owned)));
    }
    answers.push(answer("blocks of functions", blocks(&tracefs)));
    answers
}

/// They need probes, the addresses of functions, and the kernel's text.
fn blocks(tracefs: &Tracefs) -> Result<String, String> {
    level::offered(tracefs, Level::Probes)?;
    Symbols::read().map_err(|e| e.to_string())?;
    Text::open().map_err(|e| format!("{e} (CONFIG_PROC_KCORE; kernel lockdown forbids it)"))?;
    Ok("by kprobe_events and /proc/kcore (ktrace --blocks, analyze --kernel)".to_owned())
}

fn events(instance: &Instance) -> Answer {
    let what = "events of the kernel";
    match Source::switch_on(instance.folder(), None) {
        Err(e @ KernelError::File { .. }) => answer(
            what,
            Err(format!(
                "{e} (a kernel with CONFIG_FTRACE_SYSCALLS is needed)"
            )),
        ),
        Err(e) => answer(what, Err(e.to_string())),
        Ok(source) if source.missing.is_empty() => answer(
            what,
            Ok("system calls, scheduler, interrupts, softirqs, page faults, signals".to_owned()),
        ),
        Ok(source) => answer(what, Ok(format!("all but {}", source.missing.join(", ")))),
    }
}
