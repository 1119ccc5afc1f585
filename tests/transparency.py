#!/usr/bin/env python3
"""Runs programs with and without `sptrace run -q` and compares what they did.

usage: tests/transparency.py [--kill | --stop] [--quick] [--only GLOB]... [--list] [--repeat N] [--programs DIR]
       tests/transparency.py --self-check

Given: a built sptrace (--sptrace, $SPTRACE or target/release/sptrace), tests/programs, and the programs of the machine;
a case whose program is not installed is skipped by name. Inputs are made on the fly from fixed seeds.
Gives: one line a case, then `N passed, N failed` alone on the last line; status 1 if anything failed.
Compared: stdout, stderr, exit status (signals included), and the files a case names. Times are redacted by the
few patterns that a case brings itself, nothing else. Watched meanwhile, in /proc: no mapping writable and executable
at once (unless the program has one without sptrace too), no process with a TracerPid for half a second or longer, no
process left behind.
  --kill       SIGKILL to sptrace at a random moment (--seed): the program must still end with the same output and status
  --stop       SIGSTOP to sptrace for 5 seconds in mid-run: likewise
  --self-check the harness must pass a wrapper that only starts the program and must fail ones that change something
Must not know: how sptrace works, or any of its output but the name of the trace file.
"""
import argparse, ctypes, difflib, fnmatch, hashlib, os, random, re, shutil, signal, subprocess, sys, tempfile, threading, time
import runtimes

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
TRACED_TOO_LONG_S = 0.5
STOPPED_S = 5.0
SAMPLE_S = 0.01


class Case:
    """A command with its inputs. `threaded` cases are repeated; `quick` ones make up the CI subset."""

    def __init__(self, name, argv, *, threaded=False, quick=False, redact=(), files=(), need=(), timeout_s=120, mid=True, options=(), wx=False):
        self.options = list(options)  # of `sptrace run`
        self.wx = wx  # it maps its own code writable and executable, too short to be seen each time
        self.name, self.argv, self.threaded, self.quick = name, argv, threaded, quick
        self.redact, self.files, self.need, self.timeout_s = redact, files, need, timeout_s
        self.mid = mid  # long enough to be interrupted in mid-run


WORLDS = ("clone_vm", "daemon", "dumpable", "namespaces", "chroot", "limits", "brk", "sampled", "dropped", "rewritten", "rewritten5", "gs",
          "wrgsbase", "exec", "locked")


