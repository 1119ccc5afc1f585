#!/usr/bin/env python3
"""Events and the flight recorder: `run --ring --dump-on EVENT`, `run --start-on EVENT`, `run --stop-on EVENT`, `sptrace ctl`.

usage: tests/events.py [--sptrace PATH] [--programs DIR] [--only GLOB]... [--list] [--repeat N] [--option ARG]...

Given: a built sptrace (--sptrace, $SPTRACE or target/release/sptrace), the programs that tests/programs/build.sh makes, python3.
Gives: one line a case, then `N passed, N failed` alone on the last line; status 1 if anything failed.
Checked: at each kind of event a whole trace is written that reaches up to the event and names it, as often as asked for, while
the program goes on and ends as without sptrace; without an event nothing is written; the stack at a crash; the terminal's
settings come back; who may not be waited for is told why, in one line.
--option: an argument of `run`, in front of the others.
Must not know: how sptrace works.
"""
import collections, os, pty, re, select, shutil, signal, subprocess, sys, termios, time

from harness.bench import finish, main, recorder
from harness.case import Cases
from harness.process import changed_text, child_of, has_agent, is_armed, is_native, is_untraced, wait_for
from harness.trace import began_earlier, left_out

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
case = Cases()
MODES = "stty -a | tr ' ;' '\\n\\n' | grep -x -e '-*icanon' -e '-*echo' | paste -sd ' '"  # of a terminal, in one line


def check_stack(b, tree):
    """The last calls before the crash, and what was open then; of one in order nobody knows that it has returned."""
    lines = [re.sub(r"^.*?\] \| *", "", l) for l in tree.splitlines() if "|" in l]
    if "--stamps" in b.options: lines = [re.sub(r"^f_leaf\(\);.*", "f_leaf();", l) for l in lines]
    ends = [l for l in lines if "until the process ended" in l or "end not seen" in l]
    names = [re.search(r"/\* (\w+)", l)[1] for l in ends]
    assert names[:3] == ["f_inner", "f_middle", "f_outer"] and "main" in names, names
    at = lines.index(ends[0])
    before = [l for l in lines[:at] if not l.startswith("/*")][-4:]
    assert before == ["f_outer() {", "f_middle() {", "f_inner() {", "f_leaf();"], before
    assert sum(l == "f_inner() {" for l in lines) == 3000, "calls before the crash are missing"


@case
def crash(b):
    status, out, err = b.run(recorder("crash"), [b.recorder, "crash"])
    assert status == -signal.SIGSEGV and out == "", (status, out)
    assert "dump 1 written to t.data at crash" in err and err.count("sptrace: ") == 3, err
    summary = b.report()
    assert re.search(r"^dump +written at crash \(process \d+ was killed by SIGSEGV\)$", summary, re.M), summary
    assert "no event lost" in summary
    check_stack(b, b.report("tree"))


@case
def crash_of_a_child(b):
    status, out, err = b.run(["-q", *recorder("crash")], [b.recorder, "child"])
    assert (status, out, err) == (0, "child ended by 11\n", ""), (status, out, err)
    summary = b.report()
    child = re.search(r"written at crash \(process (\d+) was killed by SIGSEGV\)", summary)
    assert child and "processes  2" in summary, summary
    tree = b.report("tree", "t.data", "--tid", child[1])
    check_stack(b, "\n".join(l for l in tree.splitlines() if "fork" not in l))


@case
def events_that_are_put_together(b):
    """One after the other: USR2 counts after USR1 only. All of them: in any order. Both again from the beginning."""
    for event, sent in (("signal:USR1 then signal:USR2", "2211 2"), ("signal:USR1 & signal:USR2#2", "22 1")):
        process = b.start([*recorder(event), "--times", "2"], ["python3", "-S", "-c", "print('ready', flush=True); input()"])
        assert process.stdout.readline() == b"ready\n"
        early, last = sent.split()
        for turn, name in enumerate(("t.data", "t.data.2")):
            for number in early:
                process.send_signal({"1": signal.SIGUSR1, "2": signal.SIGUSR2}[number])
                time.sleep(0.05)
            assert b.dumps() == ["t.data", "t.data.2"][:turn], (event, turn, b.dumps())
            process.send_signal({"1": signal.SIGUSR1, "2": signal.SIGUSR2}[last])
            assert wait_for(lambda: b.has(name)), (event, name)
        process.stdin.write(b"\n")
        status, _, err = finish(process)
        assert status == 0 and f"dump 2 written to t.data.2 at {event}" in err and "2 dumps written" in err, err
        for name in b.dumps(): os.remove(os.path.join(b.folder, name))


