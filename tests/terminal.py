#!/usr/bin/env python3
"""Keys as events while the program reads the terminal: `run --start-on key:KEY` with the terminal as the command's input.

usage: tests/terminal.py [--sptrace PATH] [--only GLOB]... [--list] [--repeat N] [--self-check]

Given: a built sptrace (--sptrace, $SPTRACE or target/release/sptrace), python3, less, vim, bash.
Gives: one line a case, then `N passed, N failed` alone on the last line; status 1 if anything failed.
Checked, each on a pseudo-terminal of its own: the key begins the recording and does not reach the program; everything else does,
byte for byte; sizes, interrupts, hang-ups and stops do; what is shown is what is shown without sptrace; redirected streams stay
so; the program goes on at its terminal when sptrace is killed or stopped, and the terminal's settings come back. And without a key:
an interrupt ends it, however early; a first analysis that takes long is told.
--self-check runs the cases with a thing in sptrace's place that does it all wrong: each must find it.
Must not know: how sptrace works.
"""
import fcntl, os, pty, re, select, shlex, shutil, signal, struct, subprocess, sys, termios, time

from harness.bench import main
from harness.case import Cases
from harness.process import wait_for

case = Cases()
PATIENCE = 30  # seconds
# Says in hex what it reads, in raw mode; ends at q. Says what signals come and which streams are terminals.
# A signal that comes just before a read wakes it, too: else its handler would wait for a key.
PROBE = """import os, select, signal, sys, termios, time, tty
out = os.open("/dev/tty", os.O_WRONLY)
def say(text): os.write(out, text.encode() + b"\\r\\n")
def size(*_): say("size %d %d" % (os.get_terminal_size(0).lines, os.get_terminal_size(0).columns))
def hup(*_):
    with open("hup", "a") as f: f.write("x")
    os._exit(9)
woken, wakes = os.pipe()
os.set_blocking(wakes, False)
signal.set_wakeup_fd(wakes)
signal.signal(signal.SIGWINCH, size)
signal.signal(signal.SIGHUP, hup)
signal.signal(signal.SIGINT, lambda *_: say("interrupted"))
before = termios.tcgetattr(0)
if sys.argv[1] == "raw": tty.setraw(0)
say("terminals %s" % "".join("ny"[os.isatty(n)] for n in range(3)))
size()
with open("pid", "w") as f: f.write(str(os.getpid()))
say("ready")
while True:
    ready = select.select([0, woken], [], [])[0]
    if woken in ready: os.read(woken, 1 << 16)
    if 0 not in ready: continue
    try: got = os.read(0, 1 << 16)
    except OSError: got = b""
    if not got: time.sleep(3) # a hang-up: its signal may come a little later
    say("<" + got.hex() + ">")
    if b"q" in got or not got: break
say("bye")
termios.tcsetattr(0, termios.TCSANOW, before)
sys.exit(7)
"""


class Terminal:
    """A program as the leader of a terminal of its own."""

    def __init__(self, argv, folder, env):
        self.shown = b""
        wait, go = os.pipe()
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            try:
                os.read(wait, 1)
                os.chdir(folder)
                os.execve(argv[0], argv, env)
            finally: os._exit(125)
        self.resize(24, 80)
        self.begun = self.modes()
        os.write(go, b"x")
        os.close(wait)
        os.close(go)

    def resize(self, rows, columns): fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))
    def modes(self): return termios.tcgetattr(self.master)[:4]
    def press(self, keys): os.write(self.master, keys)

    def read(self, seconds):
        """Reads once; false if nothing came."""
        if not select.select([self.master], [], [], seconds)[0]: return False
        try: got = os.read(self.master, 1 << 16)
        except OSError: return False
        self.shown += got
        return bool(got)

    def wait(self, text):
        """Reads until it is there; gives what was read up to it and forgets that."""
        end = time.monotonic() + PATIENCE
        while text not in self.shown:
            assert time.monotonic() < end, (text, self.shown[-1500:])
            self.read(0.05)
        before, self.shown = self.shown.split(text, 1)
        return before

    def settle(self, seconds=0.4):
        """Reads until nothing comes any more."""
        while self.read(seconds): pass

    def end(self):
        """The status, once the program has ended; what remains is read."""
        ended, limit = 0, time.monotonic() + PATIENCE
        while not ended:
            assert time.monotonic() < limit, self.shown[-1500:]
            self.read(0.05)
            ended, how = os.waitpid(self.pid, os.WNOHANG)
        self.pid = 0
        while self.read(0.1): pass
        return os.waitstatus_to_exitcode(how)

    def close(self):
        if self.pid: os.kill(self.pid, signal.SIGKILL)
        if self.pid: os.waitpid(self.pid, 0)
        if self.master >= 0: os.close(self.master)


