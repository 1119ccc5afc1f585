#!/usr/bin/env python3
"""Lines of system calls while a program runs (--live): of servers that run already, and where the output ends.

usage: tests/live.py [--sptrace PATH] [--only GLOB]

Also programs that do not bear a debugger: one that looks for one, gdb itself, a seccomp sandbox, a change of users by a set-id
program. Given Debian's redis-server and nginx, if they are installed; attaches to them with --live, asks them something, and looks for
the calls that served it in the lines, before the recording ends; they must go on afterwards. A reader that goes away and a disk
that is full end the lines, which is said once, and never the program. Exit status: 1 if anything differs.
"""
import argparse, collections, os, re, shlex, shutil, socket, subprocess, sys, tempfile, time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "harness"))
from case import Cases, Failed, Skip, find_sptrace, run_cases

case = Cases()
NGINX = """
daemon off; master_process on; worker_processes 1; pid {folder}/pid; error_log {folder}/error;
events {{}}
http {{ access_log {folder}/access; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s; server {{ listen 127.0.0.1:{port}; root {folder}/pages; }} }}
"""
PROGRAM = ["/bin/sh", "-c", "for i in 1 2 3 4 5; do cat /etc/hostname >/dev/null; sleep 0.1; done; exit 7"]


class Bench:
    def __init__(self, sptrace, folder):
        self.sptrace, self.folder = sptrace, folder


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def asked(port, question, seconds=10):
    """The answer of a server, which may not listen yet."""
    until = time.monotonic() + seconds
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), 5) as s:
                s.sendall(question)
                return s.recv(4096)
        except OSError:
            if time.monotonic() > until: raise
            time.sleep(0.1)


