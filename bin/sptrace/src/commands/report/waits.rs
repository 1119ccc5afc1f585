//! `report waits`: where time went, in sums, or lap by lap.
//!
//! Chooses what is shown; showing is `sptrace-render`'s work.

use super::wanted::choose;
use super::{Format, Reader, ReportArgs, Session, View};
use anyhow::bail;
use clap::Args;
use sptrace_render::{Laps, LapsShown, Waits};
use sptrace_trace::Order;
use std::io::Write;

/// Options of the view of waits.
#[derive(Args, Debug)]
#[command(next_help_heading = "Waits (waits)")]
pub struct WaitArgs {
    /// Say why some laps take longer. A lap goes from the end of a call of FUNC (name or glob) to
    /// the end of the next one in its thread, as a frame of a player that sleeps before each. Shown
    /// are those that took a quarter more time than most, or those of --min-time: when, how long,
    /// and what took more than in most laps: own computing, the kernel, interrupts, who preempted,
    /// where it was blocked and who woke it, behind whom it was queued then. --limit N: the N
    /// longest
    #[arg(long, value_name = "FUNC")]
    laps: Option<String>,
}

/// Refuses options of this view for others.
///
/// # Errors
/// A sentence that names the option.
pub fn check(args: &ReportArgs) -> anyhow::Result<()> {
    if args.view != View::Waits && args.waits.laps.is_some() {
        bail!("--laps is for `report waits`; leave it out");
    }
    Ok(())
}

/// Shows sums, or laps.
///
/// # Errors
/// A sentence for the user, or the error of the output.
pub fn show(session: &Session<'_>, reader: Reader, out: &mut impl Write) -> anyhow::Result<()> {
    let args = session.args;
    if !Waits::has_kernel(session.names) {
        bail!(
            "{} has nothing of the kernel's (record it by `sptrace run -K`, attach -K or ktrace)",
            args.input.display()
        );
    }
    if let Some(glob) = &args.waits.laps {
        return show_laps(session, reader, glob, out);
    }
    let waits = Waits::new(session.names);
    let waits = session.replay(reader, args.min_time, Order::File, waits)?;
    let names = (session.names, session.clock);
    match args.format() {
        Format::Text => waits.write(out, names, args.limit, session.style)?,
        _ => waits.write_csv(out, names)?,
    }
    Ok(())
}

fn show_laps(
    session: &Session<'_>,
    reader: Reader,
    glob: &str,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let args = session.args;
    let start_tsc = reader.header().start_tsc;
    let chosen = choose("--laps", &[glob.to_owned()], session.names)?;
    let laps = Laps::new(session.names, chosen);
    // What is short is a part of laps, too.
    let laps = session.replay(reader, 0, Order::File, laps)?;
    if laps.is_empty() {
        bail!("no thread has ended two calls of '{glob}', so there is no lap");
    }
    let shown = LapsShown {
        min_ns: args.min_time,
        limit: args.limit,
    };
    let words = (session.names, session.clock);
    match args.format() {
        Format::Text => laps.write(out, words, start_tsc, (shown, session.style))?,
        _ => laps.write_csv(out, words, start_tsc, shown)?,
    }
    Ok(())
}
