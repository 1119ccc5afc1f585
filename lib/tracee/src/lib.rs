//! Launch, inject, detach: the only crate that touches another process.
