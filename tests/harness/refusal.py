"""What sptrace must do with what it cannot use: one line, the right status, nothing left behind.

Gives a bench for such cases, and runs them; a case gives the faults that it found.
"""

import argparse, os, re, shutil, subprocess, tempfile

from harness.case import Skip, find_sptrace

USAGE, REPORT, OWN, CANNOT_EXECUTE, NOT_FOUND = 2, 1, 125, 126, 127


class Bench:
    """A fresh folder and ways to run sptrace in it."""

    def __init__(self, sptrace, folder, seed):
        self.sptrace, self.folder, self.seed = sptrace, folder, seed

    def path(self, name):
        return os.path.join(self.folder, name)

    def put(self, name, data, mode=0o755):
        with open(self.path(name), "wb") as f:
            f.write(data)
        os.chmod(self.path(name), mode)
        return "./" + name

    def run(self, *argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=None, before=None):
        return subprocess.run(
            [self.sptrace, *argv],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env=dict(
                os.environ,
                LC_ALL="C",
                XDG_CACHE_HOME=os.path.join(os.path.dirname(self.folder), "cache"),
                **(env or {}),
            ),
            timeout=120,
            preexec_fn=before,
        )

    def fails(self, status, *argv, says="", **how):
        """Runs what must fail with one good line and leave nothing behind."""
        before = self.files()
        got = self.run(*argv, **how)
        found = one_line(got, says)
        if got.returncode != status:
            found.append(f"status {got.returncode}, not {status}")
        if got.stdout:
            found.append(f"stdout: {got.stdout[:80]!r}")
        if self.files() != before:
            found.append(
                f"files changed: {sorted(set(self.files().items()) ^ set(before.items()))}"
            )
        return found

    def files(self):
        """Name to size and time, of all that lies in the folder."""
        return {
            n: (os.lstat(self.path(n)).st_size, os.lstat(self.path(n)).st_mtime_ns)
            for n in os.listdir(self.folder)
        }

    def trace(self, *argv):
        """A good trace, as bytes."""
        got = self.run("run", "-q", "-o", "good", "--", *(argv or ("/bin/ls", "/")))
        if got.returncode != 0:
            raise RuntimeError(f"no good trace: {got.stderr!r}")
        with open(self.path("good"), "rb") as f:
            return f.read()


def no_panic(got):
    text = got.stderr or b""
    found = ["panicked"] if b"panicked" in text or b"RUST_BACKTRACE" in text else []
    return found + (["status 101, that of a panic"] if got.returncode == 101 else [])


def one_line(got, says=""):
    text = got.stderr.decode("utf-8", "replace")
    found = no_panic(got)
    if not text.endswith("\n") or text.count("\n") != 1:
        found.append(f"stderr is not one line: {text[:300]!r}")
    if not text.startswith("sptrace: "):
        found.append(f"stderr does not begin with the name: {text[:120]!r}")
    if not re.search(r"\(.+\)|; ", text):
        found.append(f"no hint: {text[:300]!r}")
    if says.lower() not in text.lower():
        found.append(f"does not say {says!r}: {text[:300]!r}")
    return found


def same_as_native(bench, argv, *options):
    """The faults of a traced run of a program that must not notice; and the run itself."""
    native = subprocess.run(
        argv,
        cwd=bench.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    got = bench.run("run", *options, "--", *argv)
    found = no_panic(got)
    if got.stdout != native.stdout:
        found.append(f"stdout differs ({len(native.stdout)} and {len(got.stdout)} bytes)")
    if got.returncode != native.returncode:
        found.append(f"status {got.returncode}, not {native.returncode}")
    return found, got


def elf():
    with open("/bin/ls", "rb") as f:
        return f.read()


def changed(data, *changes):
    out = bytearray(data)
    for at, new in changes:
        out[at : at + len(new)] = new
    return bytes(out)


def main(cases, about):
    parser = argparse.ArgumentParser(description=about.split("\n")[0])
    parser.add_argument("--sptrace")
    parser.add_argument("--only", action="append", metavar="GLOB")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    chosen = cases.chosen(args.only)
    if args.list:
        for function in chosen:
            print(function.__name__)
        return 0
    sptrace, passed, failed = find_sptrace(args.sptrace), 0, 0
    for function in chosen:
        name = function.__name__
        work = tempfile.mkdtemp(prefix="sptrace-bad-input-", dir="/var/tmp")
        os.chmod(work, 0o755)
        os.mkdir(os.path.join(work, "in"))
        try:
            found = function(Bench(sptrace, os.path.join(work, "in"), args.seed))
        except Skip as why:
            print(f"skip {name}: {why}", flush=True)
            continue
        except (subprocess.TimeoutExpired, RuntimeError, OSError) as e:
            found = [str(e)]
        finally:
            shutil.rmtree(work, ignore_errors=True)
        failed, passed = failed + bool(found), passed + (not found)
        more = f" | and {len(found) - 4} more" if len(found) > 4 else ""
        text = ": " + " | ".join(found[:4]) + more if found else ""
        print(f"{'FAIL' if found else 'ok  '} {name}{text}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0
