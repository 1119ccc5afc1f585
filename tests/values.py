#!/usr/bin/env python3
"""Does sptrace show of each call what the program says of itself?

usage: tests/values.py [--sptrace PATH] [--programs FOLDER] [--only GLOB] [--wild CALLS] [--how full|auto|points]

Programs whose functions print themselves (tests/programs/values) are recorded with their values: by debug information, by a
file of prototypes without any, and as options say; what a report shows is compared with what they print. Also functions of the
C library as the table of known ones has them, conditions, wild pointers, and memory that another thread unmaps. All of it beside
either of --stamps, and where calls keep their return addresses (points), if none is chosen.
Exit status: 1 if anything differs.
"""
import argparse, collections, fnmatch, json, os, re, subprocess, sys, tempfile, time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CASES = []


def case(function):
    CASES.append(function)
    return function


class Run:
    def __init__(self, args, how, folder):
        self.sptrace, self.programs, self.folder, self.wild = args.sptrace, args.programs, folder, args.wild
        self.how = ["--return-points"] if how == "points" else ["--stamps", how]

    def record(self, options, command):
        """(what the program printed, rows of the trace)"""
        trace = os.path.join(self.folder, "trace")
        done = subprocess.run([self.sptrace, "run", "-q", *self.how, "-o", trace, *options, "--", *command], stdout=subprocess.PIPE, text=True)
        if done.returncode != 0: raise AssertionError(f"{command[0]} ended with {done.returncode}")
        shown = subprocess.run([self.sptrace, "report", "export", "jsonl", "-i", trace], stdout=subprocess.PIPE, text=True, check=True)
        rows = [json.loads(line) for line in shown.stdout.splitlines()]
        return done.stdout, [row for row in rows if row.get("call")]

    def program(self, name):
        return os.path.join(self.programs, name)


def line(row):
    """As the tree shows it."""
    return row["call"] + ("" if row["result"] is None else " = " + row["result"])


def same(printed, shown):
    """Every line once."""
    said, seen = collections.Counter(printed), collections.Counter(shown)
    missing, more = said - seen, seen - said
    if missing or more:
        raise AssertionError(f"not shown: {sorted(missing)[:5]}; shown instead: {sorted(more)[:5]}")


def own(rows, prefix="f_"):
    return [line(row) for row in rows if row["call"].startswith(prefix)]


@case
def by_debug_information(run):
    """What DWARF says of C's types, in calls of every form."""
    for level in ("O0", "O2"):
        printed, rows = run.record(["-A", "f_*"], [run.program(f"values.{level}")])
        said = printed.splitlines()
        unseen = sum(row["end"] == "not seen" for row in rows if row["call"].startswith("f_"))
        assert unseen == 0, unseen
        same(said, own(rows))


@case
def by_a_file_of_prototypes(run):
    """The same of a program without debug information."""
    conf = os.path.join(ROOT, "tests", "programs", "values", "values.conf")
    printed, rows = run.record(["-A", "f_*", "--prototypes", conf], [run.program("values.bare")])
    same(printed.splitlines(), own(rows))


@case
def of_cpp(run):
    """Methods, strings, references and large results of C++."""
    for level in ("O0", "O2"):
        printed, rows = run.record(["-A", "*f_*", "-l", f"values.classes.{level}"], [run.program(f"values.classes.{level}")])
        # The object itself is no part of what a program prints; where a large result goes is not either.
        shown = [re.sub(r"^(Shape::\w+(?:\[abi:\w+\])?)\([^,]*, ", r"\1(", line(row)) for row in rows if "f_" in row["call"].split("(")[0]]
        shown = [re.sub(r"^(f_large\(\d+\)) = .*", r"\1", text).replace("[abi:cxx11]", "") for text in shown]
        same(printed.splitlines(), shown)


@case
def of_rust(run):
    """&str and String."""
    program = run.program("values.strings")
    if not os.path.exists(program): return print("  no rustc: left out")
    printed, rows = run.record(["-A", "*f_*", "-l", "values.strings"], [program])
    shown = [re.sub(r"^\w+::(f_\w+)(::h\w+)?\(", r"\1(", line(row)) for row in rows]
    same(printed.splitlines(), [text for text in shown if text.startswith("f_")])


