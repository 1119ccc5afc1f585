//! What a call is about: the paths and the descriptors among its arguments.
//!
//! Must not know: how a call is shown, nor what a descriptor leads to.

use super::call::Made;
use super::types::{Phase, Type};
use crate::calls;

/// The longest path.
const PATH_BYTES: usize = 4096;

/// An argument that names something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// A path, and the descriptor of the folder that it begins at, if that is an argument.
    Path(Option<i32>, String),
    /// A descriptor.
    Descriptor(i32),
}

/// The paths and descriptors among a call's arguments, in their order.
pub fn objects(made: &Made<'_>) -> Vec<Object> {
    let Some(call) = calls::by_number(made.number) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let mut folder = None;
    for (index, ty) in call.of(made.args).0.iter().enumerate() {
        let value = made.args.get(index).copied().unwrap_or(0);
        match ty {
            Type::Fd => found.push(Object::Descriptor(value as i32)),
            Type::DirFd => {
                folder = Some(value as i32);
                found.push(Object::Descriptor(value as i32));
            }
            Type::At(Phase::Entry, Type::Path) => {
                let bytes = made.memory.read(Phase::Entry, value, PATH_BYTES);
                if let Some(end) = bytes.iter().position(|b| *b == 0) {
                    let text = String::from_utf8_lossy(bytes.get(..end).unwrap_or(bytes));
                    found.push(Object::Path(folder.take(), text.into_owned()));
                }
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::memory::{Captured, Chunk};

    #[test]
    fn a_path_goes_with_the_folder_before_it() {
        let memory = Captured {
            chunks: vec![Chunk {
                phase: Phase::Entry,
                address: 0x1000,
                bytes: b"a/b\0rest".to_vec(),
            }],
        };
        let made = Made {
            number: 257,
            args: &[5, 0x1000, 0, 0, 0, 0],
            result: Some(6),
            memory: &memory,
        };
        let path = Object::Path(Some(5), "a/b".to_owned());
        assert_eq!(objects(&made), [Object::Descriptor(5), path]);
    }
}