class Bench:
    """A fresh folder, and terminals in it."""

    def __init__(self, sptrace, _programs, folder):
        self.sptrace, self.folder, self.open = sptrace, folder, []
        self.env = dict(os.environ, LC_ALL="C", TERM="xterm", PS1="$ ", HISTFILE="/dev/null", LESSHISTFILE="-", HOME=folder, XDG_CACHE_HOME=os.path.join(os.path.dirname(folder), "cache"))
        for name in ("LINES", "COLUMNS", "LESS", "TMUX", "PYTHONSTARTUP"): self.env.pop(name, None)
        self.env["INPUTRC"] = self.path("inputrc")
        with open(self.path("inputrc"), "w") as f: f.write("set enable-bracketed-paste off\n")
        with open(self.path("probe.py"), "w") as f: f.write(PROBE)

    def path(self, name): return os.path.join(self.folder, name)

    def terminal(self, argv):
        argv = [shutil.which(argv[0]), *argv[1:]]
        self.open.append(Terminal(argv, self.folder, self.env))
        return self.open[-1]

    def traced(self, options, command): return [self.sptrace, "run", "-o", "t.data", *options, "--", *command]
    def line(self, command): return shlex.join(self.traced(["-q", *KEYS], command))
    def run(self, options, command): return self.terminal(self.traced(options, command))
    def probe(self, mode="raw"): return [sys.executable, "-S", "probe.py", mode]
    def shell(self, script): return self.terminal(["sh", "-c", script])

    def report(self, view="summary"):
        return subprocess.run([self.sptrace, "report", view, "-i", "t.data"], cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stdout

    def program(self):
        """The probe's pid, once it is ready."""
        return int(wait_for(lambda: os.path.exists(self.path("pid")) and open(self.path("pid")).read()))

    def close(self):
        for terminal in self.open: terminal.close()


KEYS = ["--start-on", "key:ctrl-t"]


def hex_of(shown): return b"".join(re.findall(rb"<([0-9a-f]*)>", shown)).decode()


def parent(pid): return int(re.search(r"^PPid:\t(\d+)", open(f"/proc/{pid}/status").read(), re.M)[1])


@case
def a_key_begins_and_another_ends_the_recording(b):
    t = b.run([*KEYS, "--stop-on", "key:f5"], b.probe())
    t.wait(b"terminals yyy")
    t.wait(b"size 24 80")
    t.wait(b"ready")
    t.press(b"a")
    t.wait(b"<61>")
    t.press(b"\x14")
    pid = b.program()
    assert wait_for(lambda: "memfd:sptrace" in open(f"/proc/{pid}/maps").read())
    time.sleep(0.5)
    for n in range(20):
        t.press(b"b")
        t.wait(b"<62>")
    t.press(b"\x1b[15~")
    time.sleep(0.5)
    assert wait_for(lambda: "memfd:sptrace" not in open(f"/proc/{pid}/maps").read())
    t.press(b"cq")
    assert t.end() == 7
    assert hex_of(t.shown) == "6371" and b"bye\r\n" in t.shown, t.shown
    assert b"--stop-on key:f5" in t.shown and b"nothing was recorded" not in t.shown, t.shown
    assert "began earlier" in b.report("tree") and t.modes() == t.begun


@case
def everything_else_arrives_as_it_is(b):
    t = b.run(["-q", *KEYS, "--start-on", "key:f5", "--start-on", "key:alt-s"], b.probe())
    t.wait(b"ready")
    sent = b""
    for keys in [bytes([n]) for n in range(256) if n not in (0x14, ord("q"))] + [b"\x1b[15;5~", b"\x1b[A", b"\x1b[", b"1", b"\x1b\x1b", b"\x1bO", b"x" * 3000, "\u00fc\u20ac".encode()]:
        t.press(keys)
        sent += keys
        limit = time.monotonic() + 20
        while hex_of(t.shown) != sent.hex(): # each within a moment: nothing is held until the next
            assert time.monotonic() < limit, (keys, hex_of(t.shown)[-300:])
            t.read(0.02)
    for keys in (b"\x1b", b"[1", b"5~", b"\x14", b"\x1bs", b"\x1b[27;5;116~"): t.press(keys)
    t.press(b"q")
    assert t.end() == 7 and hex_of(t.shown) == sent.hex() + "71", hex_of(t.shown)[-200:]


@case
def escape_alone_is_not_held_up(b):
    t = b.run(["-q", "--start-on", "key:f5"], b.probe())
    t.wait(b"ready")
    took = []
    for n in range(10):
        t.settle(0.05)
        begun = time.monotonic()
        t.press(b"\x1b")
        t.wait(b"<1b>")
        took.append(time.monotonic() - begun)
    t.press(b"q")
    assert t.end() == 7 and sorted(took)[5] < 0.15 and min(took) < 0.06, took


@case
def sizes_and_interrupts_arrive(b):
    t = b.run(["-q", *KEYS], b.probe("cooked"))
    t.wait(b"ready")
    for rows, columns in ((33, 99), (24, 80), (5, 11)):
        t.resize(rows, columns)
        t.wait(b"size %d %d" % (rows, columns))
    t.press(b"\x03")
    t.wait(b"^C")
    t.wait(b"interrupted")
    t.press(b"abc\x7fd\rq\r")
    t.wait(b"abc\b \bd\r\n")
    t.wait(b"<616264" + b"0a>")
    assert t.end() == 7 and t.modes() == t.begun


def shows(b, argv, keys, rest):
    """What a program shows for keys that are pressed one after another, when it has shown nothing for so many seconds."""
    t = b.terminal(argv)
    t.settle(1.1 + rest)
    for key in keys:
        t.press(key)
        t.settle(rest)
    status = t.end()
    return status, t.shown, t.modes() == t.begun


@case
def it_looks_as_without_sptrace(b):
    with open(b.path("text"), "w") as f: f.writelines(f"line {n} of a text\n" for n in range(300))
    programs = [
        (["less", "text"], [b" ", b"G", b"/line 7\r", b"q"]),
        (["vim", "-u", "NONE", "-n", "text"], [b"G", b"ihello\x1b", b":q!\r"]),
        (["python3", "-S", "-q"], [b"6*7\r", b"import os, sys; print(sys.stdin.isatty(), os.get_terminal_size())\r", b"raise SystemExit(3)\r"]),
        (["bash", "--norc", "--noprofile", "-i"], [b"echo $-\r", b"sleep 20\r", b"\x1a", b"jobs\r", b"fg\r", b"\x03", b"stty -a\r", b"exit 5\r"]),
    ]
    for command, keys in programs:
        blind = lambda shown: re.sub(rb"\d{4,}", b"N", shown[1])
        for rest in (0.4, 1.2, 3): # on a loaded machine a key may come before the last one is answered, natively, too
            native = shows(b, command, keys, rest)
            traced = shows(b, b.traced(["-q", "--start-on", "key:ctrl-t"], command), keys, rest)
            again = shows(b, b.traced(["-q", "--start-on", "key:ctrl-t"], command), [*keys[:-1], b"\x14", keys[-1]], rest)
            wrong = [got for got in (traced, again) if (got[0], blind(got), got[2]) != (native[0], blind(native), True)]
            if not wrong: break
        assert native[2] and len(native[1]) > 100, native
        assert not wrong, (command, wrong, native)


@case
def ends_are_the_commands(b):
    for script, status in (("exit 7", 7), ("kill -9 $$", -9), ("kill -TERM $$", -15), ("printf 'no newline'", 0)):
        t = b.run(["-q", *KEYS], ["sh", "-c", script])
        assert t.end() == status and t.modes() == t.begun, (script, t.shown)
        assert t.shown == (b"no newline" if not status else b""), t.shown
    t = b.run(["-q", *KEYS], ["./no-such-program"])
    assert t.end() == 127 and t.modes() == t.begun
    t = b.run(KEYS, ["sh", "-c", "seq 20000"])
    assert t.end() == 0
    assert re.fullmatch(rb"\r\n".join(b"%d" % n for n in range(1, 20001)) + rb"\r\n(sptrace: [^\r\n]*\r\n)+", t.shown), (t.shown[:200], t.shown[-500:])


@case
def redirected_streams_stay_so(b):
    t = b.shell(f"{b.line(b.probe())} > out 2> err; echo status $?")
    t.wait(b"terminals ynn")
    t.wait(b"ready")
    t.press(b"xq")
    t.wait(b"status 7")
    assert t.end() == 0
    t = b.shell(f"{b.line(['sh', '-c', 'echo to stdout; echo to stderr >&2'])} | tr a-z A-Z; echo end")
    assert t.end() == 0 and sorted(t.shown.replace(b"\r\r\n", b"\r\n").split(b"\r\n")) == [b"", b"TO STDOUT", b"end", b"to stderr"], t.shown


@case
def what_is_left_behind_writes_on(b):
    t = b.shell(f"{b.line(['sh', '-c', '(sleep 1; [ -t 1 ] && echo late) & echo early'])}; echo status $?; sleep 2.5")
    t.wait(b"early\r\n")
    assert t.end() == 0 and b"late\r\n" in t.shown, t.shown


def survives(b, how, moment):
    """sptrace is killed or stopped; the program goes on at the terminal, and that is as before at its end."""
    for name in ("pid", "done"):
        if os.path.exists(b.path(name)): os.remove(b.path(name))
    t = b.shell(f"{b.line(b.probe())}; echo status $?; while [ ! -e done ]; do sleep 0.05; done; stty -a | tr ' ;' '\\n\\n' | grep -x -e '-*icanon' -e '-*echo' | paste -sd ' '")
    t.wait(b"ready")
    pid = b.program()
    sptrace = parent(pid)
    if moment in ("recording", "begin"): t.press(b"\x14")
    if moment == "recording":
        assert wait_for(lambda: "memfd:sptrace" in open(f"/proc/{pid}/maps").read())
        time.sleep(0.5)
    os.kill(sptrace, how)
    if how == signal.SIGKILL: t.wait(b"status 137")
    t.press(b"ab\x1b[A")
    t.wait(b"1b5b41>")
    t.resize(30, 90)
    t.wait(b"size 30 90")
    if how == signal.SIGSTOP: os.kill(sptrace, signal.SIGCONT)
    t.press(b"q")
    t.wait(b"bye\r\n")
    assert wait_for(lambda: not os.path.exists(f"/proc/{pid}") or how == signal.SIGSTOP)
    assert wait_for(lambda: t.read(0.01) or t.modes() == t.begun), "the terminal is not as before"
    with open(b.path("done"), "w"): pass
    assert t.end() == 0 and t.shown.endswith(b"icanon echo\r\n"), t.shown
    if how == signal.SIGSTOP: assert b"status 7" in t.shown, t.shown


@case
def killed_before_the_recording(b): survives(b, signal.SIGKILL, "before")


@case
def killed_as_the_recording_begins(b):
    for _ in range(3): survives(b, signal.SIGKILL, "begin")


@case
def killed_while_recording(b): survives(b, signal.SIGKILL, "recording")


@case
def killed_early(b):
    """Before the program begins, or as it does: it begins, or it does not, and then the terminal is as before, too."""
    begun = 0
    for n in range(8):
        for name in ("pid", "done"):
            if os.path.exists(b.path(name)): os.remove(b.path(name))
        t = b.shell(f"{b.line(b.probe())}; while [ ! -e done ]; do sleep 0.05; done; echo through")
        sptrace = wait_for(lambda: open(f"/proc/{t.pid}/task/{t.pid}/children").read().split())
        time.sleep(0.015 * n)
        os.kill(int(sptrace[0]), signal.SIGKILL)
        wait_for(lambda: t.read(0.05) and b"ready" in t.shown, 2.5)
        if os.path.exists(b.path("pid")):
            begun += 1
            if b"ready" not in t.shown: t.wait(b"ready")
            t.press(b"a\x1b[A")
            t.wait(b"1b5b41>")
            t.press(b"q")
            t.wait(b"bye\r\n")
        wait_for(lambda: t.modes() == t.begun)
        with open(b.path("done"), "w"): pass
        assert t.end() == 0 and b"through\r\n" in t.shown, t.shown
        assert t.modes() == t.begun, n
    assert begun


@case
def stopped_before_and_while_recording(b):
    survives(b, signal.SIGSTOP, "before")
    survives(b, signal.SIGSTOP, "recording")


@case
def a_hang_up_arrives(b):
    for moment in ("before", "recording", "killed"):
        if os.path.exists(b.path("pid")): os.remove(b.path("pid"))
        t = b.run(["-q", *KEYS], b.probe())
        t.wait(b"ready")
        pid = b.program()
        if moment == "recording": t.press(b"\x14")
        if moment == "killed": os.kill(parent(pid), signal.SIGKILL)
        time.sleep(0.3)
        os.close(t.master)
        t.master = -1
        assert wait_for(lambda: os.path.exists(b.path("hup"))), moment
        os.remove(b.path("hup"))
        assert wait_for(lambda: not os.path.exists(f"/proc/{pid}")), moment
        assert wait_for(lambda: os.waitpid(t.pid, os.WNOHANG)[0]), moment
        t.pid = 0


@case
def the_command_stops_and_goes_on(b):
    t = b.terminal(["bash", "--norc", "--noprofile", "-i"])
    t.wait(b"$ ")
    for command, show, answer in ((["cat"], b"abc\r", b"abc\r\nabc\r\n"), (["less", "text"], b"\x0c", b"first line"), (["python3", "-S", "-q", "-c", "import os, signal; input(); os.kill(0, signal.SIGSTOP); print(input())"], b"abc\r", b"abc\r\n")):
        with open(b.path("text"), "w") as f: f.write("first line\n" + "more\n" * 100)
        t.press(b.line(command).encode() + b"\r")
        t.wait(b"\r\n")
        t.settle(1.0)
        for turn in range(2):
            t.press(show)
            if "SIGSTOP" not in command[-1]:
                t.wait(answer)
                t.press(b"\x1a")
            elif turn: break
            t.wait(b"Stopped")
            t.wait(b"$ ")
            t.settle()
            t.press(b"stty -a | grep -c ' icanon'\r")
            t.wait(b"\r\n1\r\n$ ")
            t.press(b"fg\r")
            t.wait(b"\r\n")
            t.settle(0.6)
        t.press({"cat": b"\x04", "less": b"q"}.get(command[0], b""))
        t.wait(b"$ ")
        t.press(b"echo status $?\r")
        t.wait(b"status 0")
        t.settle()
    t.press(b"exit\r")
    assert t.end() == 0


@case
def a_long_first_analysis_is_told_and_not_in_a_pipe(b):
    """rustc's library takes seconds; the cache of this bench is empty."""
    root = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True, check=True).stdout.strip()
    command = ["run", "-D", "1", "-o", "t.data", "--", os.path.join(root, "bin/rustc"), "--version"]
    t = b.terminal([b.sptrace, *command])
    before = t.wait(b"sptrace: analysing librustc_driver")
    assert b"analys" not in before, before
    t.wait(b"sptrace: analysed librustc_driver")
    assert t.end() == 0 and b"rustc 1." in t.shown, t.shown
    again = subprocess.run([b.sptrace, *command], cwd=b.folder, env=dict(b.env, XDG_CACHE_HOME="/dev/null"), stdin=subprocess.DEVNULL, capture_output=True, check=True)
    assert b"analys" not in again.stderr and b"recorded" in again.stderr, again.stderr


