#!/usr/bin/env python3
"""The kernel's side: `sptrace ktrace`, compared with strace, and what it leaves in the kernel's tracing.

usage: tests/kernel.py [--sptrace PATH] [--only GLOB]... [--list] [--repeat N]

Given: a built sptrace, strace, root, and a kernel that has tracefs with system calls; without one of these all is skipped, in
one line. Gives: one line a case, then `N passed, N failed` alone on the last line; status 1 if anything failed.
Checked: each system call is counted as strace counts it, nested in time; children and threads are followed; status and
output of the command are its own; lost records are counted; other users of tracing are not touched, and nothing is left, also
after SIGKILL once `--cleanup` has run; who may not trace is told why, in one line.
Must not know: how sptrace works.
"""
import collections, csv, io, json, os, re, shutil, signal, subprocess, sys, time

from harness.bench import Bench, main
from harness.case import Cases
from harness.process import wait_for

case = Cases()
# What strace counts and the kernel's tracepoints do not see, or the other way round: the first execve is sptrace's or strace's own.
FIRST = {"execve"}
# They do not return; strace does not count them.
ENDS = {"exit", "exit_group"}


def ktrace(b, *arguments, **how):
    how = {"capture_output": True, "text": True, "timeout": 60, **how}
    return subprocess.run([b.sptrace, "ktrace", "-o", b.path("t.data"), *arguments], env=b.env, cwd=b.folder, **how)


def counts(b):
    rows = csv.DictReader(io.StringIO(b.report("functions", "t.data", "--format", "csv")))
    return collections.Counter({row["function"]: int(row["calls"]) for row in rows if row["module"] == "[system calls]"})


def strace_counts(b, command):
    cwd = b.folder
    out = os.path.join(cwd, "strace.out")
    assert subprocess.run(["strace", "-f", "-o", out, *command], cwd=cwd, env=b.env, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL).returncode == 0
    calls = collections.Counter()
    for line in open(out, errors="replace"):
        name = re.match(r"\d+ +(\w+)\(", line)
        if name: calls[name[1]] += 1
    return calls


def compare(b, command):
    traced = ktrace(b, "--", *command, stdin=subprocess.DEVNULL)
    assert traced.returncode == 0, traced.stderr
    assert re.search(r"kernel: [1-9]\d* events recorded, 0 lost$", traced.stderr.strip()), traced.stderr
    ours, theirs = counts(b), strace_counts(b, command)
    different = {name: (ours[name], theirs[name]) for name in set(ours) | set(theirs) if ours[name] != theirs[name]}
    for name, (mine, other) in different.items():
        assert name in FIRST and other - mine == 1, (command, name, "sptrace", mine, "strace", other)


@case
def calls_are_counted_as_strace_counts_them(b):
    os.mkdir(b.path("files"))
    for n in range(50): open(b.path(f"files/{n}"), "w").write("x" * n * 100)
    compare(b, ["ls", "-l", "files"])
    compare(b, ["tar", "cf", "/dev/null", "files"])
    compare(b, ["dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=2000", "status=none"])


@case
def arguments_and_results_are_those_that_strace_shows(b):
    command = ["dd", "if=/dev/zero", "of=/dev/null", "bs=7", "count=20", "status=none"]
    assert ktrace(b, "--", *command, stdin=subprocess.DEVNULL).returncode == 0
    out = b.path("strace.out")
    assert subprocess.run(["strace", "-o", out, *command], stdin=subprocess.DEVNULL, env=b.env, cwd=b.folder).returncode == 0
    # What is no pointer.
    calls = lambda text: collections.Counter(re.sub(r"\s+= ", " = ", line) for line in text.splitlines() if re.match(r"(close|dup2|lseek|exit_group)\(", line))
    ours, theirs = calls(b.report("lines")), calls(open(out).read())
    assert ours == theirs and len(ours) > 4, (ours - theirs, theirs - ours)
    # And where one is, the numbers beside it.
    reads = re.findall(r"^read\(0, 0x[0-9a-f]+, 7\) += 7$", b.report("lines"), re.M)
    assert len(reads) == 20, reads


