#!/usr/bin/env python3
"""Do payloads of scripts begin, end and dump a recording, and change levels, at just the call that their conditions name?

usage: tests/controls.py [--sptrace PATH] [--only GLOB]...

A program of which each call is known; what it prints must be what it prints alone. Needs gcc, and sqlite3 for one case.
"""
import csv, io, json, os, re, shutil, subprocess, sys, time

from harness.bench import main
from harness.case import Cases, Skip

PROGRAM = r"""
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#define F __attribute__((noinline, noclone))
__thread volatile long sink;
F void leaf(long n) { sink += n; }
F void leaf_of_2(long n) { sink += n; }
F void leaf_of_3(long n) { sink += n; }
F long step(long n) { leaf(n); sink++; return n == 700 ? -1 : n; }
F void work(long from, long to) { for (long i = from; i < to; i++) step(i); sink++; }
F int nap(int ms) { usleep(ms * 1000); sink++; return 0; }
F int fails(int n) { int given = close(-1 - n); sink++; return given; }
F void mark(long n) { sink += n; }
F void after(void) { sink++; }
static void *second(void *x) { for (long i = 0; i < 4000; i++) { leaf_of_2(i); sink++; } after(); return x; }
static void *third(void *x) { for (long i = 0; i < 4000; i++) { leaf_of_3(i); mark(i); } return x; }
int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "plain";
    if (!strcmp(what, "plain")) { work(0, 1000); after(); }
    if (!strcmp(what, "slow")) { nap(0); mark(1); nap(400); after(); }
    if (!strcmp(what, "errno")) { mark(1); fails(1); after(); }
    if (!strcmp(what, "pauses")) for (int i = 0; i < 4; i++) { mark(i); usleep(300000); }
    if (!strcmp(what, "threads")) {
        pthread_t t[2];
        pthread_create(&t[0], 0, second, 0);
        pthread_create(&t[1], 0, third, 0);
        for (int i = 0; i < 2; i++) pthread_join(t[i], 0);
    }
    if (!strcmp(what, "fork")) {
        int status;
        if (!fork()) { work(0, 1000); _exit(0); }
        wait(&status);
        work(0, 1000);
    }
    if (!strcmp(what, "levels of a child")) {
        /* The parent alone asks; the child is made while the function is off, and works when it is not. */
        int status, ready[2];
        char word = 0;
        if (pipe(ready)) return 1;
        mark(0); work(0, 20000);
        for (int i = 0; i < 2; i++) { mark(1); usleep(300000); }
        pid_t child = fork();
        if (!child) { if (read(ready[0], &word, 1) == 1) { mark(3); usleep(300000); mark(3); work(0, 20000); } _exit(0); }
        work(0, 20000);
        for (int i = 0; i < 2; i++) { mark(2); usleep(300000); }
        if (write(ready[1], "x", 1) != 1) return 1;
        waitpid(child, &status, 0);
    }
    if (!strcmp(what, "levels") || !strcmp(what, "levels of two")) {
        int status;
        if (what[6] && !fork()) argv[0] = 0;
        for (int phase = 0; phase < 3; phase++) {
            mark(phase);
            usleep(300000);
            /* Another visit of the slow path, where what was asked for is carried out. */
            mark(phase);
            work(0, 20000);
        }
        if (!argv[0]) _exit(0);
        if (what[6]) wait(&status);
    }
    if (!strcmp(what, "long")) for (int i = 0; i < 300; i++) { work(0, 20000); usleep(5000); }
    printf("%ld\n", sink);
    return 0;
}
"""

case = Cases()


def same(got, want): assert got == want, f"wanted {want}, got {got}"


def built(b):
    with open(b.path("known.c"), "w") as out: out.write(PROGRAM)
    subprocess.run(["gcc", "-O1", "-g", "-pthread", "-o", b.path("known"), b.path("known.c")], check=True)
    return b.path("known")


def recorded(b, script, what="plain", *options):
    """What sptrace has said, after the program has run as without it."""
    known = built(b)
    plain = subprocess.run([known, what], capture_output=True, text=True)
    status, out, err = b.run([*options, "--eval", script], [known, what])
    same((status, out), (plain.returncode, plain.stdout))
    return err


