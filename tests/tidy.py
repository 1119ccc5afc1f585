#!/usr/bin/env python3
"""Checks the rules of the code base that a compiler does not.

usage: tests/tidy.py [--self-check]

Given: the repository this file lies in. Gives: one line for each violation, a last line `tidy: N problems`, status 1 if any.
  layers    each crate depends only on the crates that LAYERS names (dev-dependencies are free), each outside crate at
            home in one crate only is used nowhere else
  headers   each .rs file begins with a `//!` header, each script and test program with a comment
  size      no source file over 700 lines, unless listed in LONG with a reason
  unsafe    every crate but those in MAY_BE_UNSAFE forbids unsafe code
  words     no absolute path of a workplace, no forbidden word in any tracked file
"""
import os, re, subprocess, sys, tempfile, tomllib

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# crate: the crates of this workspace that it may use
LAYERS = {
    "addr": set(),
    "wire": {"addr"},
    "agent": {"addr", "wire"},
    "image": {"addr"},
    "walk": {"addr", "image"},
    "code": {"addr", "image"},
    "trace": {"addr", "wire"},
    "patch": {"addr", "wire", "image", "code"},
    "render": {"addr", "code", "trace"},
    "export": {"trace"},
    "tracee": {"addr", "wire", "image", "patch"},
    "collect": {"addr", "wire", "image", "code", "patch", "trace", "tracee", "walk"},
    "script": {"addr", "code", "trace"},
    "types": set(),
    "kernel": {"addr", "trace", "types"},
    "sptrace": {"addr", "wire", "image", "code", "patch", "trace", "script", "render", "export", "collect", "tracee", "kernel"},
    "xtask": {"sptrace"},
}
# outside crate: the crates that are its home
HOMES = {"goblin": {"image"}, "framehop": {"walk"}, "iced-x86": {"code", "patch", "walk"}, "rhai": {"script"}, "clap": {"sptrace", "xtask"}, "owo-colors": {"render"}, "tabled": {"render", "sptrace"}}
# sptrace: dispositions of signals and its own end by one, which no safe interface offers
MAY_BE_UNSAFE = {"wire", "agent", "tracee", "collect", "kernel", "sptrace", "code"}
NO_STD = {"addr", "wire", "agent"}
LONG = {}  # path: reason
MAX_LINES = 700
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
        if top == "bin" and name == "agent": allowed = {"agent", "addr", "wire"}  # the image around lib/agent
        elif name in LAYERS: allowed = LAYERS[name]
        else:
            yield f"{where}: crate {name} has no place in LAYERS of tests/tidy.py"
            continue
        for used in sorted(own - allowed): yield f"{where}: {name} must not use {used}"
        if name in NO_STD and outside: yield f"{where}: {name} may use no outside crate, uses {', '.join(sorted(outside))}"
        for used in sorted(outside):
            if used in HOMES and name not in HOMES[used]: yield f"{where}: {used} is at home in {', '.join(sorted(HOMES[used]))}, not in {name}"


def check_unsafe(root):
    for top, name, folder in crates(root):
        if name in MAY_BE_UNSAFE: continue
        for entry in ("lib.rs", "main.rs"):
            path = os.path.join(folder, "src", entry)
            if os.path.exists(path) and "#![forbid(unsafe_code)]" not in open(path, encoding="utf-8").read(): yield f"{top}/{name}/src/{entry}: forbid(unsafe_code) is missing"


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
        if name.endswith("Cargo.lock"): continue
        for number, line in enumerate(lines, 1):
            for word in FORBIDDEN:
                if word.search(line): yield f"{name}:{number}: forbidden: {word.search(line).group(0)}"


def check(root, files):
    return [*check_layers(root), *check_unsafe(root), *check_files(root, files)]


def self_check():
    """Each rule must find its violation in a tree made to break it, and nothing in the same tree made right."""
    with tempfile.TemporaryDirectory() as root:
        def put(name, text):
            os.makedirs(os.path.dirname(os.path.join(root, name)), exist_ok=True)
            with open(os.path.join(root, name), "w") as f: f.write(text)
        good = "//! A header.\n#![forbid(unsafe_code)]\n"
        put("lib/trace/Cargo.toml", "[dependencies]\nsptrace-wire = { workspace = true }\n[dev-dependencies]\nsptrace-code = { workspace = true }\n")
        put("lib/trace/src/lib.rs", good)
        problems = check(root, ["lib/trace/src/lib.rs"])
        if problems: return [f"a right tree has problems: {problems}"]
        breaks = [
            ("must not use code", "lib/trace/Cargo.toml", "[dependencies]\nsptrace-code = { workspace = true }\n"),
            ("is at home in", "lib/trace/Cargo.toml", "[dependencies]\ngoblin.workspace = true\n"),
            ("has no place", "lib/utils/Cargo.toml", "[dependencies]\n"),
            ("forbid(unsafe_code) is missing", "lib/trace/src/lib.rs", "//! A header.\n"),
            ("no //! header", "lib/trace/src/lib.rs", "#![forbid(unsafe_code)]\n"),
            ("lines, at most", "lib/trace/src/lib.rs", good + "\n" * 1200),
            ("forbidden", "lib/trace/src/lib.rs", good + "// see /" + "work/x\n"),
        ]
        failed = []
        for want, name, text in breaks:
            kept = open(os.path.join(root, name)).read() if os.path.exists(os.path.join(root, name)) else None
            put(name, text)
            if not any(want in p for p in check(root, ["lib/trace/src/lib.rs"])): failed.append(f"not noticed: {want}")
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