@case
def events_begin_end_and_copy_a_recording(b):
    command = ["sh", "-c", "sleep 0.1; cat /dev/null; sleep 0.15; cat /dev/null; sleep 0.1"]
    traced = ktrace(b, "--start-on", "slow:clock_nanosleep>120ms", "--stop-on", "call:exit_group#2", "--", *command)
    assert traced.returncode == 0 and "an event of --stop-on" in traced.stderr, traced.stderr
    # The second sleep ends, cat runs, and its exit is the second one seen.
    assert "recording began at --start-on slow:clock_nanosleep>120ms" in b.report("tree"), b.report("tree")[:1000]
    assert counts(b)["clock_nanosleep"] == 0 and counts(b)["execve"] == 1 and b.report("tree").count("began earlier") >= 2, counts(b)
    traced = ktrace(b, "--start-on", "call:no_such_call*", "--", "true")
    assert traced.returncode == 0 and "nothing was recorded" in traced.stderr, traced.stderr
    traced = ktrace(b, "--ring", "2M", "--dump-on", "slow:clock_nanosleep>80ms", "--dump-on", "crash", "--", "sh", "-c", "sleep 0.1; kill -SEGV $$")
    assert traced.returncode == -signal.SIGSEGV and "dump 1 written" in traced.stderr and "at crash" in traced.stderr, traced
    assert re.search(r"^dump +written at crash$", b.report("summary", "t.data.2"), re.M), b.report("summary", "t.data.2")
    process = subprocess.Popen([b.sptrace, "ktrace", "-o", b.path("t.data"), "--ring", "2M", "--dump-on", "signal:USR1", "-p", str(os.getpid()), "--for", "2s"], env=b.env, stderr=subprocess.PIPE, text=True)
    time.sleep(1)
    process.send_signal(signal.SIGUSR1)
    said = process.communicate(timeout=30)[1]
    assert "dump 1 written" in said and "signal:USR1" in said, said


@case
def both_sides_begin_at_an_event_and_are_in_dumps(b):
    # On a busy machine it takes a second to attach.
    command = ["sh", "-c", "sleep 2.5; cat /etc/passwd >/dev/null; exit 3"]
    run = lambda *options: subprocess.run([b.sptrace, "run", "-K", *options, "-o", b.path("t.data"), "--", *command], env=b.env, cwd=b.folder, capture_output=True, text=True, timeout=60)
    kernel = lambda: {c["function"] for c in map(json.loads, b.report("export", "t.data", "jsonl").splitlines()) if c["module"] == "[kernel system calls]"}
    got = run("--start-on", "time:250ms")
    assert got.returncode == 3 and "nothing was recorded" not in got.stderr, got
    assert "openat" in kernel() or "exit_group" in kernel(), kernel()
    got = run("--ring", "4M", "--dump-on", "exit")
    assert got.returncode == 3 and "1 dump written" in got.stderr, got
    assert "wait4" in kernel(), kernel()


@case
def children_are_followed(b):
    traced = ktrace(b, "--", "sh", "-c", "for i in 1 2 3; do /bin/true; done; ls /proc/self >/dev/null | cat; exit 7")
    assert traced.returncode == 7, traced.stderr
    calls, tree = counts(b), b.report("tree")
    # Each of the programs but the first is executed under trace.
    assert calls["execve"] == 5 and calls["exit_group"] == 6, calls
    assert len(re.findall(r"/\* exec ", tree)) == 6, tree[:2000]


@case
def threads_are_followed(b):
    code = "import threading, os, time\nts = [threading.Thread(target=lambda: [os.stat('/') for _ in range(100)]) for _ in range(4)]\n[t.start() for t in ts]; [t.join() for t in ts]"
    assert ktrace(b, "--", sys.executable, "-S", "-c", code).returncode == 0
    summary, calls = b.report(), counts(b)
    assert re.search(r"^processes +1, threads 5$", summary, re.M), summary
    assert calls["newfstatat"] + calls["stat"] >= 400, calls


@case
def waits_are_seen_with_their_length(b):
    assert ktrace(b, "--", "sleep", "0.3").returncode == 0
    rows = list(csv.DictReader(io.StringIO(b.report("functions", "t.data", "--format", "csv"))))
    # What never returned has no time: exit_group.
    total = {row["function"]: int(row["total_ns"]) for row in rows if row["total_ns"]}
    assert 3e8 <= total["clock_nanosleep"] < 5e8 and 2.99e8 <= total["waiting"] < 5e8, total
    assert total["clock_nanosleep"] >= total["waiting"] - 5e7, total


@case
def output_and_end_of_the_command_are_its_own(b):
    for script in ("echo out; echo err >&2; exit 3", "kill -TERM $$", "cat; exit 0"):
        native = subprocess.run(["sh", "-c", script], input="some input\n", capture_output=True, text=True)
        traced = ktrace(b, "-q", "--", "sh", "-c", script, input="some input\n")
        assert (traced.returncode, traced.stdout, traced.stderr) == (native.returncode, native.stdout, native.stderr), (script, traced)
    assert ktrace(b, "--", "/no/such/program").returncode == 127
    assert ktrace(b, "--", "/etc/passwd").returncode == 126


