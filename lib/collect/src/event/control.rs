//! The source of words from other terminals, `ctl:WORD`, and the other end of it, `sptrace ctl`.
//!
//! Each recording that waits for words listens at a Unix socket `PID.sock` in a folder that only
//! its user can enter: `$XDG_RUNTIME_DIR/sptrace`, or `/tmp/sptrace-UID`. Who connects must be the
//! same user or root (SO_PEERCRED, unix(7)). One line comes, one line goes back: a word gets `ok
//! TEXT` or `error TEXT`, an empty line gets `ok WORDS: COMMAND`. A socket whose recording was
//! killed is removed by whoever finds it.

use super::error::EventError;
use super::{Armed, Occurrence, Source, What};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Neither side waits longer for the other's line.
const PATIENCE: Duration = Duration::from_millis(500);
/// No line is longer.
const LINE_BYTES: u64 = 4096;

/// A socket that waits for words.
pub struct Control {
    listener: UnixListener,
    path: PathBuf,
    words: Vec<(usize, String)>,
    command: String,
    /// Who has said the word that is reacted to just now.
    asking: Option<UnixStream>,
}

/// Where the sockets are.
fn folder() -> PathBuf {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    match runtime.filter(|path| path.is_absolute() && path.is_dir()) {
        Some(path) => path.join("sptrace"),
        None => PathBuf::from(format!("/tmp/sptrace-{}", user())),
    }
}

fn user() -> u32 {
    // SAFETY: no arguments.
    unsafe { libc::geteuid() }
}

/// Is it a folder, not a link to one, and can nobody but us write there?
fn is_private(folder: &Path) -> io::Result<()> {
    let found = std::fs::symlink_metadata(folder)?;
    let is_ours = found.is_dir() && found.uid() == user() && found.mode() & 0o077 == 0;
    is_ours.then_some(()).ok_or_else(|| {
        let text = format!("{} is not a folder of ours with mode 700", folder.display());
        io::Error::new(io::ErrorKind::PermissionDenied, text)
    })
}

impl Control {
    /// Listens if there are words to wait for; `command` is what is recorded.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub fn open(armed: &Armed, command: &str) -> Result<Option<Self>, EventError> {
        let word = |(event, what): (usize, &super::Event)| match &what.what {
            What::Control(word) => Some((event, word.clone())),
            _ => None,
        };
        let words: Vec<_> = armed.iter().filter_map(word).collect();
        if words.is_empty() {
            return Ok(None);
        }
        let path = folder().join(format!("{}.sock", std::process::id()));
        Self::listen(path.clone(), words, command)
            .map(Some)
            .map_err(|e| EventError::Socket(path.display().to_string(), e))
    }

    fn listen(path: PathBuf, words: Vec<(usize, String)>, command: &str) -> io::Result<Self> {
        let folder = path.parent().unwrap_or(Path::new("/"));
        match std::fs::DirBuilder::new().mode(0o700).create(folder) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => is_private(folder)?,
        }
        // Left by a recording that was killed and had our number.
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            path,
            words,
            command: command.chars().filter(|c| !c.is_control()).collect(),
            asking: None,
        })
    }

    fn serve(&mut self, stream: UnixStream, found: &mut Vec<Occurrence>) {
        if !peer(&stream).is_some_and(|uid| uid == user() || uid == 0) {
            return;
        }
        let Ok(line) = read_line(&stream) else { return };
        let is_meant = |(_, word): &&(usize, String)| *word == line;
        let meant: Vec<_> = self.words.iter().filter(is_meant).map(|w| w.0).collect();
        if !meant.is_empty() {
            self.asking = Some(stream);
            found.extend(meant.into_iter().map(|event| Occurrence {
                event,
                tsc: crate::clock::tsc(),
                pid: 0,
                detail: String::new(),
            }));
            return;
        }
        let mut words: Vec<_> = self.words.iter().map(|w| w.1.as_str()).collect();
        words.dedup();
        let words = words.join(", ");
        let answer = match line.as_str() {
            "" => format!("ok {words}: {}\n", self.command),
            _ => format!("error it waits for {words}, not for '{line}'\n"),
        };
        let _ = (&stream).write_all(answer.as_bytes());
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Source for Control {
    fn descriptors(&self) -> Vec<RawFd> {
        vec![self.listener.as_raw_fd()]
    }

    fn look(&mut self, found: &mut Vec<Occurrence>) {
        // One a look: its answer comes before the next is heard.
        if let Ok((stream, _)) = self.listener.accept() {
            self.serve(stream, found);
        }
    }

    fn answered(&mut self, _event: usize, answer: &str) {
        if let Some(mut stream) = self.asking.take() {
            let _ = stream.write_all(format!("ok {answer}\n").as_bytes());
        }
    }
}

fn read_line(stream: &UnixStream) -> io::Result<String> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream.take(LINE_BYTES)).read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}

