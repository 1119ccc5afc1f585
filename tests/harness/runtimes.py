"""The cases of tests/runtimes: languages that bring their own stacks, collectors, exceptions and
generated code.

Given: a folder to build into. Gives (name, command) of each whose compiler or interpreter is
installed; the sources print the same output in every run. Must not know: sptrace, or how runs are
compared.
"""

import os, shutil, subprocess

HERE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "runtimes")


def go_build(source, program, is_stripped=False):
    """The command that makes a Go program; stripped ones can lie anywhere, too."""
    options = ["-buildmode=pie", "-ldflags=-s"] if is_stripped else []
    return ["go", "build", *options, "-o", program, source]


def build(folder):
    os.makedirs(folder, exist_ok=True)
    path, source = (lambda name: os.path.join(folder, name)), (
        lambda name: os.path.join(HERE, name)
    )
    built = []

    def make(compiler, command, name, run):
        if not shutil.which(compiler):
            return print(f"skip runtimes/{name}: {compiler} is not installed", flush=True)
        environment = dict(os.environ, GOCACHE=path("gocache"), GOFLAGS="-mod=mod", HOME=folder)
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        if done.returncode:
            raise RuntimeError(f"{name}: {done.stdout.decode('latin1')[-500:]}")
        built.append((name, run))

    make("go", go_build(source("churn.go"), path("go")), "go", [path("go")])
    for name, file in (
        ("go.stripped", "churn.go"),
        ("go.tallies", "tallies.go"),
        ("go.cgo", "cgo.go"),
        ("go.starting", "starting.go"),
    ):
        is_stripped = name not in ("go.cgo", "go.starting")
        command = go_build(source(file), path(name), is_stripped)
        make("go", command, name, [path(name)])
    if shutil.which("ocamlopt"):
        shutil.copy(source("churn.ml"), folder)
    make("ocamlopt", ["ocamlopt", "churn.ml", "-o", path("ocaml")], "ocaml", [path("ocaml")])
    make(
        "ocamlopt",
        ["strip", "-o", path("ocaml.stripped"), path("ocaml")],
        "ocaml.stripped",
        [path("ocaml.stripped")],
    )
    make(
        "javac",
        ["javac", "-d", folder, source("Churn.java")],
        "java",
        ["/usr/bin/java", "-Xmx64m", "-Xint", "-cp", folder, "Churn"],
    )
    make("javac", ["true"], "java.compiled", ["/usr/bin/java", "-Xmx64m", "-cp", folder, "Churn"])
    missing = [
        program for program in ("wine", "x86_64-w64-mingw32-gcc") if not shutil.which(program)
    ]
    if missing:
        print(f"skip runtimes/wine: {', '.join(missing)} not installed", flush=True)
    else:
        script = (
            f'export WINEPREFIX={path("wine")} WINEDEBUG=-all; wine {path("console.exe")} "$@"'
            " 2>/dev/null; status=$?; wineserver -w; exit $status"
        )
        make(
            "wine",
            ["x86_64-w64-mingw32-gcc", "-O1", "-o", path("console.exe"), source("console.c")],
            "wine",
            ["/bin/sh", "-c", script, "sh", "an argument"],
        )
        if os.path.exists(path("console.exe")):
            subprocess.run(
                ["/bin/sh", "-c", script],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )  # makes its folder
    return built + [
        ("node.churn", ["/usr/bin/node", "--expose-gc", source("churn.js")]),
        ("python3.extensions", ["/usr/bin/python3", source("extensions.py")]),
        ("ruby", ["/usr/bin/ruby", source("churn.rb")]),
    ]