def calls(b, name="t.data"):
    """(calls, of these counted alone) by function; one that is open at the end is a call."""
    status, out, err = b.sptrace_says("report", "functions", "-i", name, "--format", "csv")
    same((status, err), (0, ""))
    rows = {}
    for row in csv.DictReader(io.StringIO(out, newline="")):
        at = rows.setdefault(row["function"], [0, 0])
        at[0] += int(row["calls"])
        at[1] += int(row["calls"]) - int(row["timed_calls"])
    return {name: tuple(counts) for name, counts in rows.items()}


def asked(err):
    """(how often, how often done) of each place of a script, in its order."""
    return [(int(times), int(done)) for times, done in re.findall(r"of --eval: (\d+) times, done (\d+)", err)]


@case
def stop_at_an_argument(b):
    """The call is in the trace, and nothing behind it; of what came before, each call."""
    err = recorded(b, 'at("step").on_enter(|c| { if c.arg1 == 500 { c.stop() } });')
    got = calls(b)
    same((got["leaf"], got["step"][0]), ((500, 0), 1))
    assert "after" not in got and "printf@plt" not in got, got
    same(asked(err), [(1, 1)])
    assert "recording ended early: c.stop() in line 1 of --eval" in err, err
    status, out, _ = b.sptrace_says("report", "coverage", "-i", "t.data")
    assert status == 0 and "c.stop() in line 1 of --eval" in out, out
    assert "1 times   c.stop() in line 1 of --eval" in b.report(), b.report()


@case
def stop_at_a_result(b):
    """The call has its end where it is recorded, and there is no other trace of it where it is not."""
    at_result = 'at("step").on_exit(|c| { if c.result == -1 { c.stop() } });'
    same(asked(recorded(b, at_result)), [(1, 1)])
    got = calls(b)
    same(got["leaf"], (701, 0))
    assert "step" not in got and "after" not in got, got
    recorded(b, 'at("step").on_enter(|c| c.record()); ' + at_result)
    got = calls(b)
    same((got["leaf"], got["step"]), ((701, 0), (701, 0)))


@case
def stop_at_times_and_errors(b):
    """Under a condition on how long a call took, on errno, on how often it was made, and on a variable of the thread."""
    recorded(b, 'at("nap").on_exit(|c| { if c.elapsed > 200.ms { c.stop() } });', "slow")
    got = calls(b)
    assert "mark" in got and "after" not in got, got
    # EINTR it is not, but EBADF.
    for errno, wanted in ((4, True), (9, False)):
        recorded(b, 'at("close").on_exit(|c| { if c.result == -1 && c.errno == %d { c.stop() } });' % errno, "errno")
        got = calls(b)
        same(("mark" in got, "after" in got), (True, wanted))
    same(asked(recorded(b, 'at("step").on_enter(|c| { if c.nth == 301 { c.stop() } });')), [(1, 1)])
    same(calls(b)["leaf"], (300, 0))
    recorded(b, 'let n = thread_var("n"); at("leaf").on_enter(|c| { n.add(1); c.record() }); at("step").on_exit(|c| { if n.get() == 40 { c.stop() } });')
    same(calls(b)["leaf"], (40, 0))


@case
def asked_again_and_again(b):
    """What is asked at each call ends the recording at the first; what a slot could run is run with a frame."""
    [(times, done)] = asked(recorded(b, 'let n = count("n", ["odd"]); at("step").on_enter(|c| { n.add(c.arg1 & 1); c.stop() });'))
    assert done == 1 <= times <= 1000, (times, done)
    got = calls(b)
    same(got["step"][0], 1)
    assert "leaf" not in got, got


@case
def dump_at_a_condition(b):
    """It holds the call, and is written though the program goes on."""
    err = recorded(b, 'ring(2.mb); at("step").on_enter(|c| { if c.arg1 == 500 { c.dump() } });')
    same(asked(err), [(1, 1)])
    assert "dump 1 written to t.data at c.dump() in line 1 of --eval" in err, err
    got = calls(b)
    same(got["step"][0], 1)
    assert got["leaf"][0] >= 500, got
    err = recorded(b, 'ring(2.mb); times(2); at("mark").on_exit(|c| { c.dump() });', "pauses")
    same(asked(err), [(4, 2)])
    same(b.dumps(), ["t.data", "t.data.2", "t.data.old"])


