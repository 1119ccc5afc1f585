#!/usr/bin/env python3
"""Servers under `sptrace run`, loaded by a second process, started and stopped; compared with the same without sptrace.

usage: tests/servers.py [--kill] [--repeat N] [--requests N] [--only NAME]... [--sptrace PATH]
       tests/servers.py --self-check

Given: a built sptrace (--sptrace, $SPTRACE or target/release/sptrace); redis-server with redis-benchmark, nginx with ab
(apache2-utils); what is not installed is skipped by name.
Gives: one line a run, then `N passed, N failed` alone on the last line; status 1 if anything failed.
Checked: every request of the load succeeds, answers to our own requests are right byte for byte, nginx reloads under load, the
server's log has no error, it ends by its usual signal with the usual status, no process stays behind; the trace is read and
has events, none lost.
  --kill        SIGKILL to sptrace in the middle of the load: all the same but the trace
  --self-check  the harness must pass a stand-in for sptrace that does nothing wrong and fail ones that do
Must not know: how sptrace works.
"""
import argparse, os, random, re, shutil, signal, subprocess, sys, tempfile, threading, time, urllib.request

from harness.servers import Nginx, Redis, free_port, listens, wait_until

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIMIT_S = 60  # for a server to listen, and to end


def server_pid(parent, name):
    """The server itself: of the processes below `parent` (or left by it) the one that listens first."""
    out = subprocess.run(["pgrep", "-P", str(parent), "-x", name], stdout=subprocess.PIPE).stdout.split()
    return int(out[0]) if out else None


def processes_of(folder):
    """Those that name this very folder in their command line."""
    return [int(pid) for pid in subprocess.run(["pgrep", "-f", folder], stdout=subprocess.PIPE).stdout.split()]


