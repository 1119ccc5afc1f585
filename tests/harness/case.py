"""Cases and how they are run: what is common to the harnesses of this folder's parent.

A file of cases has `case = Cases()`, `@case` before each function, and `sys.exit(main(case,
__doc__))` at its end. A case is given a bench and asserts. Must not know what is tested.
"""

import fnmatch, os, subprocess, sys

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # tests/
ROOT = os.path.dirname(HERE)


class Cases(list):
    """The cases of a file in their order: a decorator of functions."""

    def __call__(self, function):
        self.append(function)
        return function

    def chosen(self, globs):
        """Those whose name fits one of the globs; without globs all."""
        return [c for c in self if not globs or any(fnmatch.fnmatch(c.__name__, g) for g in globs)]


class Skip(Exception):
    """The machine lacks what the case needs."""


class Failed(Exception):
    """The case has found something, and says what."""


def run_cases(cases):
    """Tries (name, function) one by one; a line for each, then the counts. Gives the status."""
    passed = failed = 0
    for name, case in cases:
        try:
            said = case()
            print(f"ok      {name}{f': {said}' if said else ''}", flush=True)
            passed += 1
        except Skip as why:
            print(f"skipped {name}: {why}", flush=True)
        except (Failed, AssertionError, OSError, subprocess.TimeoutExpired) as e:
            print(f"FAILED  {name}: {e if isinstance(e, Failed) else repr(e)}", flush=True)
            failed += 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def find_sptrace(given=None):
    """The built program: what was given, $SPTRACE, or the release build."""
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
    for path in (given, os.environ.get("SPTRACE"), os.path.join(target, "release", "sptrace")):
        if path and os.path.exists(path):
            return os.path.abspath(path)
    sys.exit("no sptrace found (build it with `cargo build --release`, or give --sptrace PATH)")
