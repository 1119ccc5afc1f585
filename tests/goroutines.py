#!/usr/bin/env python3
"""Go programs with return points: goroutines are lanes of their own, whose calls end where they return to, in whatever thread that is.

usage: tests/goroutines.py [--sptrace PATH] [--only GLOB]

Given Go (without it all is skipped); builds tests/runtimes. Gives one line a case. Exit status: 1 if anything differs. Must not know how
lanes are followed.
"""
import argparse, csv, io, os, re, shutil, subprocess, sys, tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "harness"))
from case import Cases, Failed, ROOT, Skip, find_sptrace, run_cases
from counts import Bench, same
from runtimes import go_build

case = Cases()
POINTS = ("--return-points",)
# What leaves its stack for good, each time: the scheduler's part of a change to another goroutine, the ends of goroutines, and panics.
NEVER_RETURN = re.compile(
    r"runtime\.(gogo|execute|schedule|park_m|goexit[01]?|goschedImpl|gosched_m|gopreempt_m|preemptPark|newstack|recovery|mcall|gopanic"
    r"|goPanicIndex|panic\w+|sigpanic\w*|exitsyscall0|gcBgMarkWorker|mstart[01]?|mstart)(\.abi0)?$|gogo$|start_thread$"
)
# Looks at its stacks in each way that Go has: what it finds is what is found without sptrace.
WALKS = r"""
package main

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"sync"
)

var address = regexp.MustCompile(`0x[0-9a-f]+|goroutine \d+`)

//go:noinline
func innermost(n int) []string {
	pcs := make([]uintptr, 32)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(0, pcs)])
	var names []string
	for {
		frame, more := frames.Next()
		names = append(names, fmt.Sprint(frame.Function, ":", frame.Line))
		if !more {
			return names
		}
	}
}

//go:noinline
func outer(n int) []string {
	if n > 0 {
		return outer(n - 1)
	}
	return innermost(n)
}

//go:noinline
func fails() (text string) {
	defer func() {
		recover()
		text = address.ReplaceAllString(string(debug.Stack()), "")
	}()
	var none []int
	return fmt.Sprint(none[len(os.Args)])
}

//go:noinline
func busy(n int) int {
	s := 0
	for i := 0; i < n; i++ {
		s += i ^ s<<1
	}
	return s
}

func main() {
	var profile bytes.Buffer
	pprof.StartCPUProfile(&profile)
	var all sync.WaitGroup
	lines := make([]string, 20)
	for i := range lines {
		all.Add(1)
		go func(i int) {
			defer all.Done()
			for round := 0; round < 50; round++ {
				busy(200000)
			}
			lines[i] = strings.Join(outer(i), " ") + fails()
		}(i)
	}
	all.Wait()
	pprof.StopCPUProfile()
	for _, line := range lines {
		fmt.Println(line)
	}
	fmt.Println(profile.Len() > 0)
}
"""


class GoBench(Bench):
    """With the programs of tests/runtimes, each built once."""

    def go(self, name):
        return self.built(f"{ROOT}/tests/runtimes/{name}.go", name)

    def built(self, source, name):
        program = f"{self.folder}/{name}"
        if not os.path.exists(program):
            made = subprocess.run(go_build(source, program, False), cwd=self.folder, env=self.environment(), capture_output=True, text=True)
            if made.returncode: raise Failed(made.stderr)
        return program

    def environment(self):
        return dict(os.environ, GOCACHE=f"{self.folder}/gocache", GOFLAGS="-mod=mod", HOME=self.folder)

    def traced(self, name, argv, options=()):
        """Runs it both ways; gives the trace, and what it wrote."""
        alone = self.run(*argv)
        counted, trace = self.record(f"{name}.data", (*POINTS, *options), argv)
        same(f"{name}: output and status", alone[:2], counted)
        return trace, alone[1]

    def rows(self, trace, *arguments):
        rows = list(csv.reader(io.StringIO(self.report(trace, *arguments, "--format", "csv"))))
        return [dict(zip(rows[0], row)) for row in rows[1:]]