@case
def start_at_a_condition(b):
    """With the call, and nothing before; the calls that it is made in are open since earlier."""
    err = recorded(b, 'at("step").on_enter(|c| { if c.arg1 == 500 { c.start() } });')
    same(asked(err), [(1, 1)])
    got = calls(b)
    same((got["leaf"], got["step"], got["work"], got["after"]), ((500, 0), (1, 0), (0, 0), (1, 0)))
    err = recorded(b, 'at("mark").on_enter(|c| { if c.arg1 == 1 { c.start() } if c.arg1 == 3 { c.stop() } c.record() });', "pauses")
    same(asked(err), [(1, 1), (1, 1)])
    same(calls(b)["mark"][0], 3)
    # What never comes begins nothing, and what would end it does not either.
    err = recorded(b, 'at("step").on_enter(|c| { if c.arg1 == 5000 { c.start() } if c.arg1 == 5 { c.stop() } });')
    same(asked(err), [(1, 0)])
    assert "c.start() in line 1 of --eval: never" in err, err
    same(calls(b), {})


@case
def threads(b):
    """Of the thread that asks nothing later is in the trace."""
    same(asked(recorded(b, 'at("mark").on_enter(|c| { if c.arg1 == 500 { c.stop() } });', "threads")), [(1, 1)])
    got = calls(b)
    same((got["leaf_of_3"], got["mark"][0]), ((501, 0), 1))
    assert got.get("leaf_of_2", (0, 0))[0] <= 4000, got
    same(asked(recorded(b, 'at("mark").on_enter(|c| { if c.arg1 == 500 { c.start() } });', "threads")), [(1, 1)])
    got = calls(b)
    same((got["leaf_of_3"], got["mark"][0]), ((3499, 0), 1))


@case
def fork(b):
    """A child asks, and its parent asks when it is over."""
    [(times, done)] = asked(recorded(b, 'at("step").on_enter(|c| { if c.arg1 == 500 { c.stop() } });', "fork"))
    # Where the parent is told of the end before it comes there, it asks no more.
    assert done == 1 <= times <= 2, (times, done)
    got = calls(b)
    same((got["leaf"], got["step"][0]), ((500, 0), 1))
    same(asked(recorded(b, 'at("step").on_enter(|c| { if c.arg1 == 500 { c.start() } });', "fork")), [(2, 1)])
    # The parent's calls, all of them, and the child's from the 500th on.
    got = calls(b)
    same((got["leaf"][0], got["step"][0]), (1500, 2))


LEVELS = 'at("mark").on_enter(|c| { if c.arg1 == 1 { c.level("leaf", "count") } if c.arg1 == 2 { c.level("leaf", "record") } });'


@case
def levels(b):
    """Lowered and raised: what is between is counted, to the call; others stay as they are."""
    err = recorded(b, LEVELS, "levels")
    same(asked(err), [(2, 1), (2, 1)])
    got = calls(b)
    same((got["leaf"], got["step"]), ((60_000, 20_000), (60_000, 0)))
    status, out, _ = b.sptrace_says("report", "levels", "-i", "t.data")
    assert status == 0 and "leaf" in out and "step" not in out, out
    # In two processes at once: which of them is lowered when depends on the other.
    recorded(b, LEVELS, "levels of two")
    same((calls(b)["leaf"][0], calls(b)["step"]), (120_000, (120_000, 0)))
    # A function with a payload needs each call.
    script = 'let n = count("n", []); at("leaf").on_enter(|c| { n.add([], 1); c.record() }); '
    recorded(b, script + LEVELS.replace('"leaf"', '"*eaf"'), "levels")
    same(calls(b)["leaf"], (60_000, 0))


@case
def off(b):
    """What is off is neither recorded nor counted, and may become either; its callers stay as they are."""
    script = 'at("mark").on_enter(|c| { if c.arg1 == 1 { c.level("leaf", "%s") } if c.arg1 == 2 { c.level("leaf", "%s") } });'
    for one, two, leaf in (("off", "record", (40_000, 0)), ("count", "off", (40_000, 20_000)), ("off", "count", (40_000, 20_000))):
        recorded(b, script % (one, two), "levels")
        got = calls(b)
        same((one, two, got["leaf"], got["step"]), (one, two, leaf, (60_000, 0)))
        status, out, _ = b.sptrace_says("report", "levels", "-i", "t.data")
        assert status == 0 and re.search(r" off .* leaf ", out), out
    # A child that is forked while a function is off has it so, and gets it back with its parent.
    recorded(b, script % ("off", "record"), "levels of a child")
    got = calls(b)
    same((got["step"], got["leaf"]), ((60_000, 0), (40_000, 0)))