def wait_for(path, start, pattern, seconds):
    """Waits until a line of the file has the pattern, behind its first `start` bytes."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with open(path, errors="replace") as lines:
            lines.seek(start)
            text = lines.read()
        found = re.search(pattern, text, re.MULTILINE)
        if found: return found[0]
        time.sleep(0.05)
    raise Failed(f"no line has {pattern!r} among\n{text[:1500]}")


def attached(bench, pid, port, question, answer, patterns):
    """A server is asked while it is attached to, and afterwards."""
    live = f"{bench.folder}/lines"
    open(live, "w").close()
    words = [bench.sptrace, "attach", "-q", "-p", str(pid), "-o", f"{bench.folder}/trace", f"--live={live}", "-f", "-yy", "--for", "60s"]
    recorder = subprocess.Popen(words, stdin=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 50
        # The preparation of a program takes a while the first time.
        while os.path.getsize(live) == 0 and time.monotonic() < until:
            if answer not in asked(port, question): raise Failed("a wrong answer")
            time.sleep(0.1)
        start = os.path.getsize(live)
        if answer not in asked(port, question): raise Failed("a wrong answer while it is recorded")
        found = [wait_for(live, start, pattern, 10) for pattern in patterns]
        if recorder.poll() is not None: raise Failed(f"the recording has ended with {recorder.returncode} already")
    finally:
        recorder.terminate()
        recorder.wait(30)
    if answer not in asked(port, question): raise Failed("a wrong answer afterwards")
    return found


@case
def a_database_server(bench):
    """redis-server: what it reads and writes to a client."""
    program = shutil.which("redis-server")
    if not program: raise Skip("no redis-server")
    port = free_port()
    words = [program, "--port", str(port), "--save", "", "--dir", bench.folder, "--bind", "127.0.0.1"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            question = b"*2\r\n$4\r\nECHO\r\n$5\r\nhello\r\n"
            asked(port, question)
            attached(bench, server.pid, port, question, b"hello", [r'read\(\d+(<[^"]*>)?, "\*2\\r\\n\$4\\r\\nECHO', r'write\(\d+(<[^"]*>)?, "\$5\\r\\nhello\\r\\n", 11\)'])
            if server.poll() is not None: raise Failed(f"the server has ended with {server.returncode}")
        finally: server.terminate()


@case
def a_web_server(bench):
    """nginx: the worker opens the file that is asked for, and sends it."""
    program = shutil.which("nginx") or ("/usr/sbin/nginx" if os.path.exists("/usr/sbin/nginx") else None)
    if not program: raise Skip("no nginx")
    port = free_port()
    os.mkdir(f"{bench.folder}/pages")
    os.chmod(bench.folder, 0o755)
    open(f"{bench.folder}/pages/page", "w").write("hello from the page")
    conf = f"{bench.folder}/nginx.conf"
    open(conf, "w").write(NGINX.format(folder=bench.folder, port=port))
    with subprocess.Popen([program, "-c", conf, "-p", bench.folder], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            question = b"GET /page HTTP/1.0\r\n\r\n"
            asked(port, question)
            worker = int(open(f"/proc/{server.pid}/task/{server.pid}/children").read().split()[0])
            attached(bench, worker, port, question, b"200 OK", [r'openat\(AT_FDCWD.*"[^"]*/pages/page", O_RDONLY', r"(sendfile|writev)\("])
            if server.poll() is not None: raise Failed(f"the server has ended with {server.returncode}")
        finally: server.terminate()


def ended_output(bench, place):
    words = [bench.sptrace, "run", "-q", "-o", f"{bench.folder}/trace", f"--live={place}", "--", *PROGRAM]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
    if done.returncode != 7: raise Failed(f"the program ends with {done.returncode}, alone with 7")
    said = [line for line in done.stderr.splitlines() if "not shown any more" in line]
    if len(said) != 1: raise Failed(f"said {len(said)} times: {done.stderr[:500]}")
    shown = subprocess.run([bench.sptrace, "report", "lines", "-i", f"{bench.folder}/trace"], stdout=subprocess.PIPE, text=True)
    if shown.stdout.count('"/etc/hostname"') < 5: raise Failed("the trace has not all of the calls")
    return said[0]


@case
def a_reader_that_goes_away(bench):
    """Its pipe is closed after two lines."""
    said = ended_output(bench, "|head -n 2 >/dev/null")
    if "Broken pipe" not in said: raise Failed(said)


@case
def a_full_disk(bench):
    """No byte can be written."""
    said = ended_output(bench, "/dev/full")
    if "No space left" not in said: raise Failed(said)


COPY = ["/bin/dd", "if=/etc/passwd", "of=/dev/null", "bs=16", "count=30", "status=none"]


@case
def calls_on_one_descriptor(bench):
    """-e fd=SET: the lines of strace with such an argument, and nothing else is recorded."""
    if not shutil.which("strace"): raise Skip("no strace")
    theirs, ours, trace = (f"{bench.folder}/{name}" for name in ("theirs", "ours", "trace"))
    subprocess.run(["strace", "-o", theirs, *COPY], check=True, stdin=subprocess.DEVNULL)
    same = lambda line: re.sub(r" +", " ", re.sub(r"0x[0-9a-f]+", "ADDRESS", line))
    for chosen, on in (("0", r"\(0\b|dup2\(\d, 0\)"), ("1,3", r"\([13]\b|dup2\(\d, [13]\)|, [13], \w+\) += 0x")):
        done = subprocess.run([bench.sptrace, "run", "-o", trace, f"--live={ours}", "-e", f"fd={chosen}", "--", *COPY], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0: raise Failed(done.stderr)
        # Not arguments that are numbers of another kind.
        wanted = [same(l) for l in open(theirs) if re.search(on, l) and not l.startswith(("brk", "exit", "rt_sig", "arch_", "set_", "prctl", "prlimit64", "getrandom"))]
        shown = [same(l) for l in open(ours)]
        if shown != wanted + ["+++ exited with 0 +++\n"]: raise Failed("".join(["strace:\n", *wanted, f"--live -e fd={chosen}:\n", *shown]))
        recorded = subprocess.run([bench.sptrace, "report", "lines", "-i", trace], stdout=subprocess.PIPE, text=True).stdout.splitlines()
        # The execve is another program's.
        recorded = [l for l in recorded if not l.startswith("execve")]
        if len(recorded) != len(shown): raise Failed(f"{len(recorded)} lines in the trace, {len(shown)} shown")
        left_out = re.search(r"(\d+) system calls left out by -e fd=", done.stderr)
        # The last call does not end, and execve was made by another program.
        total = sum(1 for l in open(theirs) if not l.startswith(("+++", "execve")))
        if not left_out or abs(int(left_out[1]) + len(wanted) - total) > 1: raise Failed(f"{total} calls, {len(wanted)} recorded: {done.stderr}")


# What is asked for by -P, in a folder with the file `data`, the link `link` to it, and the database `base`.
ON_PATHS = {
    "cat": ("data", "cat {folder}/data"),
    "dup": ("data", "/bin/sh -c 'exec 5<{folder}/data 6<&5; read line <&6; cat <&5; cat <&6; exec 5<&-; cat <&6'"),
    "relative": ("data", "/bin/sh -c 'cd {folder}; cat data; cat < ./data'"),
    "link": ("data", "cat {folder}/link {folder}/../files/data"),
    "rename": ("data", "/bin/sh -c 'cat {folder}/data; mv {folder}/data {folder}/moved; cat {folder}/moved; mv {folder}/moved {folder}/data'"),
    "find": (".", "find {folder} -type f -size +0"),
    "sqlite3": ("base", "sqlite3 {folder}/base 'create table if not exists t(a); insert into t values(1); select count(*) > 0 from t'"),
    "git": (".git/index", "git -C {folder} status"),
}


@case
def calls_on_other_paths(bench):
    """-P PATH: calls on descriptors that surely lead elsewhere are not in the trace and are counted, those on a link, a copy or a file by its other name are."""
    if int(re.search(r"Seccomp:\s*(\d)", open("/proc/self/status").read())[1]): raise Skip("under a seccomp filter all are recorded")
    folder = os.path.realpath(f"{bench.folder}/files")
    ours, trace = (f"{bench.folder}/{name}" for name in ("ours", "trace"))
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    with open(f"{folder}/data", "w") as data: data.write("a line\n" * 3)
    os.symlink("data", f"{folder}/link")
    # Descriptor 3 is the file by a link, 4 another file, 5 a copy of the first in the number of one of the other; a child has them, too.
    program = """import os