def program_cases(programs):
    """The programs of tests/programs, each in all variants that build.sh made."""
    # name: (arguments, threaded)
    settings = {
        "threads": ([], True), "procs": ([], True), "cancel": ([], True), "exceptions": ([], True), "panic": ([], True),
        "callforms": ([], False), "signals": ([], True), "jit": ([], True), "unwind": ([], True), "sigprof": (["1"], False), "manythreads": ([], True),
    }
    quick = ("O2", "static", "musl", "stripped", "cfi", "release", "nopie", "O1", "static-pie", "gap")
    cases = []
    names = sorted(n for n in os.listdir(programs) if "." not in n or n.rsplit(".", 1)[1] not in ("so", "new")) if programs else []
    for name in names:
        base, _, variant = name.partition(".")
        arguments, threaded = settings.get(base, ([], False))
        runs = [(name, arguments)]
        if base == "sandbox":
            runs = [(f"{name}.{m}", [m]) for m in ("seccomp", "filter", "tsc", "rlimit", "nofile", "mdwe", "mdwe-exec")]
        if base == "filtered":
            runs = [(f"{name}.{m}", [m]) for m in ("docker", "service", "mdwx", "kill")]
        if base == "worlds":
            runs = [(f"{name}.{m}", [m]) for m in WORLDS]
        for case_name, args in runs:
            is_quick = variant in quick or base == "nolibc"
            cases.append(Case(f"programs/{case_name}", [os.path.join(programs, name)] + args, threaded=threaded, quick=is_quick,
                              mid=base in ("sigprof", "sleeper", "cancel", "alarm", "procs", "threads", "exceptions", "deep", "procself", "signals", "mainexits", "abyss")))
        if base in ("sandbox", "sandthrow") and variant == "O2":
            # Nothing is traced but ld.so's resolvers: what happens to the process must be seen all the same.
            cases.append(Case(f"notrace/{name}", [os.path.join(programs, name)] + (["seccomp"] if base == "sandbox" else arguments), quick=True, options=["-N", "_*"]))
            cases.append(Case(f"modules/{name}", [os.path.join(programs, name)] + (["seccomp"] if base == "sandbox" else arguments), quick=True, options=["-l", "ld*"]))
        if base == "exceptions" and variant == "O2":
            # The unwinder is left out.
            cases.append(Case(f"modules/{name}", [os.path.join(programs, name)], threaded=True, quick=True, options=["-l", name, "-l", "libc.*"]))
        if base in ("exceptions", "longjmp", "unwind", "cancel", "threads", "signals", "dlopen", "procs", "mainexits", "cancelasync") and variant == "O2":
            # Its main is intercepted, whose caller is left out.
            cases.append(Case(f"alone/{name}", [os.path.join(programs, name)] + arguments, threaded=threaded, quick=True, mid=base == "mainexits", options=["-l", name]))
        if base == "worlds" and variant == "O2":
            # Nothing is traced but ld.so, and the process sets gs.
            cases.append(Case(f"modules/{name}.gs", [os.path.join(programs, name), "gs"], quick=True, options=["-l", "ld*"]))
            # The first process of a pid namespace shows no event: whose number is whose must be found out otherwise.
            cases.append(Case(f"notrace/{name}.namespaces", [os.path.join(programs, name), "namespaces"], quick=True, options=["-N", "*a*"]))
        if base == "flow":
            # What is too deep or muted jumps to functions that read their return address.
            for name_of_case, options in (("depth", ["-D", "4"]), ("depth.filter", ["-F", "*", "-D", "1"]), ("notrace", ["-N", "who_calls_frame"])):
                cases.append(Case(f"{name_of_case}/{name}", [os.path.join(programs, name)], quick=True, options=options))
            # Functions without a name: one of them takes its arguments off the stack.
            cases.append(Case(f"filter.nameless/{name}", [os.path.join(programs, name)], quick=True, options=["-F", "sub_*"]))
        if base == "sigprof" and variant == "O2":
            # The unwinder is loaded late, by code that is not traced.
            cases.append(Case(f"depth/{name}", [os.path.join(programs, name)] + arguments, quick=True, options=["-D", "8"]))
            # What tells of new libraries is a function that the filter names, too.
            cases.append(Case(f"depth.filter/{name}", [os.path.join(programs, name)] + arguments, quick=True, options=["-F", "*", "-D", "8"]))
        if base == "sigprof" and variant == "O0":
            # Its prologues are moved, and store below the stack pointer: a signal may come between.
            cases.append(Case(f"depth.filter/{name}", [os.path.join(programs, name)] + arguments, quick=True, options=["-F", "*", "-D", "9"]))
            cases.append(Case(f"root.filter/{name}", [os.path.join(programs, name)] + arguments, quick=True, options=["-F", "f_tiny"]))
        if base == "sigprof":
            cases.append(Case(f"programs/sigprof.60s.{variant}", [os.path.join(programs, name), "60"], timeout_s=200))
        if variant == "O2" and base not in ("sandbox", "worlds"):
            # Every function that can be hooked is: prologues moved, return addresses replaced.
            cases.append(Case(f"filter/{name}", [os.path.join(programs, name)] + arguments, threaded=threaded, quick=True, options=["-F", "*"]))
    return cases


