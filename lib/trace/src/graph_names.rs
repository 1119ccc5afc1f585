//! What the nodes of a call graph are called, whether they are functions or modules.
//!
//! Given the names of a trace; gives for each number of a [`crate::Graph`] its name, module and
//! address, and for a pair how they are linked. Knows nothing of how a graph looks.

use crate::model::{FunctionId, ModuleId, SYSTEM_CALLS};
use crate::names::Names;

/// How a function is bound to what calls it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Linkage {
    /// Both are in one module.
    Static,
    /// They are in different modules: found by the dynamic linker, or by a pointer.
    Dynamic,
    /// It is a system call.
    Kernel,
    /// Nothing is known to call it.
    None,
}

impl Linkage {
    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Dynamic => "dynamic",
            Self::Kernel => "kernel",
            Self::None => "-",
        }
    }
}

/// Names of a graph's nodes.
#[derive(Clone, Copy)]
pub struct GraphNames<'a> {
    names: &'a Names<'a>,
    is_of_modules: bool,
}

impl<'a> GraphNames<'a> {
    /// Nodes are functions.
    pub fn of_functions(names: &'a Names<'a>) -> Self {
        Self {
            names,
            is_of_modules: false,
        }
    }

    /// Nodes are modules, numbered as [`ModuleId`]s are: [`GraphNames::by_module`].
    pub fn of_modules(names: &'a Names<'a>) -> Self {
        Self {
            names,
            is_of_modules: true,
        }
    }

    /// What [`crate::Recast`] needs to tell of modules.
    pub fn by_module(names: &Names<'_>) -> Vec<Option<FunctionId>> {
        let functions = names.dictionary().functions.iter();
        functions.map(|f| Some(FunctionId(f.module.0))).collect()
    }

    /// Are nodes modules?
    pub fn is_of_modules(&self) -> bool {
        self.is_of_modules
    }

    /// The node's name.
    pub fn name(&self, id: FunctionId) -> &'a str {
        match self.is_of_modules {
            true => self.module(id),
            false => self.names.name(id),
        }
    }

    /// The base name of the node's module.
    pub fn module(&self, id: FunctionId) -> &'a str {
        let module = self.names.dictionary().module(self.module_of(id));
        module.map_or("?", |module| module.base_name())
    }

    /// The function's address as its file states it.
    pub fn address(&self, id: FunctionId) -> Option<u64> {
        let function = self.names.dictionary().function(id);
        let function = function.filter(|_| !self.is_of_modules);
        function.map(|function| function.svma.0)
    }

    /// How the second is bound to the first.
    pub fn linkage(&self, caller: Option<FunctionId>, callee: FunctionId) -> Linkage {
        let module = self.names.dictionary().module(self.module_of(callee));
        match caller {
            _ if module.is_some_and(|module| module.path == SYSTEM_CALLS) => Linkage::Kernel,
            None => Linkage::None,
            Some(caller) if self.module_of(caller) == self.module_of(callee) => Linkage::Static,
            Some(_) => Linkage::Dynamic,
        }
    }

    fn module_of(&self, id: FunctionId) -> ModuleId {
        if self.is_of_modules {
            return ModuleId(id.0);
        }
        let function = self.names.dictionary().function(id);
        function.map_or(ModuleId(u32::MAX), |function| function.module)
    }
}