@case
def as_options_say(run):
    """Formats, places, results alone, conditions."""
    program = [run.program("values.bare")]
    def shown(*options): return own(run.record(options, program)[1])
    assert shown("-A", "f_last@arg1/i32,retval/x32") == ["f_last(21) = 0x2a", "f_last(5) = 0xa"], shown("-A", "f_last@arg1/i32,retval/x32")
    assert shown("-R", "f_string@retval/s") == ['f_string() = "ext"'], shown("-R", "f_string@retval/s")
    assert shown("-A", "f_double@fparg1,fparg2/f32,arg1/d32") == ["f_double(2, 1.5, 2.5)"], shown("-A", "f_double@fparg1,fparg2/f32,arg1/d32")
    assert shown("-A", "f_many@arg7/i32%stack1,arg8/i64%stack2") == ["f_many(7, 1099511627776)"]
    assert shown("-A", "f_string@arg1/s", "-s", "2") == ['f_string("te"...)']
    assert shown("-A", "f_recursive@arg1/i32,arg1>=2,retval/i32") == ["f_recursive(2) = 3", "f_recursive(3) = 6"]
    assert shown("-A", "f_struct@arg1/{struct(x: int, y: double)*}") == ["f_struct({x=3, y=2.5})"]


@case
def of_the_c_library(run):
    """Known functions: paths, flags, errors, formats, counted buffers."""
    printed, rows = run.record(["-A", "*"], [run.program("values.library")])
    shown = {re.sub(r"^snprintf\(0x[0-9a-f]+", "snprintf(TEXT", line(row)) for row in rows}
    missing = [text for text in printed.splitlines() if text not in shown]
    if missing: raise AssertionError(f"not shown: {missing}")


@case
def by_the_common_routines(run):
    """Numbers, which need no slow path from the second call on, in calls of every form; with a signal at any instruction."""
    program, calls = run.program("values.signalled"), 20000
    for kind in ("plain", "walk", "call", "jump"):
        printed, rows = run.record(["-A", "f_two@arg1/i32,arg2/i32,retval/i32;f_far@arg1/i64,fparg1/f64,retval/f64",
                                    "-A", "f_many@arg1/i64,arg7/i64%stack1,arg8/i64%stack2,retval/i64;f_inner@arg1/i32,arg2/i32,retval/i32"], [program, kind, str(calls)])
        assert printed.endswith("right\n"), printed
        within = int(printed.split(" calls, ")[1].split()[0])
        seen, without = collections.Counter(), 0
        for row in rows:
            name, arguments = row["call"].rstrip(")").split("(")
            number = [float(text) for text in arguments.split(", ")]
            want = {"f_two": lambda a, b: a + b, "f_far": lambda a, b: a + b, "f_many": lambda a, g, h: 21, "f_inner": lambda a, b: a - b}[name](*number)
            # What a handler has jumped out of has no result; at whose return it has looked at the stack, none that is told; and
            # hardly ever one whose frame could not be pushed, since a handler had left its own: it is counted as lost.
            if row["result"] is None:
                without += 1
                if kind != "jump": seen[name] += 1
                continue
            assert row["result"] is not None, (kind, line(row))
            assert float(row["result"]) == want, (kind, line(row))
            seen[name] += 1
        want = {"f_two": 2 * calls, "f_far": calls, "f_many": calls, "f_inner": within}
        for name, count in want.items():
            # A round is cut short by a jump.
            assert without <= {"plain": 0.0005, "call": 0.001, "walk": 0.02, "jump": 0.2}[kind] * sum(seen.values()), (kind, without)
            assert seen[name] == count or kind == "walk" and 0.97 * count < seen[name] <= count or kind == "jump" and 0.5 * count < seen[name] <= count, (kind, name, seen[name], count)


