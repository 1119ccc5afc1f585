#!/usr/bin/env python3
"""Checks the rules of the code base that a compiler does not.

usage: tests/tidy.py [--self-check]

Given: the repository this file lies in. Gives: one line for each violation, a last line `tidy: N problems`, status 1 if any.
  layers    each crate depends on just the crates that LAYERS names (dev-dependencies are free), each outside crate at
            home in one crate only is used nowhere else; of a crate in PARTS a user names only the modules listed
  circles   no files of a crate use each other in a circle (see rust_modules.py), and where FLOORS orders a crate's
            folders, none uses one that stands behind it
  headers   each .rs file begins with a `//!` header, each script and test program with a comment
  size      no source file over 700 lines, unless listed in LONG with a reason; no function below a src/ over 60, unless
            listed in LONG_FUNCTIONS, which lists none that is shorter; no line of tests/harness over 99 columns
  unsafe    every crate but those in MAY_BE_UNSAFE forbids unsafe code
  processes lib/tracee alone opens another process's files under /proc, traces it or asks the kernel for its memory, limits
            and descriptors, but for the files in TOUCHES_PROCESSES, each with its reason
  comments  no line of a comment in a .rs file has more than 100 columns
  names     what README.md, ARCHITECTURE.md, CONTRIBUTING.md, the crates' README.md and tests/stranger.md name as a file of
            this repository exists
  words     no absolute path of a workplace, no forbidden word in any tracked file
"""
import os, re, subprocess, sys, tempfile, tomllib


from harness import rust_functions, rust_modules

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# crate: the crates of this workspace that it may use
LAYERS = {
    "addr": set(),
    "wire": set(),
    "agent": {"wire"},
    "image": {"addr"},
    "walk": {"addr", "image"},
    "symbols": {"image"},
    "code": {"addr", "image", "symbols"},
    "trace": {"addr"},
    "patch": {"addr", "wire", "image", "code"},
    "render": {"addr", "trace", "types"},
    "export": {"trace", "render"},
    "dwarf": {"addr", "image"},
    "tracee": {"addr", "wire"},
    "keys": {"tracee"},
    "collect": {"types", "addr", "symbols", "wire", "image", "code", "dwarf", "kernel", "keys", "patch", "payload", "trace", "tracee", "walk"},
    "types": set(),
    "payload": set(),
    "kernel": {"addr", "code", "payload", "trace", "tracee", "types"},
    "script": {"trace", "types", "render", "payload"},
    "sptrace": {"addr", "types", "image", "symbols", "dwarf", "code", "patch", "trace", "render", "export", "collect", "tracee", "kernel", "script"},
    "xtask": {"types", "dwarf"},
}
# crate: its folders from the ground up; each uses those before it, and those of its own floor
FLOORS = {"agent": [{"memory"}, {"routines"}, {"frames"}, {"plans"}, {"signals"}, {"record"}, {"patch"}, {"reach"}, {"events"}, {"life"}]}
# (crate, crate that it uses): the modules of the latter that it may name
PARTS = {("kernel", "tracee"): {"proc"}, ("keys", "tracee"): {"pidfd", "proc", "terminal"}}
# outside crate: the crates that are its home
HOMES = {"goblin": {"image"}, "addr2line": {"dwarf"}, "framehop": {"walk"}, "iced-x86": {"code", "patch", "walk", "payload"}, "rhai": {"script"}, "clap": {"sptrace", "xtask"}, "parquet": {"export"}, "owo-colors": {"render"}, "tabled": {"render", "sptrace", "script"}}
# sptrace: dispositions of signals and its own end by one, which no safe interface offers
MAY_BE_UNSAFE = {"wire", "agent", "tracee", "keys", "collect", "kernel", "sptrace", "code"}
# path: why it names another process's files, though it is not in lib/tracee
TOUCHES_PROCESSES = {"lib/render/src/descriptors.rs": "a path in a traced program's words, which nobody opens"}
ANOTHER_PROCESS = re.compile(r'"/proc"|"/proc/\{|\blibc::(?:ptrace|prlimit|SYS_kcmp|SYS_pidfd_\w+|(?:SYS_)?process_vm_\w+)\b|\bnix::sys::(?:ptrace|uio)\b')
NO_STD = {"addr", "wire", "agent"}
LONG = {"lib/types/src/names/table.rs": "made from header files"}  # path: reason
MAX_LINES = 700
MAX_FUNCTION = 60
# path: functions of it that are longer, until they are split
LONG_FUNCTIONS = {}
EMBEDDED = {"tests/harness/fixtures.py"}  # programs in other languages, as they are
MAX_COLUMNS = 100  # of comments in Rust: rustfmt keeps the code within that, and leaves them alone
# Written in pieces, so that this file does not contain them.
FORBIDDEN = [re.compile(p) for p in ("/" + r"work/", "/" + r"root/", "/" + r"home/[a-z]+/", r"\b" + "TO" + r"DO\b", "un" + r"implemented!\(", "to" + r"do!\(")]