@case
def a_running_process_is_recorded(b):
    # It writes 20 times a second until its input ends.
    code = "import sys, select, os\nwhile not select.select([0], [], [], 0.05)[0]: os.write(2, b'')"
    target = subprocess.Popen([sys.executable, "-S", "-c", code], stdin=subprocess.PIPE)
    b.started.append(target)
    target.stdout = target.stderr = None
    time.sleep(0.3)
    recorded = ktrace(b, "-p", str(target.pid), "--for", "1s")
    assert recorded.returncode == 0 and target.poll() is None, recorded.stderr
    assert 10 <= counts(b)["write"] <= 25, counts(b)
    target.communicate(b"", timeout=10)
    assert target.returncode == 0


@case
def the_whole_machine_is_recorded_but_for_sptrace(b):
    noise = subprocess.Popen(["sh", "-c", "while :; do /bin/true; done"])
    try: recorded = ktrace(b, "-a", "--for", "500ms")
    finally:
        noise.kill()
        noise.wait()
    assert recorded.returncode == 0, recorded.stderr
    assert counts(b)["execve"] >= 5, counts(b)
    tids = set(re.findall(r"\[ *(\d+)\] \|", b.report("tree")))
    assert len(tids) > 5 and "0" not in tids, tids


@case
def what_does_not_fit_is_counted(b):
    recorded = ktrace(b, "--buffer", "4", "--", "dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=200000", "status=none")
    assert recorded.returncode == 0, recorded.stderr
    lost = re.search(r", (\d+) lost(?:, (\d+) gaps)?", recorded.stderr)
    assert lost and int(lost[1]) > 1000, recorded.stderr
    # Of a gap it is only known that it is one: it stands for one event.
    counted = int(lost[1]) + int(lost[2] or 0)
    assert re.search(rf"^loss +.*\b{counted:,} ", b.report(), re.M), (recorded.stderr, b.report())


class Tracefs:
    """A tracefs of the test's own, which shows what others see."""
    def __init__(self, b):
        self.root = b.path("tracefs")
        os.mkdir(self.root)
        subprocess.run(["mount", "-t", "tracefs", "none", self.root], check=True)

    def state(self):
        names = ("tracing_on", "trace_clock", "current_tracer", "set_event", "set_event_pid", "buffer_size_kb")
        return {n: open(os.path.join(self.root, n)).read() for n in names} | {"instances": sorted(os.listdir(os.path.join(self.root, "instances")))}

    def __enter__(self): return self
    def __exit__(self, *_): subprocess.run(["umount", "-l", self.root], check=True)


@case
def other_users_of_tracing_are_not_touched(b):
    with Tracefs(b) as tracefs:
        other = os.path.join(tracefs.root, "instances", f"other-{os.getpid()}")
        os.mkdir(other)
        try:
            with open(os.path.join(other, "events/sched/sched_switch/enable"), "w") as f: f.write("1")
            before = tracefs.state()
            assert ktrace(b, "--", "ls", "/").returncode == 0
            assert tracefs.state() == before, (before, tracefs.state())
            assert open(os.path.join(other, "events/sched/sched_switch/enable")).read().strip() == "1"
        finally:
            with open(os.path.join(other, "events/enable"), "w") as f: f.write("0")
            os.rmdir(other)


@case
def what_a_killed_sptrace_leaves_is_cleaned_up(b):
    with Tracefs(b) as tracefs:
        before = tracefs.state()
        process = subprocess.Popen([b.sptrace, "ktrace", "-q", "-o", b.path("t.data"), "--", "sleep", "100"], env=b.env)
        command = wait_for(lambda: subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split())
        assert len(tracefs.state()["instances"]) == len(before["instances"]) + 2
        process.kill()
        process.wait()
        assert os.path.exists(f"/proc/{command[0]}"), "the command goes on"
        os.kill(int(command[0]), signal.SIGKILL)
        cleaned = subprocess.run([b.sptrace, "ktrace", "--cleanup"], env=b.env, capture_output=True, text=True)
        assert cleaned.returncode == 0 and "removed 2 instances" in cleaned.stderr, cleaned.stderr
        assert tracefs.state() == before, (before, tracefs.state())


