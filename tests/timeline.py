#!/usr/bin/env python3
"""The time line page in headless Chromium: does it say what the reports say, and is it quick enough to look at?

usage: tests/timeline.py [--quick] [--sptrace PATH] [--programs FOLDER] [--pictures FOLDER]

Records mplayer with a clip, programs with threads, forks and exceptions, with pauses, into a ring, with system calls, and one that makes ten million calls; opens `report timeline` of each without a
network; adds up the whole page and compares it with `report functions`; clicks, searches, zooms to a single call, follows a link.
With --quick the program makes a million calls, and no time is judged. Needs a built sptrace, the test programs, gcc and Chromium (without it all is skipped, by name). Exit status: 1 if something differs.
"""
import argparse, json, os, shutil, subprocess, sys, tempfile

import chromium, exports
from exports import ROOT, Trace, difference, of_functions, set_clock

COMMANDS = {"threads": ["threads.O2"], "exceptions": ["exceptions.O2"], "forks": ["lineage.O2"], "python3": ["/usr/bin/python3", "-S", "-c", "import re; re.compile('a+b')"]}
# Recordings that pause, and one that has overwritten its beginning.
OPTIONS = exports.OPTIONS
COMMANDS.update((name, exports.COMMANDS[name]) for name in OPTIONS)
FIRST_PAINT_MS, STEP_MS = 2000, 50
NEAR = "view.end - view.start < 4 * (selected.end - selected.start) + 100"
# fib(32) makes 7 million calls of itself and 3.5 million of leaf; fib(27) a million in all.
FIB = r"""
#include <stdio.h>
__attribute__((noinline)) int leaf(int n) { __asm__ volatile(""); return n; }
__attribute__((noinline)) int fib(int n) { return n < 2 ? leaf(n) : fib(n - 1) + fib(n - 2); }
int main(void) { printf("%d\n", fib(DEPTH)); return 0; }
"""
SUMS = """(async () => {
  const { sums } = await addUp(-1, Infinity, () => true, () => {});
  return JSON.stringify([...sums].map(([fun, s]) => [moduleOf(fun), nameOf(fun), s.calls, s.total, s.own]));
})()"""


