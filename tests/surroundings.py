#!/usr/bin/env python3
"""Does a recording leave a command's surroundings, and its own files, as they should be?

usage: tests/surroundings.py [--sptrace PATH] [--only GLOB]... [--list]

Given: a built sptrace (--sptrace, $SPTRACE or target/release/sptrace) and the small programs of any machine.
Gives: one line a case, then `N passed, N failed` alone on the last line; status 1 if anything failed.
Checked: who may read what is written; that the command finds the standard streams closed that were, and exactly the limits
that were set, and is recorded all the same. Cases that need root, or another user, say so and are left out without.
Must not know: how sptrace works.
"""
import os, re, resource, stat, subprocess, sys
from bad_input import Skip, main


CASES = []


def case(function):
    """A function that takes a Bench and gives the faults it found."""
    CASES.append((function.__name__, function))
    return function


def loose():
    """For the child: a umask that takes nothing away."""
    os.umask(0)


# --- files ---

def faults_of_modes(paths):
    """Everything in `paths` must be its owner's alone."""
    found = []
    for path in paths:
        mode, wanted = os.stat(path).st_mode, 0o700 if os.path.isdir(path) else 0o600
        if stat.S_IMODE(mode) != wanted: found.append(f"{path} has mode {stat.S_IMODE(mode):o}, not {wanted:o}")
    return found


@case
def traces_and_caches_are_their_owners_alone(b):
    """With a umask that permits everything; also where a readable file is overwritten."""
    cache = os.path.join(os.path.dirname(b.folder), "cache")
    os.mkdir(cache)
    os.mkdir(os.path.join(cache, "sptrace"), 0o755)
    b.put("elsewhere", b"a former trace", 0o644)
    os.symlink("elsewhere", b.path("link"))
    runs = [("run", "-q", "-o", "trace", "/bin/true"), ("run", "-q", "-o", "link", "/bin/true"),
            ("run", "-q", "-o", "ring", "--ring", "2M", "/bin/true"), ("run", "-q", "-o", "dump", "--ring", "2M", "--dump-on", "exit", "/bin/true")]
    found = []
    for argv in runs:
        got = b.run(*argv, before=loose)
        if got.returncode or got.stderr: found.append(f"{argv}: status {got.returncode}, {got.stderr[:200]!r}")
    if os.path.getsize(b.path("elsewhere")) < 100: found.append("nothing was written through the link")
    kept = [os.path.join(folder, name) for folder, _, names in os.walk(cache) for name in names]
    if not any(name.endswith(".analysis") for name in kept): found.append("no analysis was kept")
    files = [b.path(name) for name in ("trace", "elsewhere", "ring", "dump")]
    return found + faults_of_modes([*files, *kept, os.path.join(cache, "sptrace")])


@case
def traces_of_the_kernel_are_their_owners_alone(b):
    if os.geteuid() != 0: raise Skip("needs root")
    got = b.run("ktrace", "-q", "-o", "trace", "/bin/true", before=loose)
    if got.returncode: raise Skip(f"this kernel cannot be traced: {got.stderr[:100]!r}")
    return faults_of_modes([b.path("trace")])


# --- standard streams ---

@case
def closed_streams_are_closed_in_the_command(b):
    """In each combination, and nothing of sptrace's goes into a file that has taken such a number."""
    script = 'import os; os.write(os.open("found", os.O_CREAT | os.O_WRONLY | os.O_TRUNC), str([os.readlink(f"/proc/self/fd/{i}") if os.path.exists(f"/proc/self/fd/{i}") else None for i in range(3)]).encode())'
    tools, found = [("run", "-o", "trace", "--"), ("run", "-q", "-o", "trace", "--start-on", "time:1h", "--")], []
    if os.geteuid() == 0 and b.run("ktrace", "-q", "-o", "trace", "/bin/true").returncode == 0: tools.append(("ktrace", "-o", "trace", "--"))
    for bits in range(1, 8):
        closed = [i for i in range(3) if bits >> i & 1]
        def seen(*tool):
            null, program = open(os.devnull, "r+b"), ["/usr/bin/python3", "-ISc", "import os\n" + script]
            argv = [b.sptrace, *tool, *program] if tool else program
            with null: done = subprocess.run(argv, cwd=b.folder, stdin=null, stdout=null, stderr=null, timeout=60, preexec_fn=lambda: [os.close(i) for i in closed])
            with open(b.path("found")) as f: return done.returncode, f.read()
        native = seen()
        for tool in tools if bits in (1, 7) else tools[:1]:
            got = seen(*tool)
            if got != native: found.append(f"{closed} closed, {tool[0]}: {got}, untraced {native}")
    return found


# --- limits ---

LIMITS = [(resource.RLIMIT_AS, 64 << 20), (resource.RLIMIT_NOFILE, 8), (resource.RLIMIT_DATA, 24 << 20), (resource.RLIMIT_CPU, 20), (resource.RLIMIT_NPROC, 100)]
PRINT_LIMITS = "cat /proc/self/limits | tail -n +2; exit 3"


def as_nobody():
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)


def limits_reach_the_command(b, drop):
    """Each limit alone, soft and hard: the command has it, all else is as without, and calls are recorded."""
    found = []
    for which, value in LIMITS:
        def before():
            drop()
            resource.setrlimit(which, (value, value))
        native = subprocess.run(["/bin/sh", "-c", PRINT_LIMITS], cwd=b.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=before)
        got = b.run("run", "-o", "trace", "--", "/bin/sh", "-c", PRINT_LIMITS, before=before)
        name = f"limit {which} at {value}"
        if (got.returncode, got.stdout) != (native.returncode, native.stdout): found.append(f"{name}: status {got.returncode}, {got.stdout[:200]!r} {got.stderr[:300]!r}")
        events = re.search(rb"events: ([0-9]+) recorded", got.stderr)
        named = b"untraced" in got.stderr
        if not events or (int(events[1]) < 1000 and not named): found.append(f"{name}: {got.stderr[-300:]!r}")
    return found


@case
def limits_reach_the_command_and_do_not_hinder_us(b): return limits_reach_the_command(b, lambda: None)


@case
def limits_of_another_user_reach_the_command(b):
    """Who may not lift a hard limit."""
    if os.geteuid() != 0: raise Skip("needs root to become another user")
    os.chmod(b.folder, 0o777)
    cache = os.path.join(os.path.dirname(b.folder), "cache")
    os.mkdir(cache)
    os.chmod(cache, 0o777)
    try: subprocess.run([b.sptrace, "--version"], stdout=subprocess.DEVNULL, check=True, preexec_fn=as_nobody, cwd="/")
    except (OSError, subprocess.CalledProcessError): raise Skip("nobody cannot run this sptrace")
    return limits_reach_the_command(b, as_nobody)


if __name__ == "__main__":
    sys.exit(main(CASES, __doc__))
