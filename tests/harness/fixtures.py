"""Inputs for the commands of the machine, made from fixed seeds: scripts, texts, a video, a
repository.

Given a folder; gives the path of each by its name.
"""

import os, random, shutil, subprocess

from harness.case import HERE
from harness.compare import environment

BASH = r"""
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
"""


PYTHON = r"""
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
"""


PYTHON_THREADS = r"""
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
"""


PERL = r"""
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
"""


LUA = r"""
local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end
print(fib(20))
local t = {} for i = 1, 5000 do t[i] = (i * 7919) % 10007 end table.sort(t, function(a, b) return a > b end) print(t[1], t[5000])
local co = coroutine.wrap(function(a) for i = 1, 50 do a = a + coroutine.yield(a * i) end return "end" end)
local x = co(1) for i = 2, 51 do x = co(i) end print(x)
print(pcall(function() error({code = 7}) end), select(2, pcall(function() error("plain", 0) end)))
print((("hello world"):gsub("o", function(c) return c:upper() .. "!" end)), string.format("%.3f %q", 1 / 3, "quoted\n"))
local mt = setmetatable({}, {__index = function(_, k) return k .. "?" end, __call = function(self, y) return y * 2 end}) print(mt.foo, mt(21))
collectgarbage() io.stderr:write("to stderr\n") os.exit(6)
"""


SQL = r"""
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
"""


def make_fixtures(folder):
    """Inputs of the real commands, from fixed seeds. Gives a function from name to path."""
    os.makedirs(folder, exist_ok=True)
    path = lambda name: os.path.join(folder, name)
    rng = random.Random(1)
    words = [
        "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9)))
        for _ in range(3000)
    ]
    with open(path("text"), "w") as f:
        for _ in range(60000):
            f.write(" ".join(rng.choices(words, k=8)) + "\n")
    with open(path("small"), "wb") as f:
        f.write(
            b"".join(bytes(f"{rng.random()} {rng.choice(words)}\n", "ascii") for _ in range(30000))
        )
    for name, text in (
        ("bash.sh", BASH),
        ("main.py", PYTHON),
        ("threads.py", PYTHON_THREADS),
        ("main.pl", PERL),
        ("main.lua", LUA),
        ("main.sql", SQL),
    ):
        with open(path(name), "w") as f:
            f.write(text)
    for name in ("alarm/alarm.c", "exceptions/exceptions.cpp", "panic/panic.rs"):
        shutil.copy(os.path.join(HERE, "programs", name), folder)
    with open(
        path("compile.c"), "w"
    ) as f:  # one unit of many headers and all logic of two programs
        f.write("#define _GNU_SOURCE\n")
        for (
            header
        ) in "stdio stdlib string math time regex search netdb pthread signal wchar sys/socket sys/stat netinet/in".split():
            f.write(f"#include <{header}.h>\n")
        f.write(open(path("alarm.c")).read())
    os.makedirs(os.path.join(os.path.dirname(folder), ".mplayer"), exist_ok=True)
    open(
        os.path.join(os.path.dirname(folder), ".mplayer", "config"), "w"
    ).close()  # mplayer would say that it makes one
    quiet = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    if shutil.which("ffmpeg"):
        subprocess.run(
            [
                "ffmpeg",
                "-y",
                "-f",
                "lavfi",
                "-i",
                "testsrc2=size=352x288:rate=25:duration=4",
                "-c:v",
                "mpeg2video",
                "-q:v",
                "4",
                path("clip.mpg"),
            ],
            **quiet,
        )
    git, repo = "/usr/bin/git", path("repo")
    if os.path.exists(git):
        env = dict(
            environment(folder),
            GIT_AUTHOR_DATE="2020-01-01T00:00:00Z",
            GIT_COMMITTER_DATE="2020-01-01T00:00:00Z",
        )
        os.makedirs(repo)
        lines = [
            "set -e",
            "git init -q -b main .",
            "git config user.name t; git config user.email t@example.org",
        ]
        for i in range(40):
            lines.append(
                f"mkdir -p d{i % 5}; echo 'line {i}' >> d{i % 5}/f{i % 11}; git add -A; git commit"
                f" -qm 'commit {i}'"
            )
        lines.append(
            "echo changed >> d1/f1; echo new > untracked; git rm -q d2/f2; sleep 1.1; git status"
            " >/dev/null"
        )
        subprocess.run(["sh", "-c", "\n".join(lines)], cwd=repo, env=env, check=True, **quiet)
    return path
