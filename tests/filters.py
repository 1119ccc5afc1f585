#!/usr/bin/env python3
"""Programs under a seccomp filter: recorded where the filter permits what sptrace does in a process, left alone where it does not.

usage: tests/filters.py [--sptrace PATH] [--programs DIR] [--only GLOB]... [--list] [--repeat N]

Given: as tests/events.py, whose tools it uses; the program `filtered`, which build.sh makes where libseccomp is installed.
Gives: one line a case, then `N passed, N failed` alone on the last line; status 1 if anything failed. Filters of running
processes are shown to root alone, so without root only their refusal is checked.
Checked: under Docker's default profile, and filters as systemd makes them, calls before and after the filter are recorded, in
threads and in programs that are executed; attaching and letting go work as anywhere; where a needed system call is not permitted,
the recording ends before the filter, attaching is refused with that call's name, and the program is not harmed.
Must not know: how sptrace works.
"""
import os, re, subprocess, sys, time

from harness.bench import main
from harness.case import Cases
from harness.process import wait_for

case = Cases()
PERMITTED, FORBIDDEN = ("docker", "service"), {"mdwx": "mprotect with PROT_EXEC", "kill": "mremap"}
NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]


def filtered(b): return os.path.join(b.programs, "filtered.O2")


def counts(b, name="t.data"):
    rows = [l.split(",") for l in b.report("functions", name, "--format", "csv").splitlines()[1:]]
    return {row[1]: int(row[2]) for row in rows}


def record(b, *arguments):
    """Runs it to its end, which must be as untraced."""
    native = subprocess.run([filtered(b), *arguments], stdin=subprocess.DEVNULL, capture_output=True)
    traced = b.start([], [filtered(b), *arguments], stdin=subprocess.DEVNULL)
    out, err = traced.communicate(timeout=60)
    assert (traced.returncode, out) == (native.returncode, native.stdout), (traced.returncode, out, err)
    return err.decode()


@case
def what_a_filter_permits_is_recorded_in_all_threads(b):
    for profile in PERMITTED:
        said, calls = record(b, profile), counts(b)
        assert "not recorded further" not in said, said
        # One call of the main thread; each of the others makes a hundred at least.
        assert calls["f_within"] >= 301 and calls["f_leaf"] == 2 * calls["f_within"], (profile, calls["f_within"], calls["f_leaf"])


@case
def where_a_needed_call_is_not_permitted_recording_ends_before(b):
    for profile in FORBIDDEN:
        said, calls = record(b, profile), counts(b)
        assert "1 processes not recorded further, in a sandbox" in said, said
        assert "main" in calls and "f_within" not in calls, calls


@case
def programs_that_are_executed_under_a_filter_are_recorded(b):
    for profile in PERMITTED:
        record(b, profile, "sh", "-c", "ls / >/dev/null; exec expr 6 + 7")
        tree = b.report("tree")
        for program in ("filtered", "sh", "ls", "expr"):
            assert re.search(rf"/\* exec \S*/(dash|{program}\S*) \*/", tree), (profile, program)
        assert tree.count("main() {") + tree.count("__libc_start_main() {") >= 4, profile


@case
def programs_that_are_executed_under_another_filter_run_as_they_are(b):
    for profile in FORBIDDEN: record(b, profile, "sh", "-c", "exec expr 6 + 7")


@case
def a_killed_sptrace_leaves_a_filtered_program_whole(b):
    for profile in PERMITTED:
        process = b.start(["-q"], [filtered(b), profile])
        assert process.stdout.readline() == f"within {profile}\n".encode()
        command = wait_for(lambda: subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split())
        time.sleep(0.2)
        process.kill()
        process.wait()
        time.sleep(0.3)
        # It has our end of its input, and goes on until that is closed.
        state = open(f"/proc/{command[0]}/stat").read().rsplit(") ", 1)[1][0]
        assert state in "SRD", (profile, state)
        process.stdin.close()
        assert process.stdout.read() == b"the sum is 15\n", profile
        assert wait_for(lambda: not os.path.exists(f"/proc/{command[0]}/exe")), profile


class Running:
    """The program, waiting under its filter."""
    def __init__(self, b, profile):
        self.process = subprocess.Popen([filtered(b), profile], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        b.started.append(self.process)
        assert self.process.stdout.readline() == f"within {profile}\n".encode()
        self.process.stderr = None

    def attach(self, b, *before):
        command = [*before, b.sptrace, "attach", "-o", b.path("t.data"), "-p", str(self.process.pid), "--for", "200ms"]
        return subprocess.run(command, env=b.env, capture_output=True, text=True, timeout=60)

    def unharmed(self):
        maps = open(f"/proc/{self.process.pid}/maps").read()
        assert "memfd:sptrace" not in maps, maps
        out = self.process.communicate(timeout=30)[0]
        assert (self.process.returncode, out) == (4, b"the sum is 15\n"), (self.process.returncode, out)


@case
def doctor_says_what_a_filter_forbids(b):
    def lines(*before):
        told = subprocess.run([*before, b.sptrace, "doctor"], stdin=subprocess.DEVNULL, capture_output=True, text=True, env=b.env)
        return told.returncode, {line[2:26].strip(): line[27:30].strip() for line in told.stdout.splitlines() if line.startswith("  ")}
    status, free = lines()
    assert status == 0 and all(free[what] == "yes" for what in ("ptrace", "memory of a child", "descriptors of a child")), free
    # Docker's profile permits ptrace, and not that a descriptor is taken from another process.
    status, filtered_ones = lines(filtered(b), "docker")
    assert status == 0 and filtered_ones["ptrace"] == "yes" and filtered_ones["descriptors of a child"] == "no", filtered_ones


@case
def who_runs_under_a_filter_that_permits_it_is_attached_to(b):
    for profile in PERMITTED if os.getuid() == 0 else ():
        target = Running(b, profile)
        for _ in range(3):
            attached = target.attach(b)
            assert attached.returncode == 0, attached.stderr
            assert counts(b).get("f_leaf", 0) > 1000, attached.stderr
        target.unharmed()


@case
def who_runs_under_another_filter_is_refused_with_the_call(b):
    for profile, call in FORBIDDEN.items() if os.getuid() == 0 else ():
        target = Running(b, profile)
        refused = target.attach(b)
        assert refused.returncode == 1 and f"does not permit {call}," in refused.stderr, refused.stderr
        assert len(refused.stderr.splitlines()) == 1, refused.stderr
        target.unharmed()


@case
def without_root_what_a_filter_permits_is_not_known(b):
    for folder in (b.folder, os.path.dirname(b.folder)): os.chmod(folder, 0o777)
    before = NOBODY if os.getuid() == 0 else []
    target = subprocess.Popen([*before, filtered(b), "docker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert target.stdout.readline() == b"within docker\n"
    command = [*before, b.sptrace, "attach", "-o", b.path("t.data"), "-p", str(target.pid), "--for", "100ms"]
    refused = subprocess.run(command, env=dict(b.env, XDG_CACHE_HOME=b.path("cache")), capture_output=True, text=True, timeout=60)
    assert refused.returncode == 1 and "is shown to root alone" in refused.stderr and "sptrace run" in refused.stderr, refused.stderr
    assert target.communicate(timeout=30)[0] == b"the sum is 15\n" and target.returncode == 4


if __name__ == "__main__":
    sys.exit(main(case, __doc__))
