//! Where what the kernel did is written: a trace of its own, or one that others write into, too.
//!
//! Must not know: what is written.

use crate::error::KernelError;
use sptrace_trace::{
    Function, FunctionId, Module, ModuleId, Note, SYSTEM_CALLS, StreamEncoder, StreamInfo,
    TraceWriter,
};
use std::io::Write;

/// A trace that is being written. Each of these can fail as writing does.
#[allow(
    missing_docs,
    clippy::missing_errors_doc,
    reason = "as the trace's writer has them"
)]
pub trait Trace {
    /// The module of what stands for system calls: where programs' own are recorded beside, another
    /// one.
    fn system_calls(&self) -> &'static str;
    fn module(&mut self, module: &Module) -> Result<ModuleId, KernelError>;
    fn function(&mut self, function: &Function) -> Result<FunctionId, KernelError>;
    /// Gives a description of what calls bring a number.
    fn description(&mut self, text: &str) -> Result<u32, KernelError>;
    /// Begins the kernel's side of a thread.
    fn stream(&mut self, info: &StreamInfo) -> Result<StreamEncoder, KernelError>;
    fn note(&mut self, note: &Note) -> Result<(), KernelError>;
    fn write_full(&mut self, encoder: &mut StreamEncoder) -> Result<(), KernelError>;
    fn write_block(&mut self, encoder: &mut StreamEncoder) -> Result<(), KernelError>;
    /// What was written is on its way to the disk.
    fn flush(&mut self) -> Result<(), KernelError>;
    /// What happened later is not wanted.
    fn until_tsc(&self) -> u64;
}

impl<W: Write> Trace for TraceWriter<W> {
    fn system_calls(&self) -> &'static str {
        SYSTEM_CALLS
    }

    fn module(&mut self, module: &Module) -> Result<ModuleId, KernelError> {
        Ok(self.module(module)?)
    }

    fn function(&mut self, function: &Function) -> Result<FunctionId, KernelError> {
        Ok(self.function(function)?)
    }

    fn description(&mut self, text: &str) -> Result<u32, KernelError> {
        Ok(self.description(text)?)
    }

    fn stream(&mut self, info: &StreamInfo) -> Result<StreamEncoder, KernelError> {
        let stream = self.kernel_side(info)?;
        Ok(self.encoder(stream))
    }

    fn note(&mut self, note: &Note) -> Result<(), KernelError> {
        Ok(self.event_note(note)?)
    }

    fn write_full(&mut self, encoder: &mut StreamEncoder) -> Result<(), KernelError> {
        Ok(self.write_full(encoder)?)
    }

    fn write_block(&mut self, encoder: &mut StreamEncoder) -> Result<(), KernelError> {
        Ok(self.write_block(encoder)?)
    }

    fn flush(&mut self) -> Result<(), KernelError> {
        Ok(self.flush()?)
    }

    fn until_tsc(&self) -> u64 {
        u64::MAX
    }
}
