//! Calls of the kernel's functions, entry and exit, by the tracer `function_graph`.
//!
//! Given the places of functions in the kernel's list of them; switches the tracer on for just
//! these: in our instance where the kernel can (6.12 and newer), else at the top level, which is
//! borrowed. Given a record; gives what happened.
//!
//! Must not know: how functions are chosen, and what is shown of their calls.

use crate::error::KernelError;
use crate::folder::Folder;
use crate::format::Format;
use crate::instance::Instance;
use crate::source::{Frame, Happening};
use crate::toplevel::TopLevel;
use crate::tracefs::Tracefs;

const TRACER: &str = "function_graph";
/// Settings that count for all instances, and what they hold if nobody has set them.
const FOR_ALL: [(&str, &str); 3] = [
    ("set_graph_function", "#"),
    ("set_graph_notrace", "#"),
    ("max_graph_depth", "0"),
];

/// See the module.
#[derive(Debug)]
pub struct Functions {
    own: Folder,
    top: Option<TopLevel>,
    entry: Format,
    exit: Format,
}

impl Functions {
    /// Switches the tracer on for the functions at these places (none: for all that there are), in
    /// a folder that records nothing yet.
    ///
    /// # Errors
    /// The kernel refuses, or somebody else uses what there is only one of.
    pub fn switch_on(
        tracefs: &Tracefs,
        instance: &Instance,
        places: &[usize],
        buffer_kib: u64,
    ) -> Result<Self, KernelError> {
        let own = instance.folder().clone();
        let format = |name: &str| -> Result<Format, KernelError> {
            let text = own.read(&format!("events/ftrace/{name}/format"))?;
            Format::parse(&text).ok_or_else(|| KernelError::NotOffered {
                what: "functions",
                why: format!("its records of {name} are not understood"),
            })
        };
        let (entry, exit) = (format("funcgraph_entry")?, format("funcgraph_exit")?);
        let offered = own.read("available_tracers")?;
        let top = match offered.split_whitespace().any(|name| name == TRACER) {
            true => {
                is_unset(&Folder::new(tracefs.root().to_owned()))?;
                None
            }
            false => {
                let top = TopLevel::borrow(tracefs)?;
                let size = buffer_kib.to_string();
                top.folder().set("buffer_size_kb", &size)?;
                Some(top)
            }
        };
        let functions = Self {
            own,
            top,
            entry,
            exit,
        };
        let folder = functions.folder();
        // An empty list is all functions.
        folder.set_list("set_ftrace_filter", places.iter().map(usize::to_string))?;
        folder.set("options/function-fork", "1")?;
        folder.set("current_tracer", TRACER)?;
        Ok(functions)
    }

    /// Where its records are, and where it is switched on and off.
    pub fn folder(&self) -> &Folder {
        self.top.as_ref().map_or(&self.own, TopLevel::folder)
    }

    /// True if the top level is borrowed for it.
    pub fn is_at_top(&self) -> bool {
        self.top.is_some()
    }

    /// The task that was running, and what happened. `None`: a record of something else.
    pub fn read(&self, record: &[u8]) -> Option<(u32, Happening)> {
        let id = record.first_chunk().map(|b| u16::from_le_bytes(*b))?;
        let is_entry = id == self.entry.id;
        if !is_entry && id != self.exit.id {
            return None;
        }
        let format = if is_entry { &self.entry } else { &self.exit };
        let task = u32::try_from(format.number(record, "common_pid")?).ok()?;
        let frame = Frame::Function {
            address: format.number(record, "func")? as u64,
            depth: format.number(record, "depth")? as u32,
        };
        let happening = match is_entry {
            true => Happening::Begin(frame),
            false => Happening::End(frame),
        };
        Some((task, happening))
    }
}

/// Refuses if somebody has narrowed what all instances trace.
fn is_unset(top: &Folder) -> Result<(), KernelError> {
    for (file, unset) in FOR_ALL {
        let text = top.read(file).unwrap_or_else(|_| unset.to_owned());
        if !text.starts_with(unset) {
            return Err(KernelError::InUse {
                what: format!("{file} is set, which counts for all instances"),
                remedy: "empty it in tracefs (`echo > set_graph_function`, `echo 0 > max_graph_depth`), \
                    or record by --level events",
            });
        }
    }
    Ok(())
}
