#!/usr/bin/env python3
"""Do the ready scripts about memory, locks, names, processes and threads answer their questions of programs of which the answers
are known?

usage: tests/ready_scripts.py [--sptrace PATH] [--only GLOB]...

Each script is run by its name; what does not change from run to run must be as stated here, and what its header shows as a sample
must look like what it prints. The other ready scripts have their cases in tests/scripts.py. Needs gcc; for TLS openssl with its
header files; for Python python3.12 or later, and python3.8 to python3.10.
"""
import csv, glob, io, os, re, shutil, ssl, socket, subprocess, sys, threading

from harness.bench import main
from harness.case import ROOT, Cases, Skip

PROGRAM = r"""
#define _GNU_SOURCE
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>
#define F __attribute__((noinline, noclone))
volatile int sink;
void *volatile kept[100];
pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
pthread_rwlock_t shared = PTHREAD_RWLOCK_INITIALIZER;
pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t ready = PTHREAD_COND_INITIALIZER;
int is_ready;
F void rest(int ms) { struct timespec t = {0, ms * 1000000}; nanosleep(&t, 0); sink++; }
F void next_char(int n) { sink += n; }
F void parse_number(int n) { sink += n; }
F void parse_text(int n) { sink += n; }
F void parse(const char *s) {
    for (; *s; s++) { next_char(*s); if (*s == 't') parse_text(1); if (*s == 'n') parse_number(2); }
    sink++;
}
F void keep(int n) { kept[n] = malloc(100); sink++; }
F void use(int n) { void *p = calloc(1, n); p = realloc(p, 2 * n); kept[99] = p; free(p); sink++; }
F void align(void) { void *p; if (!posix_memalign(&p, 64, 1000)) kept[98] = p; sink++; }
F void refuse(void) { kept[97] = malloc((size_t)1 << 62); sink++; }
static void *frees(void *p) { free(p); return 0; }
F void heap(void) {
    pthread_t other;
    for (int i = 0; i < 10; i++) { keep(i); use(50); }
    align();
    refuse();
    pthread_create(&other, 0, frees, kept[0]);
    pthread_join(other, 0);
    sink++;
}
F void under_lock(void) { pthread_mutex_lock(&mutex); rest(2); pthread_mutex_unlock(&mutex); sink++; }
F void wait_ready(void) {
    pthread_mutex_lock(&mutex);
    while (!is_ready) pthread_cond_wait(&ready, &mutex);
    pthread_mutex_unlock(&mutex);
}
F void pass_gate(void) { pthread_mutex_lock(&gate); sink++; pthread_mutex_unlock(&gate); }
static void *locker(void *n) {
    pass_gate();
    wait_ready();
    for (int i = 0; i < 5; i++) under_lock();
    pthread_rwlock_rdlock(&shared); sink++; pthread_rwlock_unlock(&shared);
    return n;
}
F void locks(void) {
    pthread_t threads[2];
    pthread_mutex_lock(&gate);
    for (int i = 0; i < 2; i++) pthread_create(threads + i, 0, locker, 0);
    rest(200);
    pthread_mutex_unlock(&gate);
    rest(100);
    pthread_mutex_lock(&mutex); is_ready = 1; pthread_cond_broadcast(&ready); pthread_mutex_unlock(&mutex);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    sink++;
}
char buffer[100];
F void copy(const char *s) { strcpy(buffer, s); sink += strlen(s); sink += strcmp(s, "hello"); }
F void strings(void) { for (int i = 0; i < 10; i++) copy(i % 2 ? "odd" : "even"); sink++; }
F void look_up(void) {
    struct addrinfo *found;
    if (!getaddrinfo("127.0.0.1", "80", 0, &found)) freeaddrinfo(found);
    getaddrinfo("no.such.invalid", "80", &(struct addrinfo){.ai_flags = AI_NUMERICHOST}, &found);
    sink++;
}
F void crash(int n) { next_char(n); if (n) *(volatile int *)0 = 1; sink++; }
F void load(int n) { parse("nn"); crash(n); sink++; }
F void drop(void) { prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); if (setuid(getuid())) abort(); sink++; }
F void regain(void) { if (chroot("/no/such/folder") == 0) abort(); sink++; }
F void flush(void) { sink++; }
F void on_alarm(int n) { flush(); next_char(n); sink++; }
F void ring(void) { for (int i = 0; i < 5; i++) { raise(SIGALRM); parse("n"); } sink++; }
F void first_phase(void) { rest(5); sink++; }
F void second_phase(void) { rest(5); sink++; }
F void phases(void) { for (int i = 0; i < 100; i++) { first_phase(); second_phase(); } sink++; }
F int give(int n) { next_char(n); sink++; return n % 4 == 3 ? -1 : n; }
F void errors(void) { for (int i = 0; i < 20; i++) { give(i); next_char(i); } sink++; }
F void hot(void) { for (int i = 0; i < 10000000; i++) next_char(i); sink++; }
int main(int argc, char **argv) {
    const char *mode = argv[1];
    if (!strcmp(mode, "heap")) heap();
    else if (!strcmp(mode, "locks")) locks();
    else if (!strcmp(mode, "strings")) strings();
    else if (!strcmp(mode, "dns")) look_up();
    else if (!strcmp(mode, "crash")) load(1);
    else if (!strcmp(mode, "privileges")) { drop(); regain(); }
    else if (!strcmp(mode, "handler")) { signal(SIGALRM, on_alarm); ring(); }
    else if (!strcmp(mode, "phases")) phases();
    else if (!strcmp(mode, "hot")) hot();
    else if (!strcmp(mode, "errors")) errors();
    else parse(mode);
    return 0;
}
"""

