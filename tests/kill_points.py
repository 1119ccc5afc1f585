#!/usr/bin/env python3
"""Lets sptrace kill itself before and after each thing it does to another process, one place after another.

usage: tests/kill_points.py [--first N] [--only GLOB]... [--list] [--crowd SECONDS] [--sptrace PATH] [--programs DIR]
       tests/kill_points.py --self-check

Given: the sources: an sptrace with the feature `kill-points` is built into a target directory of its own (or --sptrace names
one), and tests/programs. A run with SPTRACE_KILL_LIST gives the points that a small job passes (`run`: a shell that forks,
executes, fails to execute, and becomes a program with threads; `gate`: a shell whose calls lead over a gate; `attach`: the same of a shell and 40 running threads that are
attached to and let go); SPTRACE_KILL_AT names the one where sptrace ends by SIGKILL.
Gives: one line for each point that fails, one line a kind of point, then `N passed, N failed` alone on the last line; status 1 if
anything failed. Each job must end with the output and status that it has untraced, and leave no process behind.
  --first N    each point the first N times that it is passed (else every time)
  --self-check the harness must fail an sptrace that takes the program along, and one that is not killed
Must not know: what the points are, only that their names begin with `before` or `after` and end with a count.
"""
import argparse, collections, concurrent.futures, fnmatch, os, re, shutil, signal, subprocess, sys, tempfile, time

from harness.case import HERE, ROOT
from harness.compare import environment
from harness.process import alive_descendants, become_subreaper

TIMEOUT_S = 60
# What is run, and how: from its start; and attached to, threads of it running, and let go.
JOBS = {
    "run": ([], "echo first; /bin/sh -c 'echo inside; exit 3'; echo $?; ./broken; echo $?; exec {threads}"),
    "gate": (["--start-on", "call:malloc#99999999"], "echo first; /bin/sh -c 'exit 3'; echo $?; exec {threads}"),
    "attach": (["--start-on", "time:150ms", "--stop-on", "time:100ms"], "{attachee} crowd {crowd}; exit 3"),
}
# Who is not prepared before the threads end does not attach to them: this is passed by whoever does.
ATTACHED = "before ptrace(INTERRUPT)*"
# Points at which a thread of the program works for us are tried so often in the job `attach`: what the others do meanwhile varies.
LEADING, TIMES = "after ptrace(CONT)*", 6
# Each other point there the first so many times that it is passed: forty threads are treated alike.
FIRST = 4
OWN = re.compile(rb"^sptrace: .*\n", re.MULTILINE)


def build(programs):
    """An sptrace with kill points, built of what the tests were built of, and kept where no other build looks."""
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
    subprocess.run(["cargo", "build", "--quiet", "--locked", "--workspace", "--bin", "sptrace", "--features", "sptrace/kill-points"], cwd=ROOT, check=True)
    kept = os.path.join(target, "kill-points", "sptrace")
    os.makedirs(os.path.dirname(kept), exist_ok=True)
    shutil.copy2(os.path.join(target, "debug", "sptrace"), kept + ".new")
    os.replace(kept + ".new", kept)
    return kept


def program(programs, work, name, compiler):
    """The test program, built if need be."""
    path = os.path.join(os.path.abspath(programs) if programs else work, f"{name}.O2")
    if not os.path.exists(path):
        source = os.path.join(HERE, "programs", name, f"{name}.{'c' if compiler == 'gcc' else 'cpp'}")
        subprocess.run([compiler, "-O2", "-pthread", source, "-o", path], check=True)
    return path


