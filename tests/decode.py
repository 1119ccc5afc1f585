#!/usr/bin/env python3
"""System calls as lib/types describes them, compared with strace: real programs under both, line by line.

usage: tests/decode.py [--recorded | --live | --counts] [--only GLOB]... [--list] [--show N] [--keep DIR] [--self-check]

Given: strace, cargo, and the programs; what is not installed is skipped by name. Gives: a line a program with how many lines
agree, then the kinds of differences that are left, by call, with an example (N of each kind with --show), then `N passed, N
failed` alone on the last line; status 1 if a program agrees in less than 99 % of its lines.
A command runs twice, under `strace -f` and under lib/types/examples/stepper.rs, which reads the memory that the descriptions
ask for and nothing else; or, with --recorded, under `sptrace run --syscalls-only` ($SPTRACE) and `report lines`, or with
--counts, calls and errors by call of `report syscalls` beside those of `strace -f -c`; with
--live, under `sptrace run --live=FILE`, without signals (tests/signals.py compares them). Process ids, addresses, times and random bytes are made equal; what strace cuts into `unfinished` and
`resumed` is put together; threads are compared each with the one that is most like it.
Must not know: how lines are made.
"""
import argparse, collections, difflib, fnmatch, os, re, shlex, shutil, signal, socket, subprocess, sys, tempfile, threading
import http.server

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ENOUGH = 0.99
PYTHON = """
import subprocess, socket, threading, select
print(subprocess.run(['/bin/echo', 'hi'], capture_output=True).stdout)
a, b = socket.socketpair(); a.sendall(b'x' * 50); print(b.recv(100)); a.close(); b.close()
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(('127.0.0.1', 0)); s.listen(1)
c = socket.create_connection(s.getsockname()); d, _ = s.accept(); c.sendmsg([b'one', b'two']); print(d.recvmsg(100)[0])
e = select.epoll(); e.register(d, select.EPOLLIN); c.send(b'z'); print(e.poll(1)); print(select.select([d], [c], [], 1)[0] != [])
p = select.poll(); p.register(d, select.POLLIN); print(len(p.poll(100)))
"""
SIGNALS = "trap 'echo usr1' USR1; kill -USR1 $$; (exit 3); sh -c 'kill -TERM $$'; sleep 0.01 & wait; sh -c 'kill -SEGV $$'; echo end"
MAKEFILE = "all: a.o b.o\n\tcat a.o b.o > all\n%.o: %.c\n\tcp $< $@\n"
# What a static program of musl does: it opens, looks, reads, maps, forks and waits.
MUSL = """
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int n, char **words) {
    struct stat s;
    char text[200];
    int file = open(words[1], O_RDONLY);
    if (file < 0 || fstat(file, &s)) return 1;
    printf("%ld of %lld\\n", read(file, text, sizeof text), (long long)s.st_size);
    free(malloc(1 << 20));
    if (!fork()) _exit(access("nothing", R_OK) ? 3 : 0);
    int status;
    wait(&status);
    close(file);
    printf("%d\\n", status);
}
"""
REDIS = """
redis-server --port $1 --save '' --dir . > /dev/null &
sleep 1.5
for words in ping 'set a b' 'get a' 'incr c' 'lpush l 1 2 3' 'lrange l 0 -1' 'get nothing'; do redis-cli -p $1 $words; done
redis-cli -p $1 shutdown nosave
wait
"""
NGINX = """
nginx -p $PWD -c nginx.$1.conf 2> /dev/null &
sleep 1
for file in 1 2 3 nothing; do curl -s -o /dev/null http://127.0.0.1:$1/tree/$file; done
kill -QUIT $!
wait
"""
NGINX_CONF = """
daemon off; worker_processes 1; pid nginx.pid; error_log /dev/null;
events {{ worker_connections 64; }}
http {{ access_log off; server {{ listen 127.0.0.1:{port}; root {folder}; }} }}
"""
# name: command in a folder that setup() has made, {port} being a server's, {ports} and {porto} free ones
PROGRAMS = {
    "ls": "/bin/ls -lR tree", "ls.verbose": "/bin/ls -l tree", "cat": "/bin/cat tree/1 tree/2", "cp": "/bin/cp -a tree copy{run}", "find": "/usr/bin/find tree -type f -size +1k",
    "tar": "/bin/tar cf out{run}.tar tree", "git": "{git} -C repo status", "bash": "/bin/bash -c 'ls tree | grep 1 | wc -l; for i in 1 2 3; do echo $i; done | sort -r; for i in 1 2 3 4 5 6; do ls tree | sed -n ${i}p | tail -n 1; done'",
    "python3": "/usr/bin/python3 -S program.py", "perl": "/usr/bin/perl -e 'open F, \"<\", \"tree/1\"; print while <F>; print `echo hi`; print -s \"tree/2\"'",
    "sqlite3": "/usr/bin/sqlite3 d{run}.db 'create table t(a); insert into t values (1), (2); select sum(a) from t'", "gcc": "/usr/bin/gcc -o program{run} program.c",
    "curl": "/usr/bin/curl -s -o got{run} http://127.0.0.1:{port}/tree/1", "sort": "/usr/bin/sort -r big -o sorted{run}", "xz": "/usr/bin/xz -T2 -k -c --block-size=100000 big",
    "dd": "/bin/dd if=big of=dd{run} bs=4k count=50 conv=fsync status=none", "ps": "/bin/ps -p 1", "id": "/usr/bin/id", "sh.signals": "/bin/sh -c \"" + SIGNALS.replace("$", "\\$") + "\"",
    "make": "/usr/bin/make -s -j2 -C make{run}", "gpg": "/usr/bin/gpg --version", "git.commit": "{git} -C repo{run} commit -qam two", "sort.parallel": "/usr/bin/sort --parallel=2 -S 1M -r big -o sorted{run}",
    "musl": "{folder}/static.musl tree/1", "gofmt": "/usr/bin/env GODEBUG=asyncpreemptoff=1 {gofmt} -l program.go", "redis": "/bin/sh redis.sh {port{run}}", "nginx": "/bin/sh nginx.sh {port{run}}",
    "busybox": "/bin/busybox sh -c 'ls -l tree; cat tree/1 | wc -l; mkdir b{run}; rmdir b{run}'", "touch": "/usr/bin/touch -d 2020-01-01 touched{run}", "df": "/bin/df .", "mv": "/bin/mv moved{run} moved{run}.to", "chmod": "/bin/chmod -R u+w tree", "timeout": "/usr/bin/timeout 5 true", "stat": "/usr/bin/stat -f . tree/1", "cp.paths": "/bin/cp tree/1 tree/2 y{run}/", "cat.long": "/bin/cat tree/1 big", "setpriv": "/usr/bin/setpriv --dump",
}
FLAGS = {"ls.verbose": ["-v"], "cp.paths": ["-y"], "cat.long": ["-s", "100"]}
# What a recording does not have (--recorded): signals without handlers.
UNRECORDED = r"--- SIG"
DATES = {"GIT_AUTHOR_DATE": "2020-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2020-01-01T00:00:00Z"}
# What looks at other processes, in a namespace where there are none.
ALONE = {"ps"}
# What several threads do in turns that chance decides: a line agrees if the other trace has one of its shape.
# (Go's runtime sends itself SIGURG where a goroutine runs for long, as chance has it; asyncpreemptoff=1 keeps it from that.)
CHANCE = {"xz", "curl", "make", "sort.parallel", "gofmt", "redis", "nginx"}
# Whose threads wait for each other as often as chance has it: numbers say nothing (--counts). curl looks again and again whether its
# resolver's thread is done.
UNSTEADY = {"xz", "gofmt", "curl"}
# Whether the thread of Go's runtime that watches the others sleeps at all is a matter of how long they run.
BY_TIME = {"gofmt": r"nanosleep\("}
# What strace -c does not count: a call that does not return.
ENDLESS = {"exit", "exit_group"}
# What a command needs beside its first word.
NEEDS = {"redis": "redis-server", "nginx": "nginx", "musl": "musl-gcc", "gofmt": "gofmt"}


