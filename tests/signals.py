#!/usr/bin/env python3
"""Signals that are delivered, as `report lines` and `--live` show them, compared with strace.

usage: tests/signals.py [--sptrace PATH] [--programs FOLDER] [--only GLOB]

Given test programs (tests/programs/build.sh) and strace; a program with a handler of every kind runs under both, and the lines
of signals must be the same in every thread and in the same order: whole where the handler asks for a siginfo_t, with the
signal's name alone where it does not, since the kernel tells such a handler no more. Signals without a handler are strace's
alone. What the programs print must be what they print alone. Exit status: 1 if anything differs.
"""
import argparse, collections, os, re, signal, subprocess, sys, tempfile, time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "harness"))
from case import Cases, Failed, ROOT, Skip, run_cases
import fnmatch

case = Cases()
# Of tests/programs/delivered: those whose handlers ask for a siginfo_t.
INFORMED = {"SIGUSR2", "SIGRT_5", "SIGCHLD", "SIGSEGV"}
KINDS = ("O0", "O2", "static")


class Bench:
    def __init__(self, options, folder):
        self.sptrace, self.programs, self.folder = options.sptrace, options.programs, folder

    def program(self, kind, name="delivered"):
        path = f"{self.programs}/{name}.{kind}"
        if not os.path.exists(path): raise Skip(f"no {path}")
        return path

    def run(self, *words):
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
        return done.returncode, done.stdout, done.stderr

    def path(self, name):
        return f"{self.folder}/{name}"


def threads_of(text):
    """Thread, in the order of its first line: its lines of signals, with process ids made equal."""
    lines, tids = collections.OrderedDict(), []
    for line in text.splitlines():
        tid, _, rest = line.partition(" ")
        if tid not in tids: tids.append(tid)
        if rest.lstrip().startswith("--- SIG"): lines.setdefault(tid, []).append(rest.lstrip())
    return [[re.sub(r"si_pid=\d+", "si_pid=PID", line) for line in lines[tid]] for tid in tids if tid in lines]


def expected(text):
    """Of strace's lines, what a handler is told."""
    def told(line):
        name = line.split()[1]
        return line if name in INFORMED else f"--- {name} {{si_signo={name}, ...}} ---"
    return [[told(line) for line in lines] for lines in threads_of(text)]


def same(what, wanted, shown):
    if wanted != shown: raise Failed(f"{what}: strace says\n{wanted}\nand sptrace\n{shown}")


def both(bench, kind):
    program = bench.program(kind)
    alone = bench.run(program)
    theirs = bench.path("strace")
    bench.run("strace", "-f", "-o", theirs, "-e", "trace=none", program)
    return program, alone, expected(open(theirs).read())


@case
def lines_of_a_recording(bench):
    """`report lines` of every kind of handler, whether functions are recorded or not."""
    for kind in KINDS:
        program, alone, wanted = both(bench, kind)
        for options in (["--syscalls-only"], ["--syscalls"], ["--syscalls=%file"]):
            trace = bench.path("trace")
            done = bench.run(bench.sptrace, "run", "-q", "-o", trace, *options, "--", program)
            if done != alone: raise Failed(f"{kind} {options}: {done}, alone {alone}")
            same(f"{kind} {options}", wanted, threads_of(bench.run(bench.sptrace, "report", "lines", "-f", "-i", trace)[1]))


@case
def live_lines(bench):
    """`--live` shows them too."""
    for kind in KINDS:
        program, alone, wanted = both(bench, kind)
        live = bench.path("live")
        done = bench.run(bench.sptrace, "run", "-q", "-o", bench.path("trace"), "--syscalls-only", f"--live={live}", "-f", "--", program)
        if done != alone: raise Failed(f"{kind}: {done}, alone {alone}")
        same(kind, wanted, threads_of(open(live).read()))


