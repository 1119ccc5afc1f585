#!/usr/bin/env python3
"""Other users, other namespaces, other roots: what a traced program starts there is recorded, and who lives there is attached to.

usage: tests/worlds.py [--sptrace PATH] [--programs DIR] [--only GLOB]... [--list] [--repeat N]

Given: as tests/events.py, whose tools it uses; the program `starter`; setpriv, su, chroot, unshare and bwrap. All but the cases
without root need root, and pass without a word if it is not there.
Gives: one line a case, then `N passed, N failed` alone on the last line; status 1 if anything failed.
Checked: output and status are those of an untraced run, and every program that is executed is in the trace, or named as not
followed with the reason, in the last lines and in `report coverage`; who is attached to answers as before, what it executes
meanwhile is in the trace, and nothing of sptrace's is left that runs.
Must not know: how sptrace works.
"""
import os, re, shutil, signal, subprocess, sys

from harness.bench import main
from harness.case import Cases
from harness.process import wait_for

case = Cases()
IS_ROOT = os.getuid() == 0
NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
BWRAP = ["bwrap", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--unshare-all"]
WORK = 'ls / >/dev/null; id -u; echo "$(expr 6 + 7)"; exec expr 8 + 9'
WORKS = ["ls", "id", "expr", "expr"]


def as_root(function):
    def run(b):
        if IS_ROOT: function(b)
    run.__name__ = function.__name__
    return case(run)


def starter(b): return os.path.join(b.programs, "starter.O2")


def executed(b):
    """The base names of the programs in the trace, in their order."""
    return [os.path.basename(p) for p in re.findall(r"/\* exec (\S+) \*/", b.report("tree"))]


def compare(b, command, programs, before=(), shell="dash"):
    """Runs it untraced and traced. `programs`: what it executes. `before`: who starts sptrace itself. Gives its last words."""
    native = subprocess.run([*before, *command], stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    run = [*before, b.sptrace, "run", "-o", b.path("t.data"), "--", *command]
    traced = subprocess.run(run, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, cwd=b.folder, env=b.env)
    said = traced.stderr.decode()
    assert (traced.returncode, traced.stdout) == (native.returncode, native.stdout), (traced.returncode, traced.stdout, native.stdout, said)
    found = executed(b)
    assert sorted(found) == sorted(programs), (found, programs, said)
    return said


def is_whole(b, command, programs):
    said = compare(b, command, programs)
    assert "not followed" not in said and " 0 lost" in said and "torn" not in said, said


@as_root
def another_user(b):
    for way in (NOBODY, ["chroot", "--userspec=65534:65534", "/"]):
        is_whole(b, [*way, "sh", "-c", WORK], [way[0], "dash", *WORKS])


@as_root
def su(b): is_whole(b, ["su", "nobody", "-s", "/bin/sh", "-c", WORK], ["su", "dash", *WORKS])


@as_root
def a_daemon_that_drops_its_user(b): is_whole(b, [starter(b), "drop", "65534"], ["starter.O2", "dash", "id", "ls", "expr", "printf"])


@case
def programs_that_a_daemon_executes_when_all_others_have_ended(b):
    """Between two programs a process records nothing; the recording ended then in every second run beside other work."""
    for _ in range(8): is_whole(b, ["sh", "-c", "(exec sh -c 'exec sh -c \"exec expr 3 + 4\"') &"], ["dash", "dash", "dash", "expr"])


@as_root
def a_new_user_namespace(b): is_whole(b, ["unshare", "-Ur", "sh", "-c", WORK], ["unshare", "dash", *WORKS])


@as_root
def a_new_pid_namespace(b):
    is_whole(b, ["unshare", "-Urpf", "--mount-proc", "sh", "-c", WORK], ["unshare", "dash", *WORKS])
    assert not re.search(r"\[ *\d{9,}\]", b.report("tree")), "a process has no number of this namespace"


@as_root
def a_container(b): is_whole(b, [*BWRAP, "sh", "-c", WORK], ["bwrap", "dash", *WORKS])


@as_root
def a_container_within_a_container(b):
    is_whole(b, ["unshare", "-Urpf", "--mount-proc", "unshare", "-Upf", "sh", "-c", WORK], ["unshare", "unshare", "dash", *WORKS])


@as_root
def programs_that_are_executed_in_uncommon_ways(b):
    for form in ("fexecve", "execveat", "syscall"):
        is_whole(b, [starter(b), "by", form, shutil.which("expr"), "6", "+", "7"], ["starter.O2", "expr"])


@case
def who_executes_by_an_instruction_of_its_own_is_named(b):
    said = compare(b, [starter(b), "by", "raw", shutil.which("sleep"), "0.5"], ["starter.O2"])
    for told in (said, b.report("coverage")):
        assert "/sleep: executed by a system call that was not seen" in told, told
    assert "1 programs started by exec and not followed" in said, said


def for_nobody(b):
    """A folder and a sptrace that anybody may use."""
    for folder in (b.folder, os.path.dirname(b.folder)): os.chmod(folder, 0o777)
    b.env = dict(b.env, XDG_CACHE_HOME=b.path("cache"))


@as_root
def without_root_a_new_user_namespace(b):
    for_nobody(b)
    for way in (["unshare", "-Ur"], ["unshare", "-Urpf", "--mount-proc"], BWRAP):
        said = compare(b, [*way, "sh", "-c", WORK], [way[0], "dash", *WORKS], NOBODY)
        assert "not followed" not in said, said


@as_root
def without_root_a_program_with_privileges_is_named(b):
    for_nobody(b)
    said = compare(b, ["sh", "-c", "su --version | head -n 1; ls / >/dev/null; id -u"], ["dash", "head", "ls", "id"], NOBODY)
    for told in (said, b.report("coverage")):
        assert re.search(r"/su: it has set-id bits or capabilities, which it would lose; as root sptrace follows it", told), told
    assert said.count("not followed") == 2 and "1 programs started by exec and not followed" in said, said


@as_root
def who_has_no_room_for_the_agent_is_named(b):
    said = compare(b, ["sh", "-c", "ulimit -v 300000; exec expr 6 + 7"], ["dash", "expr"])
    assert "expr: no room in the process: its memory limit (ulimit -v)" in said, said


class Target:
    """Answers each line with the number that follows, by executing expr."""
    LOOP = "while read -r n; do expr $n + 1; done; echo end"

    def __init__(self, b, command, name):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        b.started.append(self.process)
        self.ask(1)
        self.pid = wait_for(lambda: self.find(name))
        assert self.pid, name

    def find(self, name):
        """The last of those that the command became and started, if it is this program."""
        pid = self.process.pid
        while children := subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split(): pid = int(children[-1])
        try: return pid if os.path.basename(os.readlink(f"/proc/{pid}/exe")) == name else None
        except OSError: return None

    def ask(self, n):
        self.process.stdin.write(f"{n}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == f"{n + 1}\n", n

    def record(self, b):
        command = [b.sptrace, "attach", "-o", b.path("t.data"), "-p", str(self.pid)]
        with open(b.path("said"), "w") as said: attached = subprocess.Popen(command, stderr=said, env=b.env)
        b.started.append(attached)
        text = lambda: open(b.path("said")).read()
        wait_for(lambda: "attached to" in text() or attached.poll() is not None)
        assert attached.poll() is None, text()
        for n in range(10, 13): self.ask(n)
        attached.send_signal(signal.SIGINT)
        assert attached.wait(30) == 0, text()
        assert executed(b) == ["expr"] * 3, (executed(b), text())
        assert f"[{self.pid:>7}]" in b.report("tree") and "not followed" not in text(), text()
        self.ask(20)
        assert "memfd:sptrace" not in open(f"/proc/{self.pid}/maps").read()

    def ends(self):
        out = self.process.communicate(timeout=30)[0]
        assert (self.process.returncode, out) == (0, "end\n"), (self.process.returncode, out)


def attaches(b, command, name="dash"):
    target = Target(b, command, name)
    for _ in range(2): target.record(b)
    target.ends()


@as_root
def attach_to_another_user(b): attaches(b, [*NOBODY, "sh", "-c", Target.LOOP])


@as_root
def attach_to_who_may_not_be_dumped(b):
    attaches(b, [*NOBODY, starter(b), "hidden"], "starter.O2")


@case
def many_that_are_let_go_are_not_taken_for_others(b):
    targets = [Target(b, ["sh", "-c", Target.LOOP], "dash") for _ in range(6)]
    words = [word for target in targets for word in ("-p", str(target.pid))]
    for _ in range(3):
        status, _, said = b.sptrace_says("attach", "-o", "t.data", *words, "--for", "250ms")
        assert status == 0 and "not followed" not in said, said
    for target in targets: target.ends()


@as_root
def attach_within_a_container(b): attaches(b, [*BWRAP, "sh", "-c", Target.LOOP])


@as_root
def attach_within_namespaces_and_a_root_of_its_own(b):
    root = b.path("root")
    os.chmod(b.folder, 0o755)
    for program in ("/bin/sh", shutil.which("expr")):
        needs = re.findall(r"(/\S+) \(0x", subprocess.run(["ldd", program], capture_output=True, text=True).stdout)
        for file in (program, *needs):
            os.makedirs(root + os.path.dirname(file), exist_ok=True)
            shutil.copy(file, root + file)
    attaches(b, ["unshare", "-Urpfmn", "chroot", root, "/bin/sh", "-c", Target.LOOP], "sh")


if __name__ == "__main__":
    sys.exit(main(case, __doc__))