BASH = r'''
add() { local a=$1 b=$2; echo $((a + b)); }
fib() { if (( $1 < 2 )); then r=$1; else local n=$1 t; fib $((n-1)); t=$r; fib $((n-2)); r=$((r+t)); fi; }
fib 14; echo "fib $r"
for i in {1..60}; do s=$(add "$i" "$i"); done; echo "sum $s"
seq 1 2000 | while read -r x; do (( x % 7 == 0 )) && echo "$x"; done | sort -rn | head -5
declare -A map; for w in one two three two one two; do (( map[$w]++ )); done
for k in one two three; do echo "$k ${map[$k]}"; done
f() { trap 'echo trapped' USR1; kill -USR1 $BASHPID; echo after; }; f
( exit 9 ); echo "status $?"; true | false | true; echo "${PIPESTATUS[*]}"
cat <<< "here string" | tr a-z A-Z; sleep 0.05 & wait $!; printf '%05.2f\n' 3.14159
echo to-stderr >&2; exit 11
'''
PYTHON = r'''
import collections, functools, json, math, re, sys
class Shape:
    def __init__(self, n): self.n = n
    def __repr__(self): return f"{type(self).__name__}({self.n})"
    def area(self): raise NotImplementedError
class Square(Shape):
    def area(self): return self.n ** 2
class Circle(Shape):
    @functools.lru_cache(None)
    def area(self): return round(math.pi * self.n ** 2, 3)
shapes = [c(i) for i in range(50) for c in (Square, Circle)]
print(sum(s.area() for s in shapes), shapes[:3])
text = json.dumps({"rows": [{"id": i, "name": f"row {i}", "tags": list(range(i % 5))} for i in range(2000)]})
back = json.loads(text)
print(len(text), back["rows"][77])
words = re.findall(r"\b[a-z]+\b", text)
print(collections.Counter(words).most_common(3), re.sub(r"(\d+)", lambda m: str(int(m[1]) + 1), "a1b22c333"))
def gen(n):
    try:
        for i in range(n): yield i
    finally: print("closed")
g = gen(10); print(next(g), next(g)); g.close()
def deep(n): return 0 if n == 0 else 1 + deep(n - 1)
print(deep(500))
try: deep(100000)
except RecursionError as e: print("RecursionError")
try: Shape(1).area()
except NotImplementedError: print("caught", sys.exc_info()[0].__name__)
print("to stderr", file=sys.stderr)
sys.exit(3)
'''
PYTHON_THREADS = r'''
import concurrent.futures, hashlib, queue, subprocess, sys, threading, zlib
def work(n): return zlib.crc32(hashlib.sha256(bytes(str(n), "ascii") * 20000).digest())
with concurrent.futures.ThreadPoolExecutor(8) as pool: print(sum(pool.map(work, range(40))))
q = queue.Queue()
def produce(n):
    for i in range(100): q.put(n * i)
ts = [threading.Thread(target=produce, args=(i,)) for i in range(8)]
[t.start() for t in ts]; [t.join() for t in ts]
print(sum(q.get() for _ in range(800)))
for i in range(3): print(subprocess.run(["sh", "-c", f"echo child {i}; exit {i}"], capture_output=True))
print(subprocess.check_output([sys.executable, "-c", "print(sum(range(100)))"]))
import multiprocessing
if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(2) as p: print(p.map(abs, [-1, -2, 3]))
'''
PERL = r'''
use strict; use warnings;
my %count; $count{$_ % 17}++ for 1 .. 5000;
print join(",", map { "$_=$count{$_}" } sort { $a <=> $b } keys %count), "\n";
my $text = join " ", map { "word$_" } 1 .. 2000;
my $n = () = $text =~ /\bword(\d*7)\b/g; print "$n\n";
(my $t = $text) =~ s/(\d+)/<$1>/g; print substr($t, -30), "\n";
sub fact { my $n = shift; return $n < 2 ? 1 : $n * fact($n - 1) } print fact(15), "\n";
my @closures = map { my $k = $_; sub { $k++ } } 1 .. 3; $_->() for @closures; print $closures[2]->(), "\n";
print sprintf("%.3f %s %x\n", 3.14159, "s", 255), unpack("H*", pack("NnC", 1, 2, 3)), "\n";
eval { die { code => 42 } }; print "died $@->{code}\n";
eval { local $SIG{ALRM} = sub { die "alarm\n" }; alarm 1; select(undef, undef, undef, 5); }; print "got $@";
print `echo from a child`; my @s = sort { $b <=> $a } map { ($_ * 7919) % 1009 } 1 .. 1000; print "@s[0..4]\n";
warn "warning\n"; exit 4;
'''
LUA = r'''
local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end
print(fib(20))
local t = {} for i = 1, 5000 do t[i] = (i * 7919) % 10007 end table.sort(t, function(a, b) return a > b end) print(t[1], t[5000])
local co = coroutine.wrap(function(a) for i = 1, 50 do a = a + coroutine.yield(a * i) end return "end" end)
local x = co(1) for i = 2, 51 do x = co(i) end print(x)
print(pcall(function() error({code = 7}) end), select(2, pcall(function() error("plain", 0) end)))
print((("hello world"):gsub("o", function(c) return c:upper() .. "!" end)), string.format("%.3f %q", 1 / 3, "quoted\n"))
local mt = setmetatable({}, {__index = function(_, k) return k .. "?" end, __call = function(self, y) return y * 2 end}) print(mt.foo, mt(21))
collectgarbage() io.stderr:write("to stderr\n") os.exit(6)
'''
SQL = r'''
create table t(id integer primary key, name text, value real);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 8000)
insert into t select i, 'name ' || (i * 7919 % 1009), i * 1.5 from n;
create index by_name on t(name);
select count(*), sum(value), min(name), max(name) from t;
select name, count(*) c, avg(value) from t group by name order by c desc, name limit 5;
select a.id, b.id from t a join t b on a.name = b.name and a.id < b.id order by a.id, b.id limit 5;
update t set value = value * 2 where id % 3 = 0;
delete from t where name like '%99%';
select count(*), total(value) from t;
select json_object('id', id, 'name', name) from t limit 2;
begin; insert into t values(1, 'double', 0); rollback;
select hex('blob'), upper('abc'), substr('hello', 2, 3);
'''
NODE = 'let s=0;for(let i=0;i<300000;i++)s=(s*31+i)|0;console.log(s,[3,1,2].sort(),JSON.stringify({a:[1,2,{b:3}]}));setTimeout(()=>{console.log("later");process.exit(8)},20)'
ADDRESS = (rb"0x[0-9a-f]{6,}", b"0x")
MPLAYER_TIMES = [ADDRESS, (rb"(?s)\r?V: .*?(?=\r|\n|$)", b"V"), (rb"(?m)^BENCHMARK.*$", b"BENCHMARK"), (rb"[\r\n]+(V[\r\n]*)+", b"\n")]


