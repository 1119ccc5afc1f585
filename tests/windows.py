#!/usr/bin/env python3
"""Recordings that begin and end several times: `run --start-on EVENT --stop-on EVENT --times N`.

usage: tests/windows.py [--sptrace PATH] [--programs DIR] [--only GLOB]... [--list] [--repeat N]

Given: as tests/events.py, whose tools it uses.
Gives: one line a case, then `N passed, N failed` alone on the last line; status 1 if anything failed.
Checked: so many recordings are in one trace, with nothing of the pauses between them, neither calls nor time; in the pauses the
program's code is its own; its output and status are as without sptrace, also when that is killed in a recording or between two.
Must not know: how sptrace works.
"""
import fcntl, os, re, signal, struct, sys, termios, time

from harness.bench import finish, main
from harness.case import Cases
from harness.process import changed_text, child_of, children_of, is_armed, is_native, is_untraced, wait_for
from harness.trace import left_out

case = Cases()


def said(process, what):
    """Reads what sptrace says up to a line that begins so."""
    for line in process.stderr:
        if line.startswith(b"sptrace: " + what.encode()): return line.decode()
    raise AssertionError(f"not said: {what}")


def do(process, count):
    """The recorder does so much, and waits again."""
    process.stdin.write(b"x" * count)
    process.stdin.flush()
    left = lambda: struct.unpack("i", fcntl.ioctl(process.stdin, termios.FIONREAD, b"\0" * 4))[0]
    assert wait_for(lambda: left() == 0)
    time.sleep(0.2)


def in_windows(tree):
    """The lines of each of several recordings, and the others. (The last one's end is noted before it was written.)"""
    inside, outside = [], []
    for line in tree.splitlines():
        if " began at --start-on " in line: inside.append([])
        (inside[-1] if inside and inside[-1] is not None else outside).append(line)
        if " ended at --stop-on " in line: inside.append(None)
    return [lines for lines in inside if lines is not None], outside


@case
def recorded_three_times(b):
    """Native in between, and nothing of the pauses in the trace."""
    process = b.start(["--start-on", "signal:USR1", "--stop-on", "signal:USR2", "--times", "3"], [b.recorder, "wait"])
    assert process.stdout.readline() == b"ready\n"
    pid = child_of(process)
    for number in (1, 2, 3):
        do(process, 10)
        assert wait_for(lambda: is_armed(pid)), number
        process.send_signal(signal.SIGUSR2)
        time.sleep(0.1)
        process.send_signal(signal.SIGUSR1)
        assert said(process, f"recording {number} of 3 begins").endswith(" (signal:USR1)\n")
        process.send_signal(signal.SIGUSR1)
        assert changed_text(pid)
        do(process, number)
        process.send_signal(signal.SIGUSR2)
        if number < 3: assert said(process, f"recording {number} of 3 has ended").endswith(" (signal:USR2)\n")
        assert wait_for(lambda: not changed_text(pid))
        time.sleep(0.5)
    assert wait_for(lambda: is_native(pid))
    for what in (signal.SIGUSR1, signal.SIGUSR2): process.send_signal(what)
    status, out, err = finish(process, b"xx")
    assert (status, out) == (0, "done\n") and "recording ended early: --stop-on signal:USR2" in err and " 0 lost" in err, (status, out, err)
    tree = b.report("tree")
    windows, outside = in_windows(tree)
    assert [sum("f_leaf();" in l for l in w) for w in windows] == [1, 2, 3] and not [l for l in outside if "|" in l], tree
    for window in windows:
        assert any("main() { /* began earlier */" in l for l in window) and any("/* main, end not seen */" in l for l in window), tree
    summary = b.report()
    ran, together = (float(n) * {"s": 1, "ms": 0.001}[u] for n, u in (re.search(rf"{w} ([\d.]+) (m?s)\b", summary).groups() for w in ("ran", "recorded   3 times,")))
    assert 0.6 <= together < ran - 1.5 and "threads 1" in summary, summary
    longest = [float(n) for n in re.findall(r"^ *([\d.]+) s \[", tree, re.M)]
    assert max(longest, default=0) <= together, (longest, summary)


