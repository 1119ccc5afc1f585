#!/usr/bin/env python3
"""Names and lines that are not in the traced files: debug files, servers, symbol files, maps of generated code.

usage: tests/symbols.py [--sptrace PATH] [--only GLOB]

Given gcc and binutils. Small programs whose lines are known are built, and their debug information is taken out of them and put
where it may lie; what `report` and `analyze` say must be just that, and what is of another build must be refused in a sentence.
Python's debuginfod-like server is one of this file. Exit status: 1 if anything differs.
"""
import argparse, csv, http.server, io, json, os, shutil, subprocess, sys, tempfile, threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "harness"))
from case import Cases, Failed, Skip, find_sptrace, run_cases

case = Cases()
HEADER = """int leaf(int);
static inline __attribute__((always_inline)) int helper(int n) {
    return leaf(n) + 1;
}
"""
PROGRAM = """#include <stdio.h>
#include "helper.h"
__attribute__((noinline)) int leaf(int n) {
    return n * 3;
}
__attribute__((noinline)) int twice(int n) {
    int sum = leaf(n);
    sum += leaf(sum);
    return sum;
}
__attribute__((noinline)) int hidden(int n) {
    return helper(n) * 2;
}
int main(int argc, char **argv) {
    (void)argv;
    printf("%d %d\\n", twice(argc), hidden(argc));
    return 0;
}
"""
OUTPUT = "12 8\n"
# Two functions made at run time, named in a map for perf, which is gone again when the program ends.
GENERATED = r"""#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
typedef int (*function)(int);
int main(void) {
    static const unsigned char add[] = {0x8d, 0x47, 0x07, 0xc3}, times[] = {0x8d, 0x04, 0x7f, 0xc3};
    unsigned char *code = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(code, add, sizeof add);
    memcpy(code + 64, times, sizeof times);
    mprotect(code, 4096, PROT_READ | PROT_EXEC);
    char path[64];
    snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
    FILE *map = fopen(path, "w");
    unsigned long at = (unsigned long)code;
    fprintf(map, "%lx 40 old name\nnonsense\n%lx 40 add_seven jit.js:1\n%lx 40 times_three\n", at, at, at + 64);
    fclose(map);
    int sum = 0;
    for (int i = 0; i < 5; i++) sum += ((function)(void *)code)(i) + ((function)(void *)(code + 64))(i);
    printf("%d %d\n", sum, getpid());
    return 0;
}
"""