@case
def dumps_are_said_on_the_terminal(b):
    t = b.run(["--ring", "4M", "--dump-on", "key:f5"], b.probe())
    t.wait(b"ready")
    t.press(b"x\x1b[15~y")
    t.wait(b"dump 1 written to t.data at key:f5")
    t.press(b"q")
    assert t.end() == 7 and "written at key:f5" in b.report(), t.shown


@case
def a_key_ends_what_is_attached_to(b):
    program = subprocess.Popen([sys.executable, "-S", "-c", "while True: sum(range(999))"])
    try:
        t = b.terminal([b.sptrace, "attach", "-o", "t.data", "-p", str(program.pid), "--stop-on", "key:ctrl-t"])
        t.wait(b"attached to")
        t.press(b"no\x1b[A")
        time.sleep(0.3)
        assert "memfd:sptrace" in open(f"/proc/{program.pid}/maps").read()
        t.press(b"\x14")
        assert t.end() == 0 and b"--stop-on key:ctrl-t" in t.shown and t.modes() == t.begun, t.shown
        assert "memfd:sptrace" not in open(f"/proc/{program.pid}/maps").read() and program.poll() is None
    finally:
        program.kill()
        program.wait()


@case
def an_interrupt_at_any_moment(b):
    """ctrl-c before there is a command reaches it, too: sptrace or the command ends by it, whenever it comes."""
    for moment in range(0, 60, 2):
        pid, master = pty.fork()
        if pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.chdir(b.folder)
            os.execve(b.sptrace, b.traced(["-q"], ["sleep", "20"]), b.env)
        assert wait_for(lambda: os.path.samefile(f"/proc/{pid}/exe", b.sptrace), 10)
        time.sleep(moment / 1000)
        begun, ended = time.monotonic(), 0
        os.write(master, b"\x03")
        while not ended and time.monotonic() < begun + 10:
            if select.select([master], [], [], 0.02)[0]:
                try: os.read(master, 4096)
                except OSError: pass
            ended, how = os.waitpid(pid, os.WNOHANG)
        os.close(master)
        if not ended: os.waitpid(pid, 0)
        assert ended, f"an interrupt after {moment} ms is lost"
        assert os.waitstatus_to_exitcode(how) in (-signal.SIGINT, 128 + signal.SIGINT), (moment, how)


