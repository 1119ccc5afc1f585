#!/usr/bin/env python3
"""Do payloads that run in the slots of calls, without frames, count what the program says, and as those do that have frames?

usage: tests/payload_slots.py [--sptrace PATH] [--only GLOB]...

Programs of which the answers are known: threads, fork and vfork children, setjmp, handlers that walk stacks, callees in assembly
that read flags and registers; and larger ones, whose counts are compared with those of the same script where a limit of depth that
nobody reaches asks for frames. Needs gcc; uses sqlite3, perl and python3.
"""
import csv, json, shutil, subprocess, sys

from harness.bench import main
from harness.case import Cases

PROGRAM = r"""
#define _GNU_SOURCE
#include <execinfo.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#define F __attribute__((noinline, noclone))
volatile long sink;
volatile sig_atomic_t ticks, torn, least = 99;
static jmp_buf out;
F long work(long kind, long size) { sink += size; return kind + size; }
F long both(long kind) { sink++; return kind; }
F void leaves(int n) { if (n % 3 == 0) longjmp(out, 1); sink++; }
F int down(int n) { int below = n ? down(n - 1) + 1 : 0; sink++; return below; }
F void handled(int n) { sink += n; }
static void handler(int n) {
    void *frames[32];
    int depth = backtrace(frames, 32);
    if (depth < least) least = depth;
    handled(n);
    ticks++;
}
F void spin(void) { for (long i = 0; i < 200000; i++) { work(5, i); both(i & 3); } }
static void *thread(void *n) {
    for (long i = 0; i < 20000; i++) work(i % 5, i);
    return n;
}
/* Callees that look at what no C function may. */
long carried(long carry), kept_rax(void), kept_r11(void), kept_overflow(void);
__asm__(".text\n"
    ".macro BEGIN name\n .globl \\name\n .type \\name,@function\n\\name: .cfi_startproc\n .endm\n .macro END name\n .cfi_endproc\n .size \\name,.-\\name\n .endm\n"
    "BEGIN takes_carry\n sbb %rax,%rax\n ret\nEND takes_carry\n"
    "BEGIN takes_rax\n add $1,%rax\n ret\nEND takes_rax\n"
    "BEGIN takes_r11\n lea 2(%r11,%r10),%rax\n ret\nEND takes_r11\n"
    "BEGIN takes_overflow\n seto %al\n movzbl %al,%eax\n ret\nEND takes_overflow\n"
    "BEGIN carried\n bt $0,%rdi\n call takes_carry\n ret\nEND carried\n"
    "BEGIN kept_rax\n mov $41,%eax\n call takes_rax\n ret\nEND kept_rax\n"
    "BEGIN kept_r11\n mov $30,%r11d\n mov $10,%r10d\n call takes_r11\n ret\nEND kept_r11\n"
    "BEGIN kept_overflow\n mov $0x7fffffff,%eax\n add $1,%eax\n call takes_overflow\n ret\nEND kept_overflow\n");
int main(void) {
    void *frames[4];
    pthread_t threads[6];
    struct itimerval every = {{0, 500}, {0, 500}};
    long sum = 0;
    int left = 0;
    backtrace(frames, 4);
    for (int i = 0; i < 6; i++) pthread_create(&threads[i], 0, thread, 0);
    for (int i = 0; i < 6; i++) pthread_join(threads[i], 0);
    for (volatile int i = 0; i < 300; i++) if (setjmp(out) == 0) leaves(i); else left++;
    for (int i = 0; i < 20; i++) sum += down(i * 50);
    if (!fork()) { for (int i = 0; i < 100; i++) work(7, 1); if (!fork()) { work(8, 1); _exit(0); } wait(0); _exit(0); }
    wait(0);
    if (!vfork()) { work(9, 1); _exit(0); }
    wait(0);
    for (int i = 0; i < 4; i++) sum += carried(i) + kept_rax() + kept_r11() + kept_overflow();
    printf("%ld %d\n", sum, left);
    signal(SIGPROF, handler);
    setitimer(ITIMER_PROF, &every, 0);
    long rounds = 0;
    while (ticks < 150) { spin(); rounds++; }
    setitimer(ITIMER_PROF, &(struct itimerval){0}, 0);
    printf("whole: %d\n", least >= 6);
    fprintf(stderr, "%ld %d\n", rounds, ticks);
}
"""
SCRIPT = """
let work = count("work", ["kind"]); let sums = sum("sums", ["kind"], ["n"]); let marks = count("marks", ["what"]); let handled = count("handled", []);
let never = count("never", []); let one = count("one", []); let two = count("two", []);
at("work").on_enter(|c| if c.kind != 4 { work.add(c.kind); }); at("handled").on_enter(|c| handled.add([]));
at("leaves").on_enter(|c| marks.add(1)); at("down").on_enter(|c| marks.add(2)); at("takes_*").on_enter(|c| marks.add(3));
at("both").on_enter(|c| { one.add([]); if c.kind < 0 { never.add([]); } two.add([]); });
record_syscalls("exit_group");
"""
# Calls through pointers of all kinds; of callees with payloads and without.
POINTERS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#define F __attribute__((noinline, noclone))
typedef long call(long, long);
volatile long sink;
volatile sig_atomic_t ticks, least = 99;
static jmp_buf out;
F long work(long kind, long size) { sink += size; return kind + size; }
F long plain(long kind, long size) { sink -= size; return kind - size; }
F long recorded(long kind, long size) { sink ^= size; return kind ^ size; }
F long leaves(long kind, long size) { if (size % 3 == 0) longjmp(out, 1); return kind; }
F long deep(long n, long size) { long below = n ? deep(n - 1, size) + 1 : size; sink++; return below; }
F long many(long a, long b, long c, long d, long e, long f, long g, long h) { return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h; }
F long listed(int n, ...) { va_list l; long sum = 0; va_start(l, n); for (int i = 0; i < n; i++) sum += (long)va_arg(l, double); va_end(l); return sum; }
F const char *caller(void) { static Dl_info i; return dladdr(__builtin_return_address(0), &i) && i.dli_sname ? i.dli_sname : "?"; }
F void handled(int n) { sink += n; }
static void handler(int n) {
    void *frames[32];
    int depth = backtrace(frames, 32);
    if (depth < least) least = depth;
    handled(n);
    ticks++;
}
call *volatile table[] = {work, plain, recorded, work};
call *volatile one = work;
call *volatile down = deep;
call *volatile jumps = leaves;
long (*volatile eight)(long, long, long, long, long, long, long, long) = many;
long (*volatile doubles)(int, ...) = listed;
const char *(*volatile who)(void) = caller;
extern long far(long, long);
static F long each(void) {
    call *local[4];
    long sum = 0;
    for (int i = 0; i < 4; i++) local[i] = table[i];
    for (long i = 0; i < 4000; i++) {
        call *f = one;
        sum += f(1, i);
        sum += one(2, i);
        sum += table[i & 3](3, i);
        sum += local[i * 7 & 3](4, i);
        sum += far(5, i);
        sum += f(6, sum & 7) + f(6, i);
    }
    return sum;
}
static void *thread(void *n) { each(); return n; }
int main(int argc, char **argv) {
    void *frames[4];
    pthread_t threads[4];
    struct itimerval every = {{0, 500}, {0, 500}};
    long sum = 0, left = 0;
    backtrace(frames, 4);
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, thread, 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
    for (volatile int i = 0; i < 300; i++) if (setjmp(out) == 0) jumps(7, i); else left++;
    for (int i = 0; i < 20; i++) sum += down(i * 50, 1);
    for (int i = 0; i < 50; i++) sum += eight(1, 2, 3, 4, 5, 6, 7, i) + doubles(3, 1.0, 2.0, (double)i);
    if (!fork()) { for (int i = 0; i < 100; i++) one(7, 1); if (!fork()) { one(8, 1); _exit(0); } wait(0); _exit(0); }
    wait(0);
    if (!vfork()) { one(9, 1); _exit(0); }
    wait(0);
    for (int i = 0; i < 60; i++) {
        void *library = dlopen(argv[1 + i % 2], RTLD_NOW);
        call *f = (call *)dlsym(library, i % 2 ? "second" : "first");
        for (int k = 0; k < 100; k++) sum += f(10, k);
        dlclose(library);
    }
    printf("%ld %ld %s\n", sum, left, who());
    fflush(stdout);
    signal(SIGPROF, handler);
    setitimer(ITIMER_PROF, &every, 0);
    long rounds = 0;
    while (ticks < 40) { each(); rounds++; }
    setitimer(ITIMER_PROF, &(struct itimerval){0}, 0);
    printf("whole: %d\n", least >= 6);
    fprintf(stderr, "%ld %d\n", rounds, ticks);
}
"""
LIBRARY = r"""
extern volatile long sink;
long NAME(long kind, long size) { sink += size; return kind + ADD * size; }
"""
POINTERS_SCRIPT = """
let work = count("work", ["kind"]); let marks = count("marks", ["what"]);
at("work").on_enter(|c| work.add(c.kind)); at("far").on_enter(|c| marks.add(1)); at("leaves").on_enter(|c| marks.add(2));
at("deep").on_enter(|c| marks.add(3)); at("many").on_enter(|c| marks.add(4)); at("listed").on_enter(|c| marks.add(5));
at("caller").on_enter(|c| marks.add(6)); at("first").on_enter(|c| marks.add(7)); at("second").on_enter(|c| marks.add(8));
"""
# Frames are kept where a depth is asked for, which nobody reaches.
WAYS = {"slots": [], "frames": ["-D", "1000000"]}

case = Cases()


def same(got, wanted):
    if got != wanted: raise AssertionError(f"got {got!r}, not {wanted!r}")


def sheets(b, script):
    """The sheets of the trace, as {title: [values of a row]}."""
    status, out, err = b.sptrace_says("report", "script", "-i", "t.data", "--eval", script, "--format", "json")
    same((status, err), (0, ""))
    return {sheet["title"]: [tuple(row.values()) for row in sheet["rows"]] for sheet in map(json.loads, out.splitlines())}


def not_run(b):
    """Calls whose payload did not run."""
    lines = [line for line in b.report("coverage").splitlines() if "with a payload" in line]
    return sum(int(line.split()[0].replace(",", "")) for line in lines)


@case
def counts_are_the_programs_own(b):
    """In threads, children, through longjmp, and where a handler walks the stack in the middle of a payload."""
    with open(b.path("slots.c"), "w") as out: out.write(PROGRAM)
    subprocess.run(["gcc", "-O2", "-g", "-pthread", "-o", b.path("slots"), b.path("slots.c")], check=True)
    plain = subprocess.run([b.path("slots")], capture_output=True, text=True, check=True)
    for name, way in WAYS.items():
        status, out, err = b.run(["-q", *way, "--eval", SCRIPT], [b.path("slots")])
        same((name, status, out), (name, 0, plain.stdout))
        rounds, ticks = map(int, err.splitlines()[0].split())
        found = sheets(b, SCRIPT)
        spins = 200_000 * rounds
        slack = 0 if name == "slots" else ticks
        kinds = dict(found["work"])
        assert spins <= kinds.pop(5) <= spins + slack, (name, found, spins)
        same(kinds, {kind: 24_000 for kind in range(4)} | {7: 100, 8: 1, 9: 1})
        same(dict(found["marks"]), {1: 300, 2: sum(i * 50 + 1 for i in range(20)), 3: 16})
        assert ticks <= found["handled"][0][0] <= ticks + slack, (name, found, ticks)
        # Of two additions one may be missing, which is counted then.
        one, two, missing = found["one"][0][0], found["two"][0][0], not_run(b)
        assert spins <= one <= spins + slack and spins - missing <= two <= spins + slack, (name, one, two, spins, missing)
        assert missing <= ticks and "never" not in {title for title, rows in found.items() if rows}, (name, missing, found)


def calls_of(b, function):
    status, out, err = b.sptrace_says("report", "functions", "-i", "t.data", "-F", function, "--format", "csv")
    same((status, err), (0, ""))
    rows = list(csv.DictReader(out.splitlines()))
    return sum(int(row["calls"]) for row in rows if row["function"] == function)


@case
def calls_through_pointers_count_the_same(b):
    """By registers, memory, the stack and the PLT; one callee at a site, and several; libraries that come and go at one address."""
    with open(b.path("pointers.c"), "w") as out: out.write(POINTERS)
    with open(b.path("library.c"), "w") as out: out.write(LIBRARY)
    shared = ["gcc", "-O2", "-g", "-shared", "-fPIC", b.path("library.c"), "-o"]
    for name, add in (("far", 1), ("first", 2), ("second", 3)):
        subprocess.run([*shared, b.path(f"lib{name}.so"), f"-DNAME={name}", f"-DADD={add}"], check=True)
    for options in (["-fno-plt"], ["-no-pie"], ["-Wl,-z,lazy"]):
        command = ["gcc", "-O2", "-g", "-pthread", "-rdynamic", *options, b.path("pointers.c"), "-o", b.path("pointers"), b.path("libfar.so"), f"-Wl,-rpath,{b.folder}", "-ldl"]
        subprocess.run(command, check=True)
        program = [b.path("pointers"), b.path("libfirst.so"), b.path("libsecond.so")]
        plain = subprocess.run(program, capture_output=True, text=True, check=True)
        for name, way in WAYS.items():
            status, out, err = b.run(["-q", *way, "--eval", POINTERS_SCRIPT], program)
            same((options, name, status, out), (options, name, 0, plain.stdout))
            rounds, ticks = map(int, err.splitlines()[0].split())
            found = sheets(b, POINTERS_SCRIPT)
            each, missing = 4 + rounds, not_run(b)
            # With frames a call that a walk of the stack moves on is lost, and counted as such.
            slack = 0 if name == "slots" else ticks
            assert missing <= ticks, (name, missing, ticks)
            missing += slack
            kinds, marks = dict(found["work"]), dict(found["marks"])
            for kind, times in ((1, 4000), (2, 4000), (3, 2000), (4, 2000), (6, 8000)):
                assert each * times - missing <= kinds.pop(kind) <= each * times + slack, (options, name, kind, found, rounds)
            same((options, name, kinds), (options, name, {7: 100, 8: 1, 9: 1}))
            assert each * 4000 - missing <= marks.pop(1) <= each * 4000 + slack, (options, name, found)
            same((options, name, marks), (options, name, {2: 300, 3: sum(i * 50 + 1 for i in range(20)), 4: 50, 5: 50, 6: 1, 7: 3000, 8: 3000}))
            for function, kind in (("plain", 2), ("recorded", 2)):
                calls = calls_of(b, function)
                assert each * 1000 * kind - ticks <= calls <= each * 1000 * kind + ticks, (options, name, function, calls, each)


FORKS = r"""
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
typedef long call(long, long);
volatile long sink;
static volatile sig_atomic_t stop;
static void handler(int n) { stop = n; }
__attribute__((noinline)) long use(call *volatile *f, long i) { return (*f)(1, i) + (*f)(2, i); }
__attribute__((noinline)) long late(call *volatile *f, long i) { return (*f)(3, i) + 1; }
int main(int argc, char **argv) {
    call *volatile f = (call *)dlsym(dlopen(argv[1], RTLD_NOW), "first");
    long bad = 0, rounds = 0;
    signal(SIGTERM, handler);
    puts("ready");
    fflush(stdout);
    for (; !stop; rounds++) {
        int status, child;
        for (long i = 0; i < 2000; i++) use(&f, i);
        child = fork();
        if (child == 0) { long sum = 0; for (long i = 0; i < 200; i++) sum += use(&f, i) + late(&f, i); _exit(sum == 0); }
        for (int i = 0; i < 50; i++) late(&f, i);
        waitpid(child, &status, 0);
        bad += status != 0;
    }
    printf("%ld bad, %d\n", bad, rounds > 2);
}
"""


@case
def children_of_a_process_that_was_attached_to_have_what_its_slots_lead_to(b):
    """A library of leaves has no patch, but acts: a child that was forked has its area all the same, or dies of a signal."""
    with open(b.path("forks.c"), "w") as out: out.write(FORKS)
    with open(b.path("leaf.c"), "w") as out: out.write(LIBRARY)
    subprocess.run(["gcc", "-O2", "-g", "-shared", "-fPIC", b.path("leaf.c"), "-o", b.path("libleaf.so"), "-DNAME=first", "-DADD=2"], check=True)
    subprocess.run(["gcc", "-O2", "-g", "-rdynamic", b.path("forks.c"), "-o", b.path("forks"), "-ldl"], check=True)
    script = 'let t = count("t", ["kind"]); at("first").on_enter(|c| t.add(c.kind));'
    with subprocess.Popen([b.path("forks"), b.path("libleaf.so")], stdout=subprocess.PIPE, text=True) as program:
        program.stdout.readline()
        status, _, err = b.sptrace_says("attach", "-q", "-o", "t.data", "--eval", script, "--stop-on", "time:500ms", "-p", str(program.pid))
        program.terminate()
        same((status, program.communicate()[0], program.returncode), (0, "0 bad, 1\n", 0))
    found = dict(sheets(b, script)["t"])
    assert found[1] >= 2000 and found[3] >= 50 and abs(found[1] - found[2]) <= 1, found


DESCRIPTORS = r"""
__thread long kept = 5;
long work(long a) { kept += a; return kept; }
/* Between the call of a descriptor and here the compiler may have values in all registers but rax. */
long across(long a) {
    long held;
    __asm__ volatile("lea 1(%1,%1,2), %0" : "=r"(held) : "r"(a));
    register long r11 __asm__("r11") = held;
    __asm__ volatile("" : "+r"(r11));
    long here = kept;
    __asm__ volatile("" : "+r"(r11));
    return here + r11;
}
"""


@case
def descriptors_of_thread_local_storage_keep_r11(b):
    """Who calls one goes on using what the ABI leaves to nobody at other calls through pointers."""
    with open(b.path("descriptors.c"), "w") as out: out.write(DESCRIPTORS)
    with open(b.path("user.c"), "w") as out: out.write('#include <stdio.h>\nlong across(long), work(long);\nint main(void) { long sum = 0; for (long i = 0; i < 1000; i++) sum += across(i) ^ work(i); printf("%ld\\n", sum); }\n')
    subprocess.run(["gcc", "-O2", "-g", "-shared", "-fPIC", "-mtls-dialect=gnu2", b.path("descriptors.c"), "-o", b.path("libdescriptors.so")], check=True)
    subprocess.run(["gcc", "-O2", b.path("user.c"), "-o", b.path("user"), b.path("libdescriptors.so"), f"-Wl,-rpath,{b.folder}"], check=True)
    plain = subprocess.run([b.path("user")], capture_output=True, text=True, check=True)
    script = 'let t = count("t", ["which"]); at("work").on_enter(|c| t.add(1)); at("across").on_enter(|c| t.add(2)); at("_dl_tlsdesc*").on_enter(|c| t.add(3));'
    for options in (["--count"], ["--stamps", "none"], ["--eval", script]):
        status, out, _ = b.run(["-q", *options], [b.path("user")])
        same((options, status, out), (options, 0, plain.stdout))
    same({which: times for which, times in sheets(b, script)["t"] if which < 3}, {1: 1000, 2: 1000})


def totals(b, script, command):
    """What the sheets of a program hold, by the way in which its payloads run."""
    found = {}
    for name, way in WAYS.items():
        plain = subprocess.run(command, capture_output=True, text=True, env=b.env, cwd=b.folder, stdin=subprocess.DEVNULL)
        status, out, _ = b.run(["-q", *way, "--eval", script], command)
        same((name, status, out), (name, plain.returncode, plain.stdout))
        found[name] = sheets(b, script)
        same(not_run(b), 0)
    return found


def larger(b, globs, command):
    """Counts of functions, each by a number of its own."""
    if shutil.which(command[0]) is None: return
    script = 'let t = count("t", ["which"]);' + "".join(f'at("{glob}").on_enter(|c| t.add({i}));' for i, glob in enumerate(globs)) + 'record_syscalls("exit_group");'
    found = totals(b, script, [shutil.which(command[0]), *command[1:]])
    same(found["slots"], found["frames"])
    assert sum(count for _, count in found["slots"]["t"]) > 1000, found


@case
def a_database_counts_the_same(b):
    larger(b, ["*"], ["sqlite3", ":memory:", "create table t(a, b); with recursive n(i) as (select 1 union all select i + 1 from n where i < 2000) insert into t select i, i * 7 % 13 from n; select b, count(*), sum(a) from t group by b;"])


@case
def perl_counts_the_same(b):
    b.env["PERL_HASH_SEED"] = "0"
    larger(b, ["Perl_*"], ["perl", "-e", 'my %h; for (1..20000) { $h{$_ % 100} += $_; } print join(",", map { "$_=$h{$_}" } sort keys %h), "\\n"; print sprintf("%s %s\\n", lc("ABC"), reverse("abc"));'])


@case
def python_counts_the_same(b):
    b.env["PYTHONHASHSEED"] = "0"
    larger(b, ["PyList_*", "PyLong_*", "_PyLong_*", "PyUnicode_*"], ["python3", "-S", "-E", "-c", "print(sum(int(str(i)) for i in range(20000)), sorted(str(i) for i in range(500))[7])"])


if __name__ == "__main__": sys.exit(main(case, __doc__))