@case
def levels_from_the_beginning(b):
    """All but some are counted; a payload may still change that."""
    err = recorded(b, 'level("*", "count"); level("step", "record"); level("leaf", "off");', "levels")
    got = calls(b)
    same((got["step"], got["mark"][0]), ((60_000, 0), 6))
    # The first of three times is over before a thread hears of it.
    assert got["leaf"][0] <= 40_000 and got["work"][0] == 3, (got["leaf"], got["work"], err)
    recorded(b, 'level("leaf", "count"); at("mark").on_enter(|c| { if c.arg1 == 2 { c.level("leaf", "record") } });', "levels")
    total, counted = calls(b)["leaf"]
    assert total == 60_000 and 0 < counted < 60_000, (total, counted)


def shown(b, function):
    """(calls with values, calls without) of a function."""
    status, out, err = b.sptrace_says("report", "export", "jsonl", "-i", "t.data")
    same((status, err), (0, ""))
    rows = [row for row in map(json.loads, out.splitlines()) if row.get("function") == function]
    return len([row for row in rows if row["call"]]), len([row for row in rows if not row["call"]])


@case
def values(b):
    """Values come and go by a level, to the call: of integers and results, of memory, beside a payload; no call is lost by it."""
    switched = 'at("mark").on_enter(|c| { if c.arg1 == 1 { c.level("leaf", "record") } if c.arg1 == 2 { c.level("le*f", "values") } });'
    counted = 'let n = count("n", []); at("leaf").on_enter(|c| { n.add([], 1); c.record() });'
    for beside in ('values("leaf");', 'values("leaf@arg1/s");', 'values("leaf@arg1>=0");', 'values("leaf");' + counted, 'values("leaf@arg1/s");' + counted):
        err = recorded(b, beside + switched, "levels")
        same((beside, asked(err), shown(b, "leaf"), shown(b, "step")), (beside, [(2, 1), (2, 1)], (40_000, 20_000), (0, 60_000)))
        status, out, _ = b.sptrace_says("report", "levels", "-i", "t.data")
        assert status == 0 and len(re.findall(r" record .* leaf ", out)) == 1 and "step" not in out, out
        if counted in beside:
            status, out, _ = b.sptrace_says("report", "script", "-i", "t.data", "--eval", beside + switched)
            assert status == 0 and re.search(r"60,?000", out), out
    # Results: of a call that begins with its values.
    recorded(b, 'values("step"); results("step");' + switched.replace("leaf", "step").replace("le*f", "st*p"), "levels")
    same((shown(b, "step"), shown(b, "leaf")), ((40_000, 20_000), (0, 60_000)))
    # A child that is forked meanwhile, and gets them back with its parent.
    recorded(b, 'values("leaf");' + switched, "levels of a child")
    same((shown(b, "leaf"), shown(b, "step")), ((40_000, 20_000), (0, 60_000)))
    # Without them from the first call on.
    recorded(b, 'values("leaf"); level("l*", "record");' + switched, "levels")
    same(shown(b, "leaf"), (20_000, 40_000))
    status, out, _ = b.sptrace_says("report", "levels", "-i", "t.data")
    assert status == 0 and len(re.findall(r" record .* leaf ", out)) == 1, out
    # A function that has none is recorded at both levels.
    recorded(b, switched, "levels")
    same(calls(b)["leaf"], (60_000, 0))


@case
def system_calls(b):
    """A payload of system calls asks as well, before the call and after it."""
    script = 'record_syscalls("write"); syscalls("write").on_%s(|c| { if c.%s { c.stop() } });'
    for when, condition in (("enter", "arg1 == 1"), ("exit", "result > 0")):
        err = recorded(b, script % (when, condition), "plain", "-l", "known")
        same(asked(err), [(1, 1)])
        got = calls(b)
        same((got["leaf"], got["write"][0]), ((1000, 0), 1))


@case
def windows(b):
    """An event begins a recording, a payload ends it, and again."""
    known = built(b)
    script = 'start(ctl("go")); times(2); at("step").on_enter(|c| { if c.arg1 == 500 { c.stop() } });'
    process = b.start(["--eval", script], [known, "long"])
    for _ in range(2):
        time.sleep(0.7)
        status, out, err = b.sptrace_says("ctl", "go")
        assert status == 0, (out, err)
    out, err = (text.decode() for text in process.communicate(timeout=60))
    same((process.returncode, out), (0, subprocess.run([known, "long"], capture_output=True, text=True).stdout))
    assert "recording 2 of 2 begins" in err and asked(err)[0][1] == 2, err
    # It is attached to in the middle of the calls, and at the next 500th it ends.
    assert calls(b)["leaf"][0] <= 2 * 20_500, calls(b)