@case
def handlers_of_a_running_program(bench):
    """A shell that has registered its handlers before it is attached to; afterwards it has its own code."""
    told = bench.path("told")
    script = f"trap 'echo usr1 >> {told}' USR1; while :; do sleep 0.05; done"
    with subprocess.Popen(["/bin/bash", "-c", script], stdin=subprocess.DEVNULL) as shell:
        try:
            time.sleep(0.5)
            trace = bench.path("attached")
            recorder = subprocess.Popen([bench.sptrace, "attach", "-q", "-p", str(shell.pid), "-o", trace, "--syscalls-only", "--for", "2s"])
            time.sleep(1.2)
            shell.send_signal(signal.SIGUSR1)
            if recorder.wait(30) != 0: raise Failed(f"attach ended with {recorder.returncode}")
            shown = bench.run(bench.sptrace, "report", "lines", "-i", trace)[1]
            if not re.search(r"--- SIGUSR1 \{si_signo=SIGUSR1, ", shown): raise Failed(f"no line of SIGUSR1 among\n{shown[-2000:]}")
            if not re.search(r"--- SIGCHLD \{si_signo=SIGCHLD, ", shown): raise Failed("no line of SIGCHLD")
            shell.send_signal(signal.SIGUSR1)
            time.sleep(0.3)
            if shell.poll() is not None: raise Failed(f"the shell has ended with {shell.returncode}")
        finally: shell.kill()
    said = open(told).read().split()
    if said != ["usr1", "usr1"]: raise Failed(f"the handler has said {said}")


@case
def handlers_that_cannot_be_seen_are_counted(bench):
    """A handler that is one return instruction leaves no room: its signal is not shown, and the recording says so."""
    source = bench.path("short.s")
    open(source, "w").write(SHORT)
    program = bench.path("short")
    if bench.run("gcc", "-o", program, source)[0] != 0: raise Skip("no gcc")
    trace = bench.path("trace")
    status, _, _ = bench.run(bench.sptrace, "run", "-q", "-o", trace, "--syscalls-only", "--", program)
    if status != 0: raise Failed(f"it has ended with {status}")
    coverage = bench.run(bench.sptrace, "report", "coverage", "-i", trace)[1]
    if "signal handlers left alone" not in coverage: raise Failed(f"not said by\n{coverage}")


@case
def handlers_that_threads_are_calling(bench):
    """A function that other threads may be in the first instructions of is not intercepted when it becomes a handler, and counted;
    one whose first instruction is long enough is, and all are once there are no other threads."""
    for kind in ("O0", "O2"):
        program, trace = bench.program(kind, "entered"), bench.path("trace")
        alone = bench.run(program)
        for _ in range(5):
            done = bench.run(bench.sptrace, "run", "-q", "-o", trace, "--syscalls-only", "--", program)
            if done != alone: raise Failed(f"{kind}: {done}, alone {alone}")
        lines = [line for thread in threads_of(bench.run(bench.sptrace, "report", "lines", "-f", "-i", trace)[1]) for line in thread]
        if len(lines) != 600: raise Failed(f"{kind}: {len(lines)} signals are shown, not the 200 of long functions and then all 400")
        coverage = bench.run(bench.sptrace, "report", "coverage", "-i", trace)[1]
        if not re.search(r"signal handlers left alone.*\b200\b|\b200\b.*signal handlers left alone", coverage): raise Failed(f"{kind}: not counted in\n{coverage}")


# A handler of one byte, in front of another function.
SHORT = """
    .globl main
    .type main, @function
handler:
    ret
    .globl next
    .type next, @function
next:
    ret
main:
    push %rbx
    mov $10, %edi
    lea handler(%rip), %rsi
    call signal@PLT
    mov $10, %edi
    call raise@PLT
    xor %eax, %eax
    pop %rbx
    ret
    .section .note.GNU-stack,"",@progbits
"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sptrace", default=os.environ.get("SPTRACE", f"{ROOT}/target/release/sptrace"))
    parser.add_argument("--programs", default="/tmp/sptrace-test-programs")
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    options.sptrace = os.path.abspath(options.sptrace)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, folder)
        return run_cases((c.__name__, lambda c=c: c(bench)) for c in case.chosen(options.only))


if __name__ == "__main__":
    sys.exit(main())
