//! `-K` of `run` and `attach`: the kernel's side of what is recorded, in the same trace.
//!
//! Given the options; gives what is prepared, or one line that says why there is nothing.

use clap::Args;
use sptrace_collect::clock;
use sptrace_kernel::beside::Beside;
use sptrace_kernel::blocks::wanted::Wanted;
use sptrace_kernel::options::{Options, Target};
use sptrace_kernel::tracefs::Tracefs;
use sptrace_kernel::turns::Turns;

use crate::commands::ktrace::{self, LevelArg, RootArg};
use crate::commands::values;
use crate::talk::say;

/// The group of these options in the help.
const KERNEL: &str = "The kernel's side";

/// Bytes of strings of the kernel's functions.
const STRING_BYTES: u32 = 32;

/// Options of the kernel's side.
#[derive(Args, Clone, Debug)]
pub struct KernelArgs {
    /// Record what the kernel does for the program, too, inside of the functions that it does it
    /// for: system calls, interrupts, waits, who preempts and who wakes, functions of the kernel
    /// (as `sptrace ktrace`; takes root). See `report waits`
    #[arg(help_heading = KERNEL, short = 'K', long = "kernel")]
    kernel: bool,
    /// How deep it looks into the kernel: functions, probes (at entry and exit of functions) or
    /// events alone; else the deepest that this kernel allows
    #[arg(help_heading = KERNEL, long = "kernel-level", value_name = "LEVEL", requires = "kernel")]
    kernel_level: Option<LevelArg>,
    /// Follow calls in the kernel from here: syscalls (if neither this nor --kernel-filter is
    /// given), interrupts, softirqs (repeatable, or separated by commas)
    #[arg(help_heading = KERNEL, long = "kernel-root", value_name = "ROOT", value_delimiter = ',', requires = "kernel")]
    kernel_roots: Vec<RootArg>,
    /// Follow calls from functions of the kernel that match GLOB (repeatable)
    #[arg(help_heading = KERNEL, long = "kernel-filter", value_name = "GLOB", requires = "kernel")]
    kernel_filters: Vec<String>,
    /// Leave out functions of the kernel that match GLOB, and what only they call (repeatable)
    #[arg(help_heading = KERNEL, long = "kernel-notrace", value_name = "GLOB", requires = "kernel")]
    kernel_notrace: Vec<String>,
    /// Follow calls in the kernel so many levels, with the first one [default: 3; 1 for probes]
    #[arg(help_heading = KERNEL, long = "kernel-depth", value_name = "N", value_parser = clap::value_parser!(u32).range(1..), requires = "kernel")]
    kernel_depth: Option<u32>,
    /// Keep values of the functions of the kernel that SPEC names, as `sptrace ktrace -A` does
    /// (repeatable)
    #[arg(help_heading = KERNEL, long = "kernel-argument", value_name = "SPEC", requires = "kernel")]
    kernel_arguments: Vec<String>,
    /// Hook the basic blocks of a function of the kernel, as `sptrace ktrace --blocks` does
    /// (repeatable)
    #[arg(help_heading = KERNEL, long = "kernel-blocks", value_name = "FUNC", value_parser = ktrace::blocks_of, requires = "kernel")]
    kernel_blocks: Vec<Wanted>,
    /// Show where users, groups and capabilities change, and what is an escalation
    #[arg(help_heading = KERNEL, long = "kernel-privileges", requires = "kernel")]
    kernel_privileges: bool,
    /// Memory of each processor's buffer in the kernel, in KiB
    #[arg(help_heading = KERNEL, long = "kernel-buffer", value_name = "KIB", default_value_t = 8192, value_parser = clap::value_parser!(u64).range(4..=1 << 22), requires = "kernel")]
    kernel_buffer: u64,
}

impl KernelArgs {
    /// It was asked for.
    pub fn is_wanted(&self) -> bool {
        self.kernel
    }

    /// Prepares it, if it is asked for. What a killed sptrace has left is mended before.
    /// `has_dumps`: the ring may be copied at any moment.
    ///
    /// # Errors
    /// One line for the user.
    pub fn prepare(&self, quiet: bool, has_dumps: bool) -> Result<Option<Beside>, String> {
        if !self.kernel {
            return Ok(None);
        }
        let cannot = |e| format!("-K: {e}");
        let tracefs = Tracefs::find().map_err(cannot)?;
        ktrace::mend_and_tell(&tracefs, quiet);
        let options = Options {
            target: Target::Processes(Vec::new()),
            prepare: |_| {},
            duration: None,
            buffer_kib: self.kernel_buffer,
            level: self.kernel_level.map(LevelArg::level),
            policy: ktrace::policy_of(
                &self.kernel_roots,
                &self.kernel_filters,
                &self.kernel_notrace,
                self.kernel_depth,
            ),
            say: if quiet { |_| {} } else { say },
            blocks: self.kernel_blocks.clone(),
            listener: None,
            helpers: Vec::new(),
            values: values::of_kernel([&self.kernel_arguments, &[]], &[], STRING_BYTES)?,
            counts: None,
            system_calls: Vec::new(),
            turns: Turns::default(),
            signals: |_| 0,
            has_privileges: self.kernel_privileges,
            now_tsc: clock::tsc,
        };
        let mut beside = Beside::prepare(tracefs, options).map_err(cannot)?;
        if has_dumps {
            beside.write_at_once();
        }
        Ok(Some(beside))
    }
}
