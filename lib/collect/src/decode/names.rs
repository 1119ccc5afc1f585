//! Who numbers functions and modules: the trace's writer, or a test.

use sptrace_trace::{Function, FunctionId, Module, ModuleId};

/// Numbers functions and modules when they are met for the first time.
pub trait Naming {
    /// A module's number.
    fn module(&mut self, module: &Module) -> ModuleId;
    /// A function's number.
    fn function(&mut self, function: &Function) -> FunctionId;
    /// The number of a description of values.
    fn description(&mut self, text: &str) -> u32;
}