def setup(folder, ports):
    os.makedirs(f"{folder}/tree/sub/deep")
    for n in range(12): open(f"{folder}/tree/{n}", "w").write(f"line {n}\n" * 100 * n)
    os.symlink("1", f"{folder}/tree/sub/link")
    open(f"{folder}/big", "w").writelines(f"{n * 7919 % 50021} some text\n" for n in range(20000))
    open(f"{folder}/program.c", "w").write('#include <stdio.h>\nint main(void) { puts("hi"); return 0; }\n')
    open(f"{folder}/program.py", "w").write(PYTHON)
    for run in "so":
        os.mkdir(f"{folder}/y{run}")
        os.mkdir(f"{folder}/make{run}")
        open(f"{folder}/make{run}/Makefile", "w").write(MAKEFILE)
        for name in "ab": open(f"{folder}/make{run}/{name}.c", "w").write("text")
        open(f"{folder}/nginx.{ports[run]}.conf", "w").write(NGINX_CONF.format(folder=folder, port=ports[run]))
        for name in ("moved", "touched"): open(f"{folder}/{name}{run}", "w").close()
    for name, text in (("redis.sh", REDIS), ("nginx.sh", NGINX), ("musl.c", MUSL), ("program.go", "package main\n\nfunc main() {\n}\n")): open(f"{folder}/{name}", "w").write(text)
    if shutil.which("musl-gcc"): subprocess.run(["musl-gcc", "-static", "-o", "static.musl", "musl.c"], cwd=folder, check=True)
    for repo in ("repo", "repos", "repoo"):
        os.mkdir(f"{folder}/{repo}")
        open(f"{folder}/{repo}/file", "w").write("text\n")
        for words in (["init", "-q"], ["config", "user.name", "n"], ["config", "user.email", "e"], ["config", "gc.auto", "0"], ["add", "file"], ["commit", "-qm", "one"], ["status"]):
            subprocess.run(["git", "-C", f"{folder}/{repo}", *words], check=True, env={**os.environ, **DATES}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        open(f"{folder}/{repo}/file", "a").write("more\n")
    os.mkdir(f"{folder}/.cache")


def read(path):
    """Thread: its lines, interrupted ones put together."""
    threads, open_calls = collections.OrderedDict(), {}
    for line in open(path, encoding="latin-1"):
        pid, _, text = line.rstrip("\n").partition(" ")
        text = text.lstrip()
        lines = threads.setdefault(pid, [])
        resumed = re.match(r"<\.\.\. \w+ resumed>(.*)", text)
        if resumed:
            lines.append(open_calls.pop(pid, "") + resumed[1])
        elif text.endswith(" <unfinished ...>"): open_calls[pid] = text[: -len(" <unfinished ...>")]
        else: lines.append(text)
    return threads


def without_maps(lines):
    """Without what is done with /proc/self/maps: more or fewer steps, as there are mappings, of which some are sptrace's."""
    kept, descriptor = [], None
    for line in lines:
        opened = re.match(r'openat\(AT_FDCWD, "/proc/self/maps", .*= (\d+)$', line)
        if opened: descriptor = opened[1]
        if not descriptor: kept.append(line)
        if descriptor and line.startswith(f"close({descriptor})"): descriptor = None
    return kept


def equalise(line, pids):
    line = line.replace(" <unfinished ...>", "")
    line = re.sub(r"\s+= ", " = ", line, count=1) if not line.startswith("write") else re.sub(r"\)\s+= ", ") = ", line)
    line = re.sub(r"0x[0-9a-f]{4,}", "0xX", line)
    line = re.sub(r"\b(\d{2,})\b", lambda m: "PID" if m[1] in pids else m[1], line)
    line = re.sub(r"(tv_n?u?sec|st_[amc]time(_nsec)?|f_bfree|f_bavail|f_ffree|f_blocks|st_ino|si_[us]time|freeram|bufferram|uptime|sharedram|procs|ru_\w+|nl_pid)=-?\d+", r"\1=N", line)
    line = re.sub(r"/\* 20\d\d-[^*]*\*/", "/* DATE */", line)
    line = re.sub(r"htons\(\d{5}\)", "htons(PORT)", line)
    line = re.sub(r"loads=\[[^]]*\]", "loads", line)
    line = re.sub(r"\b(copy|out|y|program|got|sorted|dd|b|d|moved|touched|make|repo)[so]\b", r"\1R", line)
    line = re.sub(r"/tmp/(cc|sort|tmp)\w{6}\b", r"/tmp/\1", line)
    line = re.sub(r"\btmp_obj_\w{6}\b", "tmp_obj", line)
    line = re.sub(r"getppid\(\) = \d+", "getppid() = PID", line)
    # The frame of a signal is found by the stack pointer, which is no argument.
    line = re.sub(r"rt_sigreturn\(.*?\) = ", "rt_sigreturn() = ", line)
    line = re.sub(r" /\* \d+\.\d\d s \*/", "", line)
    line = re.sub(r"/proc/\d+", "/proc/PID", line)
    line = re.sub(r"^(set_tid_address\(\w+\)|getpid\(\)|gettid\(\)) = \d+", r"\1 = PID", line)
    # Who waits as the program ends has no result; how much of it strace has written by then differs.
    line = re.sub(r"^(nanosleep|futex|epoll_p?wait)\(.*\) = \?$", r"\1() = ?", line)
    # Of a source of chance.
    line = re.sub(r'read\((\d+), ".*", (4|8)\) = (4|8)$', r"read(\1, BYTES, \2) = \3", line)
    # git's index: times of files, and a sum over them.
    line = re.sub(r'write\((\d+), "(DIRC.*"\.\.\., \d+\)|.*", 20\)) = (\d+)$', r"write(\1, INDEX) = \3", line)
    if line.startswith("pwrite64"): line = re.sub(r'".*"', '"BYTES"', line)
    if line.startswith("getrandom"): line = re.sub(r'".*"', '"RANDOM"', line)
    return line


def likeness(a, b):
    return sum((collections.Counter(a) & collections.Counter(b)).values())


def shape(line):
    """A line without what chance decides of it: numbers, and whether a futex was waited for."""
    line = re.sub(r"\d+", "N", line)
    return line.partition(") = ")[0] if line.startswith("futex") else line


def by_chance(a, b):
    there = {shape(line) for line in b}
    return [line for line in a if shape(line) not in there]


def compare(theirs, ours, chance=False):
    """(lines that agree, lines of both at most, [(their line or None, our line or None)])."""
    pids = set(theirs) | set(ours)
    left = {pid: [equalise(l, pids) for l in lines] for pid, lines in ours.items()}
    if chance:
        a, b = ([equalise(l, pids) for lines in both.values() for l in lines] for both in (theirs, ours))
        different = [(line, None) for line in by_chance(a, b)] + [(None, line) for line in by_chance(b, a)]
        return len(a) + len(b) - len(different), len(a) + len(b), different
    agree, most, different = 0, 0, []
    wanted = {pid: [equalise(l, pids) for l in lines] for pid, lines in theirs.items()}
    for pid in sorted(wanted, key=lambda p: -len(wanted[p])):
        a = wanted[pid]
        best = max(left, key=lambda p: likeness(a, left[p]), default=None)
        b = left.pop(best) if best else []
        most += max(len(a), len(b))
        for tag, i, j, k, l in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
            if tag == "equal": agree += j - i
            else:
                for n in range(max(j - i, l - k)): different.append((a[i + n] if i + n < j else None, b[k + n] if k + n < l else None))
    for lines in left.values():
        most += len(lines)
        different += [(None, line) for line in lines]
    return agree, most, different


def kind(pair):
    names = [re.match(r"[\w.]+|---|\+\+\+", line or "") for line in pair]
    names = [n[0] if n else "nothing" for n in names]
    return names[0] if names[0] == names[1] else f"{names[0]} / {names[1]}"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def command_of(name, who, folder, ports):
    """Its words, and the environment of them."""
    places = {"run": who, "folder": folder, "git": os.path.realpath(shutil.which("git")), "gofmt": os.path.realpath(shutil.which("gofmt") or "/"), "port": str(ports["server"]), "ports": str(ports["s"]), "porto": str(ports["o"])}
    command = re.sub(r"\{(\w+)\}", lambda m: places.get(m[1], m[0]), re.sub(r"\{(\w+)\{run\}\}", lambda m: places[m[1] + who], PROGRAMS[name]))
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin", "LC_ALL": "C", "HOME": folder, "PWD": folder, "TZ": "UTC0", "GIT_OPTIONAL_LOCKS": "0", **DATES}
    return shlex.split(command), env


def run_both(name, folder, ports, stepper, recorder, is_live, keep):
    traces = {}
    for who in "so":
        words, env = command_of(name, who, folder, ports)
        out = os.path.join(keep or os.path.dirname(folder), f"{name}.{who}.txt")
        flags = FLAGS.get(name, [])
        tool = ["strace", "-f", *flags, "-o", out] if who == "s" else [stepper, *flags, "-o", out]
        limit = flags[flags.index("-s"):][:2] if "-s" in flags else []
        is_recorded = bool(recorder)
        if is_recorded and who == "o": tool = [recorder, "run", "-q", "--syscalls-only", *limit, "-o", out + ".data", *([f"--live={out}", "-f", *(f for f in flags if f not in limit)] if is_live else []), "--"]
        alone = ["unshare", "--pid", "--fork", "--mount-proc"] if name in ALONE else []
        subprocess.run([*alone, "setarch", "-R", *tool, *words], cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=30)
        if is_recorded and is_live and who == "o": os.remove(out + ".data")
        elif is_recorded and who == "o":
            with open(out, "wb") as lines: subprocess.run([recorder, "report", "lines", "-f", *flags, "-i", out + ".data"], stdout=lines, check=True, timeout=60)
            os.remove(out + ".data")
        traces[who] = {pid: without_maps(lines) for pid, lines in read(out).items()}
        if is_recorded: traces[who] = {pid: [l for l in lines if not re.match(UNRECORDED, l)] for pid, lines in traces[who].items()}
        if name in BY_TIME: traces[who] = {pid: [l for l in lines if not re.match(BY_TIME[name], l)] for pid, lines in traces[who].items()}
        # What is read and written there tells process ids and times.
        if name in ALONE: traces[who] = {pid: [re.sub(r'^(read|write)\((\d+), ".*', r"\1(\2", l) for l in lines] for pid, lines in traces[who].items()}
    return traces


def numbers(path):
    """Of what strace -c prints: call: (calls, errors)."""
    rows = (line.split() for line in open(path, encoding="latin-1"))
    return {row[-1]: (int(row[3]), int(row[4]) if len(row) == 6 else 0) for row in rows if len(row) in (5, 6) and row[3].isdigit() and row[-1] not in {"total", *ENDLESS}}


def count_both(name, folder, ports, recorder):
    """({call: (calls, errors)} of strace, the same of ours)."""
    found = []
    for who in "so":
        words, env = command_of(name, who, folder, ports)
        out = os.path.join(os.path.dirname(folder), f"{name}.{who}.counts")
        tool = ["strace", "-f", "-c", "-o", out] if who == "s" else [recorder, "run", "-q", "--syscalls-only", "-o", out + ".data", "--"]
        alone = ["unshare", "--pid", "--fork", "--mount-proc"] if name in ALONE else []
        subprocess.run([*alone, "setarch", "-R", *tool, *words], cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60)
        if who == "o":
            with open(out, "wb") as table: subprocess.run([recorder, "report", "syscalls", "-i", out + ".data"], stdout=table, check=True, timeout=60)
        found.append(numbers(out))
    return found


def compare_counts(theirs, ours):
    """(calls and errors that agree, of how many, [(their row or None, our row or None)])."""
    agree, most, different = 0, 0, []
    for call in sorted(set(theirs) | set(ours)):
        a, b = theirs.get(call, (0, 0)), ours.get(call, (0, 0))
        agree += sum(map(min, a, b))
        most += sum(map(max, a, b))
        if a != b: different.append((f"{call} {a[0]} calls, {a[1]} errors", f"{call} {b[0]} calls, {b[1]} errors"))
    return agree, most, different


class Quiet(http.server.SimpleHTTPRequestHandler):
    wbufsize = 1 << 16  # an answer at once, not its head and then its body

    def log_message(self, *_): pass


def self_check():
    """Equal lines that differ in addresses and pids must agree; a wrong flag, a missing line and a line too many must not."""
    right = {"100": ["openat(AT_FDCWD, \"a\", O_RDONLY)       = 3", "brk(NULL) = 0x55555", "getpid() = 100"]}
    same = {"200": ["openat(AT_FDCWD, \"a\", O_RDONLY) = 3", "brk(NULL) = 0x66666", "getpid() = 200"]}
    cases = [(same, 3, 3), ({"200": [same["200"][0].replace("RDONLY", "RDWR"), *same["200"][1:]]}, 2, 3), ({"200": same["200"][1:]}, 2, 3), ({**same, "201": ["close(1) = 0"]}, 3, 4)]
    failed = [f"{ours}: {got}" for ours, agree, most in cases if (got := compare(right, ours)[:2]) != (agree, most)]
    flags = {"200": [line.replace("O_RDONLY", "O_RDWR") for line in right["100"]]}
    if compare_counts({"read": (3, 1)}, {"read": (3, 0), "close": (1, 0)})[:2] != (3, 5): failed.append("counts that differ are not seen")
    if compare(right, flags, True)[0] != 4: failed.append("a wrong flag is not seen where chance orders lines")
    with tempfile.NamedTemporaryFile("w") as f:
        f.write("7 read(3,  <unfinished ...>\n8 close(1) = 0\n7 <... read resumed>\"x\", 1) = 1\n")
        f.flush()
        if read(f.name)["7"] != ['read(3, "x", 1) = 1']: failed.append(f"interrupted lines: {read(f.name)}")
    return failed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--show", type=int, default=1)
    parser.add_argument("--keep")
    parser.add_argument("--recorded", action="store_true")
    parser.add_argument("--live", action="store_true")
    parser.add_argument("--counts", action="store_true")
    parser.add_argument("--self-check", action="store_true")
    options = parser.parse_args()
    if options.self_check:
        failed = self_check()
        print("\n".join([*failed, f"self-check: {len(failed)} problems"]))
        return 1 if failed else 0
    names = [n for n in PROGRAMS if not options.only or any(fnmatch.fnmatch(n, g) for g in options.only)]
    if options.list: return print("\n".join(names))
    target = os.environ.get("CARGO_TARGET_DIR", f"{ROOT}/target")
    recorder = os.environ.get("SPTRACE", f"{target}/release/sptrace") if options.recorded or options.live or options.counts else None
    subprocess.run(["cargo", "build", "-q", "--locked", "-p", "sptrace-types", "--example", "stepper"], cwd=ROOT, check=True)
    stepper = os.path.join(target, "debug/examples/stepper")
    passed, failed, lines, kinds = 0, 0, (0, 0), collections.defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        ports = {"s": free_port(), "o": free_port()}
        for attempt in range(3): setup(f"{folder}/{attempt}", ports)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), lambda *a: Quiet(*a, directory=f"{folder}/0"))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        ports["server"] = server.server_address[1]
        for name in names:
            program = NEEDS.get(name) or shlex.split(PROGRAMS[name])[0]
            if program[0] != "{" and not shutil.which(program, path="/usr/bin:/bin:/usr/sbin"):
                print(f"skip {name}: no {program}")
                continue
            if options.counts and name in UNSTEADY:
                print(f"skip {name}: its threads wait as often as chance has it")
                continue
            # What comes from the order in which processes ran differs the next time; what comes from a description does not.
            for attempt in range(3):
                if options.counts:
                    agree, most, different = compare_counts(*count_both(name, f"{folder}/{attempt}", ports, recorder))
                    good = most > 10 and agree >= ENOUGH * most
                    if good: break
                    continue
                traces = run_both(name, f"{folder}/{attempt}", ports, stepper, recorder, options.live, options.keep)
                agree, most, different = compare(traces["s"], traces["o"], name in CHANCE)
                good = most > 10 and agree >= ENOUGH * most
                if good: break
            passed, failed, lines = passed + good, failed + (not good), (lines[0] + agree, lines[1] + most)
            print(f"{'ok  ' if good else 'FAIL'} {name}: {agree} of {most} {'calls and errors' if options.counts else 'lines'}, {100 * agree / max(most, 1):.2f} %", flush=True)
            for pair in different: kinds[kind(pair)].append((name, pair))
        server.shutdown()
    for what, found in sorted(kinds.items(), key=lambda item: -len(item[1])):
        print(f"differs: {what}, {len(found)} lines")
        for name, (theirs, ours) in found[: options.show]: print(f"    {name}\n      strace: {theirs}\n      ours:   {ours}")
    print(f"in all {lines[0]} of {lines[1]} agree, {100 * lines[0] / max(lines[1], 1):.2f} %")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
