//! What happens when sptrace itself fails by a fault of its own: a file that says where.
//!
//! The traced program is not concerned: it finds that nobody answers, and goes on by itself.

use std::backtrace::Backtrace;
use std::fmt::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::panic::PanicHookInfo;
use std::path::PathBuf;

use crate::talk::say;
use crate::version;

/// From now on, a panic writes a report and one line that says where it lies.
pub fn install() {
    std::panic::set_hook(Box::new(report));
}

fn report(info: &PanicHookInfo<'_>) {
    let place = info.location().map(ToString::to_string);
    let place = place.unwrap_or_else(|| "a place that is not known".to_owned());
    let what = info.payload_as_str().unwrap_or("no message");
    let mut text = String::new();
    // Writing into memory does not fail.
    let _ = writeln!(
        text,
        "{}\n\nat {place}: {what}\narguments: {:?}\nthread: {}\n\n{}",
        version::LONG,
        std::env::args_os().collect::<Vec<_>>(),
        std::thread::current().name().unwrap_or("main"),
        Backtrace::force_capture(),
    );
    let written = write(&text);
    let kept = match &written {
        Some(path) => format!("a report is in {}", path.display()),
        None => "no report could be written".to_owned(),
    };
    say(&format!(
        "internal error at {place}: {what}; {kept}; what is traced goes on by itself"
    ));
}

/// Where analyses are kept, else where everybody may write: a new file, for its owner alone.
fn write(text: &str) -> Option<PathBuf> {
    let own = crate::commands::cache::places().own;
    let folders = own.into_iter().chain([std::env::temp_dir()]);
    let name = format!("sptrace-crash-{}.txt", std::process::id());
    for folder in folders {
        let path = folder.join(&name);
        let file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path);
        let written = file.and_then(|mut f| std::io::Write::write_all(&mut f, text.as_bytes()));
        if written.is_ok() {
            return Some(path);
        }
    }
    None
}