fn peer(stream: &UnixStream) -> Option<u32> {
    let mut credentials = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: our own socket; the structure has the size that is said.
    let done = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut length,
        )
    };
    (done == 0).then_some(credentials.uid)
}

/// A recording that waits for words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listening {
    /// Its sptrace.
    pub pid: u32,
    /// The words, and what is recorded.
    pub what: String,
}

/// The recordings of this user that wait for words, by number.
pub fn listening() -> Vec<Listening> {
    let folder = folder();
    if is_private(&folder).is_err() {
        return Vec::new();
    }
    let files = std::fs::read_dir(&folder).into_iter().flatten().flatten();
    let mut found: Vec<_> = files
        .filter_map(|file| {
            let name = file.file_name().into_string().ok()?;
            let pid = name.strip_suffix(".sock")?.parse().ok()?;
            match tell(pid, "") {
                Ok(Ok(what)) => Some(Listening { pid, what }),
                Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
                    let _ = std::fs::remove_file(file.path());
                    None
                }
                // Busy: it is there.
                _ => Some(Listening {
                    pid,
                    what: "(busy)".to_owned(),
                }),
            }
        })
        .collect();
    found.sort_by_key(|listening| listening.pid);
    found
}

/// Says `word` to the recording of the sptrace `pid`; gives what it answered: what came of it, or
/// why nothing did.
///
/// # Errors
/// It does not listen, or does not answer.
pub fn tell(pid: u32, word: &str) -> io::Result<Result<String, String>> {
    let path = folder().join(format!("{pid}.sock"));
    let mut stream = UnixStream::connect(path)?;
    // A dump may be large, and comes before the answer.
    stream.set_read_timeout(Some(match word {
        "" => PATIENCE,
        _ => Duration::from_secs(120),
    }))?;
    stream.write_all(format!("{word}\n").as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream.take(LINE_BYTES)).read_line(&mut line)?;
    let line = line.trim_end();
    let answer = line.strip_prefix("ok ").map(str::to_owned);
    match (answer, line.strip_prefix("error ")) {
        (Some(text), _) => Ok(Ok(text)),
        (None, Some(text)) => Ok(Err(text.to_owned())),
        (None, None) => Err(io::Error::other("it does not answer")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(path: &Path, line: &str) -> impl FnOnce() -> String + use<> {
        let mut stream = UnixStream::connect(path).expect("it listens");
        stream.write_all(line.as_bytes()).expect("a line goes");
        move || {
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("an answer");
            answer
        }
    }

    #[test]
    fn words_are_heard_and_answered() {
        let folder = std::env::temp_dir().join(format!("sptrace-ctl-{}", std::process::id()));
        let path = folder.join("1.sock");
        let words = vec![(0, "dump".to_owned()), (3, "stop".to_owned())];
        let mut control = Control::listen(path.clone(), words, "ls\n-l").expect("a socket");
        let mode = |path: &Path| std::fs::metadata(path).expect("it is there").mode() & 0o777;
        assert_eq!((mode(&folder), mode(&path)), (0o700, 0o600));
        let mut said = |line| {
            let answer = ask(&path, line);
            let mut found = Vec::new();
            control.look(&mut found);
            for occurrence in &found {
                control.answered(occurrence.event, "done");
            }
            let events: Vec<_> = found.iter().map(|o| o.event).collect();
            (events, answer())
        };
        assert_eq!(said("stop\n"), (vec![3], "ok done\n".to_owned()));
        assert_eq!(said("\n"), (vec![], "ok dump, stop: ls-l\n".to_owned()));
        let (events, answer) = said("nonsense\n");
        assert_eq!(events, []);
        assert!(answer.starts_with("error it waits for dump, stop"));
        drop(control);
        assert!(!path.exists());
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).expect("ours");
        let refused = Control::listen(path, Vec::new(), "").map(|_| ());
        let refused = refused.expect_err("others can enter").to_string();
        assert!(refused.contains("mode 700"), "{refused}");
        std::fs::remove_dir_all(folder).expect("ours");
    }
}
