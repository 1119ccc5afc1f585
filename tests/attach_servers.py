#!/usr/bin/env python3
"""Attaches to servers under load and detaches again, over and over; looks whether anybody noticed.

usage: tests/attach_servers.py [--cycles N] [--kill N] [--only NAME]... [--seed N] [--option ARG]... [--sptrace PATH]

Given: a built sptrace (--sptrace, $SPTRACE or target/release/sptrace); redis-server with redis-benchmark, nginx with ab
(apache2-utils); what is not installed is skipped by name.
Gives: one line a server, then `N passed, N failed` alone on the last line; status 1 if anything failed.
Checked: every request of a load that never pauses succeeds; after each detach every byte of the servers' code is that of
its file, nobody traces them, and neither arena nor agent is mapped in them; what stays (patch areas) does not grow, and the
resident memory is at most 1.5 times the patch areas of one attach above what it was; the log has no error; the server ends
as ever.
  --cycles N   attach and detach so often, for 5 to 200 ms each (default: 100)
  --kill N     instead, SIGKILL to sptrace N times while it is attached, each time to a fresh server: it must go on, and the
               next attach must either work or say in one line why not
  --option ARG an argument of `attach`; without --return-points=never no patch area stays where no thread stands
Must not know: how sptrace works, but for the names of its mappings.
"""
import argparse, os, random, shutil, subprocess, sys, tempfile, threading, time

from harness.attaching import Attacher
from harness.case import Failed, Skip, run_cases
from harness.process import code_of, is_running, maps, status_field
from harness.servers import Nginx, Redis, listens, load, wait_until

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class SteadyRedis(Redis):
    """Without the commands that make its data grow. As Debian starts it: as a user of its own, if we are root."""
    def __init__(self, folder):
        super().__init__(folder)
        if os.getuid() == 0:
            os.chown(folder, 65534, 65534)
            self.argv = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", *self.argv]

    def load(self, requests):
        status, out = load(["redis-benchmark", "-p", str(self.port), "-n", str(requests), "-c", "20", "-t", "set,get,incr,zadd,mset", "-P", "4", "--csv"])
        return [] if status == 0 and out.count("\n") >= 5 and "rror" not in out else [f"redis-benchmark: status {status}: {out[-200:]!r}"]

    def pids(self, server): return [server]


class SteadyNginx(Nginx):
    """Its workers are another user's than its master, if that is root."""
    def __init__(self, folder):
        super().__init__(folder)
        file = os.path.join(folder, "conf")
        with open(file) as f: text = f.read()
        with open(file, "w") as f: f.write(text.replace("user root;", "user www-data;"))

    def pids(self, server):
        out = subprocess.run(["pgrep", "-P", str(server), "-x", "nginx"], stdout=subprocess.PIPE, text=True).stdout.split()
        return [int(p) for p in out]


def areas_bytes(pid):
    """Patch areas, of an agent or left by one that is gone: shared, executable, of no file."""
    return sum(end - start for start, end, access, _, path in maps(pid) if access == "r-xs" and "zero" in path)


def resident_bytes(pid):
    """Not counted: pages of files, which our own comparison of the code brings in."""
    return sum(int(status_field(pid, field).split()[0]) for field in ("RssAnon", "RssShmem")) * 1024


def areas_of_one(sptrace, options, pids, folder):
    """Bytes of patch areas while all is attached to."""
    command = [sptrace, "attach", *options, "-q", "-o", os.path.join(folder, "one"), "--for", "300ms", *(word for pid in pids for word in ("-p", str(pid)))]
    process, most = subprocess.Popen(command), dict.fromkeys(pids, 0)
    while process.poll() is None:
        for pid in pids: most[pid] = max(most[pid], areas_bytes(pid))
        time.sleep(0.01)
    if process.returncode or not all(most.values()): raise Failed(f"one attach: status {process.returncode}, areas {most}")
    return most


class Load:
    """Requests from a second process that never pause."""
    def __init__(self, server, requests):
        self.server, self.requests, self.found, self.rounds, self.ended = server, requests, [], 0, False
        self.thread = threading.Thread(target=self.go)
        self.thread.start()

    def go(self):
        n = 0
        while not self.ended and not self.found:
            try:
                self.found += self.server.load(self.requests)
                self.server.check(n)
            except Exception as e: self.found.append(f"a request failed: {e!r}")
            self.rounds += 1
            n += 1

    def end(self):
        self.ended = True
        self.thread.join()
        return self.found