def record(sptrace, command, path, options=()):
    subprocess.run([sptrace, "run", "-q", *options, "-o", path, "--", *command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120)
    set_clock(path)
    return Trace(sptrace, path)


def player(folder):
    """mplayer and a clip that is made for it, by its name in the results; nothing where one of the two cannot be had."""
    clip = os.path.join(folder, "clip.mpg")
    if not shutil.which("mplayer") or not shutil.which("ffmpeg"):
        print("skip mplayer: there is no mplayer, or no ffmpeg to make a clip for it")
        return {}
    subprocess.run(["ffmpeg", "-v", "error", "-y", "-f", "lavfi", "-i", "testsrc=duration=1:size=160x120:rate=25", "-c:v", "mpeg1video", clip], check=True, stdin=subprocess.DEVNULL)
    return {"mplayer": ["/usr/bin/mplayer", "-noconfig", "all", "-nolirc", "-really-quiet", "-benchmark", "-nosound", "-vo", "null", clip]}


def sums_of(page):
    sums = {}
    for module, name, *numbers in json.loads(page.evaluate(SUMS)):
        sums[module, name] = tuple(a + b for a, b in zip(sums.get((module, name), (0, 0, 0)), numbers))
    return {name: n for name, n in sums.items() if any(n)}


def selected(page): return json.loads(page.evaluate("JSON.stringify(selected && { ...selected, name: nameOf(selected.fun), module: moduleOf(selected.fun) })"))


def agrees(page, trace):
    """The sums of the whole page are those of `report functions`."""
    return difference(of_functions(trace), sums_of(page))


def is_used(page, folder):
    """What somebody does who looks for a call: (what, is it so?)."""
    first = "threads.findIndex(t => t.rows > 3)"
    page.until("!parts.some(p => p.promise)")
    middle, top = page.evaluate("size.width / 2"), page.evaluate(f"canvas.getBoundingClientRect().top + RULER + threads[{first}].y + HEAD")
    page.click(middle, top + 8)
    page.until("!byId('panel').hidden")
    found = selected(page)
    yield "a click selects a call at the bottom", found and found["depth"] == 0
    yield "its panel says it", page.until("content.textContent.includes(nameOf(selected.fun)) && content.textContent.includes('Callees')")
    page.key("ArrowDown")
    yield "down goes to the first callee", page.until("selected && selected.depth === 1")
    page.key("ArrowUp")
    yield "up goes to the caller", page.until("selected && selected.depth === 0")
    page.key("Escape")
    yield "Esc unselects", page.until("!selected && byId('panel').hidden")
    page.key("/")
    page.type("^leaf$")
    yield "search finds a function", page.until("search && search.list.length === 1 && byId('found').textContent.startsWith('1 functions')")
    page.key("Enter")
    yield "Enter goes to a call of it", page.until("selected && nameOf(selected.fun) === 'leaf'")
    yield "the view comes near", page.until(f"{NEAR} && view.start <= selected.start && view.end >= selected.end")
    if folder: page.picture(os.path.join(folder, "call.png"))
    before = selected(page)
    page.key("Enter")
    yield "Enter again to the next", page.until(f"selected.start > {before['start']}")
    page.key("Enter", modifiers=8)
    yield "Shift and Enter back", page.until(f"selected.start === {before['start']}")
    address = page.evaluate("address()")
    page.evaluate("escape(), showAll(), 0")
    page.until("!location.hash.includes('call')")
    page.evaluate(f"location.hash = {json.dumps(address)}")
    yield "a link leads to the call", page.until(f"selected && selected.start === {before['start']} && {NEAR}")
    page.key("Escape")
    page.key("0")
    page.until("view.end - view.start > traceEnd - traceStart")
    page.drag(middle - 100, middle + 100, top + 200, modifiers=8)
    yield "a range has statistics", page.until("range && range.sums && range.sums.size && content.textContent.includes('begin here')")
    if folder: page.picture(os.path.join(folder, "range.png"))
    page.key("Escape")
    page.key("?")
    yield "? shows the keys", page.until("byId('keys').open")
    page.key("Escape")
    page.until("!byId('keys').open")


def tells(page, trace):
    """Of some calls, what they have brought and given: that of the rows of another export."""
    rows = [json.loads(row) for row in trace.report("export", "jsonl").splitlines()]
    told = {(row["start_ns"], row["depth"]): (row["call"], row["result"]) for row in rows if row["call"]}
    page.key("/")
    page.type("^openat$")
    page.until("search && search.list.length === 1")
    for _ in range(3):
        page.key("Enter")
        page.until("selected && nameOf(selected.fun) === 'openat' && content.textContent.includes('Caller')")
        call = selected(page)
        line = told.get((call["start"], call["depth"]))
        if not line or '"' not in line[0]: return f"{call} has no arguments in the rows"
        wanted = f"{line[0]} = {line[1]}" if line[1] else line[0]
        if not page.until(f"content.textContent.includes({json.dumps(wanted)})"): return f"{wanted} is not in the panel: {page.evaluate('content.textContent')[:300]}"
    return None


def zooms(page):
    """Steps in at the mouse: how long drawing takes in milliseconds at the slowest step, what the slowest single drawing took with all that
    the machine did beside it, and the span in view at the end.
    """
    page.evaluate("showAll(), canvas.focus()")
    page.until("view.end - view.start > traceEnd - traceStart && !parts.some(p => p.promise)")
    page.evaluate("drawn.worstMs = 0")
    page.mouse("mouseMoved", page.evaluate("Math.round(size.width / 2)"), 300)
    slowest = 0
    for _ in range(40):
        if page.evaluate("view.end - view.start") < 20.1: break
        page.key("w")
        page.until("Math.abs(view.end - target.end) < 1e-3 * (view.end - view.start) && !parts.some(p => p.promise)")
        slowest = max(slowest, page.evaluate("Math.min(...[1, 2, 3].map(() => { draw(); return drawn.ms; }))"))
    return slowest, page.evaluate("drawn.worstMs"), page.evaluate("view.end - view.start")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sptrace", default=os.environ.get("SPTRACE", os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")), "release", "sptrace")))
    parser.add_argument("--programs", default="/tmp/sptrace-test-programs")
    parser.add_argument("--quick", action="store_true", help="fewer calls, no times")
    parser.add_argument("--pictures", metavar="FOLDER", help="what the page looked like")
    args = parser.parse_args()
    if not chromium.find():
        print("skip all: there is no chromium")
        return 0
    if args.pictures: os.makedirs(args.pictures, exist_ok=True)
    results, folder = [], tempfile.mkdtemp(prefix="sptrace-timeline-")

    def result(what, problem):
        results.append(problem)
        print(f"{'FAIL' if problem else 'ok  '} {what}{': ' + str(problem) if problem else ''}", flush=True)

    def page_of(trace, *options, **more):
        html = trace.path + ".html"
        with open(html, "wb") as out: out.write(trace.report("timeline", *options))
        return chromium.Page(html, **more)

    def picture(page, name):
        if args.pictures: page.picture(os.path.join(args.pictures, name + ".png"))

    for name, command in {**COMMANDS, **player(folder)}.items():
        trace = record(args.sptrace, [os.path.join(args.programs, command[0]), *command[1:]], os.path.join(folder, f"{name}.trace"), OPTIONS.get(name, ()))
        with page_of(trace, dark=name == "threads") as page:
            result(f"{name}: sums", agrees(page, trace))
            picture(page, name)
            result(f"{name}: errors", page.errors)
        if name != "python3": continue
        with page_of(trace, "--limit", "5000") as page:
            result(f"{name}: what is cut is said", None if page.evaluate("table.finestNs > 0 && table.single <= 5000 && !byId('cut').hidden") else "no word of it")
            picture(page, "cut")
            result(f"{name}: errors of the cut page", page.errors)
    trace = record(args.sptrace, ["cat", "/etc/hostname"], os.path.join(folder, "values.trace"), ["--syscalls"])
    with page_of(trace) as page:
        result("values: a call shows its arguments and its result", tells(page, trace))
        picture(page, "values")
        result("values: errors", page.errors)
    source, program = os.path.join(folder, "fib.c"), os.path.join(folder, "fib")
    with open(source, "w") as out: out.write(FIB)
    subprocess.run(["gcc", f"-DDEPTH={27 if args.quick else 32}", "-O1", "-fno-inline", "-fno-optimize-sibling-calls", "-fno-ipa-cp", "-fno-ipa-sra", "-o", program, source], check=True)
    trace = record(args.sptrace, [program], os.path.join(folder, "fib.trace"))
    with page_of(trace) as page:
        page.until("performance.getEntriesByName('first-contentful-paint').length > 0")
        paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        calls = "a million calls" if args.quick else "ten million calls"
        result(f"{calls}: first paint within {paint:.0f} ms", None if paint < FIRST_PAINT_MS or args.quick else "too late")
        picture(page, "fib")
        slowest, worst, span = zooms(page)
        result(f"{calls}: the slowest zoom step takes {slowest:.0f} ms (once {worst:.0f} ms), down to {span:.0f} ns", None if (slowest < STEP_MS or args.quick) and span <= 20.1 else "too slow, or too far away")
        for what, is_so in is_used(page, args.pictures): result(what, None if is_so else "it is not so")
        result(f"{calls}: sums", agrees(page, trace))
        result(f"{calls}: errors", page.errors)
    shutil.rmtree(folder)
    failed = sum(bool(problem) for problem in results)
    print(f"{len(results) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
