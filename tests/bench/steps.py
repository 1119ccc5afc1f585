#!/usr/bin/env python3
"""Counts the instructions that a call and a throw execute under sptrace, step by step: a cost that no other load changes.

usage: tests/bench/steps.py [--sptrace PATH]

Given: a built sptrace, g++, Linux on x86-64, and that this user may trace its own processes.
Gives: a line for each of stepped.cpp's deeds with the instructions untraced and traced, and `N passed, N failed` on the last.
None may execute more than MORE says in addition. What an instruction costs is the business of bench.py.
Must not know: how sptrace works.
"""
import argparse, ctypes, os, signal, subprocess, sys, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
# ptrace(2) and linux/ptrace.h
PTRACE_PEEKUSER, PTRACE_SINGLESTEP, PTRACE_SYSCALL, PTRACE_SEIZE, PTRACE_INTERRUPT = 3, 9, 24, 0x4206, 0x4207
PTRACE_O_TRACESYSGOOD = 1
ORIG_RAX, RIP = 15 * 8, 16 * 8  # in struct user_regs_struct
GETPPID = 110
ROUNDS = 4
# What may be added by tracing. A throw through ten frames: 4,700 are, of 31,475 untraced, which bench.py times at 1.28, and 6,850 where
# a round is stepped so slowly that the upper half of the clock has turned in it each time; a build that let the unwinder's own calls
# take the slow way always added 7,360, and 1.85. A round of the others is three calls with their returns.
MORE = {"throw": 7000, "call": 3 * 73, "pointer": 3 * 76}
# The same where calls keep their return addresses: 3,440 for a throw, or 6,340, and for a call the word that says whose return it is, and those
# that see whether a handler has come in between.
MORE_WITH_RETURN_POINTS = {"throw": 6700, "call": 3 * 80, "pointer": 3 * 83}
# The same where calls are counted, and where they are recorded in order: 93 and 140 at most. A slot that goes on asking who is called,
# although a library has only come and gone, executes 38 more for each call through a pointer, or some 20.
MORE_COUNTED = {"call": 98, "pointer": 94}
MORE_IN_ORDER = {"call": 146, "pointer": 142}
WALL = 0x40000000  # __WALL of wait(2)
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes, libc.ptrace.restype = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p], ctypes.c_long


def ptrace(request, pid, address=0, data=0):
    ctypes.set_errno(0)
    got = libc.ptrace(request, pid, address, data)
    if got == -1 and ctypes.get_errno(): raise OSError(ctypes.get_errno(), f"ptrace({request}): {os.strerror(ctypes.get_errno())}")
    return got


def next_stop(request, pid):
    """Resumes it until it stops for us; signals that come are passed on. Gives whether it stands at a system call."""
    passed_on = 0
    while True:
        ptrace(request, pid, 0, passed_on)
        _, status = os.waitpid(pid, WALL)
        if not os.WIFSTOPPED(status): raise RuntimeError(f"the program ended (status {status:#x})")
        stop = os.WSTOPSIG(status)
        if stop == signal.SIGTRAP | 0x80: return True
        if stop == signal.SIGTRAP: return False
        passed_on = stop


def rounds_of(program, what, prefix):
    """The instructions of each round of stepped.cpp, run behind `prefix`."""
    process = subprocess.Popen([*prefix, program, what, str(ROUNDS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    pid = process.pid
    try:
        if process.stdout.readline() != b"ready\n": raise RuntimeError(f"{' '.join(prefix)}: not ready")
        if prefix:
            with open(f"/proc/{pid}/task/{pid}/children") as f: [pid] = map(int, f.read().split())
        ptrace(PTRACE_SEIZE, pid, 0, PTRACE_O_TRACESYSGOOD)
        ptrace(PTRACE_INTERRUPT, pid)
        os.waitpid(pid, WALL)
        process.stdin.write(b"!")
        process.stdin.flush()
        while not (next_stop(PTRACE_SYSCALL, pid) and ptrace(PTRACE_PEEKUSER, pid, ORIG_RAX) == GETPPID): pass
        mark = ptrace(PTRACE_PEEKUSER, pid, RIP)
        next_stop(PTRACE_SYSCALL, pid)  # the entry was the stop before
        rounds = []
        for _ in range(ROUNDS - 1):  # the last has no mark behind it
            count = last = 0
            while last != mark:
                next_stop(PTRACE_SINGLESTEP, pid)
                rip = ptrace(PTRACE_PEEKUSER, pid, RIP)
                count, last = count + (rip != last), rip  # each turn of a repeated string instruction is a step of its own
            rounds.append(count)
        return rounds
    finally:
        os.kill(pid, signal.SIGKILL)
        if pid != process.pid: os.waitpid(pid, WALL)  # its parent hears of it when its tracer has
        process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sptrace", default=os.environ.get("SPTRACE", os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")), "release", "sptrace")))
    args = parser.parse_args()
    passed = failed = 0
    with tempfile.TemporaryDirectory(prefix="sptrace-steps-") as work:
        program = os.path.join(work, "stepped")
        subprocess.run(["g++", "-O2", "-o", program, os.path.join(HERE, "stepped.cpp")], check=True)
        for options, most in ((["--return-points=never"], MORE), (["--return-points"], MORE_WITH_RETURN_POINTS), (["--count"], MORE_COUNTED), (["--stamps", "none"], MORE_IN_ORDER)):
            tracer = [os.path.abspath(args.sptrace), "run", "-q", *options, "-o", os.path.join(work, "trace.data"), "--"]
            for what, more in most.items():
                native, traced = min(rounds_of(program, what, [])), min(rounds_of(program, what, tracer))
                good = native < traced <= native + more
                passed, failed = passed + good, failed + (not good)
                said = " ".join([what, *options])
                print(f"{'' if good else 'FAIL '}{said}: {native} instructions untraced, {traced} traced ({traced / native:.2f} times, {traced - native} more)")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