# With what each script is run for its sample, and the program.
SAMPLES = {
    "heap": ("--depth=1", "heap"),
    "locks": ("--depth=1 --wait=1ms", "locks"),
    "strings": ("--top=3", "strings"),
    "dns": ("", "dns"),
    "thread-states": ("", "locks"),
    "rate-limit": ("--top=2", "hot"),
    "privileges": ("--depth=2", "privileges"),
    "crash-context": ("--last=3", "crash"),
    "first-error": ("--of=chroot --last=3", "privileges"),
    "stagger": ("--groups=first*,second* --slice=300ms", "phases"),
    "window": ("--call=second_phase --for=100ms --top=3", "phases"),
    "handler": ("--of=on_alarm", "handler"),
    "divergence": ("--of=prog", None),
}
case = Cases()


def program(b):
    """The program, built once for all cases."""
    path = os.path.join(os.path.dirname(b.folder), "prog")
    if not os.path.exists(path):
        with open(path + ".c", "w") as out: out.write(PROGRAM)
        subprocess.run(["gcc", "-O1", "-fno-builtin", "-g", "-pthread", "-o", path, path + ".c"], check=True)
    return path


def run(b, script, mode, status=0):
    """Runs the program; gives what was said."""
    command = [program(b), mode] if mode else ["sh", "-c", f"{program(b)} ntn; {program(b)} ntt; true"]
    got, out, err = b.run(["-q", "-S", script], command)
    assert (got, out) == (status, ""), (got, out, err)
    return err


def tables(b, *words):
    """What a script makes of the trace: its tables, each a list of rows."""
    status, out, err = b.sptrace_says("report", "script", "-i", "t.data", "--format", "csv", *words)
    assert (status, err) == (0, ""), (status, err)
    return [list(csv.DictReader(io.StringIO(part, newline=""))) for part in out.split("\n\n")]


def of(rows, key, value, *columns):
    """The cells of the rows in which a column has a value."""
    return [tuple(row[c] for c in columns) for row in rows if row[key] == value]


def same(got, want): assert got == want, f"wanted {want}, got {got}"


@case
def heap(b):
    """Ten blocks of 100 bytes are kept, of which another thread frees one; what is got is freed again but for one aligned block."""
    run(b, "heap", "heap")
    memory, stacks = tables(b, "heap", "--", "--depth=1", "--min=0", "--top=1000")
    columns = ("live_blocks", "live_bytes", "allocated_blocks", "allocated_bytes")
    same(of(stacks, "stack", "keep", *columns), [("9", "900", "10", "1000")])
    # calloc of 50 and realloc to 100, ten times.
    same(of(stacks, "stack", "use", *columns), [("0", "0", "20", "1500")])
    same(of(stacks, "stack", "align", *columns), [("1", "1000", "1", "1000")])
    same(of(memory, "what", "refused", "blocks"), [("1",)])
    assert not of(memory, "what", "calls without values", "blocks"), memory
    [(live,)] = of(memory, "what", "live at the end", "bytes")
    same(int(live), sum(int(row["live_bytes"]) for row in stacks))


