#!/usr/bin/env python3
"""Completions in the real shells: what stands on the line after the tabulator key?

usage: tests/completions.py [--sptrace PATH] [--only GLOB]... [--list]

Given: bash, zsh and fish (a shell that is not installed is skipped), the files of completions/, which ask sptrace itself.
Gives: one line a shell, then `N passed, N failed`; status 1 if anything failed.
Checked: commands, views, options, events, scripts, processes, programs and functions of the program that is named behind.
Must not know: how candidates are found.
"""
import fnmatch, os, pty, re, select, shutil, subprocess, sys, tempfile, time

from harness.case import ROOT, Skip, find_sptrace, run_cases

COMPLETIONS = os.path.join(ROOT, "completions")
# line that is typed, what it becomes
UNIQUE = [
    ("sptrace rep", "sptrace report"),
    ("sptrace report summ", "sptrace report summary"),
    ("sptrace run --keep-p", "sptrace run --keep-pid"),
    ("sptrace run -S tail-l", "sptrace run -S tail-latency"),
    ("sptrace run --dump-on cra", "sptrace run --dump-on crash"),
    ("sptrace cache fi", "sptrace cache fill"),
    ("sptrace run -- sqlite", "sptrace run -- sqlite3"),
    ("sptrace report -i only-f", "sptrace report -i only-file"),
]


class Terminal:
    """A shell on a terminal of its own: lines are typed, and what it shows is read."""

    def __init__(self, argv, env, folder):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execvpe(argv[0], argv, env)
        self.shown = ""

    def type(self, text): os.write(self.fd, text.encode())

    def shows(self, what, seconds=20):
        """True once `what` has been shown since the last line."""
        end = time.monotonic() + seconds
        while what not in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\x07|\r", "", self.shown):
            if not select.select([self.fd], [], [], max(0, end - time.monotonic()))[0]: return False
            try: self.shown += os.read(self.fd, 65536).decode(errors="replace")
            except OSError: return False
        return True

    def close(self):
        os.close(self.fd)
        try: os.kill(self.pid, 9)
        except ProcessLookupError: pass
        os.waitpid(self.pid, 0)


def environment(sptrace, folder):
    binary = os.path.join(folder, ".bin")
    os.mkdir(binary)
    os.symlink(sptrace, os.path.join(binary, "sptrace"))
    with open(os.path.join(folder, "only-file"), "w", encoding="utf-8"): pass
    return {"PATH": f"{binary}:/usr/bin:/bin", "HOME": folder, "TERM": "dumb", "LC_ALL": "C.UTF-8"}


def on_terminal(argv, setup, sptrace):
    """Types each line and a tabulator, ends it by a word of its own, and sees what the shell would execute."""
    folder = tempfile.mkdtemp(prefix="sptrace-completions-")
    try:
        terminal = Terminal(argv, {**environment(sptrace, folder), "PS1": "=> "}, folder)
        try:
            for line in (*setup, "PS1='=> '", "echo rea''dy"): terminal.type(line + "\n")
            assert terminal.shows("ready"), terminal.shown[-500:]
            for typed, wanted in UNIQUE:
                terminal.shown = ""
                terminal.type(typed + "\t")
                assert terminal.shows(wanted), f"{typed!r} does not become {wanted!r}: {terminal.shown[-300:]!r}"
                terminal.type("\x15")
        finally: terminal.close()
    finally: shutil.rmtree(folder, ignore_errors=True)
    return f"{len(UNIQUE)} lines"


def needs(shell):
    if not shutil.which(shell): raise Skip(f"{shell} is not installed")


def bash(sptrace):
    needs("bash")
    return on_terminal(["bash", "--norc", "--noprofile", "-i"], [f". {COMPLETIONS}/sptrace.bash", "bind 'set enable-bracketed-paste off'"], sptrace)


def zsh(sptrace):
    needs("zsh")
    return on_terminal(["zsh", "-f", "-i"], [f"fpath=({COMPLETIONS} $fpath)", "autoload -U compinit", "compinit -u -D"], sptrace)


def fish(sptrace):
    needs("fish")
    folder = tempfile.mkdtemp(prefix="sptrace-completions-")
    try:
        env = environment(sptrace, folder)
        for typed, wanted in UNIQUE:
            script = f"source {COMPLETIONS}/sptrace.fish; complete -C '{typed}'"
            got = subprocess.run(["fish", "--no-config", "-c", script], env=env, cwd=folder, capture_output=True, text=True, timeout=60)
            words = [line.split("\t")[0] for line in got.stdout.splitlines()]
            assert wanted.split(" ")[-1] in words, f"{typed!r}: {words} {got.stderr[-300:]}"
    finally: shutil.rmtree(folder, ignore_errors=True)
    return f"{len(UNIQUE)} lines"


def candidates(sptrace):
    """What depends on the rest of the line, and on the machine."""
    folder = tempfile.mkdtemp(prefix="sptrace-completions-")
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        def ask(words, at):
            env = {**environment(sptrace, tempfile.mkdtemp(dir=folder)), "SPTRACE_COMPLETE": "bash", "_CLAP_COMPLETE_INDEX": str(at), "_CLAP_IFS": "\n"}
            got = subprocess.run([sptrace, "--", *words], env=env, capture_output=True, text=True, timeout=60)
            assert got.returncode == 0, got.stderr
            return got.stdout.split("\n")
        assert str(sleeper.pid) in ask(["sptrace", "attach", "-p", ""], 3)
        found = ask(["sptrace", "run", "-F", "Py_B", "--", "/usr/bin/python3"], 3)
        assert "Py_BuildValue" in found and all(f.startswith("Py_B") for f in found), found[:5]
        assert ask(["sptrace", "run", "-F", "Py_B", "--", "/nonexistent"], 3) == [""]
    finally:
        sleeper.kill()
        sleeper.wait()
        shutil.rmtree(folder, ignore_errors=True)


def main(argv):
    def values(option): return [argv[i + 1] for i, a in enumerate(argv) if a == option]
    sptrace, only = find_sptrace(*values("--sptrace")[:1]), values("--only")
    cases = [(c.__name__, c) for c in (bash, zsh, fish, candidates)]
    if "--list" in argv: print(*(name for name, _ in cases), sep="\n"); return 0
    chosen = [(n, lambda c=c: c(sptrace)) for n, c in cases if not only or any(fnmatch.fnmatch(n, g) for g in only)]
    return run_cases(chosen)


if __name__ == "__main__": sys.exit(main(sys.argv[1:]))