@case
def a_start_that_comes_too_early_waits(b):
    """Until the last recording has been brought to its end; the command may end before all were made."""
    process = b.start(["--start-on", "ctl:go#2", "--stop-on", "ctl:end", "--stop-on", "time:30s", "--times", "9"], [b.recorder, "wait"])
    assert process.stdout.readline() == b"ready\n"
    pid = child_of(process)
    say = lambda word: b.sptrace_says("ctl", word)[1].strip()
    assert [say("end"), say("go"), say("go")] == ["nothing is recorded yet", "counted, 1 more to come", "the recording begins"]
    said(process, "recording 1 of 9 begins")
    assert [say("go"), say("end"), say("go"), say("go")] == ["the recording has begun already", "the recording has ended", "counted, 1 more to come", "the recording begins"]
    said(process, "recording 2 of 9 begins (ctl:go#2)")
    do(process, 4)
    assert say("end") == "the recording has ended"
    said(process, "recording 2 of 9 has ended (ctl:end)")
    assert not changed_text(pid)
    status, out, err = finish(process, b"xxx")
    assert (status, out) == (0, "done\n") and "recorded 2 of 9 times: the command ended before" in err and "ended early" not in err, (status, out, err)
    assert b.report("tree").count("f_leaf();") == 4 and "recorded   2 times" in b.report()


@case
def moments_count_in_each_recording(b):
    status, out, err = b.run(["--start-on", "time:100ms", "--stop-on", "time:250ms", "--times", "3"], [b.recorder, "doze"])
    assert (status, out) == (0, "done\n") and " 0 lost" in err and err.count(" begins (time:100ms)") == 3, (status, out, err)
    windows, _ = in_windows(b.report("tree"))
    calls = [sum("f_outer() {" in l for l in w) for w in windows]
    assert len(calls) == 3 and all(1 <= n <= 7 for n in calls[:2]) and calls[2] <= 7, calls


@case
def the_command_ends_in_a_recording(b):
    status, out, err = b.run(["--start-on", "time:100ms", "--stop-on", "time:100ms#30", "--stop-on", "ctl:end", "--times", "2"], [b.recorder, "doze"])
    assert (status, out) == (0, "done\n") and "recorded 1 of 2 times: the command ended before" in err, (status, out, err)
    assert "_Exit(); /* until the process ended */" in b.report("tree") and "recorded   once, " in b.report(), b.report("tree")[-900:]


@case
def the_command_ends_while_its_children_are_let_go(b):
    for delay in (n * 0.003 for n in range(12)):
        process = b.start(["--start-on", "signal:USR1", "--stop-on", "signal:USR2", "--times", "2"], [b.heirs, "ask"])
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGUSR1)
        said(process, "recording 1 of 2 begins")
        process.stdin.write(b"f" * 8)
        process.stdin.flush()
        for number in range(1, 9): assert process.stdout.readline() == b"f %d\n" % number
        process.send_signal(signal.SIGUSR2)
        time.sleep(delay)
        status, out, err = finish(process)
        assert (status, out) == (0, "") and "recorded 1 of 2 times" in err, (status, out, err)


@case
def recorded_again_with_threads_and_children(b):
    """Threads that come and go, children before, in and after recordings, an exec, libraries: output and status are those of
    the program, and its text is the file's in the end."""
    script = """import ctypes, os, subprocess, sys, threading, time
end = time.monotonic() + float(sys.argv[1])
counts = [0] * 4
def work(k):
    while time.monotonic() < end:
        counts[k] += sum(sorted([n * 7 % 13 for n in range(50)])) > 0
        time.sleep(0.005)
        t = threading.Thread(target=time.sleep, args=(0.001,))
        t.start()
        t.join()
threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
for t in threads: t.start()
failed = 0
while time.monotonic() < end:
    pid = os.fork()
    if pid == 0:
        time.sleep(0.01)
        os._exit(len(str(sum(range(1000)))))
    failed += os.waitpid(pid, 0)[1] != 6 << 8
    failed += subprocess.run(["/bin/sh", "-c", "exit 3"]).returncode != 3
for t in threads: t.join()
print("failed", failed, min(counts[:3]) > 0, flush=True)
for line in sys.stdin: print(line, end="", flush=True)
"""
    process = b.start(["--start-on", "time:150ms", "--stop-on", "time:50ms", "--times", "12"], ["python3", "-S", "-c", script, "6"])
    line = process.stdout.readline()
    assert line == b"failed 0 True\n", line
    pid = child_of(process)
    assert wait_for(lambda: process.poll() is not None or is_untraced(pid)), f"{pid} does not come back"
    process.stdin.write(b"x\n")
    process.stdin.flush()
    line = process.stdout.readline()
    assert line == b"x\n", line
    # The rest of the recordings, if there are any yet.
    said(process, "recording 12 of 12 begins")
    assert wait_for(lambda: is_native(pid)) and not changed_text(pid), changed_text(pid)
    status, out, err = finish(process)
    assert (status, out) == (0, "") and "keeps memory" not in err and " 0 lost" in err, (status, out, err)
    # What a thread had open that did nothing in a recording comes behind the end of that, before the next.
    windows = b.report("tree").split(" began at --start-on ")[1:]
    begun = ["began earlier" in w for w in windows]
    assert len(begun) == 12 and all(begun), begun


