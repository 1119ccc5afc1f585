#!/usr/bin/env python3
"""Attaches to running programs and detaches again, at random moments, and looks whether they noticed.

usage: tests/attach.py [--full] [--only GLOB]... [--list] [--seconds S] [--seed N] [--programs DIR] [--option ARG]...

Given: a built sptrace (--sptrace, $SPTRACE or target/release/sptrace), tests/programs (attachee above all), and the
programs of the machine; a case whose program is not installed is skipped by name.
Gives: one line a case, then `N passed, N failed` alone on the last line; status 1 if anything failed.
A case passes if the program's output and status are what they are without sptrace, and if after each detach every byte
of its code is that of its file, nobody traces it, and neither arena nor agent is mapped in it.
  --full       all variants of the programs, for 20 seconds each, not for 2
  --option     an argument of `attach`, in front of the others
Must not know: how sptrace works, but for the names of its mappings.
"""
import argparse, fnmatch, os, random, shutil, signal, subprocess, sys, tempfile, time

from harness.attaching import Attacher, NoCycle
from harness.case import Failed, run_cases
from harness.process import code_of, is_running

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)


class Case:
    """A program that runs for a while. `stdin` is None or a function that is given the pipe."""
    def __init__(self, name, argv, *, seconds=3, expected=None, status=0, options=(), need=(), must_record=True, longest=0.12, open_at_start=(), must_see=()):
        self.name, self.argv, self.seconds, self.expected, self.status = name, argv, seconds, expected, status
        self.must_see, self.open_at_start, self.options, self.need, self.must_record, self.longest = must_see, list(open_at_start), options, need, must_record, longest

    def check_begin(self, attacher):
        """The trace begins with what was open: main and what it had called."""
        if not self.open_at_start: return
        stacks = attacher.began_earlier().values()
        if not any(stack[:len(self.open_at_start)] == self.open_at_start for stack in (list(s)[list(s).index("main"):] if "main" in s else [] for s in stacks)):
            raise Failed(f"open at the start should be {self.open_at_start}: {[s[:6] for s in stacks]}")

    def run(self, attacher):
        argv = [str(a) for a in self.argv]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True)
        cycles, recorded = 0, set()
        try:
            time.sleep(0.25)
            code = code_of(process.pid) if is_running(process.pid) else []
            while process.poll() is None:
                how = attacher.rng.choice(["for", "event", signal.SIGINT, signal.SIGTERM])
                rc, said = attacher.cycle([process.pid], attacher.rng.uniform(0.001, self.longest), self.options, how)
                if process.poll() is not None: break
                if rc is None: continue
                if rc != 0:
                    if not isinstance(how, signal.Signals) and is_running(process.pid) and "ended" not in said: raise Failed(f"status {rc}: {said.strip()}")
                    continue
                cycles += 1
                if "/dev/zero" in said or "zero (deleted)" in said: raise Failed(f"what a former sptrace left is taken for a module: {said}")
                attacher.check(process.pid, code, said)
                if cycles % 5 == 1: self.check_begin(attacher)
                if cycles % 5 == 1 or not recorded.issuperset(self.must_see) or not recorded: recorded |= attacher.functions()
                time.sleep(attacher.rng.uniform(0, 0.03))
            out = process.communicate(timeout=60)[0]
        finally:
            if process.poll() is None: process.kill()
        if process.returncode != self.status or self.expected is not None and out != self.expected:
            raise Failed(f"status {process.returncode}, output {out[-300:]!r} after {cycles} cycles")
        if cycles == 0: raise NoCycle("the program had ended before it was attached to")
        if self.must_record and not recorded: raise Failed("nothing was recorded")
        if not recorded.issuperset(self.must_see): raise Failed(f"not seen: {set(self.must_see) - recorded}")
        return f"{cycles} cycles"


MODES = ("waits", "busy", "crowd", "comings", "timer", "suspends", "throws", "jumps", "switches", "children", "deep")
# Of these it is known what is open at any moment; of `deep` at the least.
OPEN = {"deep": ("main", "deep", "deep_one", "deep_one"), "busy": ("main",)}
QUICK = {"O2": MODES, "static": ("waits", "crowd", "throws", "jumps", "children")}


def program_cases(programs, seconds, full):
    cases = []
    for name in sorted(os.listdir(programs)) if programs else []:
        base, _, variant = name.partition(".")
        if base == "abyss":
            # In and out of a recursion three million frames deep.
            cases.append(Case(f"abyss.{variant}", [os.path.join(programs, name), 3_000_000, "again", seconds], expected="again: ok\n", seconds=seconds))
        if base != "attachee": continue
        for mode in MODES if full else QUICK.get(variant, ()):
            cases.append(Case(f"attachee/{mode}.{variant}", [os.path.join(programs, name), mode, seconds], expected=f"{mode}: ok\n",
                              seconds=seconds, open_at_start=OPEN.get(mode, ()) if variant == "O2" else ()))
        # The static ones are stripped: there are no names that could match.
        for mode in ("busy", "throws", "timer") if full or variant == "O2" else ():
            cases.append(Case(f"attachee/{mode}.{variant} -F", [os.path.join(programs, name), mode, seconds], expected=f"{mode}: ok\n",
                              seconds=seconds, must_record=mode == "busy" and variant != "static", options=("-F", "tree*", "-F", "calculate*", "-F", "over*")))
        # What the instructions that call the kernel need in the text goes as well.
        for mode in MODES if full else ("throws", "children") if variant == "static" else ():
            cases.append(Case(f"attachee/{mode}.{variant} --syscalls", [os.path.join(programs, name), mode, seconds], expected=f"{mode}: ok\n",
                              seconds=seconds, options=("--syscalls",)))
    return cases


