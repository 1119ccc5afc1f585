//! Which function an event concerns: from addresses and ids to the trace's numbers.
//!
//! Given what a record says and what is known of its process: modules, where they lie, and their
//! patch areas. Names functions by [`Naming`] as they are met.

use super::module::{Module, PLACE_INDIRECT, Place};
use super::names::Naming;
use super::process::Process;
use super::without_end::WithoutEnd;
use sptrace_addr::Svma;
use sptrace_trace::{Function, FunctionId, Module as TraceModule, ModuleId, SYSTEM_CALLS};
use std::collections::HashMap;
use std::sync::Arc;

/// Where a call comes from: the module, and the place in its patch area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CalledFrom {
    /// Its index.
    pub module: usize,
    /// Offset in the area.
    pub offset: u32,
}

/// A target of a call through a pointer, as recorded, and what it was.
#[derive(Clone, Copy, Default)]
pub(super) struct Recent {
    pub(super) target: u64,
    pub(super) pid: u32,
    pub(super) callee: Target,
}

#[derive(Clone, Copy)]
pub(super) enum Target {
    Function(FunctionId),
    /// A PLT stub: module and svma.
    Stub(usize, u64),
}

impl Recent {
    #[inline]
    pub(super) fn slot(target: u64) -> usize {
        (target ^ target >> 12) as usize % RECENT
    }
}

impl Default for Target {
    fn default() -> Self {
        Self::Function(FunctionId(0))
    }
}

const RECENT: usize = 4096;
/// In a [`Recent`]: only the low half of the target was recorded.
pub(super) const LOW_HALF: u64 = 1 << 63;

/// What is known of addresses: the modules of a recording, and what lies where in its processes.
pub struct AddressBook {
    /// Modules of the recording.
    pub modules: Vec<Module>,
    /// Processes by number.
    pub processes: HashMap<u32, Process>,
    /// Calls whose ends are not recorded.
    pub(super) without_end: WithoutEnd,
    /// What is decoded is only looked at: it will be decoded again, and is counted then.
    pub is_preview: bool,
    /// Last targets of calls through pointers, by a hash of the address.
    pub(super) recent: Box<[Recent; RECENT]>,
    /// How often something has changed in a process.
    changes: u64,
    unknown_module: Option<ModuleId>,
    unknown: HashMap<u64, Unknown>,
    kernel: Option<ModuleId>,
    system_calls: HashMap<u32, FunctionId>,
    /// What the values of functions mean, by the agent's numbers.
    descriptions: Vec<Description>,
}

/// Code that belongs to no module.
struct Unknown {
    id: FunctionId,
    /// The first process that called it.
    pid: u32,
    is_named: bool,
}

/// What the values of a function mean.
struct Description {
    text: String,
    /// Words that a call brings.
    words: usize,
    /// The trace's number, once it has one.
    number: Option<u32>,
}

impl Default for AddressBook {
    fn default() -> Self {
        Self {
            modules: Vec::new(),
            processes: HashMap::new(),
            without_end: WithoutEnd::default(),
            is_preview: false,
            recent: Box::new([Recent::default(); RECENT]),
            changes: 0,
            unknown_module: None,
            unknown: HashMap::new(),
            kernel: None,
            system_calls: HashMap::new(),
            descriptions: Vec::new(),
        }
    }
}

impl AddressBook {
    /// Something has changed in a process: what addresses meant before they need not mean now.
    pub fn forget_recent(&mut self) {
        self.recent.fill(Recent::default());
        self.changes += 1;
    }

    /// What was known of addresses and ids holds as long as this stays the same.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// The callee with this low half of an address, if it was called not long ago.
    #[inline]
    pub(super) fn recent_callee(&self, pid: u32, low: u32) -> Option<FunctionId> {
        let target = LOW_HALF | u64::from(low);
        let recent = &self.recent[Recent::slot(target)];
        match recent.callee {
            Target::Function(callee) if recent.target == target && recent.pid == pid => {
                Some(callee)
            }
            _ => None,
        }
    }

    /// The direct callee of a place.
    pub(super) fn direct_callee(
        &mut self,
        from: CalledFrom,
        place: Place,
        names: &mut impl Naming,
    ) -> FunctionId {
        match self.modules.get_mut(from.module) {
            Some(module) => module.direct_callee(from.offset, place, names),
            None => place
                .callee()
                .unwrap_or_else(|| self.unknown_function(0, 0, names)),
        }
    }