a = os.open("link", os.O_RDONLY); b = os.open("/dev/zero", os.O_RDONLY); c = os.dup(b)
for _ in range(300): os.read(b, 1); os.read(c, 2)
os.dup2(a, c); os.read(c, 3)
if not os.fork():
    for _ in range(200): os.read(b, 1)
    os.read(a, 4); os.close(b); os.open("data", os.O_RDONLY); os.read(b, 5); os._exit(0)
os.wait(); os.read(a, 6)
"""
    done = subprocess.run([bench.sptrace, "run", "-P", f"{folder}/data", f"--live={ours}", "-o", trace, "--", sys.executable, "-c", program], cwd=folder, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0: raise Failed(done.stderr)
    recorded = subprocess.run([bench.sptrace, "report", "lines", "-i", trace], stdout=subprocess.PIPE, text=True).stdout
    sizes = lambda text: sorted(int(size) for size in re.findall(r"\bread\(\d+, .*, (\d+)\) += ", text))
    if sizes(open(ours).read()) != [3, 4, 5, 6]: raise Failed(open(ours).read())
    if not {3, 4, 5, 6} <= set(sizes(recorded)) or {1, 2} & set(sizes(recorded)): raise Failed(recorded)
    left_out = re.search(r"(\d+) system calls left out by -e fd= or -P", done.stderr)
    if not left_out or int(left_out[1]) < 800: raise Failed(done.stderr)


@case
def calls_on_a_path_behind_a_filter(bench):
    """-P PATH of a program that installs a filter by which readlink(2) is its end, and of the one that it executes: all calls on the path, and the program's own end."""
    folder = os.path.realpath(f"{bench.folder}/files")
    ours, trace = (f"{bench.folder}/{name}" for name in ("ours", "trace"))
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    with open(f"{folder}/data", "w") as data: data.write("a line\n" * 3)
    program = """import ctypes, os, struct
a = os.open("/dev/zero", os.O_RDONLY); os.read(a, 1); os.close(a)
code = struct.pack("HBBI" * 4, 0x20, 0, 0, 0, 0x15, 0, 1, 89, 6, 0, 0, 0x80000000, 6, 0, 0, 0x7fff0000)
held = ctypes.create_string_buffer(code)
filter = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 4, ctypes.addressof(held)))
prctl = ctypes.CDLL(None).prctl
prctl(38, 1, 0, 0, 0)
assert prctl(22, 2, ctypes.c_void_p(ctypes.addressof(filter))) == 0
a = os.open("data", os.O_RDONLY); os.read(a, 3)
os.execv("/bin/cat", ["cat", "data"])
"""
    done = subprocess.run([bench.sptrace, "run", "-q", "-P", f"{folder}/data", f"--live={ours}", "-o", trace, "--", sys.executable, "-c", program], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if (done.returncode, done.stdout) != (0, "a line\n" * 3): raise Failed(f"{done}")
    shown = open(ours).read()
    if len(re.findall(r'openat\(AT_FDCWD, "data"', shown)) != 2 or not re.search(r"\bread\(\d, .*, 3\) += 3", shown) or len(re.findall(r"close|copy_file_range|fadvise64", shown)) < 2: raise Failed(shown)


@case
def calls_on_a_path(bench):
    """-P PATH: all lines of strace, and of others only those whose relative path or link leads there; what cannot be about a path is not recorded."""
    if not shutil.which("strace"): raise Skip("no strace")
    folder = os.path.realpath(f"{bench.folder}/files")
    theirs, ours, trace = (f"{bench.folder}/{name}" for name in ("theirs", "ours", "trace"))
    quiet = dict(stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    same = lambda line: re.sub(r" +", " ", re.sub(r"0x[0-9a-f]+|(?:st_[acm]time|f_[bf]free|f_bavail)=\S+|\b\d{9,}\b", "NUMBER", re.sub(r"^(\[pid +\d+\]|\d+) +", "", line)))
    # The sums of git's index, in which times and numbers of files are.
    without_sums = lambda line: re.sub(r'(pread64\(\d+, )"(?:[^"\\]|\\.)*"', r"\1SUM", line)
    read = lambda path: sorted(same(without_sums(l)) for l in open(path, errors="replace") if "+++" not in l and "--- SIG" not in l)
    for name, (asked, command) in ON_PATHS.items():
        words = shlex.split(command.format(folder=folder))
        if not shutil.which(words[0]): continue
        found = {}
        for who in (theirs, ours):
            shutil.rmtree(folder, ignore_errors=True)
            os.makedirs(folder)
            with open(f"{folder}/data", "w") as data: data.write("a line\n" * 3)
            # Older than git's index, which git would look at and write anew.
            os.utime(f"{folder}/data", (10**9, 10**9))
            os.symlink("data", f"{folder}/link")
            if name == "git": subprocess.run("git init -q . && git add data && git -c user.name=a -c user.email=a@b commit -qm a", shell=True, check=True, cwd=folder, **quiet)
            path = f"{folder}/{asked}" if asked != "." else folder
            tool = ["strace", "-f", "-P", path, "-o", theirs] if who == theirs else [bench.sptrace, "run", "-q", "-f", "-P", path, f"--live={ours}", "-o", trace, "--"]
            done = subprocess.run([*tool, *words], timeout=60, **quiet)
            found[who] = read(who)
        if not found[theirs]: raise Failed(f"{name}: strace has no line: {done.stderr}")
        missing = collections.Counter(found[theirs]) - collections.Counter(found[ours])
        more = collections.Counter(found[ours]) - collections.Counter(found[theirs])
        # These are about the path by another name; of rename's paths strace looks at the first alone.
        other = [l for l in more if not l.startswith("rename(") and ('"' not in l or f'"{path}"' in l)]
        if missing or other: raise Failed("".join([f"{name}, strace alone:\n", *missing, "sptrace alone:\n", *more]))
        recorded = subprocess.run([bench.sptrace, "report", "lines", "-i", trace], stdout=subprocess.PIPE, text=True).stdout
        beside = re.search(r"^.*\b(brk|rt_sigaction|mprotect|set_robust_list|wait4|getpid)\(.*$", recorded, re.MULTILINE)
        if beside or "close(" not in recorded: raise Failed(f"{name}: {beside and beside[0]} is recorded, or close is not")


# Threads that make calls, of which each says by its path who makes it and which it is, while signals interrupt them; a handler does so, too. Says how often it ran.
INTERRUPTED = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
enum { THREADS = 4, CALLS = 20000 };
static __thread int number = -1, handled;
static atomic_int done, bad;
static void look(const char *kind, int of, int i) {
    char *path = malloc(64);
    struct stat s;
    snprintf(path, 64, "/sptrace-%s-%d-%d", kind, of, i);
    if (stat(path, &s) != -1) bad = 1;
    memset(path, 'x', 63);
    free(path);
}
static void on_signal(int sig) {
    char path[64], *at = path + sizeof path;
    struct stat s;
    if (number < 0) return;
    *--at = 0;
    int i = handled++;
    do { *--at = '0' + i % 10; i /= 10; } while (i);
    *--at = '-'; *--at = '0' + number;
    at = memcpy(at - 16, "/sptrace-signal-", 16);
    if (stat(at, &s) != -1) bad = 1;
}
static int told[THREADS];
static void *work(void *of) {
    number = (int)(long)of;
    for (int i = 0; i < CALLS; i++) look("call", number, i);
    told[number] = handled;
    number = -1;
    done++;
    return of;
}
int main(void) {
    pthread_t all[THREADS];
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = on_signal, .sa_flags = SA_RESTART}, NULL);
    for (long i = 0; i < THREADS; i++) pthread_create(&all[i], NULL, work, (void *)i);
    while (done < THREADS) for (int i = 0; i < THREADS; i++) { pthread_kill(all[i], SIGUSR1); usleep(20); }
    for (int i = 0; i < THREADS; i++) pthread_join(all[i], NULL);
    for (int i = 0; i < THREADS; i++) printf("%d ", told[i]);
    return bad;
}
"""


@case
def threads_that_signals_interrupt(bench):
    """Each call of each thread once and in order, with the path that it gave, and each call of the handlers, wherever a signal comes."""
    program, trace = f"{bench.folder}/interrupted", f"{bench.folder}/trace"
    subprocess.run(["gcc", "-O1", "-pthread", "-x", "c", "-", "-o", program], input=INTERRUPTED, text=True, check=True)
    done = subprocess.run([bench.sptrace, "run", "-q", "--syscalls-only", "-o", trace, "--", program], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    if done.returncode != 0: raise Failed(done.stderr)
    shown = subprocess.run([bench.sptrace, "report", "lines", "-f", "-s", "100", "-i", trace], stdout=subprocess.PIPE, text=True).stdout
    seen = collections.defaultdict(list)
    for kind, number, i in re.findall(r'"/sptrace-(call|signal)-(\d)-(\d+)"', shown): seen[kind, int(number)].append(int(i))
    handled = [int(word) for word in done.stdout.split()]
    if sum(handled) < 100: raise Failed(f"the handler ran {handled} times")
    for number, times in enumerate(handled):
        for kind, expected in (("call", 20000), ("signal", times)):
            found = seen[kind, number][:expected] if kind == "signal" else seen[kind, number]
            if found != list(range(expected)): raise Failed(f"{kind} {number}: {len(found)} of {expected}; first difference at {next((i for i, (a, b) in enumerate(zip(found, range(expected))) if a != b), 'the end')}")


# Threads give paths and buffers to the kernel while another unmaps, protects, and maps them again. Says how often the kernel found nothing there, and how often something.
TAKEN_AWAY = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
enum { PAGE = 4096, AREA = 3 * PAGE };
static char *area;
static atomic_int stop;
static atomic_long nothing, something;
static void *give(void *of) {
    struct stat own;
    for (int n = 0; !stop; n++) {
        int r = n % 3 == 0 ? stat(area + PAGE - 20, (struct stat *)(area + 2 * PAGE)) : n % 3 == 1 ? access(area + 100, F_OK) : stat(area + PAGE - 6, &own);
        if (r < 0 && errno == EFAULT) nothing++; else something++;
    }
    return of;
}
static void map(int flags) {
    area = mmap(area, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    memcpy(area + PAGE - 20, "/etc/passwd", 12);
    strcpy(area + 100, "/tmp");
    strcpy(area + PAGE - 6, "/etc/hostname");
}
static void *take(void *of) {
    for (int n = 0; !stop; n++) {
        if (n % 4 == 0) munmap(area, AREA);
        if (n % 4 == 1) map(MAP_FIXED);
        if (n % 4 == 2) mprotect(area + PAGE, PAGE, PROT_NONE);
        if (n % 4 == 3) mprotect(area + PAGE, PAGE, PROT_READ | PROT_WRITE);
        if (n % 16 == 0) usleep(1);
    }
    return of;
}
int main(int count, char **words) {
    pthread_t all[4];
    map(0);
    for (int i = 0; i < 4; i++) pthread_create(&all[i], NULL, i < 3 ? give : take, NULL);
    usleep(1000000);
    stop = 1;
    for (int i = 0; i < 4; i++) pthread_join(all[i], NULL);
    printf("%ld %ld\n", nothing, something);
}
"""