def manifest(path):
    with open(path, "rb") as f: return tomllib.load(f)


def dependencies(data):
    """(crates of the workspace, outside crates) that a manifest names for its build, without dev-dependencies."""
    names = set()
    tables = [data.get("dependencies", {}), data.get("build-dependencies", {})]
    tables += [t.get("dependencies", {}) for t in data.get("target", {}).values()]
    for table in tables:
        for name, value in table.items(): names.add(value.get("package", name) if isinstance(value, dict) else name)
    own = {n.removeprefix("sptrace-") for n in names if n.startswith("sptrace-")}
    return own, {n for n in names if not n.startswith("sptrace-")}


def crates(root):
    for top in ("lib", "bin"):
        folder = os.path.join(root, top)
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            if os.path.exists(os.path.join(folder, name, "Cargo.toml")): yield top, name, os.path.join(folder, name)


def check_layers(root):
    for top, name, folder in crates(root):
        own, outside = dependencies(manifest(os.path.join(folder, "Cargo.toml")))
        where = f"{top}/{name}/Cargo.toml"
        if top == "bin" and name == "agent": allowed = {"agent", "wire"}  # the image around lib/agent
        elif name in LAYERS: allowed = LAYERS[name]
        else:
            yield f"{where}: crate {name} has no place in LAYERS of tests/tidy.py"
            continue
        for used in sorted(own - allowed): yield f"{where}: {name} must not use {used}"
        for unused in sorted(allowed - own): yield f"{where}: LAYERS lets {name} use {unused}, which it does not"
        if name in NO_STD and outside: yield f"{where}: {name} may use no outside crate, uses {', '.join(sorted(outside))}"
        for used in sorted(outside):
            if used in HOMES and name not in HOMES[used]: yield f"{where}: {used} is at home in {', '.join(sorted(HOMES[used]))}, not in {name}"


def check_parts(root):
    for (user, used), parts in PARTS.items():
        for at, _, names in os.walk(os.path.join(root, "lib", user, "src")):
            for path in sorted(os.path.join(at, n) for n in names if n.endswith(".rs")):
                named = re.findall(rf"\bsptrace_{used}::(\w+|\{{)", open(path, encoding="utf-8").read())
                for part in sorted(set(named) - parts): yield f"{os.path.relpath(path, root)}: {user} uses of {used} only {', '.join(sorted(parts))}, not {part}"


def check_unsafe(root):
    for top, name, folder in crates(root):
        if name in MAY_BE_UNSAFE: continue
        for entry in ("lib.rs", "main.rs"):
            path = os.path.join(folder, "src", entry)
            if os.path.exists(path) and "#![forbid(unsafe_code)]" not in open(path, encoding="utf-8").read(): yield f"{top}/{name}/src/{entry}: forbid(unsafe_code) is missing"


def check_processes(root):
    for top, name, folder in crates(root):
        if (top, name) == ("lib", "tracee"): continue
        for at, _, names in os.walk(os.path.join(folder, "src")):
            for path in sorted(os.path.join(at, n) for n in names if n.endswith(".rs")):
                where = os.path.relpath(path, root)
                lines = enumerate(open(path, encoding="utf-8"), 1)
                found = [(number, ANOTHER_PROCESS.search(line)[0]) for number, line in lines if not line.lstrip().startswith("//") and ANOTHER_PROCESS.search(line)]
                if where in TOUCHES_PROCESSES:
                    if not found: yield f"{where}: TOUCHES_PROCESSES of tests/tidy.py lists it, which touches none"
                    continue
                for number, what in found: yield f"{where}:{number}: {what} belongs into lib/tracee, which alone touches another process"