@case
def both_sides_are_in_one_trace_and_nothing_is_left(b):
    with Tracefs(b) as tracefs:
        before = tracefs.state()
        for options in ([], ["--syscalls"], ["--keep-pid"]):
            command = ["sh", "-c", "cat /etc/passwd | wc -l; exit 3"]
            got = subprocess.run([b.sptrace, "run", "-K", *options, "--kernel-level", "events", "-o", b.path("t.data"), "--", *command], env=b.env, cwd=b.folder, capture_output=True, text=True, timeout=60)
            assert got.returncode == 3 and int(got.stdout) > 0, (options, got)
            # With --keep-pid sptrace says its last words a moment later.
            assert wait_for(lambda: tracefs.state() == before), (before, tracefs.state())
            assert re.search(r"blocked +wait4 +\w+ +sh ", b.report("waits")), b.report("waits")
            by_thread = collections.defaultdict(list)
            for line in b.report("export", "t.data", "jsonl").splitlines():
                call = json.loads(line)
                by_thread[call["tid"]].append(call)
            found = 0
            for calls in by_thread.values():
                stack = []
                for c in sorted(calls, key=lambda c: (c["start_ns"], c["depth"])):
                    del stack[c["depth"]:]
                    is_wait = c["function"] == "wait4" and c["module"] == "[kernel system calls]"
                    found += is_wait and any("libc" in around["module"] for around in stack)
                    stack.append(c)
            assert found, options


@case
def the_check_answers_each_question(b):
    got = subprocess.run([b.sptrace, "ktrace", "--check"], env=b.env, capture_output=True, text=True)
    assert got.returncode == 0 and got.stderr == "", got
    for what in ("tracefs", "instance of our own", "events of the kernel", "functions of the kernel", "probes in the kernel"):
        assert re.search(rf"^{what} +(yes|no) +\S", got.stdout, re.M), got.stdout


@case
def misuse(b):
    def fails(status, says, *arguments, before=()):
        got = subprocess.run([*before, b.sptrace, "ktrace", *arguments], env=b.env, cwd="/", capture_output=True, text=True, timeout=20)
        assert got.returncode == status and len(got.stderr.splitlines()) == 1 and says in got.stderr, (arguments, got)
    fails(2, "COMMAND")
    fails(2, "--all", "-a", "--", "ls")
    fails(2, "", "--for", "soon", "-a")
    fails(125, "its folder does not exist", "-o", "/no/such/folder/t", "--", "ls")
    if shutil.which("setpriv"):
        other = ["setpriv", "--reuid=65534", "--clear-groups"]
        fails(125, "sudo sptrace ktrace", "--", "ls", before=other)
        got = subprocess.run([*other, b.sptrace, "run", "-K", "-o", "/no.data", "--", "ls"], env=b.env, cwd="/", capture_output=True, text=True, timeout=20)
        assert got.returncode == 125 and len(got.stderr.splitlines()) == 1 and "-K: not permitted" in got.stderr, got
    got = subprocess.run([b.sptrace, "run", "-K", "--shadow", "--start-on", "time:1s", "--", "ls"], env=b.env, cwd=b.folder, capture_output=True, text=True, timeout=20)
    assert got.returncode == 2 and "--shadow" in got.stderr, got
    if subprocess.run(["unshare", "-mpf", "--mount-proc", "true"], capture_output=True).returncode == 0:
        fails(125, "pid namespace", "-o", b.path("t.data"), "--", "ls", before=["unshare", "-mpf", "--mount-proc"])
    fails(2, "use signal:USR1", "--start-on", "key:f5", "--", "ls")
    fails(2, "too late", "--start-on", "exit", "--", "ls")
    fails(2, "--ring", "--dump-on", "exit", "--", "ls")


def is_possible():
    if os.getuid() != 0: return "needs root"
    if not shutil.which("strace"): return "strace is not installed"
    got = subprocess.run([os.environ.get("SPTRACE", "target/release/sptrace"), "ktrace", "--check"], capture_output=True, text=True)
    return None if re.search("^events of the kernel +yes", got.stdout, re.M) else "this kernel does not offer it: " + got.stdout.replace("\n", "; ")


if __name__ == "__main__":
    why = is_possible()
    if why and "--list" not in sys.argv:
        print(f"skipped: {why}\n0 passed, 0 failed")
        sys.exit(0)
    # No program of the tests is needed.
    sys.exit(main(case, __doc__, lambda sptrace, programs, folder: Bench(sptrace, programs, folder)))
