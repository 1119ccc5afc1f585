//! The system calls of x86-64 Linux: numbers, names, parameters.
//!
//! Given a number or a name; gives the call. Numbers come from the kernel's header
//! `asm/unistd_64.h`, parameters from the `format` files of its tracepoints `syscalls:sys_enter_*`.

mod table;

/// A parameter of a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name in the kernel's source.
    pub name: &'static str,
    /// Its type, as a C declaration has it.
    pub c_type: &'static str,
}

/// A system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemCall {
    /// The number in rax.
    pub number: u32,
    /// The name that manual pages use.
    pub name: &'static str,
    /// Its parameters; `None`: the kernel that the table was made on does not say.
    pub parameters: Option<&'static [Parameter]>,
}

/// The call with this number.
pub fn by_number(number: u32) -> Option<&'static SystemCall> {
    let found = table::CALLS.binary_search_by_key(&number, |call| call.number);
    found.ok().and_then(|i| table::CALLS.get(i))
}

/// The call with this name.
pub fn by_name(name: &str) -> Option<&'static SystemCall> {
    table::CALLS.iter().find(|call| call.name == name)
}

/// All calls, by number.
pub fn all() -> &'static [SystemCall] {
    table::CALLS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_calls_are_there() {
        let read = by_number(0).unwrap();
        assert_eq!(read.name, "read");
        let parameters = read.parameters.unwrap();
        let names: Vec<_> = parameters.iter().map(|p| p.name).collect();
        assert_eq!(names, ["fd", "buf", "count"]);
        assert_eq!(by_name("openat").map(|call| call.number), Some(257));
        assert_eq!(by_number(400), None);
        assert_eq!(by_name("no_such_call"), None);
    }

    #[test]
    fn numbers_rise() {
        assert!(all().is_sorted_by_key(|call| call.number));
        assert!(all().len() > 350);
    }
}
