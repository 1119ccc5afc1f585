//! Why an image could not be analysed.

use std::path::PathBuf;

use sptrace_image::ImageError;
use thiserror::Error;

/// Cause of a failure of [`crate::load_or_build`] or [`crate::fill`].
#[derive(Debug, Error)]
pub enum CodeError {
    /// The file could not be opened or read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A directory, a device or the like.
    #[error("{0} is not a regular file")]
    NotAFile(PathBuf),
    /// The file is no image that can be analysed.
    #[error("{path}: {source}")]
    Image {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: ImageError,
    },
    /// Its addresses span more than 4 GiB, or it has more functions, sites or names than fit.
    #[error("{0} is too large to be analysed")]
    TooLarge(PathBuf),
    /// What is kept for all users is found by the build id.
    #[error("{0} has no build id, by which an analysis for all users is found")]
    NoBuildId(PathBuf),
    /// The folder belongs to somebody else, cannot be made, or the disk is full.
    #[error("cannot write into {0}: it must be a folder of this user's, with room")]
    NotWritten(PathBuf),
}
