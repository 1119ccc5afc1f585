#!/usr/bin/env python3
"""Functions that are recorded between two events each: `run --between GLOB START STOP`.

usage: tests/between.py [--sptrace PATH] [--programs DIR] [--only GLOB]... [--list] [--repeat N]

Given: as tests/events.py, whose tools it uses; the program `stages`.
Gives: one line a case, then `N passed, N failed` alone on the last line; status 1 if anything failed.
Checked: just the calls that begin between a rule's events are recorded, whole, with what they call, each rule for itself; calls,
times, signals and words open and close; the trace says when; output and status of the program are as without sptrace.
Must not know: how sptrace works.
"""
import os, re, signal, subprocess, sys, time

from harness.bench import main
from harness.case import Cases

case = Cases()


def stages(b): return os.path.join(b.programs, "stages.O2")


def rounds(b, count, *options):
    """Records so many rounds; what it prints, and its status, must be as untraced."""
    given = b"x" * count
    native = subprocess.run([stages(b)], input=given, capture_output=True)
    process = b.start(options, [stages(b)])
    out, err = process.communicate(given, timeout=60)
    assert (process.returncode, out) == (native.returncode, native.stdout), (process.returncode, out, err)
    return err.decode()


def counts(b, name="t.data"):
    """Calls of each function."""
    lines = [l.split() for l in b.report("functions", name).splitlines()[1:]]
    return {l[-1]: int(l[0].replace(",", "")) for l in lines}


def outline(b):
    """The tree without times: roots and what is said of rules, in order."""
    found = []
    for line in b.report("tree").splitlines():
        text = line.split("| ", 1)[-1]
        root = re.match(r"(\w+)\(\)", text)
        note = re.match(r"/\* --between '(.*)' (begins|ends) at (.*) \*/", text)
        if root: found.append(root[1])
        if note: found.append(" ".join(note.groups()))
    return found


def step(process):
    """One round, seen through to its end."""
    process.stdin.write(b"x")
    process.stdin.flush()
    return process.stdout.readline()


@case
def calls_open_and_close_each_rule_for_itself(b):
    rounds(b, 6, "--between", "parse", "start", "call:finish#2", "--between", "render", "call:prepare#3", "call:finish#2")
    said = ["parse", "parse", "parse ends call:finish#2", "render begins call:prepare#3", "render", "render", "render ends call:finish#2"]
    assert outline(b) == said, b.report("tree")
    assert counts(b) == {"parse": 2, "word": 4, "render": 2, "draw": 4, "line": 8}, counts(b)


@case
def a_function_opens_its_own_rule_and_is_in_it(b):
    rounds(b, 5, "--between", "parse", "call:parse#3", "exit")
    assert counts(b) == {"parse": 3, "word": 6}, counts(b)


@case
def a_function_that_closes_its_own_rule_is_not_in_it(b):
    rounds(b, 5, "--between", "parse", "start", "call:parse#3")
    assert counts(b) == {"parse": 2, "word": 4}, counts(b)


@case
def calls_that_are_recorded_where_they_are_made_close_a_rule(b):
    for stamps in ([], ["--stamps", "auto"], ["--stamps", "none"]):
        rounds(b, 3, "--between", "render", "start", "call:line#3", *stamps)
        assert counts(b) == {"render": 1, "draw": 2, "line": 4}, (stamps, counts(b))


@case
def a_rule_opens_again(b):
    rounds(b, 9, "--between", "parse", "call:prepare#2", "call:finish", "--times", "3")
    assert counts(b) == {"parse": 3, "word": 6}, counts(b)
    assert outline(b) == ["parse begins call:prepare#2", "parse", "parse ends call:finish"] * 3, b.report("tree")


@case
def one_rule_within_another_and_beside_a_filter(b):
    rounds(b, 4, "-F", "draw", "--between", "each*", "call:prepare#2", "call:prepare#2", "--between", "render", "start", "call:parse#2")
    # render and all below in the first round, draw and line in all.
    assert counts(b) == {"render": 1, "draw": 8, "line": 16}, counts(b)


@case
def moments_open_and_close(b):
    process = b.start(["--between", "parse", "time:300ms", "time:200ms", "--times", "2"], [stages(b)])
    end = time.monotonic() + 1.6
    lines = []
    while time.monotonic() < end:
        lines.append(step(process))
        time.sleep(0.01)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 5, (process.returncode, err)
    native = subprocess.run([stages(b)], input=b"x" * len(lines), capture_output=True).stdout
    assert b"".join(lines) + out == native
    runs = re.sub(r"(parse )+", "+", " ".join(re.sub(r"parse (\w+) at.*|parse (\w+) .*", r"\1\2", l) for l in outline(b)) + " ")
    assert runs == "begins +ends begins +ends ", (runs, outline(b))
    assert counts(b)["parse"] < len(lines) * 2 / 3, (counts(b), len(lines))