def run(kind, name, tracer, requests, kill_after_s, sptrace):
    """One life of a server. Gives (what was wrong, seconds, status)."""
    folder = tempfile.mkdtemp(prefix="sptrace-servers-", dir="/var/tmp")
    os.chmod(folder, 0o755)
    trace, found, begun = os.path.join(folder, "trace.data"), [], time.monotonic()
    server = kind(folder)
    argv = ([sptrace, "run", "-q", "-o", trace, "--"] if tracer else []) + server.argv
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
    killer = None
    try:
        if not wait_until(lambda: listens(server.port), LIMIT_S): return ["it never listened"], 0, None
        pid = server_pid(process.pid, name) if tracer else process.pid
        if kill_after_s is not None:
            killer = threading.Timer(kill_after_s, process.kill)
            killer.start()
        loaded = []
        loader = threading.Thread(target=lambda: loaded.append(server.load(requests)))
        loader.start()
        n = 0
        while loader.is_alive() or n < 5:
            try: server.check(n)
            except Exception as error: found.append(f"request {n}: {type(error).__name__} {error}"); break
            if n == 3: server.middle(pid)
            n += 1
        loader.join()
        found += loaded[0] if loaded else ["the load did not end"]
        if killer: killer.join()
        try: os.kill(pid, server.stop)
        except ProcessLookupError: found.append("it has ended before it was told to")
        if not wait_until(lambda: not alive(pid), LIMIT_S): found.append("it does not end")
        status = process.wait(LIMIT_S)
        stderr = process.stderr.read().decode("latin1")
        if stderr: found.append(f"stderr: {stderr[:200]!r}")
        found += [f"log: {line.strip()[:200]}" for line in server.log_errors()]
        if tracer and kill_after_s is None:
            out = subprocess.run([sptrace, "report", "summary", "-i", trace], stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout.decode()
            events = re.search(r"events\s+([\d,]+)", out)
            if not events or int(events[1].replace(",", "")) < 10000: found.append(f"trace: {out[:200]!r}")
            if "no event lost" not in out: found.append("events were lost")
        left = processes_of(folder)
        if left: found.append(f"{len(left)} processes left")
        return found, time.monotonic() - begun, status
    except subprocess.TimeoutExpired: return found + ["sptrace does not end"], time.monotonic() - begun, None
    finally:
        for pid in processes_of(folder):
            try: os.kill(pid, signal.SIGKILL)
            except ProcessLookupError: pass
        if process.poll() is None: process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def alive(pid):
    try: return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError: return False


def compared(kind, name, status, kill_after_s, requests, sptrace):
    """What is wrong with a life under sptrace, where one without ended with `status`; and how long it took."""
    found, seconds, got = run(kind, name, True, requests, kill_after_s, sptrace)
    if kill_after_s is None and got != status: found.append(f"status {got}, not {status}")
    return found, seconds


SERVER = """
import http.server, os, signal, subprocess, sys
spoil, port, folder = os.environ.get("SPOIL"), int(sys.argv[1]), sys.argv[2]
class Handler(http.server.BaseHTTPRequestHandler):
    count = 0
    def do_GET(self):
        Handler.count += 1
        body = b"right" if spoil != "answer" or Handler.count < 20 else b"wrong"
        if spoil == "request" and Handler.count == 20: return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
def end(*_):
    if spoil == "ends never": return
    if spoil == "process": subprocess.Popen(["sh", "-c", "sleep 20; : " + folder], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if spoil == "log": open(folder + "/log", "w").write("error\\n")
    os._exit(3 if spoil == "status" else 0)
signal.signal(signal.SIGTERM, end)
http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""

# Does what sptrace must do, as far as the checks go. The words in capitals are replaced.
STAND_IN = """#!/bin/sh
[ "$1" != report ] || { echo "events  EVENTS"; echo "LOSS"; exit; }
while [ "$1" != -- ]; do shift; done
shift
BEFORE
WRAP "$@"
r=$?
AFTER
exit $r
"""


class Small:
    """A server of a few lines, which can be spoiled."""
    stop = signal.SIGTERM

    def __init__(self, folder):
        self.folder, self.port = folder, free_port()
        self.argv = ["python3", "-c", SERVER, str(self.port), folder]

    def ask(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/", timeout=5) as answer: return answer.read()

    def check(self, n): assert self.ask() == b"right"

    def load(self, requests):
        try: return [] if all([self.ask() for _ in range(requests)]) else ["empty"]
        except OSError as error: return [f"load: {error}"]

    def middle(self, pid): pass

    def log_errors(self): return list(open(os.path.join(self.folder, "log"))) if os.path.exists(os.path.join(self.folder, "log")) else []


def self_check():
    """The stand-in passes; spoiled in one way, it is caught."""
    global LIMIT_S
    LIMIT_S = 5
    checks = [
        # what, its parts, killed meanwhile, is it right
        ("does nothing wrong", {}, False, True),
        ("makes an answer wrong", {"BEFORE": "export SPOIL=answer"}, False, False),
        ("loses a request", {"BEFORE": "export SPOIL=request"}, False, False),
        ("changes the server's status", {"BEFORE": "export SPOIL=status"}, False, False),
        ("changes its own status", {"AFTER": "r=3"}, False, False),
        ("keeps the server from ending", {"BEFORE": "export SPOIL='ends never'"}, False, False),
        ("keeps the server from listening", {"WRAP": "true"}, False, False),
        ("leaves a process behind", {"BEFORE": "export SPOIL=process"}, False, False),
        ("makes the server log an error", {"BEFORE": "export SPOIL=log"}, False, False),
        ("writes to stderr", {"AFTER": "echo more >&2"}, False, False),
        ("does not end", {"AFTER": "sleep 8"}, False, False),
        ("has recorded next to nothing", {"EVENTS": "12"}, False, False),
        ("has lost events", {"LOSS": "3 events lost"}, False, False),
        ("may be killed", {}, True, True),
        ("takes the server along", {"WRAP": "setpriv --pdeathsig KILL"}, True, False),
    ]
    parts, bad = {"BEFORE": ":", "WRAP": "", "AFTER": ":", "EVENTS": "1,000,000", "LOSS": "no event lost"}, 0
    with tempfile.TemporaryDirectory() as folder:
        sptrace = os.path.join(folder, "sptrace")
        for what, spoil, is_killed, good in checks:
            script = STAND_IN
            for part, text in {**parts, **spoil}.items(): script = script.replace(part, text)
            with open(sptrace, "w") as f: f.write(script)
            os.chmod(sptrace, 0o755)
            found, _ = compared(Small, "python3", 0, *((0.1, 2000) if is_killed else (None, 200)), sptrace)
            right = (not found) == good
            bad += not right
            print(f"{'ok  ' if right else 'FAIL'} a stand-in that {what}: {found[0] if found else 'no difference'}"[:200], flush=True)
    print(f"{len(checks) - bad} passed, {bad} failed")
    return 1 if bad else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--requests", type=int, default=3000)
    parser.add_argument("--only", action="append")
    parser.add_argument("--sptrace", default=os.environ.get("SPTRACE", os.path.join(ROOT, "target", "release", "sptrace")))
    parser.add_argument("--self-check", action="store_true")
    args = parser.parse_args()
    if args.self_check: return self_check()
    sptrace, rng, passed, failed = os.path.abspath(args.sptrace), random.Random(1), 0, 0
    for name, kind in (("redis-server", Redis), ("nginx", Nginx)):
        if args.only and name not in args.only: continue
        if not all(shutil.which(n) for n in kind.needs):
            print(f"skip {name}: {' or '.join(kind.needs)} is not installed")
            continue
        found, native_s, status = run(kind, name, False, args.requests, None, sptrace)
        if found: print(f"FAIL {name} untraced: {found}"); failed += 1; continue
        for _ in range(args.repeat):
            kill_after_s = rng.uniform(0, 2 * native_s) if args.kill else None
            found, seconds = compared(kind, name, status, kill_after_s, args.requests, sptrace)
            passed, failed = passed + (not found), failed + bool(found)
            print(f"{'FAIL' if found else 'ok  '} {name}: {'; '.join(found) or f'untraced {native_s:.1f} s, traced {seconds:.1f} s'}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