def start(kind, folder):
    server = kind(folder)
    process = subprocess.Popen(server.argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if not wait_until(lambda: listens(server.port)): raise Failed("it does not listen")
    time.sleep(0.3)
    return server, process


def finish(server, process):
    process.send_signal(server.stop)
    try: status = process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        raise Failed("it does not end")
    if status != 0: raise Failed(f"it ended with {status}")
    errors = server.log_errors()
    if errors: raise Failed(f"its log: {errors}")


def cycles(kind, args, rng):
    folder = tempfile.mkdtemp(prefix="sptrace-attach-", dir="/var/tmp")
    os.chmod(folder, 0o755)
    server, process = start(kind, folder)
    try:
        attacher = Attacher(args.sptrace, folder, rng, args.option)
        server.load(2000)
        pids = server.pids(process.pid)
        code = {pid: code_of(pid) for pid in pids}
        before = {pid: resident_bytes(pid) for pid in pids}
        requests = Load(server, 3000)
        recorded, highest, with_areas = 0, 0, 0
        try:
            one = areas_of_one(args.sptrace, args.option, pids, folder)
            for k in range(args.cycles):
                status, said = attacher.cycle(pids, rng.uniform(0.005, 0.2), ("--max-size", "200M"))
                if status != 0: raise Failed(f"cycle {k}: status {status}: {said.strip()}")
                if requests.found: raise Failed(f"cycle {k}: {requests.found}")
                for pid in pids:
                    attacher.check(pid, code[pid], said)
                    if not is_running(pid): raise Failed(f"cycle {k}: {pid} is gone")
                    left, more = areas_bytes(pid), resident_bytes(pid) - before[pid]
                    if left > one[pid]: raise Failed(f"cycle {k}: {left} bytes of patch areas are left, one attach has {one[pid]}")
                    highest, with_areas = max(highest, more), with_areas + (left > 0)
                    if more > 1.5 * one[pid]: raise Failed(f"cycle {k}: {more} bytes more are resident, the areas of one attach have {one[pid]}")
                if k % 10 == 0: recorded = max(recorded, len(attacher.functions()))
                time.sleep(rng.uniform(0, 0.02))
        finally: found = requests.end()
        if found: raise Failed(str(found))
        if recorded == 0: raise Failed("nothing was recorded")
        if "--return-points=never" not in args.option and with_areas * 10 > args.cycles: raise Failed(f"in {with_areas} of {args.cycles} cycles patch areas were left")
        left = sum(map(areas_bytes, pids))
        finish(server, process)
        return f"{args.cycles} cycles, {requests.rounds} rounds of requests, areas {sum(one.values()) >> 10} KiB, left {left >> 10} (some after {with_areas} detaches), at most {highest >> 10} KiB more resident"
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def killed(kind, args, rng):
    again = 0
    for k in range(args.kill):
        folder = tempfile.mkdtemp(prefix="sptrace-attach-", dir="/var/tmp")
        os.chmod(folder, 0o755)
        server, process = start(kind, folder)
        try:
            pids = server.pids(process.pid)
            requests = Load(server, 3000)
            tracer = subprocess.Popen([args.sptrace, "attach", *args.option, "-q", "-o", os.path.join(folder, "trace"), "-p", ",".join(map(str, pids))], stderr=subprocess.DEVNULL)
            time.sleep(rng.uniform(0.02, 1.0))
            tracer.kill()
            tracer.wait()
            time.sleep(0.5)
            if requests.found: raise Failed(f"kill {k}: {requests.found}")
            if not all(map(is_running, pids)): raise Failed(f"kill {k}: it is gone")
            attacher = Attacher(args.sptrace, folder, rng, args.option)
            status, said = attacher.cycle(pids, 0.1)
            lines = said.strip().splitlines()
            if status == 0: again += 1
            elif status != 1 or not lines or not all("cannot attach to" in line for line in lines): raise Failed(f"kill {k}: the next attach: status {status}: {said!r}")
            time.sleep(0.3)
            found = requests.end()
            if found: raise Failed(f"kill {k}: {found}")
            finish(server, process)
        finally:
            if "requests" in locals(): requests.end()
            process.kill()
            process.wait()
            shutil.rmtree(folder, ignore_errors=True)
    return f"{args.kill} times killed, {again} times attached to again"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sptrace", default=os.environ.get("SPTRACE", os.path.join(ROOT, "target/release/sptrace")))
    parser.add_argument("--cycles", type=int, default=100)
    parser.add_argument("--kill", type=int, default=0)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--option", action="append", default=[])
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)

    def tried(kind):
        missing = [n for n in kind.needs if not shutil.which(n) and not os.path.exists("/usr/sbin/" + n)]
        if missing: raise Skip(f"{', '.join(missing)} not installed")
        return (killed if args.kill else cycles)(kind, args, rng)

    kinds = (("redis-server", SteadyRedis), ("nginx", SteadyNginx))
    return run_cases((name, lambda kind=kind: tried(kind)) for name, kind in kinds if not args.only or name in args.only)


if __name__ == "__main__":
    sys.exit(main())