def check_circles(root):
    for top, name, folder in crates(root):
        graph = rust_modules.uses(os.path.join(folder, "src"))
        for circle in rust_modules.circles(graph): yield f"{top}/{name}: a circle of files: {', '.join('::'.join(m) or 'lib' for m in circle)}"
        floor = {room: i for i, rooms in enumerate(FLOORS.get(name, [])) for room in rooms}
        if not floor or top != "lib": continue
        for room in sorted({m[0] for m in graph if m} - set(floor)): yield f"{top}/{name}: {room} has no place in FLOORS of tests/tidy.py"
        for user, used in sorted((u, v) for u in graph for v in graph[u] if u and v and u[0] in floor):
            if user[0] != used[0] and floor[user[0]] <= floor.get(used[0], -1): yield f"{top}/{name}: {'::'.join(user)} uses {'::'.join(used)}, which stands on the floor above it or beside it"


NAMED = re.compile(r"`((?:bin|lib|tests|scripts|man|completions|packaging|\.ci)/[\w./-]*\w)`")


def check_names(root):
    of_crates = [f"{top}/{name}/README.md" for top, name, _ in crates(root)]
    for document in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "tests/stranger.md", *of_crates]:
        path = os.path.join(root, document)
        if not os.path.exists(path): continue
        for number, line in enumerate(open(path, encoding="utf-8"), 1):
            for name in NAMED.findall(line):
                if "NAME" not in name and not os.path.exists(os.path.join(root, name)): yield f"{document}:{number}: there is no {name}"


def check_files(root, files):
    for name in files:
        path = os.path.join(root, name)
        try:
            with open(path, encoding="utf-8") as f: text = f.read()
        except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError): continue
        lines = text.split("\n")
        first = next((l for l in lines if l.strip() and not l.startswith("#!")), "")
        second = next((l for l in lines if l.strip() and not l.startswith("#![")), "")
        if name.endswith(".rs") and not second.startswith("//!"): yield f"{name}: no //! header"
        if name.startswith("tests/programs/") and name.endswith((".c", ".cpp", ".h")) and not first.startswith("//"): yield f"{name}: no header comment"
        if name.endswith((".s", ".sh", ".rhai")) and not first.startswith(("#", "//")): yield f"{name}: no header comment"
        if name.endswith(".py") and not first.startswith('"""'): yield f"{name}: no header text"
        if name.endswith((".rs", ".py", ".c", ".cpp", ".s", ".sh")) and len(lines) > MAX_LINES and name not in LONG: yield f"{name}: {len(lines)} lines, at most {MAX_LINES}"
        if name.startswith("tests/harness/") and name not in EMBEDDED:
            for number, line in enumerate(lines, 1):
                if len(line) > 99: yield f"{name}:{number}: {len(line)} columns, at most 99"
        if name.endswith(".rs"):
            allowed = LONG_FUNCTIONS.get(name, set())
            # A test may be long: it tells one story.
            long = dict(rust_functions.longer_than(lines, MAX_FUNCTION)) if "/src/" in name else {}
            for function in sorted(long.keys() - allowed): yield f"{name}: {function} has {long[function]} lines, at most {MAX_FUNCTION}"
            for function in sorted(allowed - long.keys()): yield f"{name}: LONG_FUNCTIONS of tests/tidy.py lists {function}, which is not long"
            for number, line in enumerate(lines, 1):
                if len(line) > MAX_COLUMNS and line.lstrip().startswith("//"): yield f"{name}:{number}: a comment of {len(line)} columns, at most {MAX_COLUMNS}"
        if name.endswith("Cargo.lock"): continue
        for number, line in enumerate(lines, 1):
            for word in FORBIDDEN:
                if word.search(line): yield f"{name}:{number}: forbidden: {word.search(line).group(0)}"


def check(root, files):
    return [*check_layers(root), *check_parts(root), *check_unsafe(root), *check_processes(root), *check_circles(root), *check_names(root), *check_files(root, files)]