@case
def conditions(run):
    """Of numbers and of strings, by the common routines and by the slow path: who holds is shown, and nobody else."""
    program = [run.program("values.signalled"), "none", "3000"]
    def shown(spec): return own(run.record(["-A", spec], program)[1])
    for spec, holds in ((f"arg1{how}{with_}", test) for how, test in (("==", int.__eq__), ("!=", int.__ne__), ("<", int.__lt__), ("<=", int.__le__), (">", int.__gt__), (">=", int.__ge__))
                        for with_, test in ((5, test), (-7, test), (1 << 40, test))):
        with_ = int(re.search(r"-?\d+$", spec).group())
        pairs = [(a, 2 * a) for a in range(3000)] + [(-1 - a, a) for a in range(3000)]
        want = [f"f_two({a}, {b}) = {a + b}" for a, b in pairs if holds(a, with_)]
        same(want, shown(f"f_two@arg1/i32,arg2/i32,{spec},retval/i32"))
    # The second word is a pointer that is read: only where the condition holds.
    same([], shown("f_two@arg1/i32,arg2/s,arg1>5000"))
    assert len(shown("f_two@arg1/i32,arg2/s,arg1>=2990")) == 10


@case
def a_false_condition_where_chunks_end(run):
    """A routine and the lookup of values once led to each other for ever where a chunk had no room."""
    assert own(run.record(["-A", "f_two@arg1/i32,arg1>1000000,retval/i32"], [run.program("values.signalled"), "plain", "40000"])[1]) == []


@case
def walkers_after_an_early_end(run):
    """What ended before the C library was known went on serving walkers with signals let in: handlers saw stacks cut short."""
    program, trace = run.program("throwtimer.O0"), os.path.join(run.folder, "killed")
    for delay_s in (0.2, 0.3):
        tracer = subprocess.Popen([run.sptrace, "run", "-q", *run.how, "-o", trace, "-A", "*", "--", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        time.sleep(delay_s)
        tracer.kill()
        same("wrong 0, ticks many\n".splitlines(), tracer.communicate(timeout=90)[0].splitlines())


@case
def wild_pointers(run):
    """Pointers that lead nowhere, strings at the end of what there is, memory that goes away meanwhile."""
    printed, rows = run.record(["-A", "f_*@arg1/s,retval/i32"], [run.program("values.wild")])
    calls = [row for row in rows if row["call"].startswith("f_")]
    assert len(calls) == int(printed), (len(calls), printed)
    texts = collections.Counter(row["call"] for row in calls)
    assert texts['f_end("at the end")'] == 1000, texts.most_common(3)
    assert all(text.startswith(('f_gone("', "f_gone(0x")) for text in texts if text.startswith("f_gone")), texts.most_common(3)


@case
def pointers_of_every_kind(run):
    """The same with every type that is followed and with calls of the kernel; how many calls is --wild."""
    kernel = "openat,write,newfstatat,sendmsg,writev,execve,readlinkat,bind"
    # What lasts long is not kept: that nothing crashes or hangs is what is tested.
    options = ["-A", "f_*", f"--syscalls={kernel}", *(["--ring", "4M"] if run.wild > 1000000 else [])]
    printed, rows = run.record(options, [run.program("values.everywhere"), str(run.wild)])
    calls, ends = map(int, printed.split())
    assert calls == run.wild, printed
    names = collections.Counter(row["call"].partition("(")[0] for row in rows)
    if "--ring" not in options:
        assert sum(row["call"] == 'f_end("at the end")' for row in rows) == ends == names["f_end"], (ends, names)
        assert 7 / 9 < sum(names[name] for name in names if name.startswith("f_")) / calls < 1, (calls, names)
    assert len([name for name in names if name.startswith("f_")]) == 8, names


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sptrace", default=os.environ.get("SPTRACE", os.path.join(ROOT, "target/release/sptrace")))
    parser.add_argument("--programs", default="/tmp/sptrace-test-programs")
    parser.add_argument("--only", default="*")
    parser.add_argument("--wild", type=int, default=100000)
    parser.add_argument("--how", choices=("full", "auto", "points"))
    args = parser.parse_args()
    failed = 0
    chosen = [function for function in CASES if fnmatch.fnmatch(function.__name__, args.only)]
    for function, how in ((function, how) for function in chosen for how in ([args.how] if args.how else ("full", "auto", "points"))):
        with tempfile.TemporaryDirectory() as folder:
            try:
                function(Run(args, how, folder))
                print(f"ok {function.__name__}, {how}")
            except AssertionError as error:
                failed += 1
                print(f"FAILED {function.__name__}, {how}: {error}")
    return 1 if failed else 0


if __name__ == "__main__": sys.exit(main())