def make_fixtures(folder):
    """Inputs of the real commands, from fixed seeds. Gives a function from name to path."""
    os.makedirs(folder, exist_ok=True)
    path = lambda name: os.path.join(folder, name)
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(3000)]
    with open(path("text"), "w") as f:
        for _ in range(60000): f.write(" ".join(rng.choices(words, k=8)) + "\n")
    with open(path("small"), "wb") as f: f.write(b"".join(bytes(f"{rng.random()} {rng.choice(words)}\n", "ascii") for _ in range(30000)))
    for name, text in (("bash.sh", BASH), ("main.py", PYTHON), ("threads.py", PYTHON_THREADS), ("main.pl", PERL), ("main.lua", LUA), ("main.sql", SQL)):
        with open(path(name), "w") as f: f.write(text)
    for name in ("alarm/alarm.c", "exceptions/exceptions.cpp", "panic/panic.rs"): shutil.copy(os.path.join(HERE, "programs", name), folder)
    with open(path("compile.c"), "w") as f:  # one unit of many headers and all logic of two programs
        f.write("#define _GNU_SOURCE\n")
        for header in "stdio stdlib string math time regex search netdb pthread signal wchar sys/socket sys/stat netinet/in".split(): f.write(f"#include <{header}.h>\n")
        f.write(open(path("alarm.c")).read())
    os.makedirs(os.path.join(os.path.dirname(folder), ".mplayer"), exist_ok=True)
    open(os.path.join(os.path.dirname(folder), ".mplayer", "config"), "w").close()  # mplayer would say that it makes one
    quiet = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    if shutil.which("ffmpeg"):
        subprocess.run(["ffmpeg", "-y", "-f", "lavfi", "-i", "testsrc2=size=352x288:rate=25:duration=4", "-c:v", "mpeg2video", "-q:v", "4", path("clip.mpg")], **quiet)
    git, repo = "/usr/bin/git", path("repo")
    if os.path.exists(git):
        env = dict(environment(folder), GIT_AUTHOR_DATE="2020-01-01T00:00:00Z", GIT_COMMITTER_DATE="2020-01-01T00:00:00Z")
        os.makedirs(repo)
        lines = ["set -e", "git init -q -b main .", "git config user.name t; git config user.email t@example.org"]
        for i in range(40): lines.append(f"mkdir -p d{i % 5}; echo 'line {i}' >> d{i % 5}/f{i % 11}; git add -A; git commit -qm 'commit {i}'")
        lines.append("echo changed >> d1/f1; echo new > untracked; git rm -q d2/f2; sleep 1.1; git status >/dev/null")
        subprocess.run(["sh", "-c", "\n".join(lines)], cwd=repo, env=env, check=True, **quiet)
    return path


def environment(home):
    """The same small environment for every run."""
    env = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": home, "LC_ALL": "C", "TZ": "UTC", "PYTHONHASHSEED": "0", "PERL_HASH_SEED": "0",
           "GIT_CONFIG_NOSYSTEM": "1", "TERM": "dumb", "PYTHONDONTWRITEBYTECODE": "1"}
    for name in ("CARGO_HOME", "RUSTUP_HOME"):
        default = os.path.expanduser({"CARGO_HOME": "~/.cargo", "RUSTUP_HOME": "~/.rustup"}[name])
        if os.path.isdir(os.environ.get(name, default)): env[name] = os.environ.get(name, default)
    return env