class Bench:
    def __init__(self, options, folder):
        self.sptrace, self.folder = options.sptrace, folder
        self.environment = {**os.environ, "XDG_CACHE_HOME": f"{folder}/cache"}
        for name in ("DEBUGINFOD_URLS", "DEBUGINFOD_CACHE_PATH"): self.environment.pop(name, None)

    def tool(self, *words, cwd=None):
        done = subprocess.run(words, cwd=cwd or self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
        if done.returncode: raise Failed(f"{words}: {done.stdout}")
        return done.stdout

    def say(self, *words, **environment):
        """What sptrace prints, and what it says."""
        done = subprocess.run([self.sptrace, *words], cwd=self.folder, env={**self.environment, **environment}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
        if done.returncode: raise Failed(f"{words}: {done.returncode} {done.stderr}")
        return done.stdout, done.stderr

    def refuses(self, *words):
        done = subprocess.run([self.sptrace, *words], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
        if done.returncode == 0 or done.stderr.count("\n") != 1: raise Failed(f"{words}: {done.returncode} {done.stderr!r}")
        return done.stderr

    def build(self, name, *flags):
        """The program `name` with its debug information in `name`.debug only; gives its path and build id."""
        for path, text in (("helper.h", HEADER), ("a.c", PROGRAM)):
            with open(f"{self.folder}/{path}", "w") as f: f.write(text)
        self.tool("gcc", "-g", "-O2", *flags, "-o", name, "a.c")
        self.tool("objcopy", "--only-keep-debug", name, f"{name}.debug")
        self.tool("strip", name)
        notes = self.tool("readelf", "-n", name)
        return f"{self.folder}/{name}", notes.split("Build ID: ")[1].split()[0] if "Build ID: " in notes else None

    def put_by_id(self, name, build_id, root="root"):
        folder = f"{self.folder}/{root}/.build-id/{build_id[:2]}"
        os.makedirs(folder, exist_ok=True)
        os.rename(f"{self.folder}/{name}.debug", f"{folder}/{build_id[2:]}.debug")

    def record(self, name, *options):
        out, error = self.say("run", "-q", "-o", f"{name}.data", *options, "--", f"{self.folder}/{name}")
        same("the program's output", OUTPUT, out)
        if error: raise Failed(f"run: {error}")

    def functions(self, name, *options, **environment):
        """function: its source, and what was said."""
        out, error = self.say("report", "functions", "-i", f"{name}.data", "-l", name, "--columns", "function,source", "--format", "csv", *options, **environment)
        return dict(list(csv.reader(io.StringIO(out)))[1:]), error


def same(what, wanted, found):
    if wanted != found: raise Failed(f"{what}: not {wanted!r} but {found!r}")


def lines(bench): return {"leaf": f"{bench.folder}/a.c:4", "twice": f"{bench.folder}/a.c:7", "hidden": f"{bench.folder}/a.c:12", "main": f"{bench.folder}/a.c:14"}


def has_lines(bench, found):
    for name, line in lines(bench).items():
        # Where a body begins the compiler may choose the line before.
        wanted = (line, f"{bench.folder}/a.c:{int(line.rsplit(':')[-1]) - 1}", f"{bench.folder}/a.c:{int(line.rsplit(':')[-1]) + 1}")
        if found.get(name) not in wanted: raise Failed(f"{name}: {found.get(name)!r} is none of {wanted}")


@case
def a_tree_says_where_calls_are_and_what_was_inlined(bench):
    bench.build("linked")
    bench.tool("objcopy", "--add-gnu-debuglink=linked.debug", "linked")
    bench.record("linked")
    out, error = bench.say("report", "tree", "-i", "linked.data", "-F", "main", "-l", "linked", "--source", "--columns", "tid")
    same("what is said", "", error)
    shown = [line.split("|", 1)[-1].strip() if "|" in line else line.strip() for line in out.splitlines()]
    for wanted in ("leaf(); /* at helper.h:3 in helper (inlined) */", "leaf(); /* at a.c:7 or a.c:8 */", "hidden() { /* at a.c:16 */", "twice() { /* at a.c:16 */"):
        if not any(wanted in line for line in shown): raise Failed(f"no {wanted!r} in {shown}")
    out, _ = bench.say("report", "callers", "leaf", "-i", "linked.data", "--source", "--format", "csv")
    rows = {row["caller"]: row["call_source"] for row in csv.DictReader(io.StringIO(out))}
    same("callers", {"hidden": f"{bench.folder}/helper.h:3 in helper (inlined)", "twice": f"{bench.folder}/a.c:7 or {bench.folder}/a.c:8"}, rows)
    out, _ = bench.say("analyze", "--sites", "--source", "--format", "csv", "linked")
    rows = [(row["function"], row["source"], row["inlined"]) for row in csv.DictReader(io.StringIO(out)) if row["target"] == "leaf"]
    same("sites", [("hidden", f"{bench.folder}/helper.h:3", "helper"), ("twice", f"{bench.folder}/a.c:7", ""), ("twice", f"{bench.folder}/a.c:8", "")], sorted(rows))
    out, _ = bench.say("analyze", "--graph", "hidden", "--source", "linked")
    if f"at {bench.folder}/helper.h:3 in helper (inlined)" not in out: raise Failed(out)


@case
def exports_have_lines_only_if_they_are_asked_for(bench):
    bench.build("exported")
    bench.tool("objcopy", "--add-gnu-debuglink=exported.debug", "exported")
    bench.record("exported")
    export = lambda form, *options: bench.say("report", "export", form, "-i", "exported.data", "-l", "exported", *options)[0]
    rows = list(csv.DictReader(io.StringIO(export("csv", "--source"))))
    has_lines(bench, {row["function"]: row["source"] for row in rows})
    of_leaf = sorted({row["call_source"] for row in rows if row["function"] == "leaf" and row["caller"] == "hidden"})
    same("csv", [f"{bench.folder}/helper.h:3 in helper (inlined)"], of_leaf)
    objects = [json.loads(line) for line in export("jsonl", "--source").splitlines()]
    same("jsonl", [(row["source"] or None, row["call_source"] or None) for row in rows], [(row["source"], row["call_source"]) for row in objects])
    profile = json.loads(export("firefox", "--source"))["threads"][0]
    table, strings = profile["funcTable"], profile["stringArray"]
    has_lines(bench, {strings[name]: f"{strings[file]}:{line}" for name, file, line in zip(table["name"], table["fileName"], table["lineNumber"]) if file is not None})
    grind = export("callgrind", "--source")
    if f" {bench.folder}/a.c\n" not in grind: raise Failed(f"callgrind has no file: {grind}")
    for form in ("csv", "jsonl", "callgrind", "firefox"):
        if "a.c" in export(form): raise Failed(f"{form} has lines that nobody asked for")
    same("the columns of csv", export("csv").splitlines()[0] + ",source,call_source", export("csv", "--source").splitlines()[0])


@case
def a_folder_that_is_named_serves_names_values_and_lines(bench):
    _, build_id = bench.build("named")
    bench.put_by_id("named", build_id)
    bench.record("named")
    unnamed, error = bench.functions("named", "--source")
    if "leaf" in unnamed or error: raise Failed(f"found without the folder: {unnamed} {error}")
    found, error = bench.functions("named", "--source", "--debug-dir", "root")
    has_lines(bench, found)
    bench.record("named", "--debug-dir", "root", "-A", "leaf", "-R", "leaf")
    out, _ = bench.say("report", "tree", "-i", "named.data", "-F", "leaf")
    if "leaf(1) = 3;" not in out: raise Failed(f"no values: {out}")
    # The program may be gone: what its build id leads to is enough for lines of functions.
    os.unlink(f"{bench.folder}/named")
    found, error = bench.functions("named", "--source", "--debug-dir", "root")
    has_lines(bench, found)


@case
def what_is_of_another_build_is_refused(bench):
    path, _ = bench.build("changed")
    bench.tool("objcopy", "--add-gnu-debuglink=changed.debug", "changed")
    bench.record("changed")
    bench.build("newer", "-DNEWER", "-O1")
    bench.tool("objcopy", "--remove-section=.note.gnu.build-id", "newer.debug")
    shutil.copy(f"{bench.folder}/newer.debug", f"{bench.folder}/changed.debug")
    found, error = bench.functions("changed", "--source")
    if "changed.debug is not used: its checksum is not the one" not in error or any(found.values()): raise Failed(f"{found} {error}")
    shutil.copy(f"{bench.folder}/newer", path)
    found, error = bench.functions("changed", "--source")
    if "changed has changed since the recording" not in error or any(found.values()): raise Failed(f"{found} {error}")


class Server(http.server.BaseHTTPRequestHandler):
    files, asked = {}, []

    def do_GET(self):
        Server.asked.append(self.path)
        content = Server.files.get(self.path)
        self.send_response(200 if content else 404)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        self.wfile.write(content or b"")

    def log_message(self, *_): pass


@case
def servers_are_asked_only_when_that_is_said(bench):
    _, build_id = bench.build("served")
    with open(f"{bench.folder}/served.debug", "rb") as f: content = f.read()
    os.unlink(f"{bench.folder}/served.debug")
    bench.record("served")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        variables = {"DEBUGINFOD_URLS": f"http://127.0.0.1:{server.server_port}/", "DEBUGINFOD_CACHE_PATH": f"{bench.folder}/kept"}
        wanted = f"/buildid/{build_id}/debuginfo"
        Server.files, Server.asked = {wanted: content}, []
        found, _ = bench.functions("served", "--source", **variables)
        same("asked without --debuginfod", [], Server.asked)
        found, _ = bench.functions("served", "--source", "--debuginfod", **variables)
        has_lines(bench, found)
        first = list(Server.asked)
        if first.count(wanted) != 1: raise Failed(f"asked {first}")
        found, _ = bench.functions("served", "--source", "--debuginfod", **variables)
        has_lines(bench, found)
        same("asked again", first, Server.asked)
        same("kept", content, open(f"{bench.folder}/kept/{build_id}/debuginfo", "rb").read())
    finally:
        server.shutdown()
        server.server_close()
    found, error = bench.functions("served", "--source", "--debuginfod", **{**variables, "DEBUGINFOD_CACHE_PATH": f"{bench.folder}/other"})
    if "could not be asked" not in error or any(found.values()): raise Failed(f"nobody there: {found} {error}")


@case
def symbol_files_name_what_has_no_name(bench):
    bench.build("bare")
    bench.record("bare")
    nm = bench.tool("nm", "bare.debug")
    with open(f"{bench.folder}/bare.nm", "w") as f: f.write(nm)
    os.unlink(f"{bench.folder}/bare.debug")
    found, _ = bench.functions("bare")
    if "leaf" in found: raise Failed(f"named already: {found}")
    for option in ("bare.nm", "bare=bare.nm"):
        found, error = bench.functions("bare", "--symbols", option)
        if not {"leaf", "twice", "hidden"} <= set(found) or error: raise Failed(f"{option}: {found} {error}")
    address = next(line.split()[0] for line in nm.splitlines() if line.endswith(" T leaf"))
    with open(f"{bench.folder}/own.txt", "w") as f: f.write(f"# mine\nbare:\n0x{address} the leaf\nlibc.so.6:\n1 nothing\n")
    found, _ = bench.functions("bare", "--symbols", "own.txt")
    if "the leaf" not in found: raise Failed(f"{found}")
    out, _ = bench.say("analyze", "--functions", "--symbols", "bare.nm", "bare")
    if " leaf" not in out: raise Failed(out)


@case
def code_that_was_generated_has_the_names_of_its_map(bench):
    with open(f"{bench.folder}/g.c", "w") as f: f.write(GENERATED)
    bench.tool("gcc", "-O1", "-o", "generated", "g.c")
    out, _ = bench.say("run", "-q", "-o", "g.data", "--", f"{bench.folder}/generated")
    total, pid = out.split()
    same("the program's output", "75", total)
    os.unlink(f"/tmp/perf-{pid}.map")
    out, _ = bench.say("report", "functions", "-i", "g.data", "-l", "?unknown?", "--columns", "calls,function", "--format", "csv")
    same("generated code", {"add_seven jit.js:1": "5", "times_three": "5"}, {row["function"]: row["calls"] for row in csv.DictReader(io.StringIO(out)) if row["calls"] == "5"})


@case
def functions_of_python_have_their_names(bench):
    python = next((path for path in (shutil.which(f"python3.{minor}") for minor in (14, 13, 12)) if path and subprocess.run([path, "-X", "perf", "-c", ""], stderr=subprocess.DEVNULL).returncode == 0), None)
    if python is None: raise Skip("no python3.12 or later")
    with open(f"{bench.folder}/f.py", "w") as f: f.write("import os\ndef inner(n): return n + 1\ndef outer(n): return sum([inner(i) for i in range(n)])\nprint(outer(100), os.getpid())\n")
    out, _ = bench.say("run", "-q", "-o", "p.data", "--", python, "-X", "perf", "f.py")
    total, pid = out.split()
    same("the program's output", "5050", total)
    if os.path.exists(f"/tmp/perf-{pid}.map"): os.unlink(f"/tmp/perf-{pid}.map")
    out, _ = bench.say("report", "functions", "-i", "p.data", "--columns", "calls,function", "--format", "csv")
    rows = [(row["function"], row["calls"]) for row in csv.DictReader(io.StringIO(out)) if row["function"].startswith(("py::inner:", "py::outer:"))]
    same("functions of python", [(f"py::inner:{bench.folder}/f.py", "100"), (f"py::outer:{bench.folder}/f.py", "1")], sorted(rows))


@case
def what_dwz_has_taken_out_is_read_again(bench):
    if not shutil.which("dwz"): raise Skip("no dwz")
    for name in ("one", "two"):
        bench.build(name, "-gdwarf-5")
        bench.tool("gcc", "-gdwarf-5", "-g", "-O2", "-o", name, "a.c")
    bench.tool("dwz", "-m", "common.debug", "-M", f"../{os.path.basename(bench.folder)}/common.debug", "one", "two")
    bench.tool("objcopy", "--only-keep-debug", "one", "one.debug")
    bench.tool("strip", "one")
    bench.tool("objcopy", "--add-gnu-debuglink=one.debug", "one")
    bench.record("one", "-A", "leaf", "-R", "leaf")
    show = lambda: bench.say("report", "tree", "-i", "one.data", "-F", "main", "-l", "one", "--source", "--columns", "tid")
    out, error = show()
    if "leaf(1) = 3; /* at helper.h:3 in helper (inlined) */" not in out or error: raise Failed(f"{out} {error}")
    os.unlink(f"{bench.folder}/common.debug")
    if "refers to ../" not in show()[1]: raise Failed("nothing is said of a file that is gone")


@case
def what_a_distribution_has_taken_out_is_found(bench):
    libc = "/lib/x86_64-linux-gnu/libc.so.6"
    notes = bench.tool("readelf", "-n", libc)
    build_id = notes.split("Build ID: ")[1].split()[0]
    if not os.path.exists(f"/usr/lib/debug/.build-id/{build_id[:2]}/{build_id[2:]}.debug"): raise Skip("libc6-dbg is not installed")
    out, error = bench.say("analyze", "--functions", "--source", "--format", "csv", libc)
    rows = {row["name"]: row["source"] for row in csv.DictReader(io.StringIO(out))}
    if "printf.c:" not in rows.get("printf", "") or error: raise Failed(f"{rows.get('printf')} {error}")
    if sum(1 for source in rows.values() if source) < len(rows) * 2 // 3: raise Failed("most functions have no line")


@case
def names_are_shown_as_linkers_know_them(bench):
    with open(f"{bench.folder}/m.cpp", "w") as f: f.write("namespace space { __attribute__((noinline)) int f(int n) { return n * 3; } }\nint main(int argc, char **) { return space::f(argc) - 3; }\n")
    bench.tool("g++", "-O1", "-o", "mangled", "m.cpp")
    bench.say("run", "-q", "-o", "m.data", "--", f"{bench.folder}/mangled")
    for options, wanted in (((), "space::f(int)"), (("--no-demangle",), "_ZN5space1fEi")):
        out, _ = bench.say("report", "functions", "-i", "m.data", "-l", "mangled", "--columns", "function", "--format", "csv", *options)
        if wanted not in out.splitlines(): raise Failed(f"{options}: {out}")


@case
def wrong_options_are_refused_in_a_line(bench):
    bench.build("wrong")
    bench.record("wrong")
    with open(f"{bench.folder}/none.txt", "w") as f: f.write("nothing here\n")
    for words, wanted in (
        (("report", "-i", "wrong.data", "--debug-dir", "missing"), "no such folder"),
        (("report", "-i", "wrong.data", "--debuginfod"), "DEBUGINFOD_URLS"),
        (("report", "-i", "wrong.data", "--symbols", "missing"), "missing"),
        (("report", "-i", "wrong.data", "--symbols", "none.txt"), "no names"),
        (("run", "--debug-dir", "missing", "--", "/bin/true"), "no such folder"),
        (("report", "tree", "-i", "wrong.data", "--follow", "--source"), "--source"),
    ):
        error = bench.refuses(*words)
        if wanted not in error: raise Failed(f"{words}: {error}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sptrace")
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    options.sptrace = find_sptrace(options.sptrace)
    with tempfile.TemporaryDirectory(prefix="sptrace-symbols-") as folder:
        bench = Bench(options, folder)
        return run_cases((c.__name__, lambda c=c: c(bench)) for c in case.chosen(options.only))


if __name__ == "__main__":
    sys.exit(main())
