//! What payloads of a script have done to calls, in words.
//!
//! Given what the trace has of it; gives a remark beside the call. Must not know where it stands.

use sptrace_trace::values::Acted;
use sptrace_types::names::error;
use sptrace_types::names::table::SIGNALS;

use crate::units::Duration;

/// As `INJECTED: not called, result -1 ENOENT; delayed by 50 ms`.
pub fn remark(acted: &Acted) -> String {
    let mut parts = Vec::new();
    if acted.is_skipped() {
        let errno = acted.errno.map(|errno| match error(errno.into()) {
            Some((name, _)) => name.to_owned(),
            None => errno.to_string(),
        });
        let result = acted.result.map(|result| (result as i64).to_string());
        let both: Vec<String> = result.into_iter().chain(errno).collect();
        parts.push(format!("not called, {}", both.join(" ")));
    }
    if let Some(ns) = acted.delay_ns {
        parts.push(format!("delayed by {}", Duration(ns).to_string().trim()));
    }
    if let Some(signal) = acted.signal {
        let name = SIGNALS.name(signal.into()).map(str::to_owned);
        let name = name.unwrap_or_else(|| format!("signal {signal}"));
        parts.push(format!("{name} raised"));
    }
    if acted.is_less {
        parts.push("more was wanted and could not be done here".to_owned());
    }
    format!("INJECTED: {}", parts.join("; "))
}

/// As strace marks such calls.
pub fn mark(acted: &Acted) -> &'static str {
    match (acted.is_skipped() || acted.signal.is_some(), acted.delay_ns) {
        (true, Some(_)) => " (INJECTED) (DELAYED)",
        (true, None) => " (INJECTED)",
        (false, Some(_)) => " (DELAYED)",
        (false, None) => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_is_said() {
        let denied = Acted {
            result: Some(u64::MAX),
            errno: Some(2),
            ..Acted::default()
        };
        assert_eq!(remark(&denied), "INJECTED: not called, -1 ENOENT");
        assert_eq!(mark(&denied), " (INJECTED)");
        let late = Acted {
            delay_ns: Some(50_000_000),
            signal: Some(10),
            is_less: true,
            ..Acted::default()
        };
        assert_eq!(
            remark(&late),
            "INJECTED: delayed by 50.000 ms; SIGUSR1 raised; more was wanted and could not be done here"
        );
        assert_eq!(mark(&late), " (INJECTED) (DELAYED)");
    }
}