def command_cases(fixture):
    """The real, unmodified commands of the machine."""
    f = fixture
    sh = lambda script: ["/bin/sh", "-c", script]
    rustc = shutil.which("rustc")
    return [
        Case("ls", ["/bin/ls", "-lR", "/usr/share"], timeout_s=300),
        Case("ls.small", ["/bin/ls", "-lR", "/usr/share/doc"], quick=True),
        Case("bash", ["/bin/bash", f("bash.sh")], quick=True),
        Case("python3", ["/usr/bin/python3", f("main.py")], quick=True),
        Case("python3.threads", ["/usr/bin/python3", f("threads.py")], threaded=True, quick=True),
        Case("perl", ["/usr/bin/perl", f("main.pl")], quick=True),
        Case("git.log", ["/usr/bin/git", "-C", f("repo"), "log", "-p", "--stat"], quick=True),
        Case("git.status", ["/usr/bin/git", "-C", f("repo"), "status", "--porcelain=v2", "--branch"], quick=True),
        Case("sqlite3", ["/usr/bin/sqlite3", "-batch", "db", f".read {f('main.sql')}"], quick=True, files=["db"]),
        Case("sqlite3.filter", ["/usr/bin/sqlite3", "-batch", "db", f".read {f('main.sql')}"], quick=True, files=["db"], options=["-F", "sqlite3_*"]),
        # setjmp is hooked where it is called from a site that is not patched
        Case("bash.filter", ["/bin/bash", f("bash.sh")], quick=True, options=["-F", "*", "-D", "1"]),
        Case("python3.filter", ["/usr/bin/python3", f("main.py")], quick=True, options=["-F", "*Object*"]),
        Case("gcc", ["/usr/bin/gcc", "-O2", "-c", f("compile.c"), "-o", "out.o"], quick=True, files=["out.o"], timeout_s=300),
        Case("g++", ["/usr/bin/g++", "-O1", "-c", f("exceptions.cpp"), "-o", "out.o"], files=["out.o"], timeout_s=600),
        Case("gcc.link", ["/usr/bin/gcc", "-O1", "-pthread", f("alarm.c"), "-o", "out"], files=["out"], timeout_s=300),
        Case("xz", ["/usr/bin/xz", "-T2", "-2", "--block-size=262144", "-c", f("small")], threaded=True, quick=True),
        Case("xz.roundtrip", sh(f"xz -T2 -1 -c {f('text')} | xz -dc | md5sum"), threaded=True),
        Case("zstd", ["/usr/bin/zstd", "-T2", "-3", "-c", f("text")], threaded=True, quick=True),
        Case("lua5.4", ["/usr/bin/lua5.4", f("main.lua")], quick=True),
        Case("openssl", ["/usr/bin/openssl", "dgst", "-sha256", f("text"), f("small")], quick=True),
        Case("openssl.enc", sh(f"openssl enc -aes-256-cbc -pbkdf2 -S 00112233 -k key -in {f('text')} | openssl dgst -md5")),
        Case("sort", ["/usr/bin/sort", "--parallel=4", "-S", "2M", "-k3", f("text")], threaded=True, quick=True),
        Case("mplayer", ["/usr/bin/mplayer", "-noconfig", "all", "-nolirc", "-benchmark", "-nosound", "-vo", "md5sum:outfile=sums", f("clip.mpg")],
             redact=MPLAYER_TIMES, files=["sums"], quick=True),
        Case("mplayer.null", ["/usr/bin/mplayer", "-noconfig", "all", "-nolirc", "-benchmark", "-nosound", "-vo", "null", f("clip.mpg")], redact=MPLAYER_TIMES),
        Case("ffmpeg", ["/usr/bin/ffmpeg", "-v", "error", "-threads", "4", "-i", f("clip.mpg"), "-f", "framemd5", "-"], threaded=True, timeout_s=300),
        Case("rustc", [rustc or "/nonexistent", "--edition", "2021", "--crate-name", "p", f("panic.rs"), "-o", "p"], threaded=True, timeout_s=600),
        Case("busybox", ["/bin/busybox", "sh", "-c", f"busybox sort {f('small')} | busybox sha256sum; busybox awk '{{s+=$1}} END {{printf \"%.3f\\n\", s}}' {f('small')}; exit 7"], quick=True),
        # Nobody knows its setjmp by name.
        Case("busybox.depth", ["/bin/busybox", "sh", "-c", f"busybox sort {f('small')} | busybox sha256sum; exit 7"], quick=True, options=["-F", "*", "-D", "3"]),
        Case("awk", ["/usr/bin/awk", "{n[length($2)]++} END {for (i = 0; i < 12; i++) print i, n[i] + 0}", f("small")], quick=True),
        Case("sed", ["/bin/sed", "-E", "s/([a-z]+) ([a-z]+)/\\2 \\1/g;5q", f("text")]),
        Case("grep", ["/bin/grep", "-rnE", "(ab|cd)+e.*z$", f("text")], quick=True),
        Case("find", ["/usr/bin/find", "/usr/lib", "-name", "*.so*", "-newermt", "2000-01-01"]),
        Case("tar", sh(f"tar --sort=name --mtime=@0 --owner=0 --group=0 -C {f('repo')} -cf - d1 d3 | gzip -n | md5sum"), quick=True),
        Case("make", sh("printf 'all: a b\\na b:\\n\\t@echo make $@\\n' > Makefile; make -s -j2 | sort")),
        Case("gdb", ["/usr/bin/gdb", "-nx", "-batch", "-ex", "print sizeof(int)*7", "-ex", "info line main", "/usr/bin/lua5.4"], timeout_s=300),
        Case("vim", ["/usr/bin/vim", "-u", "NONE", "-es", "-c", "%s/a/B/g", "-c", "3,$d", "-c", "w! out", "-c", "q!", f("small")], files=["out"]),
        Case("node", ["/usr/bin/node", "-e", NODE], threaded=True),
        Case("false", ["/bin/false"], quick=True, mid=False),
        Case("killed", sh("kill -SEGV $$"), quick=True, mid=False),
        Case("stdin", sh("cat; echo $?"), quick=True, mid=False),
    ]


def children_of(pid):
    out = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as f: out += [int(p) for p in f.read().split()]
    except OSError: pass
    return out


def descendants(pid):
    out, todo = [], children_of(pid)
    while todo:
        p = todo.pop(0)
        out.append(p)
        todo += children_of(p)
    return out


def digest(path):
    return hashlib.sha256(open(path, "rb").read()).hexdigest() if os.path.exists(path) else "missing"


def alive_descendants(pid):
    return [p for p in descendants(pid) if Runner.alive(p)]


def become_subreaper():
    """Orphans below this process come to it."""
    ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


