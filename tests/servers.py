#!/usr/bin/env python3
"""Servers under `sptrace run`, loaded by a second process, started and stopped; compared with the same without sptrace.

usage: tests/servers.py [--kill] [--repeat N] [--requests N] [--only NAME]... [--sptrace PATH]

Given: a built sptrace (--sptrace, $SPTRACE or target/release/sptrace); redis-server with redis-benchmark, nginx with ab
(apache2-utils); what is not installed is skipped by name.
Gives: one line a run, then `N passed, N failed` alone on the last line; status 1 if anything failed.
Checked: every request of the load succeeds, answers to our own requests are right byte for byte, nginx reloads under load, the
server's log has no error, it ends by its usual signal with the usual status, no process stays behind; the trace is read and
has events, none lost.
  --kill   SIGKILL to sptrace in the middle of the load: all the same but the trace
Must not know: how sptrace works.
"""
import argparse, os, random, re, shutil, signal, socket, subprocess, sys, tempfile, threading, time, urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_until(what, seconds=30):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if what(): return True
        except OSError: pass
        time.sleep(0.02)
    return False


def listens(port): return socket.create_connection(("127.0.0.1", port), 1).close() is None


def load(argv):
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=240)
    return done.returncode, done.stdout.decode("latin1")


class Redis:
    needs, stop = ("redis-server", "redis-benchmark"), signal.SIGTERM

    def __init__(self, folder):
        self.folder, self.port = folder, free_port()
        self.argv = ["/usr/bin/redis-server", "--port", str(self.port), "--save", "", "--dir", folder, "--io-threads", "2", "--logfile", os.path.join(folder, "log")]

    def ask(self, *words):
        with socket.create_connection(("127.0.0.1", self.port), 30) as s:
            s.sendall(b"".join([b"*%d\r\n" % len(words)] + [b"$%d\r\n%s\r\n" % (len(w), w) for w in words]))
            return s.recv(65536)

    def check(self, n):
        value = bytes(str(n * 7919), "ascii") * 50
        assert self.ask(b"SET", b"own%d" % n, value) == b"+OK\r\n"
        assert self.ask(b"GET", b"own%d" % n) == b"$%d\r\n%s\r\n" % (len(value), value)
        assert self.ask(b"EVAL", b"local s = 0 for i = 1, 100 do s = s + i end return s", b"0") == b":5050\r\n"
        if n % 20 == 10: assert self.ask(b"BGSAVE").startswith((b"+Background", b"-ERR")), "BGSAVE"

    def load(self, requests):
        status, out = load(["redis-benchmark", "-p", str(self.port), "-n", str(requests), "-c", "20", "-t", "set,get,incr,lpush,lrange_100,zadd,mset", "-P", "4", "--csv"])
        return [] if status == 0 and out.count("\n") >= 7 and "rror" not in out else [f"redis-benchmark: status {status}: {out[-200:]!r}"]

    def middle(self, pid): pass

    def log_errors(self):
        log = open(os.path.join(self.folder, "log"), errors="replace").read()
        return [line for line in log.splitlines() if re.search(r"crash|assert|BUG|# .*(fail|error)", line, re.I) and "overcommit" not in line][:2]


class Nginx:
    needs, stop = ("nginx", "ab"), signal.SIGQUIT

    def __init__(self, folder):
        self.folder, self.port = folder, free_port()
        self.body = random.Random(1).randbytes(100_000)
        with open(os.path.join(folder, "file"), "wb") as f: f.write(self.body)
        user = "user root;" if os.getuid() == 0 else ""
        with open(os.path.join(folder, "conf"), "w") as f:
            f.write(f"""{user} daemon off; worker_processes 2; pid {folder}/pid; error_log {folder}/log notice; events {{ worker_connections 256; }}
http {{ access_log off; gzip on; client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c; uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
  server {{ listen 127.0.0.1:{self.port} reuseport; root {folder}; }} }}""")
        self.argv = ["/usr/sbin/nginx", "-p", folder, "-c", os.path.join(folder, "conf"), "-e", os.path.join(folder, "log")]

    def check(self, n):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/file", timeout=30) as answer: assert answer.read() == self.body
        try: urllib.request.urlopen(f"http://127.0.0.1:{self.port}/none", timeout=30); assert False, "no 404"
        except urllib.error.HTTPError as error: assert error.code == 404

    def load(self, requests):
        found = []
        for keep in ([], ["-k"]):
            status, out = load(["ab", "-q", "-r", "-n", str(requests), "-c", "10", *keep, f"http://127.0.0.1:{self.port}/file"])
            failed = re.search(r"Failed requests:\s+(\d+)", out)
            if status or not failed or failed[1] != "0" or "Non-2xx" in out: found.append(f"ab {keep}: status {status}: {out[-300:]!r}")
        return found

    def middle(self, pid):
        os.kill(pid, signal.SIGHUP)

    def log_errors(self):
        return [l for l in open(os.path.join(self.folder, "log")) if re.search(r"\[(emerg|alert|crit|error)\]|exited on signal", l) and "/none" not in l][:2]


def server_pid(parent, name):
    """The server itself: of the processes below `parent` (or left by it) the one that listens first."""
    out = subprocess.run(["pgrep", "-P", str(parent), "-x", name], stdout=subprocess.PIPE).stdout.split()
    return int(out[0]) if out else None


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
        if not wait_until(lambda: listens(server.port), 60): return ["it never listened"], 0, None
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
        os.kill(pid, server.stop)
        if not wait_until(lambda: not alive(pid), 60): found.append("it does not end")
        status = process.wait(60)
        stderr = process.stderr.read().decode("latin1")
        if stderr: found.append(f"stderr: {stderr[:200]!r}")
        found += [f"log: {line.strip()[:200]}" for line in server.log_errors()]
        if tracer and kill_after_s is None:
            out = subprocess.run([sptrace, "report", "summary", "-i", trace], stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout.decode()
            events = re.search(r"events\s+([\d,]+)", out)
            if not events or int(events[1].replace(",", "")) < 10000: found.append(f"trace: {out[:200]!r}")
            if "no event lost" not in out: found.append("events were lost")
        left = subprocess.run(["pgrep", "-f", folder], stdout=subprocess.PIPE).stdout.split()
        if left: found.append(f"{len(left)} processes left")
        return found, time.monotonic() - begun, status
    except subprocess.TimeoutExpired: return found + ["sptrace does not end"], time.monotonic() - begun, None
    finally:
        subprocess.run(["pkill", "-KILL", "-f", folder])
        if process.poll() is None: process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def alive(pid):
    try: return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError: return False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--requests", type=int, default=3000)
    parser.add_argument("--only", action="append")
    parser.add_argument("--sptrace", default=os.environ.get("SPTRACE", os.path.join(ROOT, "target", "release", "sptrace")))
    args = parser.parse_args()
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
            found, seconds, got = run(kind, name, True, args.requests, kill_after_s, sptrace)
            if not args.kill and got != status: found.append(f"status {got}, not {status}")
            passed, failed = passed + (not found), failed + bool(found)
            print(f"{'FAIL' if found else 'ok  '} {name}: {'; '.join(found) or f'untraced {native_s:.1f} s, traced {seconds:.1f} s'}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