@case
def a_child_from_before_a_recording_returns_to_what_one_before_has_left(b):
    """Its parent's patch areas record again, those that the child has do not."""
    process = b.start(["--start-on", "signal:USR1", "--stop-on", "signal:USR2", "--times", "3"], [b.heirs, "ask"])
    assert process.stdout.readline() == b"ready\n"
    pid = child_of(process)

    def ask(letter):
        process.stdin.write(letter)
        process.stdin.flush()
        return process.stdout.readline()

    for number in (1, 2, 3):
        assert wait_for(lambda: is_armed(pid))
        # One that the looker may look at, and one that is too young for that.
        if number > 1: assert ask(b"f") == b"f 1\n"
        time.sleep(0.3)
        if number > 1: assert ask(b"f") == b"f 2\n"
        process.send_signal(signal.SIGUSR1)
        said(process, f"recording {number} of 3 begins")
        # With slots' addresses in the stack that is kept.
        if number == 1: assert ask(b"k") == b"k 6\n"
        else: assert ask(b"g") == b"g %d\n" % (2 * (56 << 8)), number
        assert number == 1 or ask(b"b") == b"r 56\n"
        if number == 3: break
        process.send_signal(signal.SIGUSR2)
        said(process, f"recording {number} of 3 has ended")
        assert ask(b"b") == b"r 56\n"
    status, out, err = finish(process)
    assert (status, out) == (0, "") and "keeps memory" not in err, (status, out, err)


@case
def a_child_that_its_parent_is_let_go_before_throws(b):
    """Through frames that it has from its parent; it has called nothing since the fork."""
    process = b.start(["--start-on", "signal:USR1", "--stop-on", "signal:USR2", "--times", "3"], [b.heirs, "ask"])
    assert process.stdout.readline() == b"ready\n"
    for number in (1, 2, 3):
        process.send_signal(signal.SIGUSR1)
        said(process, f"recording {number} of 3 begins")
        # There are others to be let go in between.
        process.stdin.write(b"k" + b"f" * 8 + b"tw")
        process.stdin.flush()
        for line in ("k 6", *(f"f {n}" for n in range(1, 9)), "t 6"): assert process.stdout.readline().decode() == line + "\n"
        time.sleep(0.1)
        process.send_signal(signal.SIGUSR2)
        assert process.stdout.readline() == b"w %d\n" % (7 << 8), number
        process.stdin.write(b"g")
        process.stdin.flush()
        assert process.stdout.readline() == b"g %d\n" % (8 * (56 << 8)), number
        if number < 3: said(process, f"recording {number} of 3 has ended")
    status, out, err = finish(process)
    assert (status, out) == (0, "") and "keeps memory" not in err, (status, out, err)


@case
def a_storm_of_children(b):
    """They are made and end at every moment of short recordings."""
    for start, stop in (("100ms", "100ms"), ("20ms", "5ms")):
        status, out, err = b.run(["--start-on", f"time:{start}", "--stop-on", f"time:{stop}", "--times", "1000"], [b.heirs, "storm", "5"])
        begun, rest = err.count(" begins "), [line for line in err.splitlines() if "sptrace: recording " not in line]
        assert status == 0 and out.startswith("0 of ") and begun > 3, (status, out, begun, rest)
        # Children that return from their calls between a recording's end and when they are let go lose nothing: it is over.
        assert "keeps memory" not in err and " 0 lost" in err, rest


