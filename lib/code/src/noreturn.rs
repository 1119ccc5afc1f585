//! Functions of the C and C++ libraries that never return, by name.
//!
//! Source: declarations with `_Noreturn` or `__attribute__((noreturn))` in glibc, musl, libgcc,
//! libstdc++ and GLib headers; panics of the Rust core library by their mangled prefix.

const NAMES: &[&str] = &[
    "_Exit",
    "_Unwind_Resume",
    "_ZSt10unexpectedv",
    "_ZSt9terminatev",
    "__assert",
    "__assert_fail",
    "__assert_fail_base",
    "__assert_perror_fail",
    "__chk_fail",
    "__cxa_bad_cast",
    "__cxa_bad_typeid",
    "__cxa_call_terminate",
    "__cxa_call_unexpected",
    "__cxa_deleted_virtual",
    "__cxa_init_primary_exception_failed",
    "__cxa_pure_virtual",
    "__cxa_rethrow",
    "__cxa_throw",
    "__cxa_throw_bad_array_new_length",
    "__fortify_fail",
    "__libc_fatal",
    "__libc_start_call_main",
    "__libc_start_main",
    "__longjmp",
    "__longjmp_chk",
    "__pthread_exit",
    "__pthread_unwind_next",
    "__stack_chk_fail",
    "__stack_chk_fail_local",
    "_dl_fatal_printf",
    "_dl_signal_error",
    "_dl_signal_exception",
    "_exit",
    "_longjmp",
    "abort",
    "err",
    "errx",
    "exit",
    "g_assertion_message",
    "g_assertion_message_expr",
    "longjmp",
    "pthread_exit",
    "quick_exit",
    "siglongjmp",
    "thrd_exit",
    "verr",
    "verrx",
];

/// Names that programs also give to functions of their own, which may return.
const ONLY_IMPORTED: &[&str] = &["err", "errx", "verr", "verrx"];

/// `name`, imported from a library, is the name of a function that never returns.
pub(crate) fn is_noreturn_import(name: &str) -> bool {
    let name = name.split('@').next().unwrap_or(name);
    NAMES.binary_search(&name).is_ok() || is_throw_helper(name) || is_rust_panic(name)
}

/// Functions of Go's runtime that leave a goroutine, whose callers go on when it does: by a jump to
/// what its block says (Go's source, `runtime/asm_amd64.s`).
const SWITCHES: [&str; 3] = [
    "runtime.mcall",
    "runtime.morestack",
    "runtime.morestack_noctxt",
];

/// True for the name of one of these, in either convention of calls.
pub(crate) fn is_switch(name: &str) -> bool {
    SWITCHES.contains(&name.strip_suffix(".abi0").unwrap_or(name))
}

/// The same for a function that the image itself defines.
pub(crate) fn is_noreturn_definition(name: &str) -> bool {
    !ONLY_IMPORTED.contains(&name) && is_noreturn_import(name)
}

/// `std::__throw_…`: the mangled name has the length of the identifier before it.
fn is_throw_helper(name: &str) -> bool {
    name.strip_prefix("_ZSt")
        .map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()))
        .is_some_and(|rest| rest.starts_with("__throw_"))
}

/// Legacy mangling keeps the path readable: core::panicking::panic… and the unwrap failures.
fn is_rust_panic(name: &str) -> bool {
    name.starts_with("_ZN4core9panicking")
        || name.starts_with("_ZN4core6option13unwrap_failed")
        || name.starts_with("_ZN4core6option13expect_failed")
        || name.starts_with("_ZN4core6result13unwrap_failed")
        || name.starts_with("_ZN5alloc7raw_vec12handle_error")
        || name.starts_with("_ZN5alloc7raw_vec17capacity_overflow")
        || name.starts_with("_ZN5alloc5alloc18handle_alloc_error")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_for_the_binary_search() {
        assert!(NAMES.is_sorted());
    }

    #[test]
    fn versions_and_throw_helpers_are_recognised() {
        assert!(is_noreturn_import("exit@GLIBC_2.2.5"));
        assert!(is_noreturn_import("_ZSt20__throw_length_errorPKc"));
        assert!(!is_noreturn_import("exit_group"));
        assert!(!is_noreturn_import("abort.cold"));
    }

    #[test]
    fn a_programs_own_err_may_return() {
        assert!(is_noreturn_import("err"));
        assert!(!is_noreturn_definition("err"));
    }
}
