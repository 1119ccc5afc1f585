//! Packs groups of rows into a Parquet file, in a thread beside who makes them, or at once.
//!
//! Given groups; the library's writer puts its bytes where it was made to. At most one group waits
//! while another is packed, so memory is bounded. Knows nothing of rows and columns.

use super::group::{Group, Texts};
use super::{Bytes, failed};
use parquet::file::writer::SerializedFileWriter;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

/// Who packs.
pub enum Encoder {
    /// Who calls.
    Here(Box<Packing>),
    /// A thread of its own.
    Beside {
        /// Takes groups; none: it has failed.
        groups: Option<SyncSender<Group>>,
        /// Gives the memory of groups back.
        spare: Receiver<Group>,
        /// Ends when no group can come any more.
        thread: Option<JoinHandle<io::Result<()>>>,
    },
}

impl Encoder {
    /// Begins a file.
    ///
    /// # Errors
    /// There can be no thread.
    pub fn new(writer: SerializedFileWriter<Bytes>, has_thread: bool) -> io::Result<Self> {
        let texts = Texts::default();
        let packing = Box::new(Packing { writer, texts });
        if !has_thread {
            return Ok(Self::Here(packing));
        }
        let (groups, incoming) = sync_channel(1);
        let (used, spare) = channel();
        let body = move || {
            let mut packing = packing;
            for mut group in incoming {
                packing.write(&mut group)?;
                // Who made it may have ended.
                let _ = used.send(group);
            }
            packing.finish()
        };
        let thread = std::thread::Builder::new().name("pack".to_owned());
        Ok(Self::Beside {
            groups: Some(groups),
            spare,
            thread: Some(thread.spawn(body)?),
        })
    }

    /// Packs a group, or has it packed; gives one without rows for the next.
    ///
    /// # Errors
    /// Those of the library, of this group or one before.
    pub fn write(&mut self, mut group: Group) -> io::Result<Group> {
        match self {
            Self::Here(packing) => {
                packing.write(&mut group)?;
                Ok(group)
            }
            Self::Beside { groups, spare, .. } => {
                let is_sent = groups.as_ref().is_some_and(|to| to.send(group).is_ok());
                if is_sent {
                    return Ok(spare.try_recv().unwrap_or_default());
                }
                self.end()?;
                Err(io::Error::other("nothing packs these rows any more"))
            }
        }
    }

    /// All groups have come: writes the end of the file.
    ///
    /// # Errors
    /// Those of the library.
    pub fn finish(mut self) -> io::Result<()> {
        match self {
            Self::Here(packing) => packing.finish(),
            Self::Beside { .. } => self.end(),
        }
    }

    /// Waits for the thread, and says why it has failed, if it has.
    fn end(&mut self) -> io::Result<()> {
        let Self::Beside { groups, thread, .. } = self else {
            return Ok(());
        };
        *groups = None;
        let ended = thread.take().map(JoinHandle::join);
        let panicked = || io::Error::other("packing rows has failed");
        ended.map_or(Ok(()), |ended| ended.unwrap_or_else(|_| Err(panicked())))
    }
}

/// A file that is being packed.
pub struct Packing {
    writer: SerializedFileWriter<Bytes>,
    texts: Texts,
}

impl Packing {
    fn write(&mut self, group: &mut Group) -> io::Result<()> {
        let mut out = self.writer.next_row_group().map_err(failed)?;
        group.write(&mut self.texts, &mut out).map_err(failed)?;
        out.close().map_err(failed)?;
        // The writer buffers a little of its own.
        self.writer.flush()
    }

    fn finish(self) -> io::Result<()> {
        self.writer.close().map(|_| ()).map_err(failed)
    }
}