@case
def memory_that_another_thread_takes_away(bench):
    """The program ends as alone, the kernel finds nothing where nothing is, and the trace shows paths where there was one."""
    program, trace = f"{bench.folder}/taken", f"{bench.folder}/trace"
    subprocess.run(["gcc", "-O1", "-pthread", "-x", "c", "-", "-o", program], input=TAKEN_AWAY, text=True, check=True)
    for _ in range(2):
        done = subprocess.run([bench.sptrace, "run", "-q", "--syscalls-only", "--ring", "2M", "-o", trace, "--", program], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        if done.returncode != 0: raise Failed(f"the program ends with {done.returncode}: {done.stderr}")
        nothing, something = map(int, done.stdout.split())
        if min(nothing, something) < 100: raise Failed(f"nothing {nothing} times, something {something} times")
        shown = subprocess.run([bench.sptrace, "report", "lines", "-f", "-i", trace], stdout=subprocess.PIPE, text=True).stdout
        if '"/etc/hostname"' not in shown or "EFAULT" not in shown: raise Failed(shown[:2000])


# Detached threads of musl unmap their own stacks before they end. Says how many there were.
DETACHED = r"""
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
enum { THREADS = 300 };
static atomic_int done;
static void *work(void *of) {
    struct stat s;
    stat("/sptrace-detached", &s);
    done++;
    return of;
}
int main(void) {
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    for (int i = 0; i < THREADS; i++) { pthread_t t; while (pthread_create(&t, &detached, work, NULL)) usleep(100); }
    while (done < THREADS) usleep(1000);
    usleep(20000);
    printf("%d", done);
}
"""


@case
def threads_that_unmap_their_stacks(bench):
    """musl's detached threads: the two instructions behind which there is no stack are left alone and counted, and all else is seen."""
    if not shutil.which("musl-gcc"): raise Skip("no musl-gcc")
    program, trace = f"{bench.folder}/detached", f"{bench.folder}/trace"
    for form in ([], ["-static"]):
        subprocess.run(["musl-gcc", *form, "-O1", "-x", "c", "-", "-o", program], input=DETACHED, text=True, check=True)
        for options in (["--syscalls-only"], ["--syscalls=all"]):
            done = subprocess.run([bench.sptrace, "run", "-q", *options, "-o", trace, "--", program], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
            if (done.returncode, done.stdout) != (0, "300"): raise Failed(f"{form} {options}: {done}")
            report = lambda *words: subprocess.run([bench.sptrace, "report", *words, "-i", trace], stdout=subprocess.PIPE, text=True).stdout
            if report("lines", "-f").count('"/sptrace-detached"') != 300: raise Failed(f"{form} {options}: not all calls are shown")
            if not re.search(r"\b[2-9] .*instructions that call the kernel and are left alone", report("coverage")): raise Failed(report("coverage"))


FAILING = ["/bin/ls", "-la", "/nonexistent", "/etc"]


@case
def calls_by_their_result(bench):
    """-z and -Z: the lines of strace, and what is not shown is not recorded but where a call or signal came between."""
    if not shutil.which("strace"): raise Skip("no strace")
    theirs, ours, trace = (f"{bench.folder}/{name}" for name in ("theirs", "ours", "trace"))
    quiet = dict(stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    same = lambda line: re.sub(r" +", " ", re.sub(r"0x[0-9a-f]+", "ADDRESS", line))
    # What differs from run to run.
    read = lambda path: [same(l) for l in open(path) if not l.startswith(("set_tid", "getrandom"))]
    total = {}
    for chosen in ("-z", "-Z"):
        subprocess.run(["strace", chosen, "-o", theirs, *FAILING], **quiet)
        by = {"-z": "status=successful", "-Z": "status=failed"}[chosen]
        for options in ([chosen], ["-e", by]):
            done = subprocess.run([bench.sptrace, "run", "-o", trace, f"--live={ours}", *options, "--", *FAILING], **quiet)
            if done.returncode != 2: raise Failed(done.stderr)
            if read(ours) != [l.replace("exited with 0", "exited with 2") for l in read(theirs)]: raise Failed("".join(["strace:\n", *read(theirs), f"--live {options}:\n", *read(ours)]))
            left_out = re.search(r"(\d+) system calls left out by their result", done.stderr)
            if not left_out: raise Failed(done.stderr)
            recorded = subprocess.run([bench.sptrace, "report", "lines", "-i", trace], stdout=subprocess.PIPE, text=True).stdout.splitlines()
            # That of another program, and the last one, which does not end.
            recorded = [l for l in recorded if not l.startswith(("execve", "exit_group"))]
            shown = [l for l in open(ours) if not l.startswith("execve")]
            total[chosen] = len(shown)
            # A call at which the agent asks the host, or whose chunk was full, is recorded all the same.
            if len(recorded) - len(shown) > 5: raise Failed(f"{len(recorded)} lines in the trace, {len(shown)} shown")
            total[chosen, "out"] = int(left_out[1])
    if abs(total["-z", "out"] - total["-Z"]) > 5 or abs(total["-Z", "out"] - total["-z"]) > 5: raise Failed(str(total))


@case
def calls_by_their_length(bench):
    """--min-time: calls that take long are shown, also with a signal in between; others are not recorded."""
    trace = f"{bench.folder}/trace"
    said = subprocess.run([bench.sptrace, "run", "-o", trace, "--live", "--min-time", "50ms", "--", *PROGRAM], stderr=subprocess.PIPE, text=True)
    if said.returncode != 7: raise Failed(said.stderr)
    unwanted = r"openat|mmap|read\("
    if re.search(unwanted, said.stderr) or not re.search(r"\d\d+ system calls left out by", said.stderr): raise Failed(said.stderr)
    recorded = subprocess.run([bench.sptrace, "report", "lines", "-i", trace], stdout=subprocess.PIPE, text=True).stdout
    naps, waits = recorded.count(" clock_nanosleep("), len(re.findall(r"wait4\(-1, \[", recorded)) + recorded.count("wait4 resumed>[")
    if naps != 5 or waits < 5 or len(re.findall(unwanted, recorded)) > 20: raise Failed(recorded)


# Says whether it can be traced by its parent, and who traces it; then it lets itself call read, write and exit only.
WARY = """
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <unistd.h>
int add(int a) { return a + 1; }
int main(int argc, char **argv)
{
    char status[8192] = "";
    FILE *file = fopen("/proc/self/status", "r");
    fread(status, 1, sizeof status - 1, file);
    printf("traced %ld, %.12s, %d\\n", ptrace(PTRACE_TRACEME, 0, 0, 0), strstr(status, "TracerPid"), add(41));
    fflush(stdout);
    if (argc > 1) prctl(PR_SET_SECCOMP, 1, 0, 0, 0);
    write(1, "end\\n", 4);
    syscall(SYS_exit, 0);
    return argv != 0;
}
"""


def watched(bench, words, patterns):
    """What a program prints under --live, which must be what it prints alone, with these lines."""
    live = f"{bench.folder}/lines"
    run = lambda *tool: subprocess.run([*tool, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100)
    alone, done = run(), run(bench.sptrace, "run", "-q", "-o", f"{bench.folder}/trace", "--syscalls-only", f"--live={live}", "-f", "--")
    # Process ids, and addresses that gdb shows.
    same = lambda text: re.sub(r"\d{3,}|0x[0-9a-f]+|(?<=TracerPid:\t)[1-9]|(?<=process )\d+", "N", text)
    if (alone.returncode, same(alone.stdout)) != (done.returncode, same(done.stdout)):
        raise Failed(f"{words[0]} alone: {alone.returncode} {alone.stdout[:1000]}\nunder --live: {done.returncode} {done.stdout[:1000]}")
    lines = open(live, errors="replace").read()
    for pattern in patterns:
        if not re.search(pattern, lines): raise Failed(f"{words[0]}: no line has {pattern!r} among\n{lines[-1500:]}")
    return done.stdout


def wary(bench):
    """The program, built."""
    path = f"{bench.folder}/wary"
    open(f"{path}.c", "w").write(WARY)
    if not shutil.which("gcc") or subprocess.run(["gcc", "-g", "-w", "-o", path, f"{path}.c"]).returncode != 0: raise Skip("no gcc")
    return path


@case
def a_program_that_looks_for_a_debugger(bench):
    """It finds none, also if it can do nothing but read and write then."""
    for more in ([], ["sandbox"]):
        # In strict mode nothing is recorded any more.
        lines = [r"ptrace\(PTRACE_TRACEME.*\) += 0", *([] if more else [r'write\(1, "end'])]
        said = watched(bench, [wary(bench), *more], lines)
        if "traced 0, TracerPid:\t0" not in said: raise Failed(said)


@case
def a_debugger(bench):
    """gdb with a breakpoint, and what it debugs."""
    if not shutil.which("gdb"): raise Skip("no gdb")
    said = watched(bench, ["gdb", "-q", "-nx", "-batch", "-ex", "break add", "-ex", "run", "-ex", "bt", "-ex", "c", wary(bench)], [r"ptrace\(PTRACE_CONT, ", r"wait4\("])
    if "#0  add (a=41)" not in said: raise Failed(said)


@case
def a_change_of_users(bench):
    """A set-id program runs another as another user, under root."""
    if os.getuid() != 0 or not shutil.which("su"): raise Skip("not root, or no su")
    watched(bench, ["su", "nobody", "-s", "/bin/sh", "-c", "id -un"], [r"set(res)?uid\(65534", r'write\(1, "nobody'])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sptrace")
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    sptrace = find_sptrace(options.sptrace)

    def of(function):
        def run():
            with tempfile.TemporaryDirectory() as folder: return function(Bench(sptrace, folder))
        return run
    return run_cases((c.__name__, of(c)) for c in case.chosen(options.only))


if __name__ == "__main__":
    sys.exit(main())