@case
def killed_in_and_between_recordings(b):
    """The program runs on, right, and native or nearly so."""
    for at in ("recording 1 of 9 has ended", "armed", "recording 2 of 9 begins", "recording 3 of 9 has ended"):
        process = b.start(["--start-on", "signal:USR1", "--stop-on", "signal:USR2", "--times", "9"], [b.recorder, "wait"])
        assert process.stdout.readline() == b"ready\n"
        pid = child_of(process)
        for number in (1, 2, 3):
            do(process, 3)
            if at == "armed" and number == 2:
                assert wait_for(lambda: is_armed(pid))
                break
            process.send_signal(signal.SIGUSR1)
            said(process, f"recording {number} of 9 begins")
            do(process, 3)
            if at == f"recording {number} of 9 begins": break
            process.send_signal(signal.SIGUSR2)
            said(process, f"recording {number} of 9 has ended")
            if at == f"recording {number} of 9 has ended": break
        assert is_untraced(pid) and bool(changed_text(pid)) == ("begins" in at), at
        process.kill()
        process.wait()
        process.stdin.write(b"x" * 100)
        process.stdin.close()
        assert process.stdout.read() == b"done\n", at
        tree = b.sptrace_says("report", "tree", "-i", "t.data")[1]
        ended = tree.count(" ended at --stop-on signal:USR2")
        assert ended == int(at[10]) - ("begins" in at) if at != "armed" else ended == 1, (at, tree)
        assert tree.count("f_leaf();") >= 3 * ended, (at, tree)


@case
def dumps_and_rings_of_several_recordings(b):
    options = ["--ring", "4M", "--start-on", "signal:USR1", "--stop-on", "signal:USR2", "--times", "2"]
    for more in ([], ["--dump-on", "ctl:dump"]):
        process = b.start([*options, *more], [b.recorder, "wait"])
        assert process.stdout.readline() == b"ready\n"
        for number in (1, 2):
            process.send_signal(signal.SIGUSR1)
            said(process, f"recording {number} of 2 begins")
            do(process, number)
            process.send_signal(signal.SIGUSR2)
            if number == 1: said(process, "recording 1 of 2 has ended")
            if more:
                assert b.sptrace_says("ctl", "dump")[1].startswith(f"dump {number} written")
                name = ["t.data", "t.data.2"][number - 1]
                assert b.report("tree", name).count("f_leaf();") == [1, 3][number - 1], b.report("tree", name)
        status, out, _ = finish(process)
        assert (status, out) == (0, "done\n")
        if not more: assert b.report("tree").count("f_leaf();") == 3, b.report("tree")
    status, out, err = b.run(["--ring", "4M", "--start-on", "time:100ms", "--dump-on", "time:300ms", "--times", "2"], [b.recorder, "doze"])
    assert (status, out) == (0, "done\n") and "2 dumps written" in err and "recorded" not in err.replace("events: ", "").split(" recorded, ")[0], err


@case
def one_event_begins_and_ends_by_turns(b):
    process = b.start(["--start-on", "signal:USR1", "--stop-on", "signal:USR1", "--times", "2"], [b.recorder, "wait"])
    assert process.stdout.readline() == b"ready\n"
    for number in (1, 2):
        process.send_signal(signal.SIGUSR1)
        said(process, f"recording {number} of 2 begins")
        do(process, number)
        process.send_signal(signal.SIGUSR1)
        if number == 1: said(process, "recording 1 of 2 has ended")
    status, out, err = finish(process)
    assert (status, out) == (0, "done\n") and "recording ended early: --stop-on signal:USR1" in err, (status, out, err)
    windows, _ = in_windows(b.report("tree"))
    assert [sum("f_leaf();" in l for l in w) for w in windows] == [1, 2], windows


@case
def calls_begin_each_recording(b):
    process = b.start(["--start-on", "call:f_leaf", "--stop-on", "signal:USR2", "--times", "3"], [b.recorder, "wait"])
    assert process.stdout.readline() == b"ready\n"
    pid = child_of(process)
    for number in (1, 2, 3):
        # With the jump at the function's entry.
        assert wait_for(lambda: changed_text(pid)), number
        do(process, number)
        said(process, f"recording {number} of 3 begins (call:f_leaf)")
        process.send_signal(signal.SIGUSR2)
        if number < 3: said(process, f"recording {number} of 3 has ended")
    status, out, err = finish(process)
    assert (status, out) == (0, "done\n"), (status, out, err)
    windows, _ = in_windows(b.report("tree"))
    leaves = [sum("f_leaf()" in l for l in w) for w in windows]
    assert leaves == [1, 2, 3], (leaves, b.report("tree"))