@case
def locks(b):
    """Two threads wait at a mutex that main holds for 200 ms, then for a condition, and hold another mutex for 2 ms, five times each."""
    run(b, "locks", "locks")
    rows, waits, conditions = tables(b, "locks", "--", "--depth=1", "--wait=10ms")
    [gate] = [row for row in rows if row["kind"] == "mutex" and row["first_locked_by"] == "locks"]
    same(gate["count"], "3")
    assert int(gate["waited"]) == 2 and int(gate["wait_ns"]) > 100_000_000 and int(gate["max_held_ns"]) > 150_000_000, gate
    same(of(waits, "stack", "pass_gate", "lock", "count"), [(gate["lock"], "2")])
    [mutex] = [row for row in rows if row["kind"] == "mutex" and row["first_locked_by"] == "wait_ready"]
    # Each thread once for the condition, and five times; and main.
    same(mutex["count"], "13")
    assert int(mutex["held_ns"]) > 20_000_000 and int(mutex["max_held_ns"]) > 2_000_000, mutex
    same([(row["kind"], row["count"]) for row in rows if row["first_locked_by"] == "locker"], [("rwlock", "2")])
    same([(row["stack"], row["count"]) for row in conditions], [("wait_ready", "2")])
    assert int(conditions[0]["total_ns"]) > 30_000_000, conditions


@case
def strings(b):
    run(b, "strings --text=strcmp", "strings")
    calls, texts = tables(b, "strings", "--", "--text=strcmp", "--top=1000")
    own = {row["function"]: row["count"] for row in calls if row["caller"] == "copy"}
    same(own, {"strcpy": "10", "strlen": "10", "strcmp": "10"})
    same((of(texts, "text", "odd", "count"), of(texts, "text", "even", "count")), ([("5",)], [("5",)]))


@case
def dns(b):
    run(b, "dns", "dns")
    lookups = tables(b, "dns")[0]
    same([(row["name"], row["result"], row["caller"]) for row in lookups], [("127.0.0.1", "ok", "look_up"), ("no.such.invalid", "not known", "look_up")])


CLIENT = r"""
#include <openssl/ssl.h>
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
int main(int argc, char **argv) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1]))};
    char answer[100];
    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    int s = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(s, (struct sockaddr *)&to, sizeof to)) abort();
    SSL *ssl = SSL_new(SSL_CTX_new(TLS_client_method()));
    SSL_set_tlsext_host_name(ssl, "shop.example");
    SSL_set_fd(ssl, s);
    if (SSL_connect(ssl) != 1) abort();
    if (SSL_write(ssl, "hello world!", 12) != 12) abort();
    int got = SSL_read(ssl, answer, sizeof answer);
    printf("%d\n", got);
    SSL_shutdown(ssl);
    return 0;
}
"""


