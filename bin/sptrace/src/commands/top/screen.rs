//! The terminal of `--top`: drawn on, read from, and given back as it was.
//!
//! Given what draws a picture; gives keys. The terminal keeps the meaning of Ctrl-C and Ctrl-Z:
//! they are for the command. Must not know what is shown.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::time::Duration;

use ratatui::backend::CrosstermBackend;
use ratatui::{Frame, Terminal};

use super::guard::Guard;

/// What is written first and last: another screen, without a cursor (xterm's control sequences,
/// "Private Modes" 1049 and 25).
const BEGIN: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[2J";
const CLEAR: &[u8] = b"\x1b[H\x1b[2J";
const NO_CURSOR: &[u8] = b"\x1b[?25l";
const END: &[u8] = b"\x1b[?25h\x1b[?1049l";

/// A key that means something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    /// A printable character.
    Char(char),
    /// The way up.
    Up,
    /// The way down.
    Down,
    /// Return.
    Enter,
    /// Escape, alone.
    Escape,
    /// The last character shall go.
    Backspace,
}

/// A terminal that is ours until it is dropped.
pub struct Screen {
    /// Gives it back if we are killed; goes after what [`Drop`] does.
    _guard: Option<Guard>,
    tty: File,
    former: libc::termios,
}

impl Screen {
    /// Takes the terminal that this process belongs to.
    ///
    /// # Errors
    /// It has none.
    pub fn open() -> io::Result<Self> {
        let tty = OpenOptions::new().read(true).write(true).open("/dev/tty")?;
        let mut former = MaybeUninit::<libc::termios>::uninit();
        // SAFETY: it is written as a whole where the call succeeds.
        let former = unsafe {
            if libc::tcgetattr(tty.as_raw_fd(), former.as_mut_ptr()) != 0 {
                return Err(io::Error::last_os_error());
            }
            former.assume_init()
        };
        let mut ours = former;
        // Keys come one by one and are not shown.
        ours.c_lflag &= !(libc::ICANON | libc::ECHO);
        let mut screen = Self {
            // Without one the terminal stays as it is then, which is not worth less to see.
            _guard: Guard::begin(&tty, &former, END).ok(),
            tty,
            former,
        };
        set(&screen.tty, &ours)?;
        screen.tty.write_all(BEGIN)?;
        Ok(screen)
    }

    /// Draws a picture; what cannot be drawn is not.
    pub fn draw(&mut self, picture: impl FnOnce(&mut Frame<'_>)) {
        // Anew each time, since the command may have written over it. To have it cleared by the
        // library would ask the terminal for its cursor, and take keys for the answer.
        let _ = self.tty.write_all(CLEAR);
        let Ok(tty) = self.tty.try_clone() else {
            return;
        };
        if let Ok(mut terminal) = Terminal::new(CrosstermBackend::new(tty)) {
            let _ = terminal.draw(picture);
        }
        // The library shows it when it has drawn for the last time.
        let _ = self.tty.write_all(NO_CURSOR);
    }

    /// The keys that were pressed, waiting at most so long for the first.
    pub fn keys(&mut self, wait: Duration) -> Vec<Key> {
        let mut ready = libc::pollfd {
            fd: self.tty.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one entry of ours.
        let count = unsafe { libc::poll(&raw mut ready, 1, wait.as_millis() as i32) };
        if count != 1 || ready.revents & libc::POLLIN == 0 {
            if count == 1 {
                // Hung up: there is nothing to wait for.
                std::thread::sleep(wait);
            }
            return Vec::new();
        }
        let mut bytes = [0; 64];
        match self.tty.read(&mut bytes) {
            Ok(count) => parse(bytes.get(..count).unwrap_or_default()),
            Err(_) => Vec::new(),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.tty.write_all(END);
        let _ = set(&self.tty, &self.former);
    }
}

fn set(tty: &File, to: &libc::termios) -> io::Result<()> {
    // A terminal whose foreground is another job stops who sets it (POSIX, XBD 11.1.4), and all of
    // sptrace with it: the signal is blocked.
    // SAFETY: sets are ours; the mask is put back.
    let result = unsafe {
        let mut block = std::mem::zeroed::<libc::sigset_t>();
        let mut former = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut block);
        libc::sigaddset(&raw mut block, libc::SIGTTOU);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const block, &raw mut former);
        let result = libc::tcsetattr(tty.as_raw_fd(), libc::TCSADRAIN, to);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const former, std::ptr::null_mut());
        result
    };
    if result == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

/// What a terminal sends for keys (xterm's control sequences, "PC-Style Function Keys").
fn parse(bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut rest = bytes;
    while let Some((first, behind)) = rest.split_first() {
        let (key, left) = match (first, behind) {
            (0x1b, [b'[' | b'O', b'A', left @ ..]) => (Some(Key::Up), left),
            (0x1b, [b'[' | b'O', b'B', left @ ..]) => (Some(Key::Down), left),
            (0x1b, [b'[' | b'O', left @ ..]) => {
                // Another key: its sequence ends with a letter or a tilde.
                let end = left
                    .iter()
                    .position(|b| b.is_ascii_alphabetic() || *b == b'~');
                (None, end.and_then(|at| left.get(at + 1..)).unwrap_or(&[]))
            }
            (0x1b, left) => (Some(Key::Escape), left),
            (b'\r' | b'\n', left) => (Some(Key::Enter), left),
            (0x7f | 0x08, left) => (Some(Key::Backspace), left),
            (byte @ 0x20..=0x7e, left) => (Some(Key::Char(char::from(*byte))), left),
            (_, left) => (None, left),
        };
        keys.extend(key);
        rest = left;
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_are_told_from_escape_and_other_keys_are_left_out() {
        let keys = parse(b"\x1b[A\x1bOBq\x1b[5~/\r\x7f\xc3");
        let wanted = [
            Key::Up,
            Key::Down,
            Key::Char('q'),
            Key::Char('/'),
            Key::Enter,
            Key::Backspace,
        ];
        assert_eq!(keys, wanted);
        assert_eq!(parse(b"\x1b"), [Key::Escape]);
        assert_eq!(parse(b"\x1b["), []);
    }
}