@case
def every_fourth_call_begins_a_recording(b):
    """The process counts, from the end of the last recording on; the fourth call is in the trace, and those before are native."""
    process = b.start(["--start-on", "call:f_leaf#4", "--stop-on", "ctl:end", "--times", "3"], [b.recorder, "wait"])
    assert process.stdout.readline() == b"ready\n"
    pid = child_of(process)
    for number in (1, 2, 3):
        assert wait_for(lambda: len(changed_text(pid)) == 1), number
        do(process, 3)
        assert len(changed_text(pid)) == 1 and is_untraced(pid)
        do(process, number)
        said(process, f"recording {number} of 3 begins (call:f_leaf#4)")
        assert b.sptrace_says("ctl", "end")[1] == "the recording has ended\n"
        if number < 3: said(process, f"recording {number} of 3 has ended")
    status, out, err = finish(process)
    assert (status, out) == (0, "done\n"), (status, out, err)
    windows, _ = in_windows(b.report("tree"))
    leaves = [sum("f_leaf()" in l for l in w) for w in windows]
    assert leaves == [1, 2, 3], (leaves, b.report("tree"))


@case
def the_nth_call_of_many_threads_begins_it(b):
    """Eight at once, under a timer: one of them waits, and nothing of any is changed by the counting."""
    for nth in (1, 3, 8, 9):
        process = b.start(["--start-on", f"call:f_gated#{nth}"], [b.gated])
        assert process.stdout.readline() == b"ready threads\n"
        pid = child_of(process)
        assert wait_for(lambda: len(changed_text(pid)) == 1)
        for line in (b"ready child\n", b""):
            process.stdin.write(b"\n")
            process.stdin.flush()
            if line: assert process.stdout.readline() == line
        status, out, err = finish(process)
        assert (status, out) == (0, "sum 6842.0, child 8\n"), (nth, status, out, err)
        whole = b.report("tree").count("f_gated() {") if nth < 9 else 0
        assert 1 <= whole <= 10 - nth if nth < 9 else "nothing was recorded" in err, (nth, whole, err)


@case
def returns_and_slow_calls_begin_each_recording(b):
    """It runs by itself up to the first call of what is waited for, and is followed from there on; nobody has to fill a buffer."""
    # How many events come from the first call, itself included, to what begins it; or some less if nobody could be stopped at the first.
    before = {"return:f_doze": 5, "return:nanosleep": 3, "slow:f_doze>20ms#3": 37, "slow:clock_nanosleep>20ms": 1}
    exact = {".O2": 0, ".cet": 0}
    for event, variant in [(e, v) for e in before for v in exact]:
        status, out, err = b.run(["--start-on", event, "--stop-on", "time:60ms", "--times", "2"], [b.recorder.replace(".O2", variant), "doze"])
        assert (status, out) == (0, "done\n") and "ended early: --stop-on time:60ms" in err and " 0 lost" in err, (event, status, out, err)
        windows, _ = in_windows(b.report("tree"))
        function = re.split("[:>#]", event)[1]
        assert len(windows) == 2, (event, len(windows), err)
        exact[variant] += left_out(err) == 2 * before[event]
        for w in windows:
            assert f"at --start-on {event}" in w[0] and "__libc_start_main() { /* began earlier" in w[1], (event, w[:3])
            begun = [l for l in w if "/* began earlier" in l]
            assert re.search(rf"\? .* {function}\(\); /\* began earlier, end not seen \*/", begun[-1]), (event, w[:12])
            assert 1 <= sum("f_outer() {" in l for l in w), (event, w)
    assert min(exact.values()) >= 2, exact


@case
def calls_that_are_looked_for_are_made_once(b):
    """Those at the gate are made again, so their returns are seen: by eight threads at once, under a timer; through whatever leads there."""
    for nth in (1, 8, 9, 10):
        process = b.start(["--start-on", f"return:f_gated#{nth}"], [b.gated])
        assert process.stdout.readline() == b"ready threads\n"
        pid = child_of(process)
        assert wait_for(lambda: len(changed_text(pid)) == 1) and is_untraced(pid)
        for line in (b"ready child\n", b""):
            process.stdin.write(b"\n")
            process.stdin.flush()
            if line: assert process.stdout.readline() == line
        status, out, err = finish(process)
        assert (status, out) == (0, "sum 6842.0, child 8\n"), (nth, status, out, err)
        assert ("nothing was recorded" in err) == (nth == 10) and left_out(err) > 10 * min(nth, 9), (nth, err)
    for event in ("return:f_headed", "slow:f_headed>10us", "return:main"):
        status, out, err = b.run(["--start-on", event, "--stop-on", "time:5ms", "--times", "1000"], [b.headed, "900"])
        assert (status, out) == (0, "faults 0\n") and ("nothing was recorded" in err) == (event == "return:main"), (event, status, out, err)