class Job:
    """Runs the job in a folder of its own, in a process of its own that takes in what sptrace leaves behind."""

    def __init__(self, work, tracer, script):
        self.work, self.tracer = work, tracer
        self.argv = ["/bin/sh", "-c", script]
        with open(os.path.join(work, "broken"), "w") as f: f.write("echo a file that no kernel executes\nexit 4\n")
        os.chmod(os.path.join(work, "broken"), 0o755)

    def run(self, name, settings):
        """(what went wrong, stdout, stderr, status of the job, was its tracer killed)"""
        files = [os.path.join(self.work, f"{name}.{s}") for s in ("out", "err", "data", "how")]
        keeper = os.fork()
        if keeper == 0:
            try: self.keep(files, settings)
            finally: os._exit(99)
        os.waitpid(keeper, 0)
        with open(files[0], "rb") as o, open(files[1], "rb") as e, open(files[3]) as h:
            trouble, status, killed = h.read().split("|")
            out, err = o.read(), e.read()
        for f in files + [files[2] + ".old"]:
            if os.path.exists(f): os.unlink(f)
        return trouble, out, err, status, killed == "True"

    def keep(self, files, settings):
        become_subreaper()
        tracer = [w.replace("FILE", files[2]) for w in self.tracer] if settings is not None else []
        env = dict(environment(self.work), XDG_CACHE_HOME=os.path.join(self.work, "cache"), **(settings or {}))
        with open(files[0], "wb") as o, open(files[1], "wb") as e:
            process = subprocess.Popen(tracer + self.argv, cwd=self.work, stdin=subprocess.DEVNULL, stdout=o, stderr=e, env=env)
        ends, deadline = {}, time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            try: pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError: break
            if pid: ends[pid] = os.waitstatus_to_exitcode(status)
            else: time.sleep(0.002)
        left, own = alive_descendants(os.getpid()), ends.pop(process.pid, None)
        for p in left: os.kill(p, signal.SIGKILL)
        # A gate has a guard, which ends with it.
        if len(ends) > 1 and "call:" in " ".join(tracer): ends = {pid: status for pid, status in ends.items() if status}
        trouble = f"{len(left)} process(es) did not end" if left else "more than one process was left to us" if len(ends) > 1 else ""
        killed = own == -signal.SIGKILL
        status = next(iter(ends.values()), "never began") if killed else own
        with open(files[3], "w") as h: h.write(f"{trouble}|{status}|{killed}")


def judge(job, plain, number, point):
    """What went wrong at a point; None: it was not reached."""
    trouble, out, err, status, killed = job.run(f"p{number}", {"SPTRACE_KILL_AT": point})
    found = [trouble] if trouble else []
    if status != plain[3]: found.append(f"status {status}, not {plain[3]}")
    if out != plain[1]: found.append(f"stdout differs: {out[-200:]!r}")
    # It may have said already why the recording ends.
    if OWN.sub(b"", err) != plain[2]: found.append(f"stderr differs: {err[-200:]!r}")
    return found if found or killed else None


def points_of(job, first):
    """The points that a whole run passes, in their order."""
    path = os.path.join(job.work, "points")
    if os.path.exists(path): os.unlink(path)
    job.run("warm", {})  # analyses the programs
    trouble, _, err, status, _ = job.run("list", {"SPTRACE_KILL_LIST": path})
    if trouble or not os.path.exists(path): sys.exit(f"kill_points: no points: {trouble or 'is the feature built in?'} (status {status}, {err[:200]!r})")
    with open(path) as f: found = f.read().splitlines()
    return [p for p in found if int(p.rsplit(" ", 1)[1]) <= first]


def of_many_threads(points):
    """Fewer of what is done to each thread, more of what a thread does for us while the others may run."""
    leading = [p for p in points if fnmatch.fnmatch(p, LEADING)]
    return [p for p in points if p not in leading and int(p.rsplit(" ", 1)[1]) <= FIRST] + leading * TIMES


def try_all(job, points, verbose=True, missable=4):
    """Tries each point, two at a time; more than one in `missable` not reached is a failure. Gives (passed, failed)."""
    plain = job.run("plain", None)
    if plain[0] or plain[3] == "0": sys.exit(f"kill_points: the job does not work untraced: {plain}")
    kinds, failed, missed = collections.Counter(), 0, []
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = pool.map(lambda np: judge(job, plain, *np), enumerate(points))
        for point, found in zip(points, results):
            if found is None:
                missed.append(point)
                continue
            kind = "remote system calls" if "remote system call" in point else point.rsplit(" ", 1)[0]
            kinds[kind] += not found
            if found:
                failed += 1
                if verbose: print(f"FAIL {point}: {'; '.join(found)}", flush=True)
    if verbose:
        for kind, n in sorted(kinds.items()): print(f"{'ok  ' if n else 'FAIL'} {kind}: {n} times")
        if missed: print(f"{len(missed)} points were not reached again, the first: {missed[0]}")
    if len(missed) > len(points) // missable: failed += 1
    return sum(kinds.values()), failed


