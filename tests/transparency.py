#!/usr/bin/env python3
"""Runs programs with and without `sptrace run -q` and compares what they did.

usage: tests/transparency.py [--kill | --stop] [--quick] [--only GLOB]... [--list] [--repeat N] [--programs DIR]
       tests/transparency.py --self-check

Given: a built sptrace (--sptrace, $SPTRACE or target/release/sptrace), tests/programs, and the programs of the machine;
a case whose program is not installed is skipped by name. Inputs are made on the fly from fixed seeds.
Gives: one line a case, then `N passed, N failed` alone on the last line; status 1 if anything failed.
Compared: stdout, stderr, exit status (signals included), and the files a case names. Times are redacted by the
few patterns that a case brings itself, nothing else. Watched meanwhile, in /proc: no mapping writable and executable
at once (unless the program has one without sptrace too), no process with a TracerPid for half a second or longer, no
process left behind.
  --kill       SIGKILL to sptrace at a random moment (--seed): the program must still end with the same output and status
  --stop       SIGSTOP to sptrace for 5 seconds in mid-run: likewise
  --self-check the harness must pass a wrapper that only starts the program and must fail ones that change something
Must not know: how sptrace works, or any of its output but the name of the trace file.
"""
import argparse, fnmatch, os, random, shutil, subprocess, sys, tempfile

from harness.case import find_sptrace
from harness.commands import command_cases
from harness.compare import Case, Runner
from harness.fixtures import make_fixtures
from harness.process import become_subreaper
from harness.programs import program_cases

from harness import runtimes

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)


# What a call through a pointer leaves to nobody by the ABI (r11 and the flags), these programs look at all the same.
MORE_THAN_THE_ABI = ("programs/callforms.*", "programs/state.*")


NOT_BESIDE_RETURN_POINTS = ("-A", "-R", "--eval", "--script", "--count", "--hot-limit", "--short-limit", "--budget", "--stamps")


def does_not_go_with(options, case):
    """Why a case cannot be run with the options given for all; nothing if it can."""
    if any(o.startswith("--syscalls") for o in options) and any(o.startswith("--syscalls") for o in case.options): return "has that option of its own"
    if "--return-points" in case.options and options: return "is run without other options"
    if "--return-points" in options and any(word in NOT_BESIDE_RETURN_POINTS for word in case.options): return "has options that return points do not go together with"
    if "--count" not in options and "--hot-limit" not in options: return ""
    return "looks at what calls that are counted leave to nobody" if any(fnmatch.fnmatch(case.name, g) for g in MORE_THAN_THE_ABI) else ""