def tls_server(b):
    """A server that answers once; its port."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", b.path("key.pem"), "-out", b.path("cert.pem"), "-days", "2", "-subj", "/CN=shop.example"], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(b.path("cert.pem"), b.path("key.pem"))
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        with listener, context.wrap_socket(listener.accept()[0], server_side=True) as peer:
            if peer.recv(100): peer.sendall(b"welcome")

    threading.Thread(target=serve, daemon=True).start()
    return listener.getsockname()[1]


@case
def tls(b):
    if not os.path.exists("/usr/include/openssl/ssl.h"): raise Skip("no header files of openssl")
    with open(b.path("client.c"), "w") as out: out.write(CLIENT)
    subprocess.run(["gcc", "-O1", "-o", b.path("client"), b.path("client.c"), "-lssl", "-lcrypto"], check=True)
    status, out, err = b.run(["-q", "-S", "tls"], [b.path("client"), str(tls_server(b))])
    same((status, out), (0, "7\n"))
    connections, calls = tables(b, "tls")
    same([tuple(row[c] for c in ("host", "handshakes", "failed", "sent_bytes", "received_bytes")) for row in connections], [("shop.example", "1", "0", "12", "7")])
    same({row["function"]: row["count"] for row in calls}, {"SSL_connect": "1", "SSL_write": "1", "SSL_read": "1"})
    assert int(connections[0]["handshake_ns"]) > 100_000, connections


@case
def thread_states(b):
    run(b, "thread-states", "locks")
    [rows] = tables(b, "thread-states")
    workers = [row for row in rows if int(row["sleep_ns"]) < 150_000_000]
    same((len(rows), len(workers)), (3, 2))
    for row in workers: assert row["thread"] == "prog" and int(row["sleep_ns"]) > 10_000_000 and int(row["locks_ns"]) > 8_000_000, rows
    for row in rows: same(int(row["life_ns"]), sum(int(row[f"{state}_ns"]) for state in ("running", "locks", "sleep", "events", "files", "network", "children", "other")))


@case
def divergence(b):
    err = run(b, "divergence --of=prog", None)
    [rows] = tables(b, "divergence", "--", "--of=prog")
    same([(row["run"], row["calls_in_common"], row["then_calls"], row["before_it"]) for row in rows], [("first", "6", "parse_number", "next_char, parse_text, next_char"), ("second", "6", "parse_text", "next_char, parse_text, next_char")])
    same({row["in"].split(" > ")[-1] for row in rows}, {"parse"})
    status, _, err = b.run(["-q", "-S", "divergence --of=prog"], ["sh", "-c", f"{program(b)} ntn; {program(b)} ntn; true"])
    assert status == 0 and re.search(r"no divergence: both runs of prog make the same \d+ calls", err), err


@case
def rate_limit(b):
    """Exactly ten million calls, most of them counted."""
    run(b, "rate-limit", "hot")
    [rows] = tables(b, "rate-limit", "--", "--top=1000")
    [(recorded, counted)] = of(rows, "function", "next_char", "recorded", "counted")
    same(int(recorded) + int(counted), 10_000_000)
    assert int(counted) > 5_000_000 and of(rows, "function", "hot", "recorded", "counted") == [("1", "0")], rows


@case
def privileges(b):
    run(b, "privileges", "privileges")
    rows = tables(b, "privileges", "--", "--depth=2")[0]
    seen = [(re.sub(r"\(.*", "", row["call"]), row["result"], row["stack"]) for row in rows]
    for call in [("prctl", "0", "drop > prctl"), ("setuid", "0", "drop > setuid"), ("chroot", "ENOENT", "regain > chroot")]: assert call in seen, (call, seen)


@case
def crash_context(b):
    run(b, "crash-context", "crash", -11)
    killed, opened, before = tables(b, "crash-context", "--", "--last=3")
    same([row["signal"] for row in killed], ["SIGSEGV"])
    same([row["function"] for row in opened if row["module"] == "prog"], ["main", "load", "crash"])
    same([(row["function"], row["caller"]) for row in before], [("parse", "load"), ("parse_number", "parse"), ("next_char", "crash")])
    # The same out of a ring, of which nothing is written before.
    err = run(b, "crash-context --ring=4m --last=3", "crash", -11)
    assert re.search(r"load +prog\n.* crash +prog\n", err), err
    assert "no process was killed" in run(b, "crash-context", "strings")


@case
def first_error(b):
    """Of a program that goes on: the call that failed first, who made it, and what was called before it."""
    err = run(b, "first-error --of=chroot --last=3", "privileges")
    failed, before = tables(b, "first-error", "--", "--of=chroot", "--last=3")
    same([(row["function"], row["errno"], row["stack"].split(" > ")[-2:]) for row in failed], [("chroot", "", ["main", "regain"])])
    same([row["function"] for row in before], ["drop", "getuid", "setuid"])
    assert "the first failure" in err, err
    # errno is known where a prototype is.
    run(b, "first-error --of=malloc --null", "heap")
    failed, before = tables(b, "first-error", "--", "--of=malloc", "--null")
    same([(row["function"], row["errno"], row["stack"].split(" > ")[-1]) for row in failed], [("malloc", "ENOMEM", "refuse")])
    # Without a prototype the result is known as a whole register.
    subprocess.run(["strip", "-g", "-o", b.path("bare"), program(b)], check=True)
    for command, sample in [([program(b), "errors"], "with"), ([b.path("bare"), "errors"], "without a prototype")]:
        status, out, err = b.run(["-q", "-S", "first-error --of=give"], command)
        same((sample, status, out), (sample, 0, ""))
        failed, before = tables(b, "first-error", "--", "--of=give")
        same([(sample, row["function"], row["stack"].split(" > ")[-1]) for row in failed], [(sample, "give", "errors")])
        same([row["function"] for row in before][-4:], ["give", "next_char", "next_char", "next_char"])
    # Nothing is written where nothing fails, and what lies there from before is not taken for it.
    before = open(b.path("t.data"), "rb").read()
    err = run(b, "first-error --of=next_char", "errors")
    assert "no trace was written" in err and open(b.path("t.data"), "rb").read() == before, err


@case
def stagger(b):
    """Two functions are called in turn, a hundred times each in a second: one is recorded for 300 ms, then the other."""
    run(b, "stagger --groups=first*,second* --slice=300ms", "phases")
    [rows] = tables(b, "stagger", "--", "--groups=first*,second*")
    same([row["function"] for row in rows], ["first_phase", "second_phase"])
    for row in rows: assert 1 <= int(row["count"]) <= 60, rows
    assert int(rows[0]["last_ns"]) <= int(rows[1]["first_ns"]) + 50_000_000, rows


@case
def window(b):
    run(b, "window --call=second_phase --for=100ms", "phases")
    [rows] = tables(b, "window", "--", "--top=1000")
    [(count,)] = of(rows, "function", "first_phase", "count")
    assert 2 <= int(count) <= 30 and not of(rows, "function", "phases", "count"), rows
    err = run(b, "window --after=50ms --for=50ms", "phases")
    assert "second_phase" in err, err


@case
def handler(b):
    run(b, "handler --of=on_alarm", "handler")
    entries, inside = tables(b, "handler", "--", "--of=on_alarm")
    same(of(entries, "entry", "on_alarm", "count"), [("5",)])
    same(sorted((row["stack"], row["count"]) for row in inside), [("on_alarm > flush", "5"), ("on_alarm > next_char", "5")])
    assert "parse" not in b.report("functions")


PYTHON = """
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
class Shape:
    def area(self): return sorted([3, 1, 2], key=lambda n: -n)
