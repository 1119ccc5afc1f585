//! Tells the user of a file whose analysis takes long, while it does.
//!
//! Given when an analysis begins and ends, and looks from another thread in between; gives lines to
//! be shown. They are whole lines, never erased: what the program has written on the terminal, up
//! to the middle of a line, stays.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What is over sooner is not spoken of.
const LONG: Duration = Duration::from_secs(1);
/// From one line to the next.
const AGAIN: Duration = Duration::from_secs(5);

/// See the file's header.
pub struct Progress {
    show: fn(&str),
    now: Mutex<Option<Analysis>>,
}

struct Analysis {
    name: String,
    begun: Instant,
    /// The next line is due.
    due: Instant,
    is_told: bool,
}

/// An analysis goes on as long as this is there.
pub struct Busy<'a>(&'a Progress);

impl Progress {
    /// Lines go to `show`.
    pub fn new(show: fn(&str)) -> Self {
        Self {
            show,
            now: Mutex::default(),
        }
    }

    fn now(&self) -> MutexGuard<'_, Option<Analysis>> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The analysis of a file begins.
    pub fn begin(&self, file: &Path) -> Busy<'_> {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let size = std::fs::metadata(file).map_or(0, |m| m.len() >> 20);
        let begun = Instant::now();
        *self.now() = Some(Analysis {
            name: format!("{name} ({size} MiB)"),
            begun,
            due: begun + LONG,
            is_told: false,
        });
        Busy(self)
    }

    /// Says what is due.
    pub fn look(&self) {
        let mut now = self.now();
        let Some(analysis) = now.as_mut().filter(|a| Instant::now() >= a.due) else {
            return;
        };
        let seconds = analysis.begun.elapsed().as_secs();
        let line = match analysis.is_told {
            false => format!(
                "analysing {} for the first time; later runs take that from the cache",
                analysis.name
            ),
            true => format!("still analysing {}, for {seconds} s", analysis.name),
        };
        analysis.is_told = true;
        analysis.due = Instant::now() + AGAIN;
        (self.show)(&line);
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        if let Some(done) = self.0.now().take().filter(|a| a.is_told) {
            let seconds = done.begun.elapsed().as_secs_f64();
            (self.0.show)(&format!("analysed {} in {seconds:.1} s", done.name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static SHOWN: Mutex<Vec<String>> = Mutex::new(Vec::new());

    #[test]
    fn a_long_analysis_is_told_and_a_short_one_is_not() {
        let shown = || SHOWN.lock().unwrap().len();
        let progress = Progress::new(|line| SHOWN.lock().unwrap().push(line.to_owned()));
        let busy = progress.begin(Path::new("/bin/sh"));
        progress.look();
        drop(busy);
        assert_eq!(shown(), 0);
        let busy = progress.begin(Path::new("/bin/sh"));
        if let Some(analysis) = progress.now().as_mut() {
            analysis.due = analysis.begun;
        }
        progress.look();
        progress.look();
        assert_eq!(shown(), 1);
        drop(busy);
        assert_eq!(shown(), 2);
        let lines = SHOWN.lock().unwrap();
        assert!(lines[0].starts_with("analysing sh (0 MiB) for the first time"));
        assert!(lines[1].starts_with("analysed sh (0 MiB) in 0."));
    }
}
