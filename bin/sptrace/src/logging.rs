//! What sptrace does itself, for those who look into a fault of it: `SPTRACE_LOG=LEVEL[:FILE]`.
//!
//! Given the variable; takes the lines of all crates, and writes them to stderr or a file, each
//! with the time since the start. Nothing is said unless it is asked for.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::str::FromStr;
use std::time::Instant;

use log::{LevelFilter, Log, Metadata, Record};

/// The variable.
pub const VARIABLE: &str = "SPTRACE_LOG";

struct Logger {
    began: Instant,
    file: Option<File>,
}

/// Begins to log if the variable says so.
///
/// # Errors
/// It names no level, or its file cannot be opened: one line.
pub fn install(value: Option<&str>) -> Result<(), String> {
    let Some(value) = value.filter(|value| !value.is_empty()) else {
        return Ok(());
    };
    let (level, file) = match value.split_once(':') {
        Some((level, file)) => (level, Some(file)),
        None => (value, None),
    };
    let level = LevelFilter::from_str(level)
        .map_err(|_| format!("{VARIABLE}={value}: a level is error, warn, info, debug or trace"))?;
    let open = |path: &str| {
        let opened = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path);
        opened.map_err(|e| format!("{VARIABLE}: cannot write to {path}: {e}"))
    };
    let logger = Logger {
        began: Instant::now(),
        file: file.map(open).transpose()?,
    };
    // Set once: this is called once.
    if log::set_boxed_logger(Box::new(logger)).is_ok() {
        log::set_max_level(level);
    }
    Ok(())
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("sptrace")
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let elapsed_ms = self.began.elapsed().as_secs_f64() * 1e3;
        let level = record.level().as_str().to_lowercase();
        let line = format!("sptrace: {level} {elapsed_ms:.1} ms: {}\n", record.args());
        // Where it cannot be written, nobody can be told so.
        let _ = match &self.file {
            Some(file) => (&*file).write_all(line.as_bytes()),
            None => std::io::stderr().write_all(line.as_bytes()),
        };
    }

    fn flush(&self) {}
}
