//! Lines of the source: where what lies at an address was written, and into what it was inlined.
//!
//! Given a file with debug information, and what that refers to; gives file and line, and for a
//! place in a body that the compiler copied into another the functions from the innermost on. Must
//! not know who asks.

use addr2line::Context;
use sptrace_addr::Svma;

use crate::sections::{self, Bytes};

/// Functions inside of each other that are told of one place.
const MOST_INLINED: usize = 64;

/// The lines of an image.
pub struct Lines(Context<Bytes>);

/// A place in the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The file, as the compiler was given it.
    pub file: String,
    /// From 1 on.
    pub line: u32,
}

/// A function that has the code at an address, or into which that was inlined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its name as linkers know it, if that is stated.
    pub function: Option<String>,
    /// Where in it: of the innermost where the code was written, of others where the one before is
    /// called.
    pub at: Option<Line>,
}

impl Lines {
    /// Of a file with debug information; `None`: it has none.
    pub fn new(file: &[u8], supplement: Option<&[u8]>) -> Option<Self> {
        let dwarf = sections::dwarf(file, supplement)?;
        Context::from_dwarf(dwarf).ok().map(Self)
    }

    /// Where the instruction at an address was written.
    pub fn at(&self, svma: Svma) -> Option<Line> {
        // The library counts to the address behind it.
        svma.0.checked_add(1)?;
        let found = self.0.find_location(svma.0).ok()??;
        line_of(&found)
    }

    /// Where the function begins that has its first instruction at an address: in its own body,
    /// also if that begins with one that was inlined.
    pub fn begin(&self, svma: Svma) -> Option<Line> {
        match self.frames(svma).pop() {
            Some(Frame { at: Some(line), .. }) => Some(line),
            _ => self.at(svma),
        }
    }

    /// The functions that the instruction at an address belongs to, innermost first; all but the
    /// last were inlined.
    pub fn frames(&self, svma: Svma) -> Vec<Frame> {
        if svma.0 == u64::MAX {
            return Vec::new();
        }
        let Ok(mut found) = self.0.find_frames(svma.0).skip_all_loads() else {
            return Vec::new();
        };
        let mut frames = Vec::new();
        while let Ok(Some(frame)) = found.next() {
            let name = frame.function.as_ref().and_then(|f| f.raw_name().ok());
            frames.push(Frame {
                function: name.map(|name| name.into_owned()),
                at: frame.location.as_ref().and_then(line_of),
            });
            if frames.len() >= MOST_INLINED {
                break;
            }
        }
        frames
    }
}

fn line_of(location: &addr2line::Location<'_>) -> Option<Line> {
    Some(Line {
        file: location.file?.to_owned(),
        line: location.line.filter(|&line| line > 0)?,
    })
}
