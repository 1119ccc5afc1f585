//! Which function an event concerns: from addresses and ids to the trace's numbers.
//!
//! Part of the [`Collector`]: given what a record says and what is known of its process; names
//! functions in the trace as they are met.

use super::{Collector, LOW_HALF, Recent, Target};
use crate::module::PLACE_INDIRECT;
use sptrace_addr::Svma;
use sptrace_trace::{Function, FunctionId, Module as TraceModule, ModuleId};
use std::io::Write;
use std::sync::Arc;

impl<W: Write> Collector<W> {
    /// What lies at the target of a call through a pointer.
    #[inline]
    pub(super) fn resolve(&mut self, pid: u32, target: u64) -> Target {
        let slot = Recent::slot(target);
        let recent = self.recent[slot];
        if recent.target == target && recent.pid == pid {
            return recent.callee;
        }
        let avma = match self.processes.get(&pid) {
            Some(p) if target & LOW_HALF != 0 => p.from_low_half(target as u32),
            _ => target & !LOW_HALF,
        };
        let callee = match self.lazy_target(pid, avma) {
            Some((module, svma)) => Target::Stub(module, svma),
            None => Target::Function(self.callee_at(pid, avma)),
        };
        self.recent[slot] = Recent {
            target,
            pid,
            callee,
        };
        callee
    }

    /// (module, svma) if `target` is a PLT stub of its module.
    fn lazy_target(&self, pid: u32, target: u64) -> Option<(usize, u64)> {
        let l = self.processes.get(&pid)?.module_at(target)?;
        let svma = target.wrapping_sub(l.bias);
        let plt = self.modules.get(l.module)?.plt;
        (svma >= plt.0 && svma < plt.1).then_some((l.module, svma))
    }

    /// The trace's number of the function at an avma.
    pub(super) fn callee_at(&mut self, pid: u32, target: u64) -> FunctionId {
        let found = self
            .processes
            .get(&pid)
            .and_then(|p| p.module_at(target))
            .copied();
        match found {
            Some(l) => {
                self.modules[l.module].function(target.wrapping_sub(l.bias), &mut self.writer)
            }
            None => self.unknown_function(target),
        }
    }

    /// Code that belongs to no module we have a plan for.
    fn unknown_function(&mut self, target: u64) -> FunctionId {
        if let Some(id) = self.unknown.get(&target) {
            return *id;
        }
        let module = match self.unknown_module {
            Some(m) => m,
            None => {
                let m = TraceModule {
                    path: "[unknown]".to_owned(),
                    build_id: Vec::new(),
                    svma: Svma(0)..Svma(0),
                };
                let id = self.writer.module(&m).unwrap_or(ModuleId(0));
                self.unknown_module = Some(id);
                id
            }
        };
        let f = Function {
            module,
            svma: Svma(target),
            size_bytes: 0,
            symbol: String::new(),
        };
        let id = self.writer.function(&f).unwrap_or(FunctionId(0));
        self.unknown.insert(target, id);
        id
    }

    /// The direct callee of the site whose entry or exit is at `id`.
    pub(super) fn site_callee(&mut self, pid: u32, id: u32) -> FunctionId {
        let areas = self.processes.get(&pid).map(|p| Arc::clone(&p.areas));
        match areas.unwrap_or_default().place(id) {
            Some((place, area, offset)) => {
                self.modules[area.module].direct_callee(offset, place, &mut self.writer)
            }
            None => self.unknown_function(0),
        }
    }

    /// The callee of an open frame: `called`, unless its site can call one function only, as the
    /// agent does not keep the callee of such a call and another's may stand there.
    pub(super) fn frame_callee(&mut self, pid: u32, id: u32, called: u64) -> FunctionId {
        let areas = self.processes.get(&pid).map(|p| Arc::clone(&p.areas));
        let place = areas.as_deref().and_then(|areas| areas.place(id));
        let is_direct = place.is_some_and(|(place, ..)| place.kind() & PLACE_INDIRECT == 0);
        if called == 0 || is_direct {
            return self.site_callee(pid, id);
        }
        // Through a slot that was not bound yet: what it was bound to, only the caller's stream
        // knows.
        match self.lazy_target(pid, called) {
            Some((module, svma)) => self.modules[module].stub(svma, &mut self.writer),
            None => self.callee_at(pid, called),
        }
    }
}
