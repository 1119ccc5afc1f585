"""How often functions are entered in a program that nothing but gdb watches: a second opinion for tests/oracle.py.

usage: COUNTS_OF=FILE [LAYOUT=random] gdb -batch -x tests/breakpoint_counts.py --args COMMAND

Given: FILE, json: a list of [path of an object, svma of a function]. The command runs without address randomisation (or
with), with its environment as given, its children let go. Gives: FILE rewritten, json: for each how often its first instruction was
reached, calls and jumps alike, or null where the object was not mapped or a child was forked.
Must not know: sptrace, valgrind.
"""
import json, os, struct
import gdb

path = os.environ["COUNTS_OF"]
with open(path) as f: wanted = [tuple(w) for w in json.load(f)]
points, forks = {}, []


def first_svma(file):
    """The svma of an object's first loaded byte, which lies where the object is mapped first."""
    with open(file, "rb") as f: head = f.read(4096)
    phoff, = struct.unpack_from("<Q", head, 32)
    phnum, = struct.unpack_from("<H", head, 56)
    loads = [struct.unpack_from("<IIQQQQ", head, phoff + i * 56) for i in range(phnum)]
    return min(p[3] for p in loads if p[0] == 1) & ~4095


def set_points(_=None):
    """Breaks at what is mapped by now; none of them ever stops."""
    pid = gdb.selected_inferior().pid
    if not pid: return
    with open(f"/proc/{pid}/maps") as f: maps = [line.split(None, 5) for line in f]
    for file, svma in wanted:
        start = next((int(m[0].split("-")[0], 16) for m in maps if len(m) > 5 and m[5].strip() == os.path.realpath(file)), None)
        if start is None or (file, svma) in points: continue
        point = gdb.Breakpoint(f"*{start - first_svma(file) + svma:#x}", internal=True)
        point.ignore_count = 1 << 30
        points[file, svma] = point


for line in ("set pagination off", "set confirm off", "set startup-with-shell off", f"set disable-randomization {'off' if os.environ.get('LAYOUT') == 'random' else 'on'}", "set detach-on-fork on",
             "unset environment LINES", "unset environment COLUMNS", "unset environment COUNTS_OF", "unset environment LAYOUT",
             "handle all nostop noprint pass", "handle SIGTRAP stop"): gdb.execute(line, to_string=True)
gdb.execute("starti", to_string=True)
set_points()
gdb.events.new_objfile.connect(set_points)
catch = gdb.Breakpoint("fork", internal=True)  # a forked child's calls are not counted, and its breakpoints are gone
catch.ignore_count = 1 << 30
gdb.execute("continue", to_string=True)
complete = catch.hit_count == 0
with open(path, "w") as f: json.dump([points[w].hit_count if complete and w in points else None for w in wanted], f)