for i in range(5): Shape().area()
print(fib(8))
"""


def a_python(minors, *flags):
    """A Python that names its functions: of these versions, with symbols."""
    for minor in minors:
        known = [shutil.which(f"python3.{minor}"), *glob.glob(os.path.expanduser(f"~/.pyenv/versions/3.{minor}.*/bin/python3.{minor}"))]
        for path in filter(None, known):
            if subprocess.run([path, *flags, "-c", ""], capture_output=True).returncode == 0: return path, f"3.{minor}"
    raise Skip(f"no python3.{minors[0]}")


@case
def python(b):
    with open(b.path("shapes.py"), "w") as out: out.write(PYTHON)
    path, _ = a_python((14, 13, 12), "-X", "perf")
    status, out, err = b.run(["-q", "-S", "python"], [path, "-X", "perf", "shapes.py"])
    same((status, out), (0, "21\n"))
    [rows] = tables(b, "python", "--", "--top=10000")
    own = {row["function"]: row["count"] for row in rows if row["file"] == "shapes.py"}
    same(own, {"<module>": "1", "Shape": "1", "fib": "67", "Shape.area": "5", "Shape.area.<locals>.<lambda>": "15"})


@case
def python_from_the_interpreters_frames(b):
    with open(b.path("shapes.py"), "w") as out: out.write(PYTHON)
    path, version = a_python((10, 9, 8))
    # A build without symbols has no function by that name.
    linked = subprocess.run(["ldd", path], capture_output=True, text=True).stdout
    library = re.search(r"=> (\S*libpython\S*)", linked)
    if "PyEval_EvalFrameDefault" not in subprocess.run(["nm", library[1] if library else path], capture_output=True, text=True).stdout: raise Skip(f"{path} has no symbols")
    status, out, err = b.run(["-q", "-S", f"python --version={version}"], [path, "shapes.py"])
    same((status, out), (0, "21\n"))
    [rows] = tables(b, "python", "--", "--top=10000", f"--version={version}")
    own = {row["function"]: row["count"] for row in rows if row["file"] == "shapes.py"}
    same(own, {"<module>": "1", "Shape": "1", "fib": "67", "area": "5", "<lambda>": "15"})


@case
def samples_in_headers_look_like_what_is_printed(b):
    """Titles and heads of columns, to the letter but for blanks; numbers change."""
    heads = lambda lines: [line.split() for line in lines if line.strip()]
    for name, (given, mode) in SAMPLES.items():
        with open(os.path.join(ROOT, "scripts", f"{name}.rhai")) as script: text = script.read()
        header = text[text.index("// Sample:"):].split("\n\n")[0].splitlines()[1:]
        sample = [line.removeprefix("//") for line in header]
        err = run(b, f"{name} {given}", mode, -11 if mode == "crash" else 0)
        same((name, heads(sample)[:2]), (name, heads(line for line in err.splitlines() if not line.startswith("sptrace: "))[:2]))


if __name__ == "__main__":
    sys.exit(main(case, __doc__))
