//! The scripts that come with sptrace, as they lie in `scripts/`.

/// Name and text.
pub const SCRIPTS: &[(&str, &str)] = &[
    ("arguments", include_str!("../../../scripts/arguments.rhai")),
    (
        "config-files",
        include_str!("../../../scripts/config-files.rhai"),
    ),
    ("coverage", include_str!("../../../scripts/coverage.rhai")),
    (
        "crash-context",
        include_str!("../../../scripts/crash-context.rhai"),
    ),
    (
        "depth-limit",
        include_str!("../../../scripts/depth-limit.rhai"),
    ),
    (
        "divergence",
        include_str!("../../../scripts/divergence.rhai"),
    ),
    ("dns", include_str!("../../../scripts/dns.rhai")),
    ("errors", include_str!("../../../scripts/errors.rhai")),
    ("exec-tree", include_str!("../../../scripts/exec-tree.rhai")),
    ("failures", include_str!("../../../scripts/failures.rhai")),
    ("faults", include_str!("../../../scripts/faults.rhai")),
    ("file-io", include_str!("../../../scripts/file-io.rhai")),
    (
        "first-error",
        include_str!("../../../scripts/first-error.rhai"),
    ),
    ("handler", include_str!("../../../scripts/handler.rhai")),
    ("heap", include_str!("../../../scripts/heap.rhai")),
    (
        "hot-functions",
        include_str!("../../../scripts/hot-functions.rhai"),
    ),
    (
        "hot-stacks",
        include_str!("../../../scripts/hot-stacks.rhai"),
    ),
    ("latency", include_str!("../../../scripts/latency.rhai")),
    ("locks", include_str!("../../../scripts/locks.rhai")),
    ("network", include_str!("../../../scripts/network.rhai")),
    ("off-cpu", include_str!("../../../scripts/off-cpu.rhai")),
    (
        "one-module",
        include_str!("../../../scripts/one-module.rhai"),
    ),
    (
        "privileges",
        include_str!("../../../scripts/privileges.rhai"),
    ),
    ("python", include_str!("../../../scripts/python.rhai")),
    (
        "rate-limit",
        include_str!("../../../scripts/rate-limit.rhai"),
    ),
    ("sizes", include_str!("../../../scripts/sizes.rhai")),
    (
        "slow-calls",
        include_str!("../../../scripts/slow-calls.rhai"),
    ),
    ("stagger", include_str!("../../../scripts/stagger.rhai")),
    ("startup", include_str!("../../../scripts/startup.rhai")),
    ("strings", include_str!("../../../scripts/strings.rhai")),
    (
        "tail-latency",
        include_str!("../../../scripts/tail-latency.rhai"),
    ),
    ("texts", include_str!("../../../scripts/texts.rhai")),
    (
        "thread-states",
        include_str!("../../../scripts/thread-states.rhai"),
    ),
    (
        "through-path",
        include_str!("../../../scripts/through-path.rhai"),
    ),
    ("tls", include_str!("../../../scripts/tls.rhai")),
    ("who-calls", include_str!("../../../scripts/who-calls.rhai")),
    ("window", include_str!("../../../scripts/window.rhai")),
];