@case
def the_relay_is_killed(b):
    """To the program that is what the end of a terminal is; ours is as before."""
    for moment in ("before", "recording"):
        if os.path.exists(b.path("pid")): os.remove(b.path("pid"))
        t = b.run(["-q", *KEYS], b.probe())
        t.wait(b"ready")
        pid = b.program()
        if moment == "recording":
            t.press(b"\x14")
            assert wait_for(lambda: "memfd:sptrace" in open(f"/proc/{pid}/maps").read())
        relays = [p for p in map(int, filter(str.isdigit, os.listdir("/proc"))) if is_relay(p, t.pid)]
        assert len(relays) == 1, relays
        os.kill(relays[0], signal.SIGKILL)
        t.end()
        assert wait_for(lambda: os.path.exists(b.path("hup"))), moment
        os.remove(b.path("hup"))
        assert wait_for(lambda: not os.path.exists(f"/proc/{pid}")), moment
        assert t.modes() == t.begun, moment


def is_relay(pid, session):
    try: fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    except OSError: return False
    return int(fields[3]) == session and open(f"/proc/{pid}/comm").read() == "sptrace-relay\n"


WRONG = """#!/bin/sh
# Keys go to the program, nothing is recorded, terminals stay raw, output goes through a pipe, statuses are lost, nobody hears of
# a hang-up.
while [ "$1" != -- ]; do shift; done
shift
trap "" HUP
stty raw
"$@" | cat
true
"""


if __name__ == "__main__":
    if "--self-check" in sys.argv: PATIENCE = 4
    sys.exit(main(case, __doc__, Bench, WRONG))