def counted(bench, trace, output):
    """The program has counted as many calls, each of which has an end."""
    wanted = {f"main.{name}": int(calls) for name, calls in (line.rsplit(" ", 1) for line in output.splitlines()) if name != "total"}
    rows = {row["function"]: row for row in bench.rows(trace, "functions", "--columns", "calls,untimed,function")}
    same("calls, and those without an end", {name: (calls, 0) for name, calls in wanted.items()}, {name: tuple(int(rows[name][of]) for of in ("calls", "untimed_calls")) for name in wanted if name in rows})


def covered(bench, trace):
    """At least 99 % of the sites that were reached are patched, and 98 % of calls have an end that can have one."""
    parts = {}
    for row in bench.rows(trace, "coverage"): parts.setdefault(row["section"], {})[row["key"]] = int(row["count"])
    patched, refused = sum(parts["sites"].values()), sum(parts.get("refused", {}).values())
    if refused * 99 > patched: raise Failed(f"{patched} sites are patched, {refused} are not: {parts['refused']}")
    lanes = [key for key in parts.get("hole", {}) if "goroutine" in key]
    # A call that a signal interrupts just before its record may go ahead without it, which is told (sptrace-limits(7)).
    interrupted = parts["loss"].pop("events dropped")
    if lanes or any(parts["loss"].values()) or interrupted * 100000 > sum(parts["events"].values()): raise Failed(f"{interrupted} of {parts['events']} {parts.get('hole')} {parts['loss']}")
    calls = unseen = 0
    for row in bench.rows(trace, "functions", "--columns", "calls,untimed,function"):
        calls += int(row["calls"])
        unseen += 0 if NEVER_RETURN.search(row["function"]) else int(row["untimed_calls"])
    if unseen * 50 > calls: raise Failed(f"{unseen} of {calls} calls have no end")


@case
def a_server_and_fifty_clients_have_all_their_calls(bench):
    trace, output = bench.traced("requests", [bench.go("requests")])
    covered(bench, trace)
    counted(bench, trace, output)


