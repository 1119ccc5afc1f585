#!/usr/bin/env python3
"""Does a recording leave a command's surroundings, and its own files, as they should be?

usage: tests/surroundings.py [--sptrace PATH] [--only GLOB]... [--list]

Given: a built sptrace (--sptrace, $SPTRACE or target/release/sptrace) and the small programs of any machine.
Gives: one line a case, then `N passed, N failed` alone on the last line; status 1 if anything failed.
Checked: who may read what is written. Cases that need root, or another user, say so and are left out without.
Must not know: how sptrace works.
"""
import os, stat, sys
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


if __name__ == "__main__":
    sys.exit(main(CASES, __doc__))