@case
def sptrace_is_killed(b):
    """While payloads ask at each call: the program runs on, and prints what it prints."""
    known = built(b)
    wanted = subprocess.run([known, "long"], capture_output=True, text=True).stdout
    scripts = [
        'ring(2.mb); times(1000); at("step").on_enter(|c| { c.dump() });',
        'at("step").on_exit(|c| { if (c.result & 1) == 0 { c.level("leaf", "count") } else { c.level("leaf", "record") } });',
        'at("step").on_exit(|c| { if (c.result & 1) == 0 { c.level("leaf", "off") } else { c.level("leaf", "record") } });',
        'at("step").on_enter(|c| { if c.arg1 < 0 { c.start() } if c.arg1 >= 0 { c.stop() } });',
    ]
    for number, script in enumerate(scripts):
        out = b.path(f"out{number}")
        process = b.start(["--eval", script], ["sh", "-c", f"exec {known} long > {out}"])
        time.sleep(1)
        assert process.poll() is None
        process.kill()
        process.communicate()
        for _ in range(600):
            if os.path.getsize(out): break
            time.sleep(0.1)
        with open(out) as text: same(text.read(), wanted)


@case
def sqlite(b):
    """One line on a program that is not ours."""
    if not shutil.which("sqlite3"): raise Skip("no sqlite3")
    statements = "create table t(a); insert into t values (1), (2); select sum(a) from t;"
    script = 'at("sqlite3_prepare_v2").on_enter(|c| { if c.nth == 2 { c.stop() } });'
    command = ["sqlite3", ":memory:", statements]
    plain = subprocess.run(command, capture_output=True, text=True)
    status, out, err = b.run(["--eval", script], command)
    same((status, out), (plain.returncode, plain.stdout))
    same(asked(err), [(3, 1)] if asked(err)[0][0] > 1 else [(1, 1)])
    same(calls(b)["sqlite3_prepare_v2"][0], 1)


@case
def wrong_uses(b):
    """Each is refused before anything is started, at its place."""
    known = built(b)
    at_step = 'at("step").on_enter(|c| { %s });'
    wrong = [
        (at_step % "c.dump()", "there is no ring", []),
        (at_step % 'c.level("leaf", "loud")', "there is no such level", []),
        ('level("leaf", "loud")', "there is no such level", []),
        ('level("leaf", "count"); hot_limit(5)', "a limit says already", []),
        (at_step % "c.level(3, \"count\")", "the name of functions is wanted", []),
        (at_step % 'c.level("leaf")', "something else is wanted here", []),
        (at_step % 'c.stop("exit")', "stop(EVENT) stands at the script's top level", []),
        (at_step % "if c.stop() { c.record() }", "not compiled", []),
        ("times(2); stop(exit()); " + at_step % "c.start()", "they begin it once", []),
        (at_step % 'c.level("leaf", "count")', "a limit says already", ["--hot-limit", "1M"]),
        (at_step % 'c.level("leaf", "count"); c.start()', "followed by its recorded calls", []),
        (at_step % ("c.stop(); " * 33), "more than 32 places", []),
        ("start()", "this is asked by payloads", []),
    ]
    for script, says, options in wrong:
        status, out, err = b.run([*options, "--eval", script], [known])
        assert (status, out) == (2, "") and says in err and "^" in err, (script, status, out, err)
        assert not b.has("t.data"), script
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        status, out, err = b.sptrace_says("attach", "--eval", at_step % "c.start()", "-p", str(sleeper.pid))
        assert status == 2 and "a running program is recorded at once" in err, (status, err)
    finally:
        sleeper.kill()
        sleeper.wait()


@case
def explained(b):
    """`script explain` says what is asked, and what comes of it."""
    with open(b.path("first.rhai"), "w") as out:
        out.write('ring(4.mb);\nat("step").on_exit(|c| { if c.result == -1 { c.dump(); c.level("l*", "count") } });\n')
    status, out, err = b.sptrace_says("script", "explain", "./first.rhai")
    same((status, err), (0, ""))
    for line in ("c.dump() in line 2: the ring is written out", 'c.level("l*", "count") in line 2: calls of these functions are counted', "some 700 ns more, and the host is woken"):
        assert line in out, (line, out)


if __name__ == "__main__":
    sys.exit(main(case, __doc__))
