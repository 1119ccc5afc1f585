#!/usr/bin/env python3
"""The flame graph and the call graph in headless Chromium: do they say what the reports say, and can one click, search and zoom?

usage: tests/pictures.py [--sptrace PATH] [--programs FOLDER] [--pictures FOLDER]

Records python3, mplayer with a clip, and a program with threads; opens `report flame` (by time, as icicle, beside itself) and `report graph` of each,
without a network; uses them as somebody does who looks for a function. Needs a built sptrace, the test programs and Chromium
(without it all is skipped, by name). Exit status: 1 if something is not so.
"""
import argparse, os, shutil, sys, tempfile

import chromium
from exports import ROOT, of_functions
from timeline import player, record

COMMANDS = {"threads": ["threads.O2"], "python3": ["/usr/bin/python3", "-S", "-c", "import re; re.compile('a+b')"]}
# Texts that are wider than the rectangle they stand in, of what is shown.
TOO_WIDE = """[...document.querySelectorAll(SELECTOR)].filter(g => g.style.display !== 'none').flatMap(g => [...g.querySelectorAll('text')]
  .filter(t => t.textContent && t.getBBox().width > g.querySelector('rect').getBBox().width + 1).map(t => t.textContent)).slice(0, 5)"""
OVERLAPS = """(() => { const boxes = [...document.querySelectorAll('.node rect')].map(r => r.getBBox()), bad = [];
  for (const [i, a] of boxes.entries()) for (const b of boxes.slice(i + 1))
    if (a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height) bad.push([a.x, a.y]);
  return bad.slice(0, 5); })()"""


def middle(page, code):
    """The middle of an element that an expression gives, in the window."""
    return page.evaluate(f"(() => {{ const r = ({code}).getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; }})()")


def flame(page, trace):
    """(what, is it so?)"""
    want = of_functions(trace)
    yield "the root has all own time", page.evaluate("+document.querySelector('#frames g').dataset.v") == sum(n[2] for n in want.values())
    yield "no text is wider than its frame", not page.evaluate(TOO_WIDE.replace("SELECTOR", "'#frames g'"))
    # A frame in the third level or above that is narrower than half of the window, and in it.
    chosen = "[...document.querySelectorAll('#frames g')].find(g => +g.dataset.d > 2 && g.style.display !== 'none' && g.querySelector('text').textContent && g.querySelector('rect').getBBox().width < innerWidth / 2 && g.getBoundingClientRect().bottom < innerHeight)"
    page.evaluate(f"window.chosen = {chosen}")
    x, y = middle(page, "chosen.querySelector('rect')")
    page.mouse("mouseMoved", x, y)
    yield "the mouse says what is there", page.until("byName('details').startsWith(chosen.dataset.n) || byName('details').includes(chosen.dataset.n)")
    page.click(x, y)
    yield "a click zooms to a frame", page.until("chosen.querySelector('rect').getBBox().width > innerWidth - 60")
    yield "what lies below it is wide, too", page.evaluate("[...document.querySelectorAll('#frames g.below')].every(g => g.querySelector('rect').getBBox().width > innerWidth - 60)")
    yield "no text is wider than its frame when zoomed", not page.evaluate(TOO_WIDE.replace("SELECTOR", "'#frames g'"))
    page.click(*middle(page, "document.getElementById('reset')"))
    yield "Reset zoom shows all", page.until("chosen.querySelector('rect').getBBox().width < innerWidth / 2")
    page.key("f", modifiers=2)
    yield "Ctrl-F goes to the search", page.until("document.activeElement.id === 'search'")
    page.type("^_?_?libc_start")
    yield "search marks the frames and says their share", page.until("/^[1-9][0-9,]* frames, [0-9.]+ %$/.test(byName('found')) && document.querySelectorAll('g.found').length > 0 && [...document.querySelectorAll('g.found')].every(g => g.dataset.n.includes('libc_start'))")
    page.key("Escape")
    yield "Esc ends the search", page.until("!byName('found') && !document.querySelector('g.found')")
    yield "the root is in the window, and so are search and details", page.evaluate("['#frames g rect', '#search', '#foot'].every(s => (r => r.top >= 0 && r.bottom <= innerHeight + 1)(document.querySelector(s).getBoundingClientRect()))")


