#!/usr/bin/env python3
"""Does sptrace show of each call what the program says of itself?

usage: tests/values.py [--sptrace PATH] [--programs FOLDER] [--only GLOB]

Programs whose functions print themselves (tests/programs/values) are recorded with their values: by debug information, by a
file of prototypes without any, and as options say; what a report shows is compared with what they print. Also functions of the
C library as the table of known ones has them, conditions, wild pointers, and memory that another thread unmaps.
Exit status: 1 if anything differs.
"""
import argparse, collections, fnmatch, json, os, re, subprocess, sys, tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CASES = []


def case(function):
    CASES.append(function)
    return function


class Run:
    def __init__(self, args, folder):
        self.sptrace, self.programs, self.folder = args.sptrace, args.programs, folder

    def record(self, options, command):
        """(what the program printed, rows of the trace)"""
        trace = os.path.join(self.folder, "trace")
        done = subprocess.run([self.sptrace, "run", "-q", "-o", trace, *options, "--", *command], stdout=subprocess.PIPE, text=True)
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
        same(printed.splitlines(), own(rows))


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
def wild_pointers(run):
    """Pointers that lead nowhere, strings at the end of what there is, memory that goes away meanwhile."""
    printed, rows = run.record(["-A", "f_*@arg1/s,retval/i32"], [run.program("values.wild")])
    calls = [row for row in rows if row["call"].startswith("f_")]
    assert len(calls) == int(printed), (len(calls), printed)
    texts = collections.Counter(row["call"] for row in calls)
    assert texts['f_end("at the end")'] == 1000, texts.most_common(3)
    assert all(text.startswith(('f_gone("', "f_gone(0x")) for text in texts if text.startswith("f_gone")), texts.most_common(3)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sptrace", default=os.environ.get("SPTRACE", os.path.join(ROOT, "target/release/sptrace")))
    parser.add_argument("--programs", default="/tmp/sptrace-test-programs")
    parser.add_argument("--only", default="*")
    args = parser.parse_args()
    failed = 0
    for function in CASES:
        if not fnmatch.fnmatch(function.__name__, args.only): continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                function(Run(args, folder))
                print(f"ok {function.__name__}")
            except AssertionError as error:
                failed += 1
                print(f"FAILED {function.__name__}: {error}")
    return 1 if failed else 0


if __name__ == "__main__": sys.exit(main())
