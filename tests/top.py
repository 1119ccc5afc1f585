#!/usr/bin/env python3
"""`--top` on a terminal: what it shows, what its keys do, and that the terminal is given back however it ends. Pagers of reports.

usage: tests/top.py [--sptrace PATH] [--only GLOB]... [--list]

Given: a built sptrace and gcc. Each case has a terminal of its own (pty(7)); what is written to it is put on a screen of 150
columns as a terminal would, as far as sptrace asks for it. Gives: one line a case, then `N passed, N failed` alone on the
last line; status 1 if anything failed. Must not know: how sptrace works.
"""
import fcntl, os, pty, re, select, signal, struct, subprocess, sys, tempfile, termios, time

from harness.case import Cases, Failed, find_sptrace, run_cases

ROWS, COLUMNS = 24, 150
case = Cases()
PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
static volatile long spin;
__attribute__((noinline)) void f_slow(void) { for (int i = 0; i < 200000; i++) spin++; }
__attribute__((noinline)) void f_often(void) { spin++; }
__attribute__((noinline)) void f_caller(void) { for (int i = 0; i < 200; i++) f_often(); f_slow(); }
int main(int argc, char **argv)
{
    for (long i = 0, rounds = atol(argv[1]); i < rounds; i++) { f_caller(); }
    return 3;
}
"""


class Terminal:
    """A program on a terminal of its own, and what stands on it."""

    def __init__(self, argv, folder):
        self.screen, self.at = [[" "] * COLUMNS for _ in range(ROWS)], [0, 0]
        self.rest, self.is_other = "", False
        gate = os.pipe()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.read(gate[0], 1)  # it has not begun before the terminal has its size, and was looked at
            os.chdir(folder)
            os.execv(argv[0], argv)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.former, self.status = self.settings(), None
        os.write(gate[1], b".")
        for end in gate: os.close(end)

    def settings(self): return termios.tcgetattr(self.fd)[:4]

    def feed(self, text):
        """The few sequences that are used: where to go on, erase, another screen."""
        text = self.rest + text
        self.rest = ""
        while text:
            m = re.match(r"\x1b\[([?0-9;]*)([A-Za-z])", text)
            if m:
                text = text[m.end():]
                numbers = [int(n or 1) for n in m[1].split(";")] if "?" not in m[1] else []
                if m[2] == "H": self.at = [(numbers + [1, 1])[0] - 1, (numbers + [1, 1])[1] - 1]
                elif m[2] == "J": self.screen = [[" "] * COLUMNS for _ in range(ROWS)]
                elif m[0].endswith("?1049h"): self.is_other = True
                elif m[0].endswith("?1049l"): self.is_other = False
            elif text[0] == "\x1b" and len(text) < 16: self.rest = text; return
            else:
                c, text = text[0], text[1:]
                row, column = self.at
                if c == "\n": self.at[0] = min(row + 1, ROWS - 1)
                elif c == "\r": self.at[1] = 0
                elif c >= " " and row < ROWS and column < COLUMNS: self.screen[row][column] = c; self.at[1] += 1

    def read(self, seconds):
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not select.select([self.fd], [], [], left)[0]: return
            try: got = os.read(self.fd, 65536)
            except OSError: got = b""
            if not got: return
            self.feed(got.decode("utf-8", "replace"))

    def text(self): return "\n".join("".join(row).rstrip() for row in self.screen)

    def shows(self, what, seconds=30):
        """Whether the screen comes to show it."""
        end = time.monotonic() + seconds
        while not re.search(what, self.text(), re.M):
            if time.monotonic() > end or self.ended(): return False
            self.read(0.2)
        return True

    def type(self, text): os.write(self.fd, text.encode())

    def ended(self):
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid: self.status = status
        return self.status is not None

    def end(self, seconds=40):
        end = time.monotonic() + seconds
        while not self.ended() and time.monotonic() < end: self.read(0.1)
        self.read(0.3)
        return self.status

    def close(self):
        if not self.ended():
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)


class Bench:
    def __init__(self, sptrace, folder):
        self.sptrace, self.folder = sptrace, folder
        with open(f"{folder}/p.c", "w") as f: f.write(PROGRAM)
        subprocess.run(["gcc", "-O1", "-o", f"{folder}/p", f"{folder}/p.c"], check=True)

    def top(self, rounds, *before): return Terminal([self.sptrace, *(before or ("run", "-q")), "--top", "--", f"{self.folder}/p", str(rounds)], self.folder)


def rows(terminal):
    """The functions in the order of the list."""
    return re.findall(r"\b(f_\w+)$", terminal.text(), re.M)


@case
def the_hottest_function_is_first(b):
    t = b.top(1000000)
    try:
        former = t.former
        if not t.shows(r"calls/s.*\n.* f_slow$"): raise Failed(f"f_slow is not first:\n{t.text()}")
        t.type("c")
        if not t.shows(r"^by calls\n.*\n.* f_often$"): raise Failed(f"f_often is not first by calls:\n{t.text()}")
        t.type("\r")
        if not t.shows(r"from f_caller: [\d,]+ calls"): raise Failed(f"no callers:\n{t.text()}")
        t.type("\x1b")
        t.type("/slo\r")
        if not t.shows(r"filter: slo") or not t.shows(r"^by calls.*\n.*\n.* f_slow$"): raise Failed(f"the filter does not hold:\n{t.text()}")
        if "f_often" in t.text(): raise Failed(f"what is filtered out is shown:\n{t.text()}")
        t.type("q")
        time.sleep(0.5)
        t.read(0.5)
        if t.is_other or t.settings() != former: raise Failed("q does not give the terminal back")
        if t.ended(): raise Failed("q ended the program")
    finally: t.close()


@case
def times_of_calls_in_order_are_marked(b):
    for stamps in ("none", "auto"):
        t = b.top(1000000, "run", "-q", "--stamps", stamps)
        try:
            if not t.shows(r"~\S+ \S+ +~\S+ \S+ .* f_often$"): raise Failed(f"{stamps}: no estimate is shown:\n{t.text()}")
            t.type("c")
            if not t.shows(r"^by calls\n.*\n.* f_often$"): raise Failed(f"{stamps}: f_often is not first by calls:\n{t.text()}")
            t.type("l")
            if not t.shows(r"f_often \(left out\)$") or not t.shows(r"^ *[\d,]+ +0 .* f_often \(left out\)$"): raise Failed(f"{stamps}: f_often is not left out:\n{t.text()}")
            print(t.text(), file=sys.stderr)
        finally: t.close()


@case
def the_end_gives_the_terminal_back(b):
    t = b.top(40000)
    try:
        former = t.former
        if not t.shows("f_slow$"): raise Failed(f"nothing is shown:\n{t.text()}")
        if os.waitstatus_to_exitcode(t.end() or 0) != 3: raise Failed(f"the status is {t.status}, not 3")
        if t.is_other or t.settings() != former: raise Failed("the terminal is not as before")
    finally: t.close()


@case
def a_signal_gives_the_terminal_back(b):
    t = b.top(1000000)
    try:
        former = t.former
        if not t.shows("f_slow$"): raise Failed(f"nothing is shown:\n{t.text()}")
        t.type("\x03")  # the terminal's interrupt: for the command, and it ends
        if os.waitstatus_to_exitcode(t.end() or 0) != -signal.SIGINT: raise Failed(f"Ctrl-C: the status is {t.status}")
        if t.is_other or t.settings() != former: raise Failed("the terminal is not as before")
    finally: t.close()


@case
def a_running_program_is_shown(b):
    program = subprocess.Popen([f"{b.folder}/p", "1000000"], stdout=subprocess.DEVNULL)
    t = Terminal([b.sptrace, "attach", "-q", "--top", "-p", str(program.pid), "--for", "4s"], b.folder)
    try:
        if not t.shows("f_slow$"): raise Failed(f"nothing is shown:\n{t.text()}")
        if t.end() != 0 or t.is_other: raise Failed(f"status {t.status}, the other screen {t.is_other}")
        if program.poll() is not None: raise Failed("the program ended")
    finally:
        t.close()
        program.kill()
        program.wait()


def calls(terminal):
    """How many calls the head says that there were."""
    m = re.search(r"^sptrace  \d+ s  ([\d,]+) calls", terminal.text(), re.M)
    return int(m[1].replace(",", "")) if m else 0


def pid_of(b, tracer):
    """The process of the program, a child of sptrace."""
    children = open(f"/proc/{tracer}/task/{tracer}/children").read().split()
    found = [int(pid) for pid in children if os.path.basename(os.readlink(f"/proc/{pid}/exe")) == "p"]
    if not found: raise Failed("the program is not there")
    return found[0]


def at_rest(terminal, number, seconds=30):
    """A number once it has been the same for two seconds: what is shown may be behind what was recorded."""
    last, since, end = number(), time.monotonic(), time.monotonic() + seconds
    while time.monotonic() < end:
        terminal.read(0.2)
        if number() != last: last, since = number(), time.monotonic()
        elif time.monotonic() > since + 2: return last
    return None


@case
def a_key_pauses_the_recording_and_it_goes_on(b):
    t = b.top(1000000)
    try:
        if not t.shows("f_slow$"): raise Failed(f"nothing is shown:\n{t.text()}")
        program = pid_of(b, t.pid)
        t.type("o")
        if not t.shows("NOT RECORDING"): raise Failed(f"o does not pause:\n{t.text()}")
        before = at_rest(t, lambda: calls(t))
        if before is None: raise Failed(f"calls are recorded though it pauses:\n{t.text()}")
        t.type("o")
        end = time.monotonic() + 15
        while calls(t) < before + 10000 and time.monotonic() < end: t.read(0.2)
        if "NOT RECORDING" in t.text() or calls(t) < before + 10000: raise Failed(f"o does not go on:\n{t.text()}")
        os.kill(program, signal.SIGTERM)
        if os.waitstatus_to_exitcode(t.end() or 0) != -signal.SIGTERM: raise Failed(f"the status is {t.status}")
    finally: t.close()
    notes = subprocess.run([b.sptrace, "report", "tree"], cwd=b.folder, capture_output=True, text=True).stdout
    for text in ("recording 1 ended at a key of --top", "recording 2 began at a key of --top"):
        if text not in notes: raise Failed(f"the tree does not say '{text}'")


@case
def a_key_leaves_a_function_out_and_records_it_again(b):
    t = b.top(1000000)
    try:
        t.type("c")
        if not t.shows(r"^by calls\n.*\n.* f_often$"): raise Failed(f"f_often is not first by calls:\n{t.text()}")
        program = pid_of(b, t.pid)
        t.type("l")
        if not t.shows(r"f_often \(left out\)$"): raise Failed(f"l does nothing:\n{t.text()}")

        def of(name):
            m = re.search(rf"^ *([\d,]+) .* {name}( \(left out\))?$", t.text(), re.M)
            return int(m[1].replace(",", "")) if m else 0
        often = at_rest(t, lambda: of("f_often"))
        if often is None: raise Failed(f"f_often is recorded though it is left out:\n{t.text()}")
        slow, end = of("f_slow"), time.monotonic() + 20
        while of("f_slow") <= slow and time.monotonic() < end: t.read(0.2)
        t.read(1)
        if of("f_often") != often: raise Failed(f"f_often is recorded though it is left out:\n{t.text()}")
        if of("f_slow") <= slow: raise Failed(f"f_slow is recorded no more:\n{t.text()}")
        t.type("l")
        end = time.monotonic() + 15
        while of("f_often") <= often and time.monotonic() < end: t.read(0.2)
        if of("f_often") <= often: raise Failed(f"f_often is not recorded again:\n{t.text()}")
        os.kill(program, signal.SIGTERM)
        t.end()
    finally: t.close()
    rows = subprocess.run([b.sptrace, "report", "functions", "--format", "csv"], cwd=b.folder, capture_output=True, text=True).stdout
    of_it = [row for row in rows.splitlines() if "f_often" in row]
    if len(of_it) != 1: raise Failed(f"f_often is not in one row of the report: {of_it}")


@case
def a_running_program_pauses_too(b):
    program = subprocess.Popen([f"{b.folder}/p", "1000000"], stdout=subprocess.DEVNULL)
    t = Terminal([b.sptrace, "attach", "-q", "--top", "-p", str(program.pid)], b.folder)
    try:
        if not t.shows("f_slow$"): raise Failed(f"nothing is shown:\n{t.text()}")
        t.type("o")
        if not t.shows("NOT RECORDING"): raise Failed(f"o does not pause:\n{t.text()}")
        before = at_rest(t, lambda: calls(t))
        if before is None: raise Failed(f"calls are recorded though it pauses:\n{t.text()}")
        t.type("o")
        end = time.monotonic() + 15
        while calls(t) < before + 10000 and time.monotonic() < end: t.read(0.2)
        if calls(t) < before + 10000: raise Failed(f"o does not go on:\n{t.text()}")
        t.type("\x03")
        if t.end() != 0 or t.is_other: raise Failed(f"status {t.status}, the other screen {t.is_other}")
        if program.poll() is not None: raise Failed("the program ended")
    finally:
        t.close()
        program.kill()
        program.wait()


@case
def killed_it_gives_the_terminal_back(b):
    # As from a shell, which leads the session: without a leader there is no terminal any more.
    t = Terminal(["/bin/sh", "-c", f"{b.sptrace} run -q --top -- {b.folder}/p 40000; sleep 1"], b.folder)
    try:
        former = t.former
        if not t.shows("f_slow$"): raise Failed(f"nothing is shown:\n{t.text()}")
        if not t.is_other or t.settings() == former: raise Failed("--top does not take the terminal")
        tracer = int(open(f"/proc/{t.pid}/task/{t.pid}/children").read().split()[0])
        program = pid_of(b, tracer)
        os.kill(tracer, signal.SIGKILL)
        t.read(0.7)
        if t.is_other or t.settings() != former: raise Failed("the terminal is not as before")
        os.kill(program, 0)
        os.kill(program, signal.SIGKILL)
    finally: t.close()


@case
def reports_go_through_a_pager(b):
    trace = f"{b.folder}/paged.data"
    subprocess.run([b.sptrace, "run", "-q", "-o", trace, "--", f"{b.folder}/p", "200"], check=False, capture_output=True)
    want = subprocess.run([b.sptrace, "report", "functions", "-i", trace], capture_output=True, text=True).stdout
    lines = want.count("\n")

    def shown(*options, **variables):
        t = Terminal(["/usr/bin/env", *(f"{k}={v}" for k, v in variables.items()), b.sptrace, "report", "functions", "-i", trace, *options], b.folder)
        try:
            t.end(20)
            return t.text().strip()
        finally: t.close()
    for variables in ({"PAGER": "wc -l"}, {"PAGER": "nonsense", "SPTRACE_PAGER": "wc -l"}):
        if (got := shown(**variables)) != str(lines): raise Failed(f"{variables}: {got!r}, not {lines}")
    for options, variables in ((["--no-pager"], {"PAGER": "wc -l"}), ([], {"PAGER": ""}), ([], {"PAGER": "cat"}), ([], {"PAGER": "/nonexistent/pager"})):
        if "f_often" not in (got := shown(*options, **variables)): raise Failed(f"{options} {variables}: {got!r}")
    # Who has seen enough ends it, and that is no failure.
    t = Terminal(["/bin/sh", "-c", f"PAGER='head -n 1' {b.sptrace} report tree -i {trace}; echo status $?"], b.folder)
    try:
        t.end(20)
        if "status 0" not in t.text() or "failed" in t.text(): raise Failed(t.text())
    finally: t.close()


@case
def without_a_terminal_it_is_refused(b):
    got = subprocess.run(["setsid", "-w", b.sptrace, "run", "--top", "--", "/bin/echo", "ran"], cwd=b.folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if got.returncode != 2 or "needs a terminal" not in got.stderr or got.stdout: raise Failed(f"status {got.returncode}, {got.stdout!r}, {got.stderr!r}")


def main(argv):
    def values(option): return [argv[i + 1] for i, a in enumerate(argv) if a == option]
    chosen = case.chosen(values("--only"))
    if "--list" in argv: print(*[c.__name__ for c in chosen], sep="\n"); return 0
    with tempfile.TemporaryDirectory(prefix="sptrace-top-") as folder:
        bench = Bench(find_sptrace(*values("--sptrace")[:1]), folder)
        return run_cases((c.__name__, lambda c=c: c(bench)) for c in chosen)


if __name__ == "__main__": sys.exit(main(sys.argv[1:]))