def graph(page, trace, folder):
    """(what, is it so?)"""
    page.evaluate("window.node = (text) => [...document.querySelectorAll('.node')].find(g => g.querySelector('title').textContent.startsWith(text))")
    yield "boxes do not overlap", not page.evaluate(OVERLAPS)
    yield "no text is wider than its box", not page.evaluate(TOO_WIDE.replace("SELECTOR", "'.node'"))
    # Where it lies depends on the times of a run, so it is brought into the window.
    page.evaluate("window.chosen = document.querySelector('.node'), chosen.scrollIntoView({block: 'center', inline: 'center'})")
    page.click(*middle(page, "chosen.querySelector('rect')"))
    yield "a click chooses a box", page.until("chosen.classList.contains('chosen') && document.querySelectorAll('.node.pale').length > 0")
    near = "new Set([chosen.dataset.i, ...[...document.querySelectorAll('.arrow')].filter(a => [a.dataset.f, a.dataset.t].includes(chosen.dataset.i)).flatMap(a => [a.dataset.f, a.dataset.t])])"
    yield "what belongs to it stays", page.evaluate(f"[...document.querySelectorAll('.node')].every(g => g.classList.contains('pale') === !({near}).has(g.dataset.i))")
    page.key("Escape")
    yield "Esc shows all", page.until("!document.querySelector('.pale') && !document.querySelector('.chosen')")
    page.key("/")
    yield "/ goes to the search", page.until("document.activeElement.id === 'search'")
    page.type("main")
    yield "search marks boxes", page.until("/^[1-9][0-9]* of [0-9]+$/.test(byName('found')) && [...document.querySelectorAll('.found')].every(g => /main/i.test(g.querySelector('title').textContent))")
    page.key("Enter")
    inside = "(r => r.x >= 0 && r.right <= innerWidth && r.y >= 0 && r.bottom <= innerHeight)(document.querySelector('.chosen rect').getBoundingClientRect())"
    yield "Enter goes to a box that is found", page.until(f"document.querySelector('.chosen.found') && {inside}")
    if folder: page.picture(os.path.join(folder, "graph-found.png"))
    page.key("Escape")
    page.key("Escape")
    yield "Esc ends the search", page.until("!byName('found') && !document.querySelector('.found')")
    page.evaluate("window.scrollTo(0, 0), window.wide = chosen.querySelector('rect').getBoundingClientRect().width")
    for _ in range(3): page.key("+")
    yield "+ zooms in", page.until("chosen.querySelector('rect').getBoundingClientRect().width > 1.9 * wide")
    page.key("0")
    yield "0 shows the whole graph", page.until("document.documentElement.getBoundingClientRect().width <= innerWidth + 1 && document.documentElement.getBoundingClientRect().height <= innerHeight + 1")
    page.key("1")
    yield "1 is the size that it had", page.until("Math.abs(chosen.querySelector('rect').getBoundingClientRect().width - wide) < 1")
    page.evaluate("window.scrollTo(chosen.querySelector('rect').getBBox().x - 600, 0)")
    x, y = middle(page, "chosen.querySelector('rect')")
    page.call("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=-200, modifiers=2)
    yield "Ctrl and the wheel zoom at the mouse", page.until(f"(r => r.width > 1.4 * wide && r.x < {x} && r.right > {x} && r.y < {y} && r.bottom > {y})(chosen.querySelector('rect').getBoundingClientRect())")
    yield "the head stays", page.until("(r => Math.abs(r.x - 16) < 2 && Math.abs(r.y - 50) < 3)(document.getElementById('search').getBoundingClientRect())")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sptrace", default=os.environ.get("SPTRACE", os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")), "release", "sptrace")))
    parser.add_argument("--programs", default="/tmp/sptrace-test-programs")
    parser.add_argument("--pictures", metavar="FOLDER", help="what they looked like")
    args = parser.parse_args()
    if not chromium.find():
        print("skip all: there is no chromium")
        return 0
    if args.pictures: os.makedirs(args.pictures, exist_ok=True)
    results, folder = [], tempfile.mkdtemp(prefix="sptrace-pictures-")

    def result(what, is_so):
        results.append(bool(is_so))
        print(f"{'ok  ' if is_so else 'FAIL'} {what}", flush=True)

    for name, command in {**COMMANDS, **player(folder)}.items():
        trace = record(args.sptrace, [os.path.join(args.programs, command[0]), *command[1:]], os.path.join(folder, f"{name}.trace"))
        views = {"flame": ["flame"], "icicle": ["flame", "--icicle", "--by", "calls"], "changes": ["flame", "--diff", trace.path], "graph": ["graph", "--format", "svg", "--limit", "60"]}
        for view, arguments in views.items():
            path = os.path.join(folder, f"{name}-{view}.svg")
            with open(path, "wb") as out: out.write(trace.report(*arguments))
            with chromium.Page(path, dark=view == "icicle") as page:
                page.evaluate("window.byName = (id) => document.getElementById(id).textContent")
                if args.pictures: page.picture(os.path.join(args.pictures, f"{name}-{view}.png"))
                checks = flame(page, trace) if view == "flame" else graph(page, trace, args.pictures) if view == "graph" else ()
                for what, is_so in checks: result(f"{name}, {view}: {what}", is_so)
                if view != "flame" and view != "graph": result(f"{name}, {view}: no text is wider than its frame", not page.evaluate(TOO_WIDE.replace("SELECTOR", "'#frames g'")))
                result(f"{name}, {view}: no error of its script {page.errors or ''}", not page.errors)
    shutil.rmtree(folder)
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
