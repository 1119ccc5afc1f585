#!/usr/bin/env python3
"""Does a recording leave a command's surroundings, and its own files, as they should be?

usage: tests/surroundings.py [--sptrace PATH] [--only GLOB]... [--list]

Given: a built sptrace (--sptrace, $SPTRACE or target/release/sptrace) and the small programs of any machine.
Gives: one line a case, then `N passed, N failed` alone on the last line; status 1 if anything failed.
Checked: who may read what is written; that the command finds the standard streams closed that were, and exactly the limits
that were set, and is recorded all the same; that with --keep-pid it is the process that was started. Cases that need root, or another user, say so and are left out without.
Must not know: how sptrace works.
"""
import os, re, resource, shutil, signal, stat, subprocess, sys, time

from harness.case import Cases, Skip
from harness.process import children_of, wait_for
from harness.refusal import main

case = Cases()


def loose():
    """For the child: a umask that takes nothing away."""
    os.umask(0)


# --- files ---

def faults_of_modes(paths):
    """Everything in `paths` must be its owner's alone."""
    found = []
    for path in paths:
        mode, wanted = os.stat(path).st_mode, 0o700 if os.path.isdir(path) else 0o600
        if stat.S_IMODE(mode) != wanted: found.append(f"{path} has mode {stat.S_IMODE(mode):o}, not {wanted:o}")
    return found


@case
def traces_and_caches_are_their_owners_alone(b):
    """With a umask that permits everything; also where a readable file is overwritten."""
    cache = os.path.join(os.path.dirname(b.folder), "cache")
    os.mkdir(cache)
    os.mkdir(os.path.join(cache, "sptrace"), 0o755)
    b.put("elsewhere", b"a former trace", 0o644)
    os.symlink("elsewhere", b.path("link"))
    runs = [("run", "-q", "-o", "trace", "/bin/true"), ("run", "-q", "-o", "link", "/bin/true"),
            ("run", "-q", "-o", "ring", "--ring", "2M", "/bin/true"), ("run", "-q", "-o", "dump", "--ring", "2M", "--dump-on", "exit", "/bin/true")]
    found = []
    for argv in runs:
        got = b.run(*argv, before=loose)
        if got.returncode or got.stderr: found.append(f"{argv}: status {got.returncode}, {got.stderr[:200]!r}")
    if os.path.getsize(b.path("elsewhere")) < 100: found.append("nothing was written through the link")
    kept = [os.path.join(folder, name) for folder, _, names in os.walk(cache) for name in names]
    if not any(name.endswith(".analysis") for name in kept): found.append("no analysis was kept")
    files = [b.path(name) for name in ("trace", "elsewhere", "ring", "dump")]
    return found + faults_of_modes([*files, *kept, os.path.join(cache, "sptrace")])


@case
def traces_of_the_kernel_are_their_owners_alone(b):
    if os.geteuid() != 0: raise Skip("needs root")
    got = b.run("ktrace", "-q", "-o", "trace", "/bin/true", before=loose)
    if got.returncode: raise Skip(f"this kernel cannot be traced: {got.stderr[:100]!r}")
    return faults_of_modes([b.path("trace")])


# --- standard streams ---

@case
def closed_streams_are_closed_in_the_command(b):
    """In each combination, and nothing of sptrace's goes into a file that has taken such a number."""
    script = 'import os; os.write(os.open("found", os.O_CREAT | os.O_WRONLY | os.O_TRUNC), str([os.readlink(f"/proc/self/fd/{i}") if os.path.exists(f"/proc/self/fd/{i}") else None for i in range(3)]).encode())'
    tools, found = [("run", "-o", "trace", "--"), ("run", "-q", "-o", "trace", "--start-on", "time:1h", "--")], []
    if os.geteuid() == 0 and b.run("ktrace", "-q", "-o", "trace", "/bin/true").returncode == 0: tools.append(("ktrace", "-o", "trace", "--"))
    for bits in range(1, 8):
        closed = [i for i in range(3) if bits >> i & 1]
        def seen(*tool):
            null, program = open(os.devnull, "r+b"), ["/usr/bin/python3", "-ISc", "import os\n" + script]
            argv = [b.sptrace, *tool, *program] if tool else program
            with null: done = subprocess.run(argv, cwd=b.folder, stdin=null, stdout=null, stderr=null, timeout=60, preexec_fn=lambda: [os.close(i) for i in closed])
            with open(b.path("found")) as f: return done.returncode, f.read()
        native = seen()
        for tool in tools if bits in (1, 7) else tools[:1]:
            got = seen(*tool)
            if got != native: found.append(f"{closed} closed, {tool[0]}: {got}, untraced {native}")
    return found


