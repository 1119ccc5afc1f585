"""Runs a command with and without a wrapper and compares what it did.

Given a case: a command with its inputs. Compared are output, status and files; watched meanwhile,
in /proc, are mappings that are writable and executable, who is traced, and who is left behind.
Must not know how sptrace works.
"""

import difflib, hashlib, os, re, shutil, signal, subprocess, threading, time

from harness.process import alive, alive_descendants, descendants

TRACED_TOO_LONG_S = 0.5


STOPPED_S = 5.0


SAMPLE_S = 0.01


class Case:
    """A command with its inputs. `threaded` cases are repeated; `quick` ones make up the CI
    subset.
    """

    def __init__(
        self,
        name,
        argv,
        *,
        threaded=False,
        quick=False,
        redact=(),
        files=(),
        need=(),
        timeout_s=120,
        mid=True,
        options=(),
        wx=False,
    ):
        self.options = list(options)  # of `sptrace run`
        self.wx = (
            wx  # it maps its own code writable and executable, too short to be seen each time
        )
        self.name, self.argv, self.threaded, self.quick = name, argv, threaded, quick
        self.redact, self.files, self.need, self.timeout_s = redact, files, need, timeout_s
        self.mid = mid  # long enough to be interrupted in mid-run


def environment(home):
    """The same small environment for every run."""
    env = {
        "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
        "HOME": home,
        "LC_ALL": "C",
        "TZ": "UTC",
        "PYTHONHASHSEED": "0",
        "PERL_HASH_SEED": "0",
        "GIT_CONFIG_NOSYSTEM": "1",
        "TERM": "dumb",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    for name in ("CARGO_HOME", "RUSTUP_HOME"):
        default = os.path.expanduser({"CARGO_HOME": "~/.cargo", "RUSTUP_HOME": "~/.rustup"}[name])
        if os.path.isdir(os.environ.get(name, default)):
            env[name] = os.environ.get(name, default)
    return env


def digest(path):
    return (
        hashlib.sha256(open(path, "rb").read()).hexdigest() if os.path.exists(path) else "missing"
    )


class Watcher(threading.Thread):
    """Samples /proc of all processes below ours: writable and executable mappings, TracerPid while
    they run.
    """

    def __init__(self):
        super().__init__(daemon=True)
        self.wx, self.traced_s, self.longest_traced_s, self.longest_states, self.stop = (
            set(),
            {},
            0.0,
            "",
            threading.Event(),
        )

    def run(self):
        last = time.monotonic()
        while not self.stop.wait(SAMPLE_S):
            # Where we wait for a processor, so does the tracer.
            now = time.monotonic()
            passed, last = min(now - last, 5 * SAMPLE_S), now
            for pid in descendants(os.getpid()):
                try:
                    with open(f"/proc/{pid}/status") as f:
                        state, tracer = re.search(
                            r"State:\s*(\S).*TracerPid:\s*(\d+)", f.read(), re.S
                        ).groups()
                    with open(f"/proc/{pid}/maps") as f:
                        found = re.findall(r"(?m)^\S+ .wx.*$", f.read())
                except (OSError, AttributeError):
                    continue
                self.wx.update(re.sub(r"^\S+ ", "", line) for line in found)
                if tracer == "0":
                    self.traced_s.pop(pid, None)
                # While it stands at its exec stop it does not run, and before that it is still its
                # tracer's child, however
                # long that takes on a busy machine.
                elif state != "t" and not self.is_tracers(pid, tracer):
                    passed_s, states = self.traced_s.get(pid, (-passed, ""))
                    self.traced_s[pid] = (passed_s + passed, states + state)
                    if passed_s + passed > self.longest_traced_s:
                        self.longest_traced_s, self.longest_states = self.traced_s[pid]

    @staticmethod
    def is_tracers(pid, tracer):
        """Whether a process still runs the program of its tracer: it was forked and has not
        executed the command yet.
        """
        try:
            return os.readlink(f"/proc/{pid}/exe") == os.readlink(f"/proc/{tracer}/exe")
        except OSError:
            return False


class Run:
    """What one run gave."""

    def __init__(self):
        self.stdout = self.stderr = b""
        self.status = None
        self.files = {}
        self.trouble = []
        self.seconds = 0.0
        self.wx = set()
        self.interrupted = False


class Runner:
    def __init__(self, work, tracer, rng, keep_trace_check):
        self.work, self.tracer, self.rng, self.trace_check = work, tracer, rng, keep_trace_check
        self.cwd, self.trace = os.path.join(work, "cwd"), os.path.join(work, "trace.data")

    def wrapper(self, case):
        """The tracer with the options of a case; another wrapper has none."""
        return (
            [*self.tracer[:-1], *case.options, "--"]
            if case.options and self.tracer[-1] == "--"
            else self.tracer
        )

    def once(self, case, prefix, disturb=None, delay_s=0.0):
        """Runs a case in a fresh folder. `disturb` (SIGKILL or SIGSTOP) goes to the tracer
        `delay_s` after the program is seen.
        """
        shutil.rmtree(self.cwd, ignore_errors=True)
        os.makedirs(self.cwd)
        for name in (self.trace, self.trace + ".old"):
            if os.path.exists(name):
                os.unlink(name)
        run, watcher = Run(), Watcher()
        out, err = os.path.join(self.work, "stdout"), os.path.join(self.work, "stderr")
        with open(out, "wb") as o, open(err, "wb") as e:
            started = time.monotonic()
            process = subprocess.Popen(
                prefix + case.argv,
                cwd=self.cwd,
                stdin=subprocess.DEVNULL,
                stdout=o,
                stderr=e,
                env=environment(self.work),
                restore_signals=True,
            )
        watcher.start()
        deadline = started + case.timeout_s
        target = None
        if disturb is not None:
            target = self.find_program(process, case.argv, deadline)
            time.sleep(delay_s)
            if target is not None and process.poll() is None and alive(target):
                run.interrupted = True
                process.send_signal(disturb)
                if disturb == signal.SIGSTOP:
                    threading.Timer(
                        STOPPED_S,
                        lambda: process.poll() is None and process.send_signal(signal.SIGCONT),
                    ).start()
        if run.interrupted and disturb == signal.SIGKILL:
            process.wait()
            run.status = self.reap(target, deadline, run)
        else:
            try:
                run.status = process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                run.trouble.append(f"did not end within {case.timeout_s} s")
        run.seconds = time.monotonic() - started
        time.sleep(0 if not descendants(os.getpid()) else 0.2)
        left = alive_descendants(os.getpid())
        if left:
            if not run.trouble:
                run.trouble.append(f"{len(left)} process(es) left behind")
            for p in left:
                try:
                    os.kill(p, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        if process.poll() is None:
            process.wait()
        self.reap_all()
        watcher.stop.set()
        watcher.join()
        run.wx = watcher.wx
        # a tracer that is stopped between an exec and its exec stop cannot let go of the program
        allowed_s = TRACED_TOO_LONG_S + (
            STOPPED_S if run.interrupted and disturb == signal.SIGSTOP else 0
        )
        if watcher.longest_traced_s > allowed_s:
            run.trouble.append(
                f"TracerPid not 0 for {watcher.longest_traced_s:.1f} s (states"
                f" {watcher.longest_states[-100:]})"
            )
        run.stdout, run.stderr = open(out, "rb").read(), open(err, "rb").read()
        for name in case.files:
            run.files[name] = digest(os.path.join(self.cwd, name))
        if (
            self.trace_check
            and prefix
            and not (os.path.exists(self.trace) and os.path.getsize(self.trace) > 0)
        ):
            run.trouble.append("no trace file")
        return run

    @staticmethod
    def find_program(process, argv, deadline):
        """The process that became the command: its command line is the command's (or a script's
        interpreter with it).
        """
        want = b"\0".join(a.encode() for a in argv) + b"\0"
        while time.monotonic() < deadline and process.poll() is None:
            for pid in descendants(process.pid):
                try:
                    with open(f"/proc/{pid}/cmdline", "rb") as f:
                        if f.read().endswith(want):
                            return pid
                except OSError:
                    pass
            time.sleep(0.0005)
        return None

    def reap(self, target, deadline, run):
        """Waits for an orphan that came to us (we are the subreaper); gives its status as
        subprocess does.
        """
        while time.monotonic() < deadline:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except (
                ChildProcessError
            ):  # its tracer had already waited for it: it ended before the kill
                run.interrupted = False
                return None
            if pid == target:
                return os.waitstatus_to_exitcode(status)
            if pid == 0:
                time.sleep(0.005)
        run.trouble.append("did not end after its tracer was killed")
        return None

    @staticmethod
    def reap_all():
        try:
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        except ChildProcessError:
            pass

    def differences(self, case, expected, got):
        """One short text for each thing that differs."""
        found = list(got.trouble)

        def clean(data):
            for pattern, replacement in case.redact:
                data = re.sub(pattern, replacement, data)
            return data

        if expected.status != got.status:
            found.append(f"status {got.status}, not {expected.status}")
        for stream in ("stdout", "stderr"):
            a, b = clean(getattr(expected, stream)), clean(getattr(got, stream))
            if a != b:
                lines = [
                    l
                    for l in difflib.unified_diff(
                        a[:200000].decode("latin1").splitlines(),
                        b[:200000].decode("latin1").splitlines(),
                        "untraced",
                        "traced",
                        n=0,
                        lineterm="",
                    )
                ][2:6]
                found.append(
                    f"{stream} differs ({len(a)} and {len(b)} bytes): "
                    + " | ".join(repr(l[:100]) for l in lines)
                )
        for name in case.files:
            if expected.files[name] != got.files[name]:
                found.append(f"file {name} differs")
        extra = got.wx - expected.wx
        if extra and not case.wx:
            found.append(f"writable and executable: {sorted(extra)[0]}")
        return found

    def judge(self, case, mode, repeat):
        """Runs a case untraced and then traced `repeat` times. Gives (differences, text for the
        line).
        """
        plain = self.once(case, [])
        if plain.trouble:
            return ["untraced: " + plain.trouble[0]], ""
        if "missing" in plain.files.values() or plain.status == 127:
            return ["untraced: does not do its work"], ""
        slowest, runs, interrupted = 0.0, 0, 0
        disturb = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}.get(mode)
        span = plain.seconds
        if disturb is not None:
            span = self.once(case, self.wrapper(case)).seconds
        for _ in range(repeat):
            for attempt in range(8):
                share = self.rng.random() * 0.9 / (attempt + 1)
                got = self.once(
                    case, self.wrapper(case), disturb, share * span if attempt < 7 else 0.0
                )
                if disturb is None or got.interrupted:
                    break
            if disturb is not None and not got.interrupted:
                got = self.once(case, self.wrapper(case))
            runs += 1
            slowest = max(slowest, got.seconds)
            interrupted += disturb is None or got.interrupted
            found = self.differences(case, plain, got)
            if not found and disturb is not None and not interrupted and case.mid:
                found = ["always ended before it could be interrupted"]
            if found:
                other = self.once(case, [])
                again = self.differences(case, plain, other)
                plain.wx |= (
                    other.wx
                )  # samples: one run may miss what the program maps for a moment
                found = self.differences(case, plain, got)
            if found:
                if again:
                    found.append("(two untraced runs differ as well: " + again[0][:80] + ")")
                return [f"run {runs}: " + found[0]] + found[1:], ""
        note = "" if interrupted else ", ended before it could be interrupted"
        return (
            [],
            f"untraced {plain.seconds:.2f} s, traced {slowest:.2f} s"
            + (f", {runs} times" if runs > 1 else "")
            + note,
        )
