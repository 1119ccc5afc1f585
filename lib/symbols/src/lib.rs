//! Where debug information and names from outside of an image lie.
//!
//! The one place that says which file has the debug information of an image, for names, values and
//! lines of the source alike; and the readers of the lists of names that users and JIT compilers
//! write. All of these files are hostile until proven otherwise: one that is not of the image is
//! refused with a sentence.
//!
//! | file | what for |
//! |---|---|
//! | `places.rs` | which folders are looked into, and whether a file there is the image's |
//! | `debuginfod.rs` | servers of debug files, only when they are asked for, and their cache |
//! | `http.rs` | getting one file from a server |
//! | `listed.rs` | symbol files of users, the output of nm(1), and perf's maps of JIT code |
//!
//! Must not know processes, traces, and what is in debug information.
#![forbid(unsafe_code)]

mod debuginfod;
mod http;
mod listed;
mod places;

pub use debuginfod::Servers;
pub use listed::{Listed, Named, read_perf_map, read_symbol_file};
pub use places::{Found, Image, Places, places, set_places};
