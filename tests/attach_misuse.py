#!/usr/bin/env python3
"""`sptrace attach` where it must not or cannot: one line that says why and what to do, the documented status, the target unharmed.

usage: tests/attach_misuse.py [--only GLOB]... [--sptrace PATH]

Given: a built sptrace (--sptrace, $SPTRACE or target/release/sptrace); gdb, strace, gcc, unshare, setpriv: what is not installed,
or needs root and has not got it, is skipped by name.
Gives: one line a case, then `N passed, N failed` alone on the last line; status 1 if anything failed.
Must not know: how sptrace works, but for the names of its mappings.
"""
import argparse, fnmatch, os, random, shutil, signal, subprocess, sys, tempfile, time

from harness.case import Skip, run_cases
from harness.process import is_running, maps, status_field

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]


def need(*programs, root=False):
    missing = [p for p in programs if not shutil.which(p)]
    if missing: raise Skip(f"{', '.join(missing)} not installed")
    if root and os.getuid() != 0: raise Skip("needs root")


class Target:
    """A program that sleeps and then says so; long enough for a busy machine."""
    def __init__(self, before=(), code="import time; time.sleep(3); print('slept')"):
        self.process = subprocess.Popen([*before, sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        time.sleep(0.4)
        self.pid = self.process.pid

    def descendant(self):
        """The last of the processes that it has started, if it is not the program itself."""
        pid = self.pid
        while out := subprocess.run(["pgrep", "-P", str(pid)], stdout=subprocess.PIPE, text=True).stdout.split(): pid = int(out[-1])
        return pid

    def unharmed(self, pid=None):
        left = [p for *_, p in maps(pid or self.pid) if "memfd:sptrace" in p]
        assert not left, f"left in it: {left}"
        out = self.process.communicate(timeout=30)[0]
        assert (self.process.returncode, out) == (0, "slept\n"), (self.process.returncode, out)


class Tests:
    def __init__(self, sptrace, folder):
        self.sptrace, self.folder = sptrace, folder

    def attach(self, *arguments, before=(), status=1, says=()):
        trace = os.path.join(self.folder, "trace")
        r = subprocess.run([*before, self.sptrace, "attach", "-o", trace, *map(str, arguments)], capture_output=True, text=True, timeout=60)
        assert r.returncode == status, (r.returncode, r.stderr)
        if status: assert len(r.stderr.strip().splitlines()) == 1, r.stderr
        assert all(word in r.stderr for word in says), (says, r.stderr)
        if status: assert not os.path.exists(trace), "a trace was left"
        return r.stderr

    def no_such_process(self):
        p = subprocess.Popen(["true"])
        p.wait()
        self.attach("-p", p.pid, "--for", "1s", says=("cannot attach", str(p.pid), "no such process", "ps -e"))

    def one_of_two_is_gone(self):
        t, p = Target(), subprocess.Popen(["true"])
        p.wait()
        said = self.attach("-p", f"{p.pid},{t.pid}", "--for", "50ms", status=0)
        assert "no such process" in said and f"attached to {t.pid}" in said, said
        t.unharmed()

    def another_users(self):
        need("setpriv", root=True)
        t = Target()
        self.attach("-p", t.pid, before=NOBODY, says=("not permitted", "another user", "sudo sptrace attach"))
        t.unharmed()

    def not_dumpable(self):
        need("setpriv", root=True)
        t = Target(NOBODY, "import ctypes, time; ctypes.CDLL(None).prctl(4, 0); time.sleep(3); print('slept')")
        self.attach("-p", t.pid, before=NOBODY, says=("not permitted", "CAP_SYS_PTRACE", "sudo sptrace attach"))
        t.unharmed()

    def traced_by_strace(self):
        need("strace")
        t = Target()
        other = subprocess.Popen(["strace", "-qq", "-o", "/dev/null", "-p", str(t.pid)])
        time.sleep(0.3)
        self.attach("-p", t.pid, says=("traced already", "strace", str(other.pid)))
        t.unharmed()
        other.wait(10)

    def traced_by_gdb(self):
        need("gdb")
        t = Target()
        other = subprocess.Popen(["gdb", "-q", "-nx", "-p", str(t.pid), "-batch", "-ex", "shell sleep 1"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 20
        while status_field(t.pid, "TracerPid") == "0" and time.monotonic() < end: time.sleep(0.02)
        self.attach("-p", t.pid, says=("traced already", "gdb", str(other.pid)))
        other.wait(60)
        t.unharmed()

    def attached_to_already(self):
        t = Target()
        other = subprocess.Popen([self.sptrace, "attach", "-q", "-o", os.path.join(self.folder, "other"), "-p", str(t.pid)], stderr=subprocess.DEVNULL)
        end = time.monotonic() + 20
        while not any("memfd:sptrace" in p for *_, p in maps(t.pid)) and time.monotonic() < end: time.sleep(0.01)
        time.sleep(0.2)
        self.attach("-p", t.pid, says=("cannot attach", "sptrace"))
        other.terminate()
        assert other.wait(20) == 0
        t.unharmed()

    def ends_meanwhile(self):
        rng, ended = random.Random(1), 0
        for _ in range(20):
            process = subprocess.Popen(["sleep", f"{rng.uniform(0.0, 0.06):.3f}"])
            time.sleep(rng.uniform(0, 0.03))
            trace = os.path.join(self.folder, "ends")
            r = subprocess.run([self.sptrace, "attach", "-o", trace, "-p", str(process.pid)], capture_output=True, text=True, timeout=60)
            assert r.returncode in (0, 1), (r.returncode, r.stderr)
            if r.returncode == 1:
                ended += 1
                assert len(r.stderr.strip().splitlines()) == 1 and "cannot attach" in r.stderr, r.stderr
                # Before its exec it shares our memory.
                assert "end" in r.stderr or "shares its memory" in r.stderr, r.stderr
            assert process.wait(10) == 0, process.returncode
        assert ended > 0, "it never ended meanwhile"

    def executes_another_program_again_and_again(self):
        rng, attached = random.Random(1), 0
        script, end = os.path.join(self.folder, "again.sh"), os.path.join(self.folder, "end")
        with open(script, "w") as f: f.write(f'[ -e {end} ] && exit 7\nexec sh "$0"\n')
        for before in ([], ["setarch", "-R"]):
            # Without randomization each image lies where the one before it lay.
            if before and (not shutil.which("setarch") or subprocess.run([*before, "true"], capture_output=True).returncode): continue
            process = subprocess.Popen([*before, "sh", script])
            try:
                for _ in range(6):
                    time.sleep(rng.uniform(0.01, 0.06))
                    r = subprocess.run([self.sptrace, "attach", "-o", os.path.join(self.folder, "again"), "-p", str(process.pid), "--for", f"{rng.randrange(1, 60)}ms"], capture_output=True, text=True, timeout=60)
                    said, says = r.stderr.splitlines(), ("attached to", "coverage:", "events:") if r.returncode == 0 else ("cannot attach to",)
                    assert r.returncode in (0, 1) and len(said) == len(says) and all(line.startswith(f"sptrace: {s}") for line, s in zip(said, says)), (r.returncode, r.stderr)
                    if r.returncode == 1: assert "again and again" in r.stderr and "sptrace run" in r.stderr, r.stderr
                    assert process.poll() is None, process.returncode
                    attached += r.returncode == 0
                open(end, "w").close()
                assert process.wait(20) == 7, process.returncode
                os.remove(end)
            finally:
                process.kill()
                process.wait()
        assert attached, "it was never attached to"
        return f"attached {attached} times"

    def kernel_thread(self):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try: flags = int(open(f"/proc/{pid}/stat").read().rpartition(") ")[2].split()[6])
            except OSError: continue
            if flags & 0x200000: return self.attach("-p", pid, says=("kernel thread",)) and None
        raise Skip("none can be seen here")

    def zombie(self):
        p = subprocess.Popen(["true"])
        time.sleep(0.3)
        self.attach("-p", p.pid, says=("ended already", "zombie"))
        assert p.wait() == 0

    def thread_of_a_process(self):
        t = Target(code="import threading, time; t = threading.Thread(target=time.sleep, args=(3,)); t.start(); t.join(); print('slept')")
        tid = max(map(int, os.listdir(f"/proc/{t.pid}/task")))
        self.attach("-p", tid, says=("thread of process", str(t.pid)))
        t.unharmed()

    def program_of_32_bits(self):
        need("gcc")
        source, program = os.path.join(self.folder, "p.c"), os.path.join(self.folder, "p")
        with open(source, "w") as f: f.write('void _start(void) { for (;;) __asm__ volatile("movl $29, %eax; int $0x80"); }')
        if subprocess.run(["gcc", "-m32", "-nostdlib", "-static", "-o", program, source], capture_output=True).returncode: raise Skip("gcc cannot build it")
        try: p = subprocess.Popen([program])
        except OSError: raise Skip("the kernel does not run it")
        try:
            time.sleep(0.2)
            if p.poll() is not None: raise Skip("the kernel does not run it")
            self.attach("-p", p.pid, says=("not a 64-bit x86 program",))
            assert is_running(p.pid)
        finally:
            p.kill()
            p.wait()

    def other_pid_namespace(self):
        need("unshare", "pgrep", root=True)
        t = Target(["unshare", "-p", "-f"])
        said = self.attach("-p", t.descendant(), "--for", "100ms", status=0)
        assert "attached to" in said, said
        t.unharmed(t.descendant())

    def other_mount_namespace(self):
        need("unshare", root=True)
        t = Target(["unshare", "-m", "--propagation", "unchanged"])
        said = self.attach("-p", t.pid, "--for", "100ms", status=0)
        assert "attached to" in said, said
        t.unharmed()

    def other_root(self):
        need("gcc", "chroot", root=True)
        jail, source = os.path.join(self.folder, "jail"), os.path.join(self.folder, "q.c")
        os.makedirs(jail)
        with open(source, "w") as f: f.write('#include <stdio.h>\n#include <unistd.h>\nint main() { for (int i = 0; i < 40; i++) usleep(100000); puts("slept"); return 0; }')
        assert subprocess.run(["gcc", "-static", "-o", os.path.join(jail, "q"), source]).returncode == 0
        p = subprocess.Popen(["chroot", jail, "/q"], stdout=subprocess.PIPE, text=True)
        time.sleep(0.3)
        r = subprocess.run([self.sptrace, "attach", "-o", os.path.join(self.folder, "jailed"), "-p", str(p.pid), "--for", "100ms"], capture_output=True, text=True, timeout=60)
        assert r.returncode == 0 or r.returncode == 1 and len(r.stderr.strip().splitlines()) == 1 and "/proc" in r.stderr, (r.returncode, r.stderr)
        assert p.communicate(timeout=30)[0] == "slept\n" and p.returncode == 0, p.returncode

    def seccomp_sandbox(self):
        t = Target(code="import ctypes, os, time\nc = ctypes.CDLL(None)\n"
                   "f = (ctypes.c_ubyte * 8)(6, 0, 0, 0, 0, 0, 0xff, 0x7f)\n"
                   "class P(ctypes.Structure): _fields_ = [('n', ctypes.c_ushort), ('f', ctypes.c_void_p)]\n"
                   "p = P(1, ctypes.addressof(f)); c.prctl(38, 1, 0, 0, 0); assert c.prctl(22, 2, ctypes.byref(p)) == 0\n"
                   "time.sleep(3); print('slept')")
        # The filter permits everything, which only root is shown.
        if os.getuid() == 0: self.attach("-p", t.pid, "--for", "50ms", status=0)
        else: self.attach("-p", t.pid, says=("seccomp", "sptrace run"))
        t.unharmed()

    def itself(self):
        self.attach("-p", os.getpid(), says=("sptrace runs in it or under it",))
        r = subprocess.run(["sh", "-c", f"exec {self.sptrace} attach -p $$"], capture_output=True, text=True, timeout=30)
        assert r.returncode == 1 and "sptrace runs in it" in r.stderr, r.stderr

    def stopped_process(self):
        t = Target()
        os.kill(t.pid, 19)
        time.sleep(0.1)
        self.attach("-p", t.pid, "--for", "100ms", status=0)
        assert status_field(t.pid, "State").startswith("T"), status_field(t.pid, "State")
        os.kill(t.pid, 18)
        t.unharmed()

    def interrupted_while_it_begins_as_a_job_of_a_script(self):
        # Such jobs have SIGINT ignored. What came before the recording was ready was lost, and it did not end.
        t = Target()
        ignoring = lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)
        job = subprocess.Popen([self.sptrace, "attach", "-q", "-o", os.path.join(self.folder, "trace"), "-p", str(t.pid)], preexec_fn=ignoring)
        try:
            end = time.monotonic() + 20
            while int(status_field(job.pid, "SigIgn"), 16) & 1 << signal.SIGINT - 1:
                assert time.monotonic() < end, "it ignores SIGINT"
            job.send_signal(signal.SIGINT)
            assert job.wait(20) in (0, -signal.SIGINT), job.returncode
        finally: job.kill()
        t.unharmed()

    def wrong_usage(self):
        for arguments in (("-p", "x"), ("-p", "1", "--for", "0"), ("-p", "1", "--for", "1parsec"), (), ("-p", "1", "--stop-on", "no")):
            r = subprocess.run([self.sptrace, "attach", *arguments], capture_output=True, text=True, timeout=30)
            assert r.returncode == 2 and len(r.stderr.strip().splitlines()) == 1, (arguments, r.returncode, r.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sptrace", default=os.environ.get("SPTRACE", os.path.join(ROOT, "target/release/sptrace")))
    parser.add_argument("--only", action="append", default=[])
    args = parser.parse_args()
    names = [n for n, f in vars(Tests).items() if callable(f) and n not in ("__init__", "attach")]

    def tried(name):
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            os.chmod(folder, 0o777)
            return getattr(Tests(os.path.abspath(args.sptrace), folder), name)()

    return run_cases((n, lambda n=n: tried(n)) for n in names if not args.only or any(fnmatch.fnmatch(n, g) for g in args.only))


if __name__ == "__main__":
    sys.exit(main())