PYTHON = """
import time, threading, json, hashlib
end = time.time() + %s
def work():
    while time.time() < end:
        s = json.dumps({str(i): [i] * 5 for i in range(200)})
        assert len(json.loads(s)) == 200
        assert hashlib.md5(s.encode()).hexdigest() == EXPECTED
s = json.dumps({str(i): [i] * 5 for i in range(200)}); EXPECTED = hashlib.md5(s.encode()).hexdigest()
threads = [threading.Thread(target=work) for _ in range(3)]
[t.start() for t in threads]; [t.join() for t in threads]
print("ok")
"""
# What the children call there the parent never does while it is traced.
CHILDREN = """
import os, time, zlib
end = time.time() + %s
while time.time() < end:
    child = os.fork()
    if child == 0: os._exit(len(zlib.compress(b"x" * 1000)))
    assert os.waitpid(child, 0)[1] >> 8 == 17
    time.sleep(0.005)
print("ok")
"""
PERL = "my $e = time + %d; my $n = 0; while (time < $e) { my %%h = map { $_ => $_ * 2 } 1..500; my $s = 0; $s += $h{$_} for keys %%h; die unless $s == 250500; eval { die 'x' }; $n++ } print qq(ok\\n)"
NODE = "const e = Date.now() + %d; let n = 0; function f(x) { return x < 2 ? x : f(x-1) + f(x-2) } const t = setInterval(() => { if (f(15) !== 610) throw 1; if (Date.now() > e) { clearInterval(t); console.log('ok') } }, 1)"
GO = """package main
import ("fmt"; "time"; "sync")
func fib(n int) int { if n < 2 { return n }; return fib(n-1) + fib(n-2) }
func main() {
	end := time.Now().Add(%d * time.Millisecond)
	var wg sync.WaitGroup
	for i := 0; i < 20; i++ { wg.Add(1); go func() { defer wg.Done(); for time.Now().Before(end) { if fib(15) != 610 { panic(1) }; time.Sleep(time.Millisecond) } }() }
	wg.Wait(); fmt.Println("ok")
}
"""


def real_cases(folder, seconds):
    cases = []
    python = shutil.which("python3")
    cases.append(Case("python3", [python, "-c", PYTHON % seconds], expected="ok\n", seconds=seconds))
    cases.append(Case("python3 --syscalls", [python, "-c", PYTHON % seconds], expected="ok\n", seconds=seconds, options=("--syscalls",)))
    cases.append(Case("python3.children", [python, "-c", CHILDREN % seconds], expected="ok\n", seconds=seconds, must_see=("deflate",)))
    if shutil.which("perl"): cases.append(Case("perl", [shutil.which("perl"), "-e", PERL % seconds], expected="ok\n", seconds=seconds))
    if shutil.which("node"): cases.append(Case("node", [shutil.which("node"), "-e", NODE % (seconds * 1000)], expected="ok\n", seconds=seconds, must_record=False))
    if shutil.which("go"):
        source = os.path.join(folder, "go.go")
        with open(source, "w") as f: f.write(GO % (seconds * 1000))
        built = subprocess.run(["go", "build", "-o", os.path.join(folder, "go"), source], capture_output=True, env={**os.environ, "GOFLAGS": "", "GO111MODULE": "off", "GOCACHE": os.path.join(folder, "gocache")})
        if built.returncode == 0: cases.append(Case("go", [os.path.join(folder, "go")], expected="ok\n", seconds=seconds, must_record=False))
    return cases


def all_cases(folder, programs, full, seconds):
    return program_cases(programs, seconds, full) + real_cases(folder, seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sptrace", default=os.environ.get("SPTRACE", os.path.join(ROOT, "target/release/sptrace")))
    parser.add_argument("--programs", default=os.environ.get("PROGRAMS", "/tmp/sptrace-test-programs"))
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--seconds", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--option", action="append", default=[])
    args = parser.parse_args()
    # As in a terminal, also where this is a job of a script: an interrupt that comes early ends an sptrace.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    rng = random.Random(args.seed)
    seconds = args.seconds or (20 if args.full else 2)
    with tempfile.TemporaryDirectory() as folder:
        attacher = Attacher(args.sptrace, folder, rng, args.option)
        programs = args.programs if os.path.isdir(args.programs) else None
        cases = all_cases(folder, programs, args.full, seconds)
        # Calls in order go with no -F and no --syscalls.
        if "--stamps" in args.option: cases = [c for c in cases if not c.options]
        wanted = [c for c in cases if not args.only or any(fnmatch.fnmatch(c.name, g) for g in args.only)]
        def tried(case):
            # Where modules are analysed for the first time, or the machine has much to do, it takes longer.
            for more in (1, 4, 16):
                again = {c.name: c for c in all_cases(folder, programs, args.full, seconds * more)}
                try: return again[case.name].run(attacher)
                except NoCycle as e: why = str(e)
            raise Failed(why)

        if args.list:
            print("\n".join(c.name for c in wanted))
            return 0
        return run_cases((c.name, lambda c=c: tried(c)) for c in wanted)


if __name__ == "__main__":
    sys.exit(main())