class Watcher(threading.Thread):
    """Samples /proc of all processes below ours: writable and executable mappings, TracerPid while they run."""

    def __init__(self):
        super().__init__(daemon=True)
        self.wx, self.traced_s, self.longest_traced_s, self.longest_states, self.stop = set(), {}, 0.0, "", threading.Event()

    def run(self):
        last = time.monotonic()
        while not self.stop.wait(SAMPLE_S):
            # Where we wait for a processor, so does the tracer.
            now = time.monotonic()
            passed, last = min(now - last, 5 * SAMPLE_S), now
            for pid in descendants(os.getpid()):
                try:
                    with open(f"/proc/{pid}/status") as f: state, tracer = re.search(r"State:\s*(\S).*TracerPid:\s*(\d+)", f.read(), re.S).groups()
                    with open(f"/proc/{pid}/maps") as f: found = re.findall(r"(?m)^\S+ .wx.*$", f.read())
                except (OSError, AttributeError): continue
                self.wx.update(re.sub(r"^\S+ ", "", line) for line in found)
                if tracer == "0": self.traced_s.pop(pid, None)
                # While it stands at its exec stop it does not run, and before that it is still its tracer's child, however
                # long that takes on a busy machine.
                elif state != "t" and not self.is_tracers(pid, tracer):
                    passed_s, states = self.traced_s.get(pid, (-passed, ""))
                    self.traced_s[pid] = (passed_s + passed, states + state)
                    if passed_s + passed > self.longest_traced_s: self.longest_traced_s, self.longest_states = self.traced_s[pid]

    @staticmethod
    def is_tracers(pid, tracer):
        """Whether a process still runs the program of its tracer: it was forked and has not executed the command yet."""
        try: return os.readlink(f"/proc/{pid}/exe") == os.readlink(f"/proc/{tracer}/exe")
        except OSError: return False


class Run:
    """What one run gave."""
    def __init__(self): self.stdout = self.stderr = b""; self.status = None; self.files = {}; self.trouble = []; self.seconds = 0.0; self.wx = set(); self.interrupted = False