def self_check(runner, cases):
    """A wrapper that changes nothing passes; each that changes one thing is caught."""
    by_name = {c.name: c for c in cases}
    wrappers = [
        ("starts the program only", '"$@"; exit $?', "run", "bash", True),
        ("changes the exit status", '"$@"; exit 0', "run", "bash", False),
        ("adds a line to stdout", 'echo more; "$@"; exit $?', "run", "bash", False),
        ("adds a line to stderr", 'echo more >&2; "$@"; exit $?', "run", "bash", False),
        ("spoils the output file", '"$@"; r=$?; echo >> out.o; exit $r', "run", "gcc", False),
        ("leaves a process behind", 'sleep 20 & "$@"; exit $?', "run", "bash", False),
        ("turns a signal into a status", '"$@"; exit $?', "run", "killed", False),
        ("may be killed", '"$@"; exit $?', "kill", "bash", True),
        ("takes the program along when killed", 'setpriv --pdeathsig KILL "$@"; exit $?', "kill", "bash", False),
        ("may be stopped", '"$@"; exit $?', "stop", "bash", True),
    ]
    bad = 0
    for what, script, mode, name, good in wrappers:
        runner.tracer = ["/bin/sh", "-c", script, "sh"]
        found, _ = runner.judge(by_name[name], mode, 1)
        right = (not found) == good
        bad += not right
        print(f"{'ok  ' if right else 'FAIL'} a wrapper that {what}: {found[0] if found else 'no difference'}", flush=True)
    print(f"{len(wrappers) - bad} passed, {bad} failed")
    return 1 if bad else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--kill", dest="mode", action="store_const", const="kill", default="run")
    mode.add_argument("--stop", dest="mode", action="store_const", const="stop")
    mode.add_argument("--self-check", dest="mode", action="store_const", const="self-check")
    parser.add_argument("--quick", action="store_true", help="the subset for CI, threaded ones 3 times")
    parser.add_argument("--only", action="append", metavar="GLOB", help="only cases whose name matches (repeatable)")
    parser.add_argument("--list", action="store_true", help="print the names of the cases and end")
    parser.add_argument("--repeat", type=int, metavar="N", help="traced runs of a threaded case (20; with --quick 3; with --kill, --stop and --only of all cases)")
    parser.add_argument("--seed", type=int, default=1, help="for the moments of --kill and --stop")
    parser.add_argument("--sptrace", metavar="PATH")
    parser.add_argument("--tracer", metavar="WORDS", help="another wrapper in place of `sptrace run -q -o FILE --`")
    parser.add_argument("--option", action="append", default=[], metavar="ARG", help="an option for `sptrace run`, e.g. --option=--loader")
    parser.add_argument("--programs", metavar="DIR", help="built programs (else they are built)")
    args = parser.parse_args()

    # /var/tmp: not the memory-backed /tmp of many machines; no path component may look like a time
    work = tempfile.mkdtemp(prefix="sptrace-transparency-", dir="/var/tmp")
    try:
        return run_all(args, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def run_all(args, work):
    programs = args.programs
    if programs is None and args.mode != "self-check":
        programs = os.path.join(work, "programs")
        subprocess.run([os.path.join(HERE, "programs", "build.sh"), programs], check=True)
    programs = os.path.abspath(programs) if programs else None
    become_subreaper()
    fixture = (lambda n: n) if args.list else make_fixtures(os.path.join(work, "fixtures"))
    cases = program_cases(programs) + command_cases(fixture)
    if not args.quick and args.mode != "self-check":
        built = runtimes.build(os.path.join(work, "runtimes"))
        cases += [Case("runtimes/" + name, argv, threaded=True, timeout_s=600, wx=name == "wine") for name, argv in built]
    if args.mode == "self-check": return self_check(Runner(work, [], random.Random(args.seed), False), cases)
    if args.quick: cases = [c for c in cases if c.quick]
    if args.only: cases = [c for c in cases if any(fnmatch.fnmatch(c.name, g) for g in args.only)]
    if args.list:
        for case in cases: print(case.name, "(threaded)" if case.threaded else "")
        return 0
    trace = os.path.join(work, "trace.data")
    tracer = args.tracer.split() if args.tracer else [find_sptrace(args.sptrace), "run", "-q", "-o", trace, *args.option, "--"]
    runner = Runner(work, tracer, random.Random(args.seed), args.tracer is None)
    passed, failed, skipped = 0, [], 0
    for case in cases:
        if not os.path.exists(case.argv[0]):
            skipped += 1
            print(f"skip {case.name}: {case.argv[0]} is not installed", flush=True)
            continue
        refused = does_not_go_with(args.option, case)
        if refused:
            skipped += 1
            print(f"skip {case.name}: {refused}", flush=True)
            continue
        times = args.repeat if args.repeat and (case.threaded or args.only or args.mode != "run") else (3 if args.quick else 20) if case.threaded and args.mode == "run" else 1
        found, text = runner.judge(case, args.mode, times)
        if found: failed.append(case.name)
        else: passed += 1
        print(f"{'FAIL' if found else 'ok  '} {case.name}: {'; '.join(found) if found else text}", flush=True)
    if skipped: print(f"{skipped} skipped")
    if not passed and not failed: print("no case was run", file=sys.stderr)
    print(f"{passed} passed, {len(failed)} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
