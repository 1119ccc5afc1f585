#!/usr/bin/env python3
"""Measures what recordings with a budget (`run --budget`) cost in steady state, and what is left in their traces.

usage: tests/bench/budgets.py [--budgets 3,5,10,20] [--only NAME]... [--rounds N] [--scale FACTOR] [--sptrace PATH]

Given: a built sptrace; of ten programs those that are installed: mplayer (with ffmpeg, which makes its film), nginx (with ab) and
redis-server (with redis-benchmark) under load, python3, sqlite3, git, perl, lua, xz, gcc (cc1). Gives a line for each program and
budget: the CPU time of program and sptrace together over that of the program alone, as the difference of two sizes of input, so
that both starts cancel out (medians of interleaved rounds; of servers the CPU time that so many more requests take); what sptrace
itself says was spent; and the share of calls with times, counted, and lost. Not in the usual CI: takes some minutes, and figures of a machine
with other work mean little. Must not know: how sptrace works.
"""
import argparse, csv, io, os, resource, shutil, signal, statistics, subprocess, sys, tempfile, time

DEVNULL = subprocess.DEVNULL
PYTHON = "import json\nclass A:\n  def __init__(self, x): self.x = x\n  def f(self): return self.x + 1\nfor i in range(%d):\n  s = json.dumps({str(k): [k] * 5 for k in range(200)}); json.loads(s)\n  for k in range(2000): A(k).f()"
SQL = "create table t(a,b); with recursive c(x) as (select 1 union all select x+1 from c where x<%d) insert into t select x, x*7%%1003 from c; create index i on t(b); select sum(a*b), count(distinct b) from t;"
PERL = "my $n = 0; for my $r (1..%d) { my %%h = map { $_ => $_ * 2 } 1..500; for (sort { $a <=> $b } keys %%h) { $n += $h{$_} } my $s = join ',', values %%h; $n += () = $s =~ /\\d+/g } print qq($n\\n)"
LUA = "local function f(n) if n < 2 then return n end return f(n-1) + f(n-2) end local t = {} for i = 1, %d do f(15) for k = 1, 300 do t[k] = (k * 7919 + i) %% 1000 end table.sort(t) local n = 0 for w in string.gmatch('the quick brown fox jumps', '%%a+') do n = n + #w end end"