@case
def signal_twice(b):
    script = "import sys, json\nprint('ready', flush=True)\nfor line in sys.stdin:\n  for n in range(200): json.dumps([n, line])\n  print(len(line), flush=True)\n"
    process = b.start([*recorder("signal:USR1"), "--times", "2"], ["python3", "-S", "-c", script])
    assert process.stdout.readline() == b"ready\n"
    for name in ("t.data", "t.data.2"):
        process.stdin.write(b"more work\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"10\n"
        process.send_signal(signal.SIGUSR1)
        assert wait_for(lambda: b.has(name)), name
    process.send_signal(signal.SIGUSR1)
    status, out, err = finish(process)
    assert (status, out) == (0, ""), (status, out)
    assert "dump 2 written to t.data.2 at signal:USR1" in err and "2 dumps written" in err, err
    assert b.dumps() == ["t.data", "t.data.2"], b.dumps()
    calls = []
    for name in b.dumps():
        assert "written at signal:USR1" in b.report("summary", name)
        calls.append(int(re.search(r"; ([\d,]+) calls", b.report("summary", name))[1].replace(",", "")))
    assert calls[0] < calls[1], calls


@case
def what_a_running_thread_holds(b):
    process = b.start(["-q", *recorder("signal:USR2", "signal:USR2#2")], [b.recorder, "wait"])
    assert process.stdout.readline() == b"ready\n"
    for name, doings in (("t.data", 0), ("t.data.2", 5)):
        process.stdin.write(b"x" * doings)
        process.stdin.flush()
        time.sleep(0.2)
        process.send_signal(signal.SIGUSR2)
        assert wait_for(lambda: b.has(name)), name
        tree = b.report("tree", name)
        assert tree.count("f_mark();") == 1 and tree.count("f_leaf();") == doings and "main, end not seen" in tree, tree[-900:]
    assert finish(process, b"yy") == (0, "done\n", "")


@case
def slow_call(b):
    status, out, err = b.run(recorder("slow:f_work>50ms", "slow:f_leaf>50ms"), [b.recorder, "slow"])
    assert (status, out) == (0, "done\n"), (status, out)
    took = re.search(r"dump 1 written to t.data at slow:f_work>50ms \(it took ([\d.]+) ms\)", err)
    # It sleeps for 60; how late it wakes up is up to the machine's load.
    assert took and 60 <= float(took[1]) < 5000, err
    assert b.dumps() == ["t.data"] and "f_doze" in b.report("functions")


@case
def calls_and_returns(b):
    events = ["call:f_work#20000", "return:f_*z?", "call:f_no_such"]
    status, out, err = b.run([*recorder(*events), "--times", "2"], [b.recorder, "slow"])
    assert (status, out) == (0, "done\n"), (status, out)
    assert [err.count(f" at {e}: ") for e in events] == [2, 1, 0] and b.dumps() == ["t.data", "t.data.2", "t.data.3"], (err, b.dumps())


@case
def control_words(b):
    assert b.sptrace_says("ctl")[:2] == (0, "no recording waits for words (sptrace run --dump-on ctl:WORD)\n")
    b.fails(1, "no recording waits for words", "ctl", "dump")
    process = b.start(["-q", *recorder("ctl:dump", "ctl:two#2"), "--stop-on", "ctl:end"], [b.recorder, "wait"])
    assert process.stdout.readline() == b"ready\n"
    status, out, _ = b.sptrace_says("ctl")
    assert status == 0 and re.fullmatch(rf" *{process.pid}  dump, two, end: \S*recorder.O2 wait\n", out), out
    said = b.sptrace_says("ctl", "dump", "-p", str(process.pid))
    assert said[0] == 0 and said[1].startswith("dump 1 written to t.data at ctl:dump") and b.has("t.data"), said
    assert "as often as it counts" in b.sptrace_says("ctl", "dump")[1]
    assert b.sptrace_says("ctl", "two")[1] == "counted, 1 more to come\n" and not b.has("t.data.2")
    assert b.sptrace_says("ctl", "two")[0] == 0 and b.has("t.data.2")
    b.fails(1, "it waits for dump, two, end, not for 'nonsense'", "ctl", "nonsense")
    b.fails(1, "no recording 1 waits", "ctl", "-p", "1", "dump")
    b.fails(1, "no control word", "ctl", "../x")
    other = b.start(["-q", "--stop-on", "ctl:end"], [b.recorder, "wait"])
    assert other.stdout.readline() == b"ready\n"
    b.fails(1, "choose one by -p", "ctl", "end")
    # Killed: its socket is found to be nobody's.
    other.kill()
    other.wait()
    assert b.sptrace_says("ctl", "end") == (0, "the recording has ended\n", "")
    assert os.listdir(b.path("runtime/sptrace")) == [f"{process.pid}.sock"]
    status, out, err = finish(process)
    assert (status, out) == (0, "done\n") and "--stop-on ctl:end" in err, (status, out, err)
    assert os.listdir(b.path("runtime/sptrace")) == []
    mode = os.stat(b.path("runtime/sptrace")).st_mode & 0o777
    assert mode == 0o700, oct(mode)


@case
def stop_after_a_time(b):
    status, out, err = b.run(["--stop-on", "time:500ms"], [b.recorder, "doze"])
    assert (status, out) == (0, "done\n"), (status, out)
    assert "recording ended early: --stop-on time:500ms" in err, err
    assert "recording ended early: --stop-on time:500ms" in b.report()
    calls = b.report("tree").count("f_outer() {")
    assert 3 <= calls <= 11, calls


@case
def start_and_stop_after_a_time(b):
    status, out, err = b.run(["--start-on", "time:200ms", "--stop-on", "time:300ms"], [b.recorder, "doze"])
    assert (status, out) == (0, "done\n"), (status, out)
    assert "recording ended early: --stop-on time:300ms" in err and " 0 lost" in err, err
    tree = b.report("tree")
    assert re.search(r"\] \|  *main\(\) \{ /\* began earlier \*/", tree), tree[:500]
    calls = tree.count("f_outer() {")
    assert 1 <= calls <= 8, calls


@case
def the_stack_where_no_unwind_tables_are(b):
    program = b.recorder.replace(".O2", ".tableless")
    tables = subprocess.run(["readelf", "--debug-dump=frames", program], capture_output=True, text=True).stdout
    assert tables.count(" FDE ") == 3, tables  # those of _start and the PLT, which are not the compiler's
    status, out, err = b.run(["--start-on", "time:500ms", "--stop-on", "time:200ms"], [program, "doze"])
    assert (status, out) == (0, "done\n"), (status, out, err)
    stack, = began_earlier(b.report("tree"))
    assert stack[:3] == ["__libc_start_main", "__libc_start_call_main", "main"] and stack[3].startswith("sub_") and "nanosleep" in stack[4], stack


@case
def native_before_the_start_and_after_the_stop(b):
    process = b.start(["-q", "--start-on", "ctl:go", "--start-on", "signal:USR1", "--stop-on", "ctl:end"], [b.recorder, "wait"])
    assert process.stdout.readline() == b"ready\n"
    pid = child_of(process)
    assert wait_for(lambda: is_armed(pid))
    assert b.sptrace_says("ctl", "go") == (0, "the recording begins\n", "")
    assert wait_for(lambda: changed_text(pid))
    assert b.sptrace_says("ctl", "go")[1] == "it has happened as often as it counts\n"
    time.sleep(0.2)
    assert b.sptrace_says("ctl", "end") == (0, "the recording has ended\n", "")
    assert wait_for(lambda: is_native(pid))
    status, out, err = finish(process)
    assert (status, out) == (0, "done\n") and "--stop-on ctl:end" in err, (status, out, err)
    tree = b.report("tree")
    assert "main() { /* began earlier */" in tree and "f_mark" not in tree, tree


@case
def armed_programs_stay_what_they_are(b):
    """Children, programs that are executed, libraries that come and go, after the agent was mapped."""
    script = """import ctypes, os, sys, time
def agents(): return "memfd:sptrace" in open("/proc/self/maps").read()
end = time.monotonic() + 20
while not agents() and time.monotonic() < end: time.sleep(0.01)
print(agents(), flush=True)
pid = os.fork()
if pid == 0: os._exit(2 if agents() else 0)
print(os.waitpid(pid, 0)[1], os.system("grep -q memfd:sptrace /proc/self/maps"), flush=True)
for name in ("libz.so.1", "libm.so.6") * 2:
    handle = ctypes.CDLL(name)
    time.sleep(0.4)
    import _ctypes
    _ctypes.dlclose(handle._handle)
handle = ctypes.CDLL("libz.so.1")
print("ready", flush=True)
for line in sys.stdin: print(handle.crc32(0, line.encode(), len(line)), flush=True)
os.execv("/bin/sh", ["sh", "-c", "echo executed; grep -c memfd:sptrace /proc/self/maps"])
"""
    process = b.start(["-q", "--start-on", "signal:USR1", "--stop-on", "time:400ms"], ["python3", "-S", "-c", script])
    lines = [process.stdout.readline() for _ in range(3)]
    assert lines == [b"True\n", b"0 256\n", b"ready\n"], lines
    pid = child_of(process)
    time.sleep(0.5)
    assert wait_for(lambda: is_armed(pid)), (has_agent(pid), is_untraced(pid), changed_text(pid))
    process.send_signal(signal.SIGUSR1)
    assert wait_for(lambda: changed_text(pid))
    process.stdin.write(b"some line\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"1209563541\n"
    assert wait_for(lambda: is_native(pid))
    status, out, err = finish(process)
    assert (status, out) == (1, "executed\n0\n"), (status, out, err)
    tree = b.report("tree")
    assert "ffi_call() {" in tree, tree[-3000:]
    assert re.search(r"\] \|  *main\(\) \{ /\* began earlier \*/|Py_BytesMain\(\) \{ /\* began earlier", tree), tree[:900]


@case
def armed_and_never_started(b):
    """What was mapped goes again, but not into a process with a limit on its memory."""
    script = f"exec 3<&0; (ulimit -v 4000000; exec {b.recorder} wait) <&3 >/dev/null 2>&1 & echo $!; {b.recorder} wait <&3 >/dev/null 2>&1 & echo $!; sleep 1.2; echo end"
    process = b.start(["--start-on", "ctl:go"], ["sh", "-c", script])
    limited, free = (int(process.stdout.readline()) for _ in range(2))
    assert wait_for(lambda: is_armed(free)) and not has_agent(limited)
    process.wait(20)
    assert "nothing was recorded" in process.stderr.read().decode()
    assert is_native(free) and not changed_text(free) and is_native(limited)
    assert not [l for l in open(f"/proc/{free}/maps") if "/dev/zero" in l]
    process.stdin.close()


def gated(b, *options):
    """A program that waits for its first line, and whose f_gated leads over a gate."""
    process = b.start(["--start-on", "call:f_gated", *options], [b.gated])
    assert process.stdout.readline() == b"ready threads\n"
    pid = child_of(process)
    assert wait_for(lambda: has_agent(pid) and len(changed_text(pid)) == 1) and is_untraced(pid)
    return process, pid


def next_line(process, *expected):
    process.stdin.write(b"\n")
    process.stdin.flush()
    for line in expected: assert process.stdout.readline() == line, line


GATED = "sum 6842.0, child 8\n"


@case
def a_call_begins_the_recording(b):
    """All threads in the same instant, under a timer; none of their calls is missing."""
    process, pid = gated(b)
    next_line(process, b"ready child\n")
    next_line(process)
    status, out, err = finish(process)
    assert (status, out) == (0, GATED), (status, out, err)
    tree, inside = b.report("tree"), collections.Counter()
    for line in tree.split("\n"):
        m = re.match(r".*\[ *(\d+)\] \|( *)(\w+)\(\)", line)
        if m and m[3] == "f_gated": inside[m[1]], depth = 0, len(m[2])
        elif m and m[3] == "f_leaf" and m[1] in inside and "f_handler" not in line and len(m[2]) == depth + 2: inside[m[1]] += 1
    assert sorted(inside.values()) == [10] * 9, inside
    assert re.search(r"f_gated\(\) \{ /\* began earlier \*/", tree), tree[:3000]


@case
def the_first_call_of_a_program_that_is_over_at_once_begins_the_recording(b):
    """In the program, and in a library: both are there before the program runs, and prepared then. Musl's loader is its C library."""
    programs = [b.recorder.replace(".O2", ".O0")]
    if shutil.which("musl-gcc"):
        programs.append(os.path.join(b.folder, "recorder.musl"))
        subprocess.run(["musl-gcc", "-O0", "-o", programs[1], os.path.join(ROOT, "tests/programs/recorder/recorder.c")], check=True)
    for program in programs:
        status, out, err = b.run(["--start-on", "call:f_outer"], [program, "crash"])
        assert (status, out) == (-signal.SIGSEGV, "") and "untraced" not in err, (program, status, out, err)
        tree = b.report("tree")
        inner = [l for l in tree.splitlines() if re.search(r"\| *f_inner\(\)", l)]
        assert len(inner) == 3000, (program, len(inner), tree[:2000], err)
    status, out, err = b.run(["--start-on", "call:sqlite3_step"], ["sqlite3", ":memory:", "select 40 + 2"])
    assert (status, out) == (0, "42\n") and "untraced" not in err, (status, out, err)
    assert re.search(r"\| *sqlite3_step\(\) \{ /\* began earlier \*/", b.report("tree"))


@case
def the_way_over_a_gate_is_taken_away(b):
    process, pid = gated(b, "--stop-on", "ctl:end")
    next_line(process, b"ready child\n")
    assert b.sptrace_says("ctl", "end") == (0, "the recording has ended\n", "")
    assert wait_for(lambda: is_native(pid)) and not changed_text(pid)
    next_line(process)
    status, out, err = finish(process)
    assert (status, out) == (0, GATED), (status, out, err)


@case
def nobody_waits_at_a_gate_of_an_sptrace_that_is_gone(b):
    for moment in ("before", "while"):
        process, pid = gated(b)
        if moment == "before":
            process.kill()
            next_line(process, b"ready child\n")
        else:
            process.send_signal(signal.SIGSTOP)
            next_line(process)
            time.sleep(0.05)
            process.kill()
            assert process.stdout.readline() == b"ready child\n"
        next_line(process)
        assert process.stdout.read().decode() == GATED, moment
        process.wait(20)


@case
def nobody_waits_at_a_gate_of_an_sptrace_that_is_stopped(b):
    process, pid = gated(b)
    process.send_signal(signal.SIGSTOP)
    next_line(process, b"ready child\n")
    next_line(process, GATED.encode())
    process.send_signal(signal.SIGCONT)
    status, out, err = finish(process)
    assert (status, out) == (0, ""), (status, out, err)


@case
def calls_that_cannot_begin_a_recording_are_named(b):
    status, out, err = b.run(["--start-on", "call:f_no_such"], [b.recorder, "doze"])
    assert (status, out) == (0, "done\n") and "no function of what was loaded for a while matches --start-on call:f_no_such" in err, err
    status, out, err = b.run(["--start-on", "call:*printf*"], [b.recorder, "doze"])
    assert (status, out) == (0, "done\n") and "calls could not be waited for: *printf* fits " in err, err


@case
def killed_after_the_start(b):
    process = b.start(["-q", "--start-on", "signal:USR1"], [b.recorder, "wait"])
    assert process.stdout.readline() == b"ready\n"
    pid = child_of(process)
    process.send_signal(signal.SIGUSR1)
    assert wait_for(lambda: has_agent(pid))
    time.sleep(0.2)
    os.kill(pid, signal.SIGSEGV)
    status, out, err = finish(process)
    assert (status, out, err) == (-signal.SIGSEGV, "", ""), (status, out, err)
    assert "main() { /* began earlier, end not seen */" in b.report("tree") or "/* main, end not seen */" in b.report("tree"), b.report("tree")


@case
def never_started(b):
    status, out, err = b.run(["--start-on", "ctl:go"], ["sh", "-c", "echo out; exit 7"])
    assert (status, out) == (7, "out\n") and "nothing was recorded: no event of --start-on happened" in err, (status, out, err)
    b.fails(125, "crash cannot begin a recording", "run", "--start-on", "crash", "--", "ls")
    b.fails(125, "slow:main>1s#2 cannot begin a recording with --dump-on", "run", "--start-on", "slow:main>1s#2", "--ring", "4M", "--dump-on", "exit", "--", "ls")
    b.fails(2, "--loader", "run", "--loader", "--start-on", "ctl:go", "--", "ls")


@case
def shadow_begins_at_a_call(b):
    status, out, err = b.run(["--shadow", "--start-on", "call:f_work#30000"], [b.recorder, "slow"])
    assert (status, out) == (0, "done\n") and " 0 lost" in err and 2 * 29999 <= left_out(err) < 3 * 30100, (status, out, err)
    assert f"shadow mode: {left_out(err):,} events before the start were left out" in b.report()
    tree = b.report("tree")
    assert re.search(r"main\(\) \{ /\* began earlier \*/\n.*f_work\(\) \{\n", tree), tree[:900]
    assert tree.count("f_work() {") == 20001, tree.count("f_work() {")
    assert "recording began at --start-on call:f_work#30000" in tree
    whole = b.run(["--shadow", "--start-on", "call:f_work"], [b.recorder, "slow"])
    assert whole[:2] == (0, "done\n") and b.report("tree").count("f_work() {") == 50000


@case
def shadow_begins_at_a_return(b):
    status, out, err = b.run(["--shadow", "--start-on", "return:f_middle#2998"], [b.recorder, "crash"])
    assert status == -signal.SIGSEGV and "nothing was recorded" not in err, (status, err)
    tree = b.report("tree")
    assert re.search(r"f_outer\(\) \{ /\* began earlier \*/\n.* f_middle\(\); /\* began earlier, end not seen \*/\n.*\} /\* f_outer, end not seen \*/\n", tree), tree[:1500]
    assert tree.count("f_outer() {\n") == 2 and tree.count("f_leaf") == 3, tree


@case
def shadow_begins_at_a_slow_call_and_stops(b):
    status, out, err = b.run(["--shadow", "--start-on", "slow:f_work>50ms", "--stop-on", "call:f_work#5"], [b.recorder, "slow"])
    assert (status, out) == (0, "done\n") and "recording ended early: --stop-on call:f_work#5" in err, (status, err)
    # A stop at a call is as late as its buffer.
    assert b.report("tree").count("f_work() {\n") >= 5, b.report("tree")[:3000]
    assert left_out(err) > 50000, err


@case
def shadow_begins_at_a_moment(b):
    """Also of threads that do nothing then, but not of those that have ended."""
    script = "import threading, time\ndone = threading.Event()\nthreading.Thread(target=lambda: 0).start()\nt = threading.Thread(target=done.wait)\nt.start()\ntime.sleep(1)\nfor n in range(20): time.sleep(0.05)\ndone.set()\nt.join()\n"
    status, out, err = b.run(["--shadow", "--start-on", "time:900ms", "--stop-on", "time:500ms"], ["python3", "-S", "-c", script])
    assert (status, out) == (0, "") and "--stop-on time:500ms" in err and left_out(err) > 10000, (status, err)
    assert "threads 2" in b.report(), b.report()
    tree = b.report("tree")
    assert re.search(r"pymain_run_python\S*\(\) \{ /\* began earlier|Py_RunMain\(\) \{ /\* began earlier", tree), tree[:900]
    assert re.search(r"(thread_run|pythread_wrapper|start_thread)\S*\(\) \{ /\* began earlier", tree), tree[:2000]


@case
def shadow_never_begins(b):
    status, out, err = b.run(["--shadow", "--start-on", "call:f_no_such", "--stop-on", "call:f_work"], [b.recorder, "slow"])
    assert (status, out) == (0, "done\n") and "nothing was recorded: no event of --start-on happened" in err and "ended early" not in err, (status, err)
    assert left_out(err) > 100000 and "events: 0 recorded" in err, err
    b.fails(2, "--start-on", "run", "--shadow", "--", "ls")
    b.fails(2, "--dump-on", "run", "--shadow", "--start-on", "ctl:go", "--ring", "4M", "--dump-on", "exit", "--", "ls")
    b.fails(125, "crash cannot begin a recording", "run", "--shadow", "--start-on", "crash", "--", "ls")


@case
def moments_come_again(b):
    status, out, err = b.run([*recorder("time:300ms"), "--times", "3"], [b.recorder, "doze"])
    assert (status, out) == (0, "done\n") and b.dumps() == ["t.data", "t.data.2", "t.data.3"], (status, err)
    counts = [b.report("tree", name).count("f_outer() {") for name in b.dumps()]
    assert 0 < counts[0] < counts[1] < counts[2] < 40, counts


@case
def the_end(b):
    status, _, err = b.run(recorder("exit"), [b.recorder, "slow"])
    assert status == 0 and "at exit (process" in err and "exited with 0" in b.report(), err
    assert b.report("tree").count("f_work() {") == 50000


@case
def a_signal_for_both(b):
    """What sptrace passes on it passes on also if it is an event."""
    script = "import signal\nsignal.signal(signal.SIGHUP, lambda *_: print('hup', flush=True))\nprint('ready', flush=True)\nfor n in range(2): signal.pause()\n"
    process = b.start(["-q", *recorder("signal:HUP")], ["python3", "-S", "-c", script], start_new_session=True)
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGHUP)
    assert process.stdout.readline() == b"hup\n"
    assert wait_for(lambda: b.has("t.data"))
    process.send_signal(signal.SIGTERM)
    assert finish(process) == (-signal.SIGTERM, "", "")


@case
def without_an_event(b):
    with open(b.path("t.data"), "w") as f: f.write("a former trace")
    status, out, err = b.run(recorder("crash"), [b.recorder, "slow"])
    assert (status, out) == (0, "done\n") and "none written: no event of --dump-on happened" in err, err
    assert b.dumps() == ["t.data"] and open(b.path("t.data")).read() == "a former trace"
    status, _, err = b.run(recorder("exit"), [b.recorder, "slow"])
    assert b.dumps() == ["t.data", "t.data.old"] and open(b.path("t.data.old")).read() == "a former trace"
    status, _, err = b.run(["-o", "/dev/full", *recorder("crash")], [b.recorder, "none"])
    assert status == 2, (status, err)


@case
def no_room_for_a_dump(b):
    os.mkdir(b.path("t.data"))
    status, _, err = b.run(recorder("exit"), [b.recorder, "slow"])
    assert status == 125 and "it is a directory" in err, err
    os.rmdir(b.path("t.data"))
    process = b.start(["-q", *recorder("signal:USR1")], [b.recorder, "wait"])
    assert process.stdout.readline() == b"ready\n"
    os.mkdir(b.path("t.data.partial"))
    process.send_signal(signal.SIGUSR1)
    time.sleep(0.3)
    status, out, err = finish(process)
    assert (status, out) == (0, "done\n") and err.startswith("sptrace: cannot write dump 1 to t.data") and err.count("\n") == 1, err
    assert not b.has("t.data")


def on_terminal(b, script, keys, until):
    """Runs a shell script as the leader of a terminal of its own; sends the keys when `until` is read. Gives (status, what the
    terminal showed, local modes before, while waiting, after)."""
    pid, master = pty.fork()
    if pid == 0:
        os.chdir(b.folder)
        os.execve("/bin/sh", ["sh", "-c", script], b.env)
    shown, modes = b"", []
    local = lambda: termios.tcgetattr(master)[3] & (termios.ICANON | termios.ECHO | termios.ISIG)
    before = local()
    status, end = None, time.monotonic() + 30
    while status is None:
        if time.monotonic() > end: os.killpg(pid, signal.SIGKILL)
        if select.select([master], [], [], 0.05)[0]:
            try: shown += os.read(master, 4096)
            except OSError: pass
        if keys and until in shown:
            wait_for(lambda: not local() & termios.ICANON, 3)
            modes.append(local())
            for key in keys:
                os.write(master, key)
                time.sleep(0.3)
            keys = []
        ended, how = os.waitpid(pid, os.WNOHANG)
        if ended: status = os.waitstatus_to_exitcode(how)
    while select.select([master], [], [], 0.1)[0]:
        try: shown += os.read(master, 4096)
        except OSError: break
    os.close(master)
    return status, shown.decode("utf-8", "replace").replace("\r", ""), before, modes


@case
def keys(b):
    options = " ".join(["-o t.data", *recorder("key:ctrl-t", "key:f5", "key:alt-s"), "--stop-on key:q"])
    script = f"echo begin; {b.sptrace} run {options} -- {b.recorder} doze < /dev/null; echo ended $?; {MODES}"
    status, shown, before, modes = on_terminal(b, script, [b"x\x14", b"\x1b[15~", b"\x1bs", b"q"], b"begin")
    assert "done\n" in shown, shown
    assert before & termios.ICANON and before & termios.ECHO
    assert modes and not modes[0] & (termios.ICANON | termios.ECHO) and modes[0] & termios.ISIG, modes
    assert shown.endswith("ended 0\nicanon echo\n"), shown
    for number, key in ((1, "ctrl-t"), (2, "f5"), (3, "alt-s")): assert f"dump {number} written" in shown and f"at key:{key}: " in shown, shown
    assert "--stop-on key:q" in shown and b.dumps() == ["t.data", "t.data.2", "t.data.3"], shown


@case
def keys_and_an_interrupt(b):
    """ctrl-c goes on ending the program, and the terminal is as before."""
    script = f"trap : INT; echo begin; {b.sptrace} run {' '.join(recorder('key:f5'))} -- sleep 25 < /dev/null; echo ended $?; {MODES}"
    for keys in ([b"\x03"], [b"x", b"\x03"]):
        status, shown, _, _ = on_terminal(b, script, keys, b"begin")
        assert shown.endswith("ended 130\nicanon echo\n"), shown


@case
def misuse(b):
    b.fails(2, "--ring", "run", "--dump-on", "crash", "--", "ls")
    b.fails(2, "--dump-on", "run", "--ring", "4M", "--times", "2", "--", "ls")
    b.fails(2, "the forms are: time:DURATION", "run", "--ring", "4M", "--dump-on", "sometimes", "--", "ls")
    b.fails(2, "1..", "run", "--ring", "4M", "--dump-on", "crash", "--times", "0", "--", "ls")
    b.fails(2, "USR1", "run", "--stop-on", "signal:KILL", "--", "ls")
    b.fails(2, "signal:INT", "run", "--stop-on", "key:ctrl-c", "--", "ls")
    b.fails(2, "no duration", "run", "--stop-on", "slow:f>10", "--", "ls")
    b.fails(125, "there is no controlling terminal", "run", "--stop-on", "key:f5", "--", "ls")
    b.fails(125, "more than 64", "run", *[w for n in range(65) for w in ("--start-on", f"call:f{n}")], "--", "ls")
    b.fails(125, "more than 64", "run", *[w for n in range(65) for w in ("--stop-on", f"call:f{n}")], "--", "ls")
    os.chmod(b.path("runtime"), 0o755)
    os.mkdir(b.path("runtime/sptrace"), 0o755)
    b.fails(125, "mode 700", "run", "--stop-on", "ctl:x", "--", "ls")
    assert b.dumps() == []


if __name__ == "__main__":
    sys.exit(main(case, __doc__))