def self_check(work, script):
    """What kills itself alone passes; what takes the program along, or spoils its end, is caught."""
    head = 'at=$SPTRACE_KILL_AT; [ -z "$SPTRACE_KILL_LIST" ] || echo "before it 1" > "$SPTRACE_KILL_LIST"; '
    wrappers = [
        ("kills itself alone", head + '"$@" & [ -z "$at" ] || kill -KILL $$; wait $!', True),
        ("takes the program along", head + '"$@" & [ -z "$at" ] || { kill -KILL $!; kill -KILL $$; }; wait $!', False),
        ("kills itself before it starts the program", head + '[ -z "$at" ] || kill -KILL $$; "$@"', False),
        ("stops the program", head + '"$@" & [ -z "$at" ] || { kill -STOP $!; kill -KILL $$; }; wait $!', False),
        ("is not killed", head + '"$@"', False),
    ]
    bad = 0
    for what, wrapper, good in wrappers:
        job = Job(work, ["/bin/sh", "-c", wrapper, "sh"], script)
        passed, failed = try_all(job, points_of(job, 1), verbose=False)
        right = (passed > 0 and failed == 0) == good
        bad += not right
        print(f"{'ok  ' if right else 'FAIL'} a wrapper that {what}: {passed} passed, {failed} failed", flush=True)
    print(f"{len(wrappers) - bad} passed, {bad} failed")
    return 1 if bad else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, metavar="N", default=sys.maxsize, help="each point the first N times that it is passed")
    parser.add_argument("--only", action="append", metavar="GLOB", help="only points whose name matches (repeatable)")
    parser.add_argument("--list", action="store_true", help="print the names of the points and end")
    parser.add_argument("--self-check", action="store_true")
    parser.add_argument("--sptrace", metavar="PATH", help="an sptrace with the feature kill-points (else it is built)")
    parser.add_argument("--programs", metavar="DIR", help="built programs (else the one needed is built)")
    parser.add_argument("--crowd", metavar="SECONDS", type=float, default=1.2, help="how long the threads of the job attach run; options may make preparing slow")
    parser.add_argument("--option", action="append", default=[], metavar="ARG", help="an option for `sptrace run`, e.g. --option=--eval")
    args = parser.parse_args()
    work = tempfile.mkdtemp(prefix="sptrace-kill-points-", dir="/var/tmp")
    try:
        programs = {"threads": program(args.programs, work, "threads", "gcc"), "attachee": program(args.programs, work, "attachee", "g++"), "crowd": args.crowd}
        if args.self_check:
            global TIMEOUT_S
            TIMEOUT_S = 3
            return self_check(work, JOBS["run"][1].format(**programs))
        sptrace = os.path.abspath(args.sptrace) if args.sptrace else build(args.programs)
        passed, failed = 0, 0
        for name, (options, script) in JOBS.items():
            job = Job(work, [sptrace, "run", "-q", "-o", "FILE", *options, *args.option, "--"], script.format(**programs))
            points = points_of(job, args.first)
            if name == "attach":
                if not fnmatch.filter(points, ATTACHED): sys.exit("kill_points: attach: the threads had ended before they were attached to; give them more time by --crowd")
                points = of_many_threads(points)
            points = [p for p in points if not args.only or any(fnmatch.fnmatch(f"{name}: {p}", g) for g in args.only)]
            if args.list:
                print("\n".join(f"{name}: {p}" for p in points))
                continue
            if not points: continue
            print(f"{name}:", flush=True)
            # How often a thread of the job `attach` is led depends on where the others stand.
            results = try_all(job, points, missable=2 if name == "attach" else 4)
            passed, failed = passed + results[0], failed + results[1]
        if args.list: return 0
        print(f"{passed} passed, {failed} failed")
        return 1 if failed or not passed else 0
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