# --- limits ---

LIMITS = [(resource.RLIMIT_AS, 64 << 20), (resource.RLIMIT_NOFILE, 8), (resource.RLIMIT_DATA, 24 << 20), (resource.RLIMIT_CPU, 20), (resource.RLIMIT_NPROC, 100)]
PRINT_LIMITS = "cat /proc/self/limits | tail -n +2; exit 3"


def as_nobody():
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)


def limits_reach_the_command(b, drop):
    """Each limit alone, soft and hard: the command has it, all else is as without, and calls are recorded."""
    found = []
    for which, value in LIMITS:
        def before():
            drop()
            resource.setrlimit(which, (value, value))
        native = subprocess.run(["/bin/sh", "-c", PRINT_LIMITS], cwd=b.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=before)
        got = b.run("run", "-o", "trace", "--", "/bin/sh", "-c", PRINT_LIMITS, before=before)
        name = f"limit {which} at {value}"
        if (got.returncode, got.stdout) != (native.returncode, native.stdout): found.append(f"{name}: status {got.returncode}, {got.stdout[:200]!r} {got.stderr[:300]!r}")
        events = re.search(rb"events: ([0-9]+) recorded", got.stderr)
        named = b"untraced" in got.stderr
        if not events or (int(events[1]) < 1000 and not named): found.append(f"{name}: {got.stderr[-300:]!r}")
    return found


@case
def limits_reach_the_command_and_do_not_hinder_us(b): return limits_reach_the_command(b, lambda: None)


@case
def limits_of_another_user_reach_the_command(b):
    """Who may not lift a hard limit."""
    if os.geteuid() != 0: raise Skip("needs root to become another user")
    os.chmod(b.folder, 0o777)
    cache = os.path.join(os.path.dirname(b.folder), "cache")
    os.mkdir(cache)
    os.chmod(cache, 0o777)
    try: subprocess.run([b.sptrace, "--version"], stdout=subprocess.DEVNULL, check=True, preexec_fn=as_nobody, cwd="/")
    except (OSError, subprocess.CalledProcessError): raise Skip("nobody cannot run this sptrace")
    return limits_reach_the_command(b, as_nobody)


# --- the process that was started ---

def keep(b, *argv, options=("-o", "trace"), **how):
    """Starts a command that keeps its process id; its words of sptrace are in the file `words`."""
    words = open(b.path("words"), "wb")
    with words: return subprocess.Popen([b.sptrace, "run", "--keep-pid", *options, "--", *argv], cwd=b.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=words, **how)


def last_words(b, seconds=10):
    """What sptrace has said once it has said how many events there are."""
    until = time.monotonic() + seconds
    while True:
        with open(b.path("words"), "rb") as f: text = f.read()
        if b" recorded, " in text or time.monotonic() > until: return text
        time.sleep(0.01)


def recorded(b, least):
    text = last_words(b)
    events = re.search(rb"events: ([0-9]+) recorded, 0 lost", text)
    found = [] if events and int(events[1]) >= least else [f"sptrace says {text[-300:]!r}"]
    report = b.run("report", "-i", "trace")
    return found + ([] if report.returncode == 0 and b"events" in report.stdout else [f"no report: {report.stderr[:200]!r}"])


def runs(pid, name):
    try:
        with open(f"/proc/{pid}/comm") as f: return f.read().strip() == name
    except OSError: return False


def await_file(path):
    until = time.monotonic() + 20
    while not os.path.exists(path) or not os.path.getsize(path):
        if time.monotonic() > until: raise RuntimeError(f"{path} does not come")
        time.sleep(0.01)
    with open(path) as f: return f.read()