@case
def the_counting_changes_nothing(b):
    """The function's entry is the head of a loop: rax, flags and the red zone are looked at in each round."""
    for events in (["call:f_headed#2000000"], ["call:f_headed#1000000000000"], ["call:f_headed#300000", "--start-on", "time:7ms", "--stop-on", "time:5ms", "--times", "1000"]):
        status, out, err = b.run(["--start-on", *events], [b.headed, "1500"])
        assert (status, out) == (0, "faults 0\n"), (events, status, out, err)
        assert ("nothing was recorded" in err) == ("#1000000000000" in events[0]), (events, err)
        windows, _ = in_windows(b.report("tree"))
        assert len(windows) < 2 or sum(any("main() { /* began earlier" in l for l in w) for w in windows) >= len(windows) - 1


@case
def who_is_sampled_from_within_waits_for_nobody(b):
    """A handler of SIGPROF that walks the stack of a thread at a gate would see its innermost frames only: no call is waited for, and that is said."""
    program = os.path.join(b.programs, "sigprof.O2")
    for event in ("call:f_*", "return:c*"):
        status, out, err = b.run(["--start-on", event, "--stop-on", "time:1ms", "--times", "1000"], [program, "1"])
        assert (status, out) == (0, "base 16 shortest 16 nest 11\nsamples many\n"), (event, status, out, err)
        assert "nothing was recorded" in err and err.count("calls cannot begin the recording: it catches SIGPROF") == 1, (event, err)
    status, out, err = b.run(["--start-on", "call:f_*", "--start-on", "time:200ms", "--stop-on", "time:1ms"], [program, "1"])
    assert (status, out) == (0, "base 16 shortest 16 nest 11\nsamples many\n") and "nothing was recorded" not in err, (status, out, err)


@case
def killed_before_it_runs_by_itself(b):
    """The command at any moment up to its being let go: sptrace ends as it does."""
    for n in range(120):
        process = b.start(["-q", "--start-on", "ctl:go"], ["sleep", "20"])
        while not children_of(process.pid): assert process.poll() is None, finish(process)
        until = time.monotonic() + n * 0.00002
        while time.monotonic() < until: pass
        os.kill(children_of(process.pid)[-1], signal.SIGKILL)
        status, out, err = finish(process)
        assert (status, out, err) == (-signal.SIGKILL, "", ""), (n, status, out, err)


@case
def who_waits_for_a_vfork_child_has_callers(b):
    """It cannot be stopped while it waits, and when it can, its return address is in a register."""
    trees = []
    for _ in range(10):
        status, out, err = b.run(["--start-on", "time:200ms"], [b.recorder, "vfork"])
        assert (status, out) == (0, "children ended with 30\n"), (status, out, err)
        trees.append(b.report("tree"))
        if all(f" {name}() {{ /* began earlier */" in trees[-1] for name in ("__libc_start_main", "main", "f_parent")): return
    raise AssertionError(trees[-1][:2000])


@case
def one_program_after_the_other_as_recordings_end(b):
    """A process that executes another program between the look at it and its letting go has nothing of ours any more."""
    script = os.path.join(b.folder, "again.sh")
    with open(script, "w") as f: f.write('[ "$1" = 0 ] && exit 7\nexec sh "$0" $(($1 - 1))\n')
    process = b.start(["--start-on", "time:10ms", "--stop-on", "time:5ms", "--times", "12"], ["sh", script, "300"])
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (7, b"") and b"keeps memory" not in err, (process.returncode, out, err)


@case
def misuse_of_times(b):
    b.fails(2, "needs --stop-on", "run", "--start-on", "ctl:go", "--times", "2", "--", "ls")
    b.fails(2, "--times", "run", "--shadow", "--start-on", "ctl:go", "--stop-on", "ctl:end", "--times", "2", "--", "ls")
    b.fails(2, "--dump-on", "attach", "-p", "1", "--stop-on", "ctl:end", "--times", "2")
    b.fails(2, "--start-on", "run", "--stop-on", "ctl:end", "--times", "2", "--", "ls")


if __name__ == "__main__":
    sys.exit(main(case, __doc__))