@case
def one_request_can_be_read_from_its_handler_down(bench):
    trace, _ = bench.traced("request", [bench.go("requests")])
    tree = bench.report(trace, "tree", "-F", "main.(*server).ServeHTTP", "--columns", "tid")
    lanes = {}
    for line in tree.splitlines():
        found = re.match(r"\[ *(g\d+)\] \| ( *)(main\.[\w.*()]+)", line)
        if found: lanes.setdefault(found[1], []).append((len(found[2]) // 2, found[3].replace("()", "").rstrip(";")))
    requests = 0
    for lines in lanes.values():
        starts = [i for i, (depth, _) in enumerate(lines) if depth == 0]
        for i, start in enumerate(starts):
            inside = lines[start : starts[i + 1] if i + 1 < len(starts) else None]
            children = [name for depth, name in inside if depth == 1]
            same("what a request calls", ["main.parse", "main.(*server).lookup", "main.answer"], children)
            sums = [depth for depth, name in inside if name == "main.sum"]
            same("sums lie inside of each other", list(range(2, 2 + len(sums))), sums)
            requests += 1
    same("requests", 400, requests)


@case
def where_goroutines_are_not_known_calls_are_in_order(bench):
    """By default; of a release that sptrace knows they have stamps and ends."""
    for of, says in ((b"go1.", False), (b"go9.", True)):
        program = f"{bench.folder}/release"
        with open(bench.go("requests"), "rb") as known, open(program, "wb") as f: f.write(known.read().replace(b"go1.", of))
        os.chmod(program, 0o755)
        said = subprocess.run([bench.sptrace, "run", "-o", f"{program}.data", "--", program], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120).stderr
        same(f"{of}: in order", says, "recorded in order" in said)


@case
def a_goroutine_alone_is_in_a_root(bench):
    """A thread that left a goroutine by calls that nobody had reached yet was still said to run it, so the one that went on with it could not: seen on one processor."""
    one = ["taskset", "-c", str(min(os.sched_getaffinity(0)))]
    wanted = {"main.(*server).ServeHTTP": 400, "main.(*server).lookup": 400, "main.(*server).lookup.func1": 400, "main.parse": 400, "main.answer": 400, "main.encode": 400, "main.sum": 3600}
    alone = bench.run(bench.go("requests"))
    for before in [[]] + 12 * [["env", "GOMAXPROCS=4", *one]]:
        made, trace = bench.record("rooted.data", (*POINTS, "-F", "main.(*server).ServeHTTP"), [*before, bench.go("requests")])
        same("output and status", alone[:2], made)
        counts = {row["function"]: int(row["calls"]) for row in bench.rows(trace, "functions", "--columns", "calls,function") if row["function"].startswith("main.")}
        same("calls", wanted, counts)
        told = [row["key"] for row in bench.rows(trace, "coverage") if row["section"] == "hole" and "goroutine" in row["key"]]
        same("changes to a goroutine that were told as the thread's", [], told)


@case
def a_thousand_goroutines_grow_their_stacks(bench):
    trace, output = bench.traced("growing", [bench.go("growing")])
    covered(bench, trace)
    counted(bench, trace, output)


@case
def panics_c_and_garbage_leave_it_as_it_is(bench):
    for name in ("tallies", "churn", "cgo"):
        trace, _ = bench.traced(name, [bench.go(name)])
        covered(bench, trace)


@case
def calls_of_the_kernel_overwrite_no_stack(bench):
    """What the agent did on the stack of a goroutine did not fit there: one run of 40 crashed."""
    for _ in range(5): bench.traced("syscalls", [bench.go("requests")], ("--syscalls",))


@case
def stacks_and_profiles_are_as_untraced(bench):
    with open(f"{bench.folder}/walks.go", "w") as f: f.write(WALKS)
    bench.traced("walks", [bench.built(f"{bench.folder}/walks.go", "walks")])


@case
def gofmt_writes_what_it_writes(bench):
    source = next((path for path in ("/usr/lib/go/src/net/http/server.go", f"{ROOT}/tests/runtimes/churn.go") if os.path.exists(path)))
    trace, _ = bench.traced("gofmt", ["gofmt", source])
    covered(bench, trace)


@case
def a_build_makes_the_same_program(bench):
    made, program = [], f"{bench.folder}/made"
    for before in ([], [bench.sptrace, "run", "-q", "-o", f"{bench.folder}/build.data", *POINTS, "--"]):
        environment = dict(bench.environment(), GOCACHE=f"{bench.folder}/cache{len(made)}")
        command = [*before, *go_build(f"{ROOT}/tests/runtimes/growing.go", program, False)]
        done = subprocess.run(command, cwd=bench.folder, env=environment, capture_output=True, text=True, timeout=600)
        if done.returncode or done.stderr: raise Failed(done.stderr)
        with open(program, "rb") as f: made.append(f.read())
        os.unlink(program)
    if made[0] != made[1]: raise Failed("the programs differ")
    covered(bench, f"{bench.folder}/build.data")


@case
def goroutines_have_names_and_can_be_chosen(bench):
    trace, _ = bench.traced("named", [bench.go("tallies")])
    names = re.findall(r"\[ *(g\d+)\] \| main\.work", bench.report(trace, "tree", "-F", "main.work", "-D", "1"))
    if len(set(names)) != 50: raise Failed(f"{len(set(names))} goroutines ran main.work")
    chosen = bench.report(trace, "functions", "--tid", names[0], "--columns", "calls,function", "--format", "csv")
    same("calls of main.work in one goroutine", ["1,main.work"], [line for line in chosen.splitlines() if line.endswith(",main.work")])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sptrace")
    parser.add_argument("--programs")
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    options.sptrace = find_sptrace(options.sptrace)
    if not shutil.which("go"): return print("skip all: go is not installed") or 0
    with tempfile.TemporaryDirectory() as folder:
        bench = GoBench(options, folder)
        return run_cases((c.__name__, lambda c=c: c(bench)) for c in case.chosen(options.only))


if __name__ == "__main__":
    sys.exit(main())