@case
def keep_pid_leaves_status_and_parent_to_the_command(b):
    script = "echo $$ $PPID; ls / >/dev/null; ulimit -n; exit 7"
    process = keep(b, "/bin/sh", "-c", script)
    out, _ = process.communicate(timeout=60)
    found = [f"status {process.returncode}, not 7"] if process.returncode != 7 else []
    wanted = f"{process.pid} {os.getpid()} {resource.getrlimit(resource.RLIMIT_NOFILE)[0]}"
    if out.decode().split() != wanted.split(): found.append(f"it says {out!r}, not {wanted}")
    found += recorded(b, 5000)
    functions = b.run("report", "functions", "--format", "csv", "-i", "trace").stdout
    return found + ([] if b"\nls," in functions else ["its child is not recorded"])


@case
def keep_pid_leaves_signals_to_the_command(b):
    """Its death by one, and those of its group; sptrace is not in that, so the trace is whole all the same."""
    found = []
    for to, number in ((os.kill, signal.SIGTERM), (os.killpg, signal.SIGINT), (os.killpg, signal.SIGKILL)):
        process = keep(b, "/bin/sh", "-c", "echo $$ > pid; sleep 60", start_new_session=True)
        pid = await_file(b.path("pid"))
        # A shell that is interrupted before its child is there waits for that one's end, also
        # without sptrace.
        if not wait_for(lambda: any(runs(child, "sleep") for child in children_of(process.pid))):
            found.append("it does not sleep")
        to(process.pid, number)
        process.wait(timeout=20)
        process.stdout.close()
        name = f"{to.__name__} {number}"
        if int(pid) != process.pid or process.returncode != -number: found.append(f"{name}: {pid} of {process.pid}, status {process.returncode}")
        if to is os.kill: os.killpg(process.pid, signal.SIGKILL)
        found += [f"{name}: {f}" for f in recorded(b, 500)]
        os.unlink(b.path("pid"))
    return found


@case
def keep_pid_survives_the_end_of_sptrace(b):
    process = keep(b, "/bin/sh", "-c", "echo $$ > pid; read x < pipe; /bin/echo $x; exit 9")
    os.mkfifo(b.path("pipe"))
    await_file(b.path("pid"))
    mine = [p for p in os.listdir("/proc") if p.isdigit() and is_tracer(p, b)]
    found = [] if len(mine) == 1 else [f"{len(mine)} processes trace"]
    for pid in mine: os.kill(int(pid), signal.SIGKILL)
    with open(b.path("pipe"), "w") as f: f.write("go\n")
    out, _ = process.communicate(timeout=30)
    if process.returncode != 9 or out != b"go\n": found.append(f"status {process.returncode}, {out!r}")
    return found


def is_tracer(pid, b):
    """Is it the sptrace that writes in this folder?"""
    try: return os.path.realpath(f"/proc/{pid}/exe") == os.path.realpath(b.sptrace) and os.path.realpath(f"/proc/{pid}/cwd") == os.path.realpath(b.folder)
    except OSError: return False


@case
def keep_pid_says_what_is_wrong_as_without(b):
    found = []
    for status, argv in ((127, ("-o", "trace", "--", "./nothing")), (125, ("-o", "no/trace", "--", "/bin/true")), (2, ("--stop-on", "key:f5", "--", "/bin/true"))):
        got = b.run("run", "--keep-pid", *argv)
        if got.returncode != status or got.stderr.count(b"\n") != 1: found.append(f"{argv}: status {got.returncode}, {got.stderr[:200]!r}")
    return found


@case
def keep_pid_of_a_server_that_writes_its_pid_file(b):
    """A harness that starts a server looks for it by the number that it was given, and by its file."""
    server = shutil.which("redis-server")
    if not server: raise Skip("no redis-server")
    process = keep(b, server, "--port", "0", "--unixsocket", b.path("socket"), "--pidfile", b.path("pid"), "--daemonize", "no", "--save", "", "--loglevel", "warning")
    written = int(await_file(b.path("pid")))
    os.kill(process.pid, signal.SIGTERM)
    process.communicate(timeout=20)
    found = [] if written == process.pid else [f"its file says {written}, it was started as {process.pid}"]
    if process.returncode != 0: found.append(f"status {process.returncode} at SIGTERM")
    return found + recorded(b, 1000)


if __name__ == "__main__":
    sys.exit(main(case, __doc__))
