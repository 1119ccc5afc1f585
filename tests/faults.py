#!/usr/bin/env python3
"""Do payloads that change a program change exactly what they say, and is each change in the trace?

usage: tests/faults.py [--sptrace PATH] [--only GLOB]...

A program says what became of its calls; sptrace makes some fail, wait, give something else, or raises a signal, in functions and in
system calls, and the views must say so. Without --allow-active such a script starts nothing. Needs gcc.
"""
import os, re, subprocess, sys

from harness.bench import main
from harness.case import Cases

PROGRAM = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#define F __attribute__((noinline, noclone))
volatile int sink, signals;
void *volatile kept;
static void on_usr1(int s) { signals++; (void)s; }
F void keep(int n) { errno = 0; kept = malloc(100); if (!kept) printf("keep %d: %s\n", n, strerror(errno)); sink++; }
F int own(int n) { sink++; return n + 1; }
F int through(int (*f)(int), int n) { int r = f(n); sink++; return r; }
F int tail(int n) { return own(n * 2); }
F void load(const char *path) {
    int fd = open(path, O_RDONLY);
    if (fd < 0) printf("load %s: %s\n", path, strerror(errno)); else close(fd);
    sink++;
}
F void reply(void) {
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    sink += write(1, "", 0);
    clock_gettime(CLOCK_MONOTONIC, &b);
    printf("reply %s\n", (b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000 >= 60 ? "late" : "in time");
}
static void *thread(void *n) { for (int i = 0; i < 4; i++) keep(10 + i); return n; }
int main(void) {
    int (*volatile pointer)(int) = own;
    pthread_t other;
    setvbuf(stdout, malloc(1 << 16), _IOFBF, 1 << 16);
    signal(SIGUSR1, on_usr1);
    for (int i = 1; i <= 5; i++) keep(i);
    load("/etc/passwd");
    load("/etc/passwd-");
    load("/");
    printf("own %d %d %d\n", own(1), through(pointer, 2), tail(3));
    reply();
    if (write(1, "", 0)) printf("write: %s\n", strerror(errno));
    printf("signals %d\n", signals);
    fflush(stdout);
    pid_t child = fork();
    if (child < 0) printf("fork: %s\n", strerror(errno));
    if (!child) { for (int i = 21; i < 24; i++) keep(i); fflush(stdout); _exit(0); }
    if (child > 0) wait(0);
    pthread_create(&other, 0, thread, 0);
    pthread_join(other, 0);
    puts("end");
}
"""
PLAIN = ["own 2 3 7", "reply in time", "signals 0", "end"]

case = Cases()


def program(b):
    path = os.path.join(os.path.dirname(b.folder), "prog")
    if not os.path.exists(path):
        with open(path + ".c", "w") as out: out.write(PROGRAM)
        subprocess.run(["gcc", "-O1", "-fno-builtin", "-fno-inline", "-foptimize-sibling-calls", "-g", "-pthread", "-o", path, path + ".c"], check=True)
    return path


def same(got, want): assert got == want, f"wanted {want}, got {got}"


def said(b, script, *, status=0):
    """What the program says under a script, and what sptrace says."""
    got, out, err = b.run(["-q", "--allow-active", *(["-S", script] if script.startswith("faults") else ["--eval", script])], [program(b)])
    same(got, status)
    return out.splitlines(), err


def report(b, *words):
    status, out, err = b.sptrace_says("report", *words, "-i", "t.data")
    same((status, err), (0, ""))
    return out


@case
def without_leave_nothing_is_started(b):
    for script, caret in [('at("malloc").on_enter(|c| c.deny("ENOMEM"))', 29), ('record_syscalls("all"); syscalls("openat").on_enter(|c| c.delay(1.ms))', 59)]:
        started = b.path("started")
        status, out, err = b.run(["--eval", script], ["touch", started])
        assert status == 2 and not os.path.exists(started) and not b.has("t.data"), (status, err)
        same(err.splitlines(), [f"sptrace: --eval:1:{caret}: this changes what the program does; add --allow-active to the command line if that is wanted",
                                f"sptrace:     1 | {script}", "sptrace:       | " + " " * (caret - 1) + "^"])


@case
def the_nth_call_of_malloc_fails_in_each_process(b):
    out, err = said(b, "faults --alloc=3")
    # The first is setvbuf's buffer; a child goes on with its parent's count.
    same(out, ["keep 2: Cannot allocate memory", *PLAIN])
    assert re.search(r"malloc +\S+ > main > keep +not called, 0 ENOMEM +1\n", err), err
    tree = report(b, "tree", "-F", "malloc")
    same(len(re.findall(r"malloc\(\); /\* INJECTED: not called, 0 ENOMEM \*/", tree)), 1)
    assert "changed by the script (INJECTED): 1 calls not made" in report(b, "summary"), report(b, "summary")
    out, _ = said(b, 'at("malloc").on_enter(|c| if c.nth > 6 { c.deny("ENOMEM"); })')
    same([line for line in out if line.startswith("keep")], [f"keep {n}: Cannot allocate memory" for n in [21, 22, 23, 10, 11, 12, 13]])


@case
def a_call_gets_another_result_or_none(b):
    """Called directly, through a pointer, and by a tail jump; the function does not run."""
    out, _ = said(b, 'at("own").on_enter(|c| c.override(40 + c.arg1))')
    same(out[0], "own 41 42 46")
    tree = report(b, "tree", "-F", "own")
    same(sorted(re.findall(r"INJECTED: not called, (\d+)", tree)), ["41", "42", "46"])
    # A predicate that does not hold changes nothing, and makes no record.
    out, _ = said(b, 'at("own").on_enter(|c| if c.arg1 == 77 { c.override(1); })')
    same(out, PLAIN)
    assert "INJECTED" not in report(b, "tree")


@case
def the_opening_of_one_file_is_denied(b):
    out, err = said(b, "faults --deny=/etc/passwd --errno=EIO")
    same(out, ["load /etc/passwd: Input/output error", *PLAIN])
    lines = report(b, "lines")
    same(re.findall(r'openat\(AT_FDCWD, "(/etc/passwd|/)", .*\) += (.*)', lines), [("/etc/passwd", "-1 EIO (Input/output error) (INJECTED)"), ("/", "3")])
    assert "not called, EIO" in report(b, "tree")
    # By how it begins; and the function of the C library in place of the system call.
    out, _ = said(b, 'record_syscalls("%file"); syscalls("openat").on_enter(|c| if c.path.starts_with("/etc/pass") { c.deny("EPERM") })')
    same(out[:-4], [f"load /etc/{name}: Operation not permitted" for name in ("passwd", "passwd-")])
    out, _ = said(b, 'at("open").on_enter(|c| if c.arg1 == "/" { c.deny("EMFILE", -1) })')
    assert "load /: Too many open files" in out, out


@case
def a_reply_comes_late(b):
    out, err = said(b, "faults --delay=write --by=30ms")
    same((out[0], out[2:]), ("own 2 3 7", ["signals 0", "end"]))
    lines = report(b, "lines")
    assert len(re.findall(r"write\(1, .* \(DELAYED\)", lines)) >= 3, lines
    out, _ = said(b, 'at("reply").on_enter(|c| c.delay(1.us)); record_syscalls("write"); syscalls("write").on_enter(|c| if c.arg3 == 0 { c.delay(70.ms) })')
    same(out, ["own 2 3 7", "reply late", "signals 0", "end"])


@case
def a_signal_is_raised_before_the_call(b):
    out, _ = said(b, 'at("reply").on_enter(|c| c.raise("SIGUSR1"))')
    same(out, ["own 2 3 7", "reply in time", "signals 1", "end"])
    assert "INJECTED: SIGUSR1 raised" in report(b, "tree")
    out, _ = said(b, 'at("reply").on_enter(|c| c.raise("TERM"))', status=-15)


@case
def system_calls_are_not_made(b):
    """A fork that is denied makes no child; a write gives what is said; exit cannot be left out, and that is said."""
    out, _ = said(b, 'record_only_syscalls("all"); syscalls("clone,clone3,fork,vfork").on_enter(|c| if c.nth == 1 { c.deny("EAGAIN") })')
    assert "fork: Resource temporarily unavailable" in out and out[-1] == "end", out
    assert re.search(r"(clone|fork)\(.*\) = -1 EAGAIN .*; /\* INJECTED: not called, EAGAIN \*/", report(b, "tree")), report(b, "tree")
    out, _ = said(b, 'record_only_syscalls("all"); syscalls("write").on_enter(|c| if c.arg3 == 0 { c.override(5) })')
    assert any(line.startswith("write: ") for line in out), out
    out, _ = said(b, 'record_only_syscalls("all"); syscalls("exit_group").on_enter(|c| c.deny("EPERM"))')
    same(out, PLAIN)
    # The parent and its child.
    assert "2 calls to which not all could be done that was wanted" in report(b, "summary"), report(b, "summary")


@case
def what_cannot_be_done_is_named(b):
    status, out, err = b.run(["--allow-active", "--eval", 'at("own").on_enter(|c| c.deny("EIO"))'], [program(b)])
    assert status == 0 and "what own gives when it fails is not known" in err, err
    status, out, err = b.run(["--allow-active", "--eval", 'at("own").on_enter(|c| c.deny("EIO", 1))'], [program(b)])
    same(out.splitlines(), PLAIN)
    assert "prog keeps no errno" in err, err
    status, out, err = b.run(["--allow-active", "--eval", 'syscalls("write").on_enter(|c| c.deny("EIO"))'], [program(b)])
    assert status == 2 and "needs it to be recorded" in err, err


if __name__ == "__main__":
    sys.exit(main(case, __doc__))