class Bench:
    def __init__(self, options, work):
        self.options, self.work, self.trace = options, work, f"{work}/trace.data"
        self.env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": work, "LC_ALL": "C", "PYTHONHASHSEED": "0", "TERM": "dumb"}

    def programs(self):
        """name: a function from a size, 1 or more, to a command."""
        scale, work = self.options.scale, self.work
        n = lambda size, each: max(1, int(size * each * scale))
        found = {}
        python = next((p for p in ("/usr/bin/python3", shutil.which("python3")) if p and os.path.exists(p)), None)
        if python: found["python3"] = lambda size: [python, "-c", PYTHON % n(size, 500)]
        if shutil.which("sqlite3"): found["sqlite3"] = lambda size: ["sqlite3", ":memory:", SQL % n(size, 300_000)]
        if shutil.which("perl"): found["perl"] = lambda size: ["/usr/bin/perl", "-e", PERL % n(size, 1000)]
        if shutil.which("lua"): found["lua"] = lambda size: ["lua", "-e", LUA % n(size, 700)]
        if shutil.which("xz"):
            def xz(size):
                with open(f"{work}/{size}.bin", "wb") as f:
                    for i in range(n(size, 12_000)): f.write((b"%d line of text %d\n" % (i, i * i % 997)) * 8)
                return ["xz", "-1", "-k", "-f", "-T1", "-c", f"{work}/{size}.bin"]
            found["xz"] = xz
        if shutil.which("gcc"):
            cc1 = subprocess.run(["gcc", "-print-prog-name=cc1"], capture_output=True, text=True).stdout.strip()
            def gcc(size):
                with open(f"{work}/{size}.c", "w") as f:
                    for i in range(n(size, 250)): f.write(f"int f{i}(int *a, int n) {{ int s = {i}; for (int i = 0; i < n; i++) {{ if (a[i] & 1) s += a[i] * {i}; else s ^= a[i] >> {i % 31}; }} return s; }}\n")
                return [cc1, "-quiet", "-O2", f"{work}/{size}.c", "-o", "/dev/null"]
            found["cc1"] = gcc
        if shutil.which("git"):
            repository = f"{work}/repository"
            def git(size):
                if not os.path.exists(repository):
                    os.mkdir(repository)
                    for words in (["init", "-q"], ["config", "user.email", "a@b"], ["config", "user.name", "a"]): subprocess.run(["git", "-C", repository, *words], env=self.env, check=True)
                    for i in range(60):
                        for k in range(20):
                            with open(f"{repository}/{k}.txt", "w") as f: f.writelines(f"{j * (i % 7 + 1)} {k}\n" for j in range(800))
                        subprocess.run(["git", "-C", repository, "add", "."], env=self.env, check=True)
                        subprocess.run(["git", "-C", repository, "commit", "-q", "-m", str(i)], env=self.env, check=True)
                return ["git", "-C", repository, "log", "-p", "--stat", "-C", "--find-copies-harder", f"-{n(size, 8)}"]
            found["git"] = git
        if shutil.which("mplayer") and shutil.which("ffmpeg"):
            film = f"{work}/film.mpg"
            def mplayer(size):
                if not os.path.exists(film): subprocess.run(["ffmpeg", "-y", "-f", "lavfi", "-i", "testsrc2=size=352x288:rate=25:duration=4", "-c:v", "mpeg2video", "-q:v", "4", film], stdin=DEVNULL, stderr=DEVNULL, check=True)
                return ["/usr/bin/mplayer", "-noconfig", "all", "-nolirc", "-really-quiet", "-benchmark", "-nosound", "-vo", "null", "-loop", str(n(size, 12)), film]
            found["mplayer"] = mplayer
        return found

    def servers(self):
        """name: (command, port, a function from a size to the command of the load)."""
        n, found, work = lambda size, each: str(max(100, int(size * each * self.options.scale))), {}, self.work
        if shutil.which("nginx") and shutil.which("ab"):
            with open(f"{work}/nginx.conf", "w") as f: f.write(f"daemon off; master_process off; pid {work}/nginx.pid; error_log {work}/nginx.log; events {{}} http {{ access_log off; client_body_temp_path {work}/b; proxy_temp_path {work}/p; fastcgi_temp_path {work}/f; uwsgi_temp_path {work}/u; scgi_temp_path {work}/s; server {{ listen 127.0.0.1:8931; location / {{ return 200 'ok'; }} }} }}")
            found["nginx"] = ([shutil.which("nginx"), "-p", work, "-c", f"{work}/nginx.conf"], 8931, lambda size: ["ab", "-q", "-k", "-c", "8", "-n", n(size, 60_000), "http://127.0.0.1:8931/"])
        if shutil.which("redis-server") and shutil.which("redis-benchmark"):
            found["redis"] = (["redis-server", "--port", "8932", "--save", "", "--appendonly", "no"], 8932, lambda size: ["redis-benchmark", "-p", "8932", "-q", "-c", "8", "-t", "set,get", "-n", n(size, 60_000)])
        return found

    def traced(self, budget, command): return [self.options.sptrace, "run", "-q", "--budget", f"{budget}%", "-o", self.trace, "--", *command] if budget else command

    def cpu_of(self, command):
        """Runs to the end; CPU seconds of the whole tree."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(command, env=self.env, cwd=self.work, stdin=DEVNULL, stdout=DEVNULL, stderr=subprocess.PIPE)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode != 0: raise RuntimeError(f"{' '.join(command)[:200]}: status {done.returncode}: {done.stderr[-200:]!r}")
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def batch(self, budget, make):
        """CPU seconds of the larger input above those of the smaller."""
        return self.cpu_of(self.traced(budget, make(4))) - self.cpu_of(self.traced(budget, make(1)))

    def under_load(self, budget, server):
        """CPU seconds of server and sptrace for a load, after a first one."""
        command, port, load = server
        process = subprocess.Popen(self.traced(budget, command), env=self.env, cwd=self.work, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL)
        try:
            for _ in range(200):
                if subprocess.run(["bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{port}"], stderr=DEVNULL).returncode == 0: break
                time.sleep(0.1)
            subprocess.run(load(1), env=self.env, stdout=DEVNULL, stderr=DEVNULL, check=True)
            before = used(process.pid)
            subprocess.run(load(4), env=self.env, stdout=DEVNULL, stderr=DEVNULL, check=True)
            return used(process.pid) - before
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)

    def kept(self):
        """Shares of calls with times, counted, and events lost; and what was spent, as sptrace says."""
        report = lambda *words: subprocess.run([self.options.sptrace, "report", *words, "-i", self.trace], capture_output=True, text=True, stdin=DEVNULL).stdout
        rows = csv.DictReader(io.StringIO(report("functions", "--columns", "calls,untimed", "--format", "csv")))
        calls, untimed = 0, 0
        for row in rows: calls, untimed = calls + int(row["calls"]), untimed + int(row["untimed_calls"])
        rows = {(row["section"], row["key"]): int(row["count"]) for row in csv.DictReader(io.StringIO(report("coverage", "--format", "csv")))}
        lost = rows.get(("loss", "events dropped"), 0) / 2
        return calls, untimed, lost, rows.get(("budget", "spent in steady state"), rows.get(("budget", "spent in its start"), 0)) / 1e6

    def measure(self, name, budgets, once):
        """The line of each budget."""
        cpu, kept = {budget: [] for budget in [None, *budgets]}, {}
        for budget in budgets[:1]: once(budget)  # analyses come into the cache
        for _ in range(self.options.rounds):
            for budget in cpu:
                cpu[budget].append(once(budget))
                if budget: kept[budget] = self.kept()
        native = statistics.median(cpu[None])
        for budget in budgets:
            calls, untimed, lost, spent = kept[budget]
            over = statistics.median(cpu[budget]) / native - 1
            share = lambda part: f"{part * 100 / max(1, calls + lost):6.1f} %"
            print(f"{name:8} {budget:6g} % {over * 100:9.1f} % {spent * 100:9.1f} % {share(calls - untimed):>10} {share(untimed):>10} {share(lost):>10} {calls / 1e6:10.1f} million {native:7.2f} s", flush=True)


def used(pid):
    """CPU seconds of a process and its children that run."""
    total, todo = 0, [pid]
    while todo:
        one = todo.pop()
        try:
            with open(f"/proc/{one}/stat") as f: fields = f.read().rsplit(")", 1)[1].split()
            total += int(fields[11]) + int(fields[12])
            for task in os.listdir(f"/proc/{one}/task"):
                with open(f"/proc/{one}/task/{task}/children") as f: todo += [int(p) for p in f.read().split()]
        except OSError: pass
    return total / os.sysconf("SC_CLK_TCK")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--budgets", default="3,5,10,20")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--sptrace", default=os.environ.get("SPTRACE", "target/release/sptrace"))
    options = parser.parse_args()
    options.sptrace = os.path.abspath(options.sptrace)
    budgets = [float(b) for b in options.budgets.split(",")]
    failed = False
    with tempfile.TemporaryDirectory() as work:
        bench = Bench(options, work)
        print(f"{'program':8} {'budget':>8} {'measured':>11} {'said':>11} {'with times':>10} {'counted':>10} {'lost':>10} {'calls':>18} {'native':>9}")
        every = {name: (lambda budget, make=make: bench.batch(budget, make)) for name, make in bench.programs().items()}
        every |= {name: (lambda budget, server=server: bench.under_load(budget, server)) for name, server in bench.servers().items()}
        for name, once in every.items():
            if options.only and name not in options.only: continue
            try: bench.measure(name, budgets, once)
            except (RuntimeError, OSError, subprocess.SubprocessError, KeyError, ZeroDivisionError) as error:
                print(f"{name:8} failed: {error}")
                failed = True
    return failed


if __name__ == "__main__":
    sys.exit(main())