def self_check():
    """Each rule must find its violation in a tree made to break it, and nothing in the same tree made right."""
    with tempfile.TemporaryDirectory() as root:
        def put(name, text):
            os.makedirs(os.path.dirname(os.path.join(root, name)), exist_ok=True)
            with open(os.path.join(root, name), "w") as f: f.write(text)
        good = "//! A header.\n#![forbid(unsafe_code)]\n"
        put("lib/image/Cargo.toml", "[dependencies]\nsptrace-addr = { workspace = true }\n[dev-dependencies]\nsptrace-code = { workspace = true }\n")
        put("lib/image/src/lib.rs", good)
        put("lib/image/src/below.rs", "//! A header.\npub fn f() {}\n")
        put("lib/image/src/above.rs", "//! A header.\nuse crate::below;\nfn g() { below::f() }\n")
        put("lib/agent/Cargo.toml", "[dependencies]\nsptrace-wire = { workspace = true }\n")
        put("lib/agent/src/memory.rs", "//! A header.\npub mod sys;\n")
        put("lib/agent/src/life.rs", "//! A header.\npub mod start;\n")
        put("lib/agent/src/memory/sys.rs", "//! A header.\n")
        put("lib/agent/src/life/start.rs", "//! A header.\nuse crate::memory::sys;\n")
        put("lib/render/Cargo.toml", "[dependencies]\n" + "".join(f"sptrace-{n}.workspace = true\n" for n in LAYERS["render"]))
        put("lib/render/src/lib.rs", good)
        put("lib/render/src/descriptors.rs", '//! A header.\npub fn f() { format!("/proc/{pid}") }\n')
        put("lib/kernel/Cargo.toml", "[dependencies]\n" + "".join(f"sptrace-{n}.workspace = true\n" for n in LAYERS["kernel"]))
        put("lib/kernel/src/lib.rs", "//! A header.\nuse sptrace_tracee::proc;\n")
        put("README.md", "See `lib/image/src/lib.rs`.\n")
        put("lib/image/src/lib.rs", good + "fn sixty() {\n" + "    f();\n" * 58 + "}\n")
        problems = check(root, ["lib/image/src/lib.rs"])
        put("lib/image/src/lib.rs", good)
        if problems: return [f"a right tree has problems: {problems}"]
        breaks = [
            ("must not use code", "lib/image/Cargo.toml", "[dependencies]\nsptrace-addr = { workspace = true }\nsptrace-code = { workspace = true }\n"),
            ("which it does not", "lib/image/Cargo.toml", "[dependencies]\n"),
            ("is at home in", "lib/agent/Cargo.toml", "[dependencies]\ngoblin.workspace = true\n"),
            ("has no place", "lib/utils/Cargo.toml", "[dependencies]\n"),
            ("forbid(unsafe_code) is missing", "lib/image/src/lib.rs", "//! A header.\n"),
            ("uses of tracee only proc", "lib/kernel/src/lib.rs", "//! A header.\nuse sptrace_tracee::ptrace;\n"),
            ("alone touches another process", "lib/image/src/below.rs", '//! A header.\npub fn f() { read(format!("/proc/{pid}/mem")) }\n'),
            ("alone touches another process", "lib/image/src/below.rs", "//! A header.\npub fn f() { libc::process_vm_readv() }\n"),
            ("which touches none", "lib/render/src/descriptors.rs", "//! A header.\n"),
            ("a circle of files: above, below", "lib/image/src/below.rs", "//! A header.\nuse super::above::g;\npub fn f() { g() }\n"),
            ("a circle of files: above, below", "lib/image/src/below.rs", "//! A header.\npub fn f() { crate::above::g() }\n"),
            ("stands on the floor above", "lib/agent/src/memory/sys.rs", "//! A header.\nuse crate::life::start;\n"),
            ("there is no lib/image", "README.md", "See `lib/image/src/gone.rs`.\n"),
            ("there is no lib/image", "lib/image/README.md", "See `lib/image/src/gone.rs`.\n"),
            ("no //! header", "lib/image/src/lib.rs", "#![forbid(unsafe_code)]\n"),
            ("a comment of 104 columns", "lib/image/src/lib.rs", good + "// " + "x" * 101 + "\n"),
            ("lines, at most", "lib/image/src/lib.rs", good + "\n" * 1200),
            ("long has 61 lines", "lib/image/src/lib.rs", good + "fn long() {\n" + "    f();\n" * 59 + "}\n"),
            ("long has 63 lines", "lib/image/src/lib.rs", good + "impl T {\n    pub const fn long(\n    ) {\n" + "        f();\n" * 60 + "    }\n}\n"),
            ("forbidden", "lib/image/src/lib.rs", good + "// see /" + "work/x\n"),
        ]
        failed = []
        for want, name, text in breaks:
            kept = open(os.path.join(root, name)).read() if os.path.exists(os.path.join(root, name)) else None
            put(name, text)
            if not any(want in p for p in check(root, ["lib/image/src/lib.rs"])): failed.append(f"not noticed: {want}")
            if kept is None: os.unlink(os.path.join(root, name))
            else: put(name, kept)
        return failed


def main():
    if sys.argv[1:] == ["--self-check"]: problems = self_check()
    else:
        files = subprocess.run(["git", "-C", ROOT, "ls-files"], stdout=subprocess.PIPE, text=True, check=True).stdout.split("\n")
        problems = check(ROOT, [f for f in files if f])
    for problem in problems: print(problem)
    print(f"tidy: {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