class Runner:
    def __init__(self, work, tracer, rng, keep_trace_check):
        self.work, self.tracer, self.rng, self.trace_check = work, tracer, rng, keep_trace_check
        self.cwd, self.trace = os.path.join(work, "cwd"), os.path.join(work, "trace.data")

    def wrapper(self, case):
        """The tracer with the options of a case; another wrapper has none."""
        return [*self.tracer[:-1], *case.options, "--"] if case.options and self.tracer[-1] == "--" else self.tracer

    def once(self, case, prefix, disturb=None, delay_s=0.0):
        """Runs a case in a fresh folder. `disturb` (SIGKILL or SIGSTOP) goes to the tracer `delay_s` after the program is seen."""
        shutil.rmtree(self.cwd, ignore_errors=True)
        os.makedirs(self.cwd)
        for name in (self.trace, self.trace + ".old"):
            if os.path.exists(name): os.unlink(name)
        run, watcher = Run(), Watcher()
        out, err = os.path.join(self.work, "stdout"), os.path.join(self.work, "stderr")
        with open(out, "wb") as o, open(err, "wb") as e:
            started = time.monotonic()
            process = subprocess.Popen(prefix + case.argv, cwd=self.cwd, stdin=subprocess.DEVNULL, stdout=o, stderr=e, env=environment(self.work), restore_signals=True)
        watcher.start()
        deadline = started + case.timeout_s
        target = None
        if disturb is not None:
            target = self.find_program(process, case.argv, deadline)
            time.sleep(delay_s)
            if target is not None and process.poll() is None and self.alive(target):
                run.interrupted = True
                process.send_signal(disturb)
                if disturb == signal.SIGSTOP:
                    threading.Timer(STOPPED_S, lambda: process.poll() is None and process.send_signal(signal.SIGCONT)).start()
        if run.interrupted and disturb == signal.SIGKILL:
            process.wait()
            run.status = self.reap(target, deadline, run)
        else:
            try: run.status = process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired: run.trouble.append(f"did not end within {case.timeout_s} s")
        run.seconds = time.monotonic() - started
        time.sleep(0 if not descendants(os.getpid()) else 0.2)
        left = alive_descendants(os.getpid())
        if left:
            if not run.trouble: run.trouble.append(f"{len(left)} process(es) left behind")
            for p in left:
                try: os.kill(p, signal.SIGKILL)
                except ProcessLookupError: pass
        if process.poll() is None: process.wait()
        self.reap_all()
        watcher.stop.set(); watcher.join()
        run.wx = watcher.wx
        # a tracer that is stopped between an exec and its exec stop cannot let go of the program
        allowed_s = TRACED_TOO_LONG_S + (STOPPED_S if run.interrupted and disturb == signal.SIGSTOP else 0)
        if watcher.longest_traced_s > allowed_s: run.trouble.append(f"TracerPid not 0 for {watcher.longest_traced_s:.1f} s (states {watcher.longest_states[-100:]})")
        run.stdout, run.stderr = open(out, "rb").read(), open(err, "rb").read()
        for name in case.files:
            run.files[name] = digest(os.path.join(self.cwd, name))
        if self.trace_check and prefix and not (os.path.exists(self.trace) and os.path.getsize(self.trace) > 0): run.trouble.append("no trace file")
        return run

    @staticmethod
    def alive(pid):
        try:
            with open(f"/proc/{pid}/stat") as f: return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
        except OSError: return False

    @staticmethod
    def find_program(process, argv, deadline):
        """The process that became the command: its command line is the command's (or a script's interpreter with it)."""
        want = b"\0".join(a.encode() for a in argv) + b"\0"
        while time.monotonic() < deadline and process.poll() is None:
            for pid in descendants(process.pid):
                try:
                    with open(f"/proc/{pid}/cmdline", "rb") as f:
                        if f.read().endswith(want): return pid
                except OSError: pass
            time.sleep(0.0005)
        return None

    def reap(self, target, deadline, run):
        """Waits for an orphan that came to us (we are the subreaper); gives its status as subprocess does."""
        while time.monotonic() < deadline:
            try: pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:  # its tracer had already waited for it: it ended before the kill
                run.interrupted = False
                return None
            if pid == target: return os.waitstatus_to_exitcode(status)
            if pid == 0: time.sleep(0.005)
        run.trouble.append("did not end after its tracer was killed")
        return None

    @staticmethod
    def reap_all():
        try:
            while os.waitpid(-1, os.WNOHANG) != (0, 0): pass
        except ChildProcessError: pass

    def differences(self, case, expected, got):
        """One short text for each thing that differs."""
        found = list(got.trouble)
        def clean(data):
            for pattern, replacement in case.redact: data = re.sub(pattern, replacement, data)
            return data
        if expected.status != got.status: found.append(f"status {got.status}, not {expected.status}")
        for stream in ("stdout", "stderr"):
            a, b = clean(getattr(expected, stream)), clean(getattr(got, stream))
            if a != b:
                lines = [l for l in difflib.unified_diff(a[:200000].decode("latin1").splitlines(), b[:200000].decode("latin1").splitlines(), "untraced", "traced", n=0, lineterm="")][2:6]
                found.append(f"{stream} differs ({len(a)} and {len(b)} bytes): " + " | ".join(repr(l[:100]) for l in lines))
        for name in case.files:
            if expected.files[name] != got.files[name]: found.append(f"file {name} differs")
        extra = got.wx - expected.wx
        if extra and not case.wx: found.append(f"writable and executable: {sorted(extra)[0]}")
        return found

    def judge(self, case, mode, repeat):
        """Runs a case untraced and then traced `repeat` times. Gives (differences, text for the line)."""
        plain = self.once(case, [])
        if plain.trouble: return ["untraced: " + plain.trouble[0]], ""
        if "missing" in plain.files.values() or plain.status == 127: return ["untraced: does not do its work"], ""
        slowest, runs, interrupted = 0.0, 0, 0
        disturb = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}.get(mode)
        span = plain.seconds
        if disturb is not None: span = self.once(case, self.wrapper(case)).seconds
        for _ in range(repeat):
            for attempt in range(8):
                share = self.rng.random() * 0.9 / (attempt + 1)
                got = self.once(case, self.wrapper(case), disturb, share * span if attempt < 7 else 0.0)
                if disturb is None or got.interrupted: break
            if disturb is not None and not got.interrupted: got = self.once(case, self.wrapper(case))
            runs += 1
            slowest = max(slowest, got.seconds)
            interrupted += disturb is None or got.interrupted
            found = self.differences(case, plain, got)
            if not found and disturb is not None and not interrupted and case.mid: found = ["always ended before it could be interrupted"]
            if found:
                other = self.once(case, [])
                again = self.differences(case, plain, other)
                plain.wx |= other.wx  # samples: one run may miss what the program maps for a moment
                found = self.differences(case, plain, got)
            if found:
                if again: found.append("(two untraced runs differ as well: " + again[0][:80] + ")")
                return [f"run {runs}: " + found[0]] + found[1:], ""
        note = "" if interrupted else ", ended before it could be interrupted"
        return [], f"untraced {plain.seconds:.2f} s, traced {slowest:.2f} s" + (f", {runs} times" if runs > 1 else "") + note


def find_sptrace(given):
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
    for path in (given, os.environ.get("SPTRACE"), os.path.join(target, "release", "sptrace")):
        if path and os.path.exists(path): return os.path.abspath(path)
    sys.exit("transparency: no sptrace found (build it with `cargo build --release`, or give --sptrace PATH)")