@case
def words_and_signals_open_and_close(b):
    process = b.start(["--between", "parse", "ctl:on", "ctl:off", "--between", "draw", "signal:USR1", "signal:USR2", "--times", "2"], [stages(b)])
    step(process)
    said = lambda word, wanted: b.sptrace_says("ctl", word)[1].count(wanted) == 1
    for _ in range(2):
        assert said("on", "calls of parse are recorded"), b.sptrace_says("ctl", "on")
        assert said("on", "recorded already")
        step(process)
        process.send_signal(signal.SIGUSR1)
        time.sleep(0.3)
        step(process)
        assert said("off", "not recorded any more")
        assert said("off", "not recorded now")
        step(process)
        process.send_signal(signal.SIGUSR2)
        time.sleep(0.3)
        step(process)
    assert said("on", "as often as it counts")
    step(process)
    process.communicate(timeout=60)
    assert process.returncode == 5
    assert counts(b) == {"parse": 4, "word": 8, "draw": 8, "line": 16}, counts(b)


@case
def threads_turn_one_rule(b):
    native = subprocess.run([stages(b), "threads"], capture_output=True)
    process = b.start(["--between", "parse", "call:prepare#500", "call:finish#700"], [stages(b), "threads"])
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, native.stdout), (process.returncode, out, err)
    # Of the other thread's call it is not known on which side of the turn it is, at both ends.
    assert 698 <= counts(b)["parse"] <= 702, counts(b)


@case
def the_program_goes_on_when_sptrace_is_killed(b):
    process = b.start(["--between", "parse", "start", "call:finish#3", "--between", "render", "call:finish#5", "exit"], [stages(b)])
    lines = [step(process) for _ in range(4)]
    # The program keeps the pipe, and is nobody's child then.
    process.kill()
    process.wait()
    lines += [step(process) for _ in range(6)]
    process.stdin.close()
    native = subprocess.run([stages(b)], input=b"x" * 10, capture_output=True).stdout
    assert b"".join(lines) + process.stdout.read() == native, lines


@case
def of_a_process_that_runs_already(b):
    program = subprocess.Popen([stages(b)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        lines = [step(program) for _ in range(3)]
        process = subprocess.Popen([b.sptrace, "attach", "-o", "t.data", "-p", str(program.pid), "--between", "parse", "call:finish", "call:finish#2", "--stop-on", "ctl:end"], cwd=b.folder, env=b.env, stderr=subprocess.PIPE)
        b.started.append(process)
        assert b"attached to" in process.stderr.readline()
        lines += [step(program) for _ in range(6)]
        b.sptrace_says("ctl", "end")
        assert process.wait(timeout=60) == 0, process.stderr.read()
        lines += [step(program) for _ in range(2)]
        program.stdin.close()
        native = subprocess.run([stages(b)], input=b"x" * 11, capture_output=True).stdout
        assert b"".join(lines) + program.stdout.read() == native and program.wait() == 5
    finally: program.kill()
    assert counts(b) == {"parse": 2, "word": 4}, counts(b)


@case
def what_never_happens_is_said(b):
    says = rounds(b, 2, "--between", "parse", "ctl:never", "call:nothing", "--between", "nobody", "start", "exit")
    for line in (
        "no function matches call:nothing of --between 'parse'", "no function matches --between 'nobody'",
        "no call of --between 'parse' was recorded: ctl:never did not happen", "events: 0 recorded, 0 lost",
    ): assert line in says, (line, says)


@case
def misuse(b):
    run = ("run", "-o", "t.data", "--between", "f")
    b.fails(2, "nothing comes after it", *run, "exit", "exit", "--", "ls")
    b.fails(2, "unknown event 'soon'", *run, "start", "soon", "--", "ls")
    b.fails(2, "more than 7", "run", *["--between", "f", "start", "exit"] * 8, "--", "ls")
    b.fails(2, "unknown event", "attach", "-p", "1", "--between", "f", "start", "start")
    status, _, says = b.sptrace_says("run", "--between", "f", "start")
    assert status == 2 and "GLOB" in says, says
    assert b.dumps() == []


if __name__ == "__main__":
    sys.exit(main(case, __doc__))
