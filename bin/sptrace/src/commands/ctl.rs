//! `sptrace ctl`: says a word to a recording that runs in another terminal (`ctl:WORD` events).
//!
//! Given a word and which recording is meant; prints what came of it. Without a word it lists the
//! user's recordings that wait for words, one a line.

use std::io::{ErrorKind, Write};

use anyhow::{anyhow, bail};
use clap::Args;
use sptrace_collect::event::control::{self, Listening};
use sptrace_collect::event::parse::word;

const EXAMPLES: &str = "\
Examples:
  sptrace run --ring 64M --dump-on ctl:dump -- ./server     in one terminal
  sptrace ctl                                               in another: what is running
  sptrace ctl dump                                          write the ring out
  sptrace ctl -p 1234 dump                                  if there are several";

/// Say a word to a running recording, or list those that wait for words
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CtlArgs {
    /// The word, as in the recording's ctl:WORD; without it, list the recordings that wait for
    /// words
    word: Option<String>,
    /// Process id of the sptrace that records; needed if there are several
    #[arg(short, long, value_name = "PID", requires = "word")]
    pid: Option<u32>,
}

/// Says the word, or lists.
///
/// # Errors
/// No such recording, or it does not wait for this word.
pub fn run(args: &CtlArgs) -> anyhow::Result<()> {
    let said = match &args.word {
        None => list(&control::listening()),
        Some(text) => {
            let word = word(text)?;
            let pid = match args.pid {
                Some(pid) => pid,
                None => only(&control::listening())?,
            };
            tell(pid, &word)? + "\n"
        }
    };
    match std::io::stdout().write_all(said.as_bytes()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(e.into()),
        _ => Ok(()),
    }
}

fn list(found: &[Listening]) -> String {
    if found.is_empty() {
        return "no recording waits for words (sptrace run --dump-on ctl:WORD)\n".to_owned();
    }
    let line = |l: &Listening| format!("{:>8}  {}\n", l.pid, l.what);
    found.iter().map(line).collect()
}

fn only(found: &[Listening]) -> anyhow::Result<u32> {
    match found {
        [] => bail!("no recording waits for words (start one with --dump-on ctl:WORD)"),
        [one] => Ok(one.pid),
        several => {
            let pids: Vec<_> = several.iter().map(|l| l.pid.to_string()).collect();
            bail!(
                "several recordings wait for words: choose one by -p ({})",
                pids.join(", ")
            )
        }
    }
}

fn tell(pid: u32, word: &str) -> anyhow::Result<String> {
    match control::tell(pid, word) {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(why)) => Err(anyhow!("recording {pid}: {why}")),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => Err(
            anyhow!("no recording {pid} waits for words (`sptrace ctl` lists those that do)"),
        ),
        Err(e) => Err(anyhow!("recording {pid} does not answer: {e}")),
    }
}