def self_check(runner, cases):
    """A wrapper that changes nothing passes; each that changes one thing is caught."""
    by_name = {c.name: c for c in cases}
    wrappers = [
        ("starts the program only", '"$@"; exit $?', "run", "bash", True),
        ("changes the exit status", '"$@"; exit 0', "run", "bash", False),
        ("adds a line to stdout", 'echo more; "$@"; exit $?', "run", "bash", False),
        ("adds a line to stderr", 'echo more >&2; "$@"; exit $?', "run", "bash", False),
        ("spoils the output file", '"$@"; r=$?; echo >> out.o; exit $r', "run", "gcc", False),
        ("leaves a process behind", 'sleep 20 & "$@"; exit $?', "run", "bash", False),
        ("turns a signal into a status", '"$@"; exit $?', "run", "killed", False),
        ("may be killed", '"$@"; exit $?', "kill", "bash", True),
        ("takes the program along when killed", 'setpriv --pdeathsig KILL "$@"; exit $?', "kill", "bash", False),
        ("may be stopped", '"$@"; exit $?', "stop", "bash", True),
    ]
    bad = 0
    for what, script, mode, name, good in wrappers:
        runner.tracer = ["/bin/sh", "-c", script, "sh"]
        found, _ = runner.judge(by_name[name], mode, 1)
        right = (not found) == good
        bad += not right
        print(f"{'ok  ' if right else 'FAIL'} a wrapper that {what}: {found[0] if found else 'no difference'}", flush=True)
    print(f"{len(wrappers) - bad} passed, {bad} failed")
    return 1 if bad else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--kill", dest="mode", action="store_const", const="kill", default="run")
    mode.add_argument("--stop", dest="mode", action="store_const", const="stop")
    mode.add_argument("--self-check", dest="mode", action="store_const", const="self-check")
    parser.add_argument("--quick", action="store_true", help="the subset for CI, threaded ones 3 times")
    parser.add_argument("--only", action="append", metavar="GLOB", help="only cases whose name matches (repeatable)")
    parser.add_argument("--list", action="store_true", help="print the names of the cases and end")
    parser.add_argument("--repeat", type=int, metavar="N", help="traced runs of a threaded case (20; with --quick 3; with --kill, --stop and --only of all cases)")
    parser.add_argument("--seed", type=int, default=1, help="for the moments of --kill and --stop")
    parser.add_argument("--sptrace", metavar="PATH")
    parser.add_argument("--tracer", metavar="WORDS", help="another wrapper in place of `sptrace run -q -o FILE --`")
    parser.add_argument("--option", action="append", default=[], metavar="ARG", help="an option for `sptrace run`, e.g. --option=--loader")
    parser.add_argument("--programs", metavar="DIR", help="built programs (else they are built)")
    args = parser.parse_args()

    # /var/tmp: not the memory-backed /tmp of many machines; no path component may look like a time
    work = tempfile.mkdtemp(prefix="sptrace-transparency-", dir="/var/tmp")
    try:
        return run_all(args, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def run_all(args, work):
    programs = args.programs
    if programs is None and args.mode != "self-check":
        programs = os.path.join(work, "programs")
        subprocess.run([os.path.join(HERE, "programs", "build.sh"), programs], check=True)
    programs = os.path.abspath(programs) if programs else None
    become_subreaper()
    fixture = (lambda n: n) if args.list else make_fixtures(os.path.join(work, "fixtures"))
    cases = program_cases(programs) + command_cases(fixture)
    if not args.quick and args.mode != "self-check":
        built = runtimes.build(os.path.join(work, "runtimes"))
        cases += [Case("runtimes/" + name, argv, threaded=True, timeout_s=600, wx=name == "wine") for name, argv in built]
    if args.mode == "self-check": return self_check(Runner(work, [], random.Random(args.seed), False), cases)
    if args.quick: cases = [c for c in cases if c.quick]
    if args.only: cases = [c for c in cases if any(fnmatch.fnmatch(c.name, g) for g in args.only)]
    if args.list:
        for case in cases: print(case.name, "(threaded)" if case.threaded else "")
        return 0
    trace = os.path.join(work, "trace.data")
    tracer = args.tracer.split() if args.tracer else [find_sptrace(args.sptrace), "run", "-q", "-o", trace, *args.option, "--"]
    runner = Runner(work, tracer, random.Random(args.seed), args.tracer is None)
    passed, failed, skipped = 0, [], 0
    for case in cases:
        if not os.path.exists(case.argv[0]):
            skipped += 1
            print(f"skip {case.name}: {case.argv[0]} is not installed", flush=True)
            continue
        times = args.repeat if args.repeat and (case.threaded or args.only or args.mode != "run") else (3 if args.quick else 20) if case.threaded and args.mode == "run" else 1
        found, text = runner.judge(case, args.mode, times)
        if found: failed.append(case.name)
        else: passed += 1
        print(f"{'FAIL' if found else 'ok  '} {case.name}: {'; '.join(found) if found else text}", flush=True)
    if skipped: print(f"{skipped} skipped")
    if not passed and not failed: print("no case was run", file=sys.stderr)
    print(f"{passed} passed, {len(failed)} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