    /// The PLT stub of a module.
    pub(super) fn stub(
        &mut self,
        module: usize,
        svma: u64,
        names: &mut impl Naming,
    ) -> Option<FunctionId> {
        Some(self.modules.get_mut(module)?.stub(svma, names))
    }

    /// What lies at the target of a call through a pointer.
    #[inline]
    pub(super) fn resolve(&mut self, pid: u32, target: u64, names: &mut impl Naming) -> Target {
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
            None => Target::Function(self.callee_at(pid, avma, names)),
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
    pub(super) fn callee_at(
        &mut self,
        pid: u32,
        target: u64,
        names: &mut impl Naming,
    ) -> FunctionId {
        let found = self
            .processes
            .get(&pid)
            .and_then(|p| p.module_at(target))
            .copied();
        match found {
            Some(l) => self.modules[l.module].function(target.wrapping_sub(l.bias), names),
            None => self.unknown_function(pid, target, names),
        }
    }

    /// Where code lies that has no name yet and belongs to no module, and the process that called
    /// it, sorted.
    pub fn nameless(&self) -> Vec<(u32, u64)> {
        let nameless = self.unknown.iter().filter(|(_, unknown)| !unknown.is_named);
        let mut all: Vec<_> = nameless.map(|(at, unknown)| (unknown.pid, *at)).collect();
        all.sort_unstable();
        all
    }

    /// Such code has a name now.
    pub fn is_named(&mut self, target: u64) -> Option<FunctionId> {
        let unknown = self.unknown.get_mut(&target)?;
        unknown.is_named = true;
        Some(unknown.id)
    }

    /// Code that belongs to no module we have a plan for.
    fn unknown_function(&mut self, pid: u32, target: u64, names: &mut impl Naming) -> FunctionId {
        if let Some(unknown) = self.unknown.get(&target) {
            return unknown.id;
        }
        let module = match self.unknown_module {
            Some(m) => m,
            None => {
                let m = TraceModule {
                    path: "[unknown]".to_owned(),
                    build_id: Vec::new(),
                    svma: Svma(0)..Svma(0),
                };
                let id = names.module(&m);
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
        let id = names.function(&f);
        let unknown = Unknown {
            id,
            pid,
            is_named: false,
        };
        self.unknown.insert(target, unknown);
        id
    }

    /// The kernel's function for a call of this number.
    pub(crate) fn system_call(&mut self, number: u32, names: &mut impl Naming) -> FunctionId {
        if let Some(id) = self.system_calls.get(&number) {
            return *id;
        }
        let module = *self.kernel.get_or_insert_with(|| {
            names.module(&TraceModule {
                path: SYSTEM_CALLS.to_owned(),
                build_id: Vec::new(),
                svma: Svma(0)..Svma(0),
            })
        });
        let name = sptrace_types::syscalls::by_number(number).map(|call| call.name);
        let id = names.function(&Function {
            module,
            svma: Svma(number.into()),
            size_bytes: 0,
            symbol: name.map_or_else(|| format!("syscall_{number:#x}"), str::to_owned),
        });
        self.system_calls.insert(number, id);
        id
    }

    /// Takes up descriptions in the order of the agent's numbers: lines, and how many words a call
    /// brings. Gives the number of the first.
    pub fn describe(&mut self, described: impl IntoIterator<Item = (String, usize)>) -> u32 {
        let first = self.descriptions.len() as u32;
        let described = described.into_iter();
        self.descriptions
            .extend(described.map(|(text, words)| Description {
                text,
                words,
                number: None,
            }));
        first
    }

    /// The trace's number of a description, and how many words a call brings. `None`: there is no
    /// such.
    pub(super) fn description(
        &mut self,
        number: u32,
        names: &mut impl Naming,
    ) -> Option<(u32, usize)> {
        let found = self.descriptions.get_mut(number as usize)?;
        let number = *found
            .number
            .get_or_insert_with(|| names.description(&found.text));
        Some((number, found.words))
    }

    /// The direct callee of the site whose entry or exit is at `id`.
    pub(super) fn site_callee(&mut self, pid: u32, id: u32, names: &mut impl Naming) -> FunctionId {
        let areas = self.processes.get(&pid).map(|p| Arc::clone(&p.areas));
        match areas.unwrap_or_default().place(id) {
            Some((place, area, offset)) => {
                let module = area.module;
                self.direct_callee(CalledFrom { module, offset }, place, names)
            }
            None => self.unknown_function(pid, 0, names),
        }
    }

    /// The callee of an open frame: `called`, unless its site can call one function only, as the
    /// agent does not keep the callee of such a call and another's may stand there.
    pub(super) fn frame_callee(
        &mut self,
        pid: u32,
        id: u32,
        called: u64,
        names: &mut impl Naming,
    ) -> FunctionId {
        let areas = self.processes.get(&pid).map(|p| Arc::clone(&p.areas));
        let place = areas.as_deref().and_then(|areas| areas.place(id));
        let is_direct = place.is_some_and(|(place, ..)| place.kind() & PLACE_INDIRECT == 0);
        if called == 0 || is_direct {
            return self.site_callee(pid, id, names);
        }
        // Through a slot that was not bound yet: what it was bound to, only the caller's stream
        // knows.
        match self.lazy_target(pid, called) {
            Some((module, svma)) => self.modules[module].stub(svma, names),
            None => self.callee_at(pid, called, names),
        }
    }

    /// The function that a call is made from, if the trace names it. `is_open`: the call's end is
    /// not recorded, which is counted by its reason.
    pub(super) fn caller(&mut self, from: Option<CalledFrom>, is_open: bool) -> Option<FunctionId> {
        let calls = u64::from(is_open && !self.is_preview);
        let module = from.and_then(|from| self.modules.get_mut(from.module));
        let (Some(module), Some(from)) = (module, from) else {
            self.without_end.count(None, calls);
            return None;
        };
        let (caller, id) = module.caller(from.offset)?;
        self.without_end.count(Some(caller), calls);
        if caller.keeps_returns {
            module.calls_without_end += calls;
        }
        id
    }

    /// The function in which the site of a module lies that has its slot at this offset of the
    /// area.
    pub(crate) fn site_caller(
        &mut self,
        from: CalledFrom,
        names: &mut impl Naming,
    ) -> Option<FunctionId> {
        let module = self.modules.get_mut(from.module)?;
        let (caller, _) = module.caller(from.offset)?;
        Some(module.function(caller.svma, names))
    }

    /// The same, if that function is named already; inside: nobody knows it.
    pub(super) fn known_caller(&self, from: CalledFrom) -> Option<Option<FunctionId>> {
        let module = self.modules.get(from.module)?;
        match module.caller(from.offset) {
            Some((_, id)) => id.map(Some),
            None => Some(None),
        }
    }

    /// The functions that change coroutines in the module that a call is made from.
    pub(super) fn switching(&self, from: CalledFrom) -> Vec<FunctionId> {
        let module = self.modules.get(from.module);
        module.map_or(Vec::new(), |m| m.switching().to_vec())
    }

    /// What a call leads to that was counted, given the place of its site, and the low half of the
    /// callee's address if it went through a pointer. `None`: to a stub of the linker.
    pub(crate) fn counted_callee(
        &mut self,
        (pid, low): (u32, u32),
        (from, place): (CalledFrom, Place),
        names: &mut impl Naming,
    ) -> Option<FunctionId> {
        if low == 0 {
            return Some(self.direct_callee(from, place, names));
        }
        match self.resolve(pid, LOW_HALF | u64::from(low), names) {
            Target::Function(callee) => Some(callee),
            Target::Stub(..) => None,
        }
    }

    /// Of each module that is seen in part only: which, why, and how many of its calls have no
    /// recorded end.
    pub fn seen_in_part(&self) -> Vec<(String, u64)> {
        let told = |m: &Module| {
            Some((
                format!("{}: {}", m.path, m.seen_in_part()?),
                m.calls_without_end,
            ))
        };
        self.modules.iter().filter_map(told).collect()
    }

    /// Why calls have no recorded end, and how many.
    pub fn without_end(&self) -> [(&'static str, u64); 3] {
        self.without_end.told()
    }
}
