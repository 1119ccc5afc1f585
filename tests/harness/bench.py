"""Cases with a bench: a fresh folder for each, and ways to run sptrace in it.

Given a built sptrace and the test programs (they are built if none are given). Must not know what
a case looks at.
"""

import argparse, os, shutil, subprocess, tempfile, time

from harness.case import ROOT, Skip


class Bench:
    """A fresh folder and ways to run sptrace in it."""

    # Of `run`, in front of those of a case.
    options = []

    def __init__(self, sptrace, programs, folder):
        self.sptrace, self.programs, self.folder = sptrace, programs, folder
        os.mkdir(os.path.join(folder, "runtime"), 0o700)
        self.env = dict(
            os.environ,
            LC_ALL="C",
            XDG_CACHE_HOME=os.path.join(os.path.dirname(folder), "cache"),
            XDG_RUNTIME_DIR=os.path.join(folder, "runtime"),
        )
        self.recorder, self.gated, self.heirs, self.headed = (
            os.path.join(programs, f"{name}.O2")
            for name in ("recorder", "gated", "heirs", "headed")
        )
        self.started = []

    def path(self, name):
        return os.path.join(self.folder, name)

    def has(self, name):
        return os.path.exists(self.path(name))

    def dumps(self):
        return sorted(n for n in os.listdir(self.folder) if n.startswith("t.data"))

    def start(self, options, command, **how):
        how = {
            "stdin": subprocess.PIPE,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            **how,
        }
        self.started.append(
            subprocess.Popen(
                [self.sptrace, "run", "-o", "t.data", *self.options, *options, "--", *command],
                cwd=self.folder,
                env=self.env,
                **how,
            )
        )
        return self.started[-1]

    def run(self, options, command):
        process = self.start(options, command)
        out, err = process.communicate(timeout=60)
        return process.returncode, out.decode(), err.decode()

    def sptrace_says(self, *argv):
        got = subprocess.run(
            [self.sptrace, *argv],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            start_new_session=True,
        )
        return got.returncode, got.stdout, got.stderr

    def report(self, view="summary", name="t.data", *options):
        status, out, err = self.sptrace_says("report", view, "-i", name, *options)
        assert status == 0 and "ends early" not in out, (name, status, err, out[-300:])
        return out

    def fails(self, status, says, *argv):
        got = self.sptrace_says(*argv)
        lines = got[2].splitlines()
        assert (
            got[0] == status
            and got[1] == ""
            and len(lines) == 1
            and lines[0].startswith("sptrace: ")
            and says in lines[0]
        ), (argv, got)

    def close(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream:
                    stream.close()
            process.wait()


def recorder(event, *more):
    return ["--ring", "4M", *[w for e in (event, *more) for w in ("--dump-on", e)]]


def finish(process, input=b""):
    out, err = process.communicate(input, timeout=60)
    return process.returncode, out.decode(), err.decode()


def main(cases, doc, new_bench=Bench, wrong=None):
    """`new_bench` is given sptrace, the programs' folder and one of its own. `wrong` takes
    sptrace's place for --self-check.
    """
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--sptrace",
        default=os.environ.get("SPTRACE", os.path.join(ROOT, "target/release/sptrace")),
    )
    parser.add_argument("--programs")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--option", action="append", default=[])
    if wrong:
        parser.add_argument("--self-check", action="store_true")
    a = parser.parse_args()
    chosen = cases.chosen(a.only)
    if a.list:
        print("\n".join(c.__name__ for c in chosen))
        return 0
    work, passed, failed = tempfile.mkdtemp(prefix="sptrace-events-"), 0, 0
    programs = a.programs or os.path.join(work, "programs")
    if not a.programs and new_bench is Bench:
        subprocess.run([os.path.join(ROOT, "tests/programs/build.sh"), programs], check=True)
    is_checked = wrong and a.self_check
    if is_checked:
        a.sptrace = os.path.join(work, "wrong")
        with open(a.sptrace, "w") as f:
            f.write(wrong)
        os.chmod(a.sptrace, 0o755)
    for number, function in enumerate(f for f in chosen for _ in range(a.repeat)):
        folder = os.path.join(work, f"case{number}")
        os.mkdir(folder)
        bench, begun = (
            new_bench(os.path.abspath(a.sptrace), os.path.abspath(programs), folder),
            time.monotonic(),
        )
        bench.options = a.option
        fault = None
        try:
            function(bench)
        except Skip as why:
            print(f"skipped {function.__name__}: {why}", flush=True)
            continue
        except (AssertionError, subprocess.SubprocessError, OSError, ValueError) as error:
            fault = repr(error)
        finally:
            bench.close()
        if is_checked:
            fault, said = (None, f"finds {fault}") if fault else ("finds nothing wrong", "")
        else:
            said = f"({time.monotonic() - begun:.1f} s)"
        passed, failed = passed + (not fault), failed + bool(fault)
        print(
            (
                f"FAILED {function.__name__}: {fault}"
                if fault
                else f"ok     {function.__name__} {said}"
            )[:1500],
            flush=True,
        )
    shutil.rmtree(work, ignore_errors=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0
