#!/usr/bin/env python3
"""Do scripts choose just the calls that are meant: by pattern, file of the source, caller, field, and what is known of a function?

usage: tests/choosing.py [--sptrace PATH] [--only GLOB]...

A program of two files of which each call is known; what it prints must be what it prints alone. Needs gcc.
"""
import re, socket, subprocess, sys, threading

from harness.bench import main
from harness.case import Cases

SHOP = r"""
#include <stdio.h>
#include <stdlib.h>
#define F __attribute__((noinline, noclone))
struct order { int number; signed char kind; struct { long cents; } price; void *owner; };
volatile long sink;
F long total(struct order *o) { sink++; return o ? o->price.cents * 2 : 0; }
F void *box(int n) { return malloc(n); }
long report(int n);
F long price(int kind) { long sum = 0; for (volatile int i = 0; i < kind; i++) sum += i; return sum; }
F void handle(int n) {
    struct order o = {n, -(n % 3), {n * 100L}, 0};
    free(box(32 + n % 2));
    sink += price(n % 3) + total(&o) + report(n);
}
int main(void) { for (int n = 0; n < 60; n++) handle(n); total(0); price(7); puts("done"); }
"""

REPORT = r"""
#define F __attribute__((noinline, noclone))
volatile long lines;
F long line(int n) { return lines += n; }
F long report(int n) { return line(n) + line(n + 1); }
"""

case = Cases()


def same(got, want): assert got == want, f"wanted {want}, got {got}"


def built(b):
    for name, text in (("shop", SHOP), ("report", REPORT)):
        with open(b.path(f"{name}.c"), "w") as out: out.write(text)
    subprocess.run(["gcc", "-O1", "-g", "-o", "shop", "shop.c", "report.c"], check=True, cwd=b.folder)
    return b.path("shop")


def said(b, script, *options):
    """What sptrace has said, after the program has run as without it."""
    status, out, err = b.run([*options, "--eval", script], [built(b)])
    same((status, out), (0, "done\n"))
    return err


def rows(err):
    """The rows of sheets: words, the last of which is a number."""
    found = (re.fullmatch(r" +(.*\S) +([\d,]+)", line) for line in err.splitlines())
    return {" ".join(row[1].split()): int(row[2].replace(",", "")) for row in found if row}


def counted(b, place, key="1", handler="on_enter", by="c"):
    return rows(said(b, f'let n = count("n", ["key"]); {place}.{handler}(|{by}| n.add({key}));'))


@case
def regular_expressions(b):
    """/.../ stands wherever a glob does, in payloads, handlers and the policy; a wrong one is refused at its place."""
    same(counted(b, 'at("/^(price|total)$/")'), {"1": 61 + 61})
    same(counted(b, 'at("sho*!/^tot/")', "e.name", "later", "e"), {"total": 61})
    got = counted(b, 'leave_out("/^(handle|free)/"); module("/^shop$/"); at("shop!/./")', "e.name", "later", "e")
    assert "main" in got and got["total"] == 1 and "handle" not in got, got
    status, out, err = b.run(["--eval", 'at("/pri(/").on_enter(|c| c.record())'], ["/bin/true"])
    same((status, out), (2, ""))
    for words in ("--eval:1:1:", "/pri(/ is no regular expression", "^"):
        assert words in err, err


@case
def by_the_file_of_the_source(b):
    """in_file(GLOB) chooses functions by where they begin, for payloads and handlers; what fits none is told."""
    same(counted(b, 'at("*").in_file("report.c")'), {"1": 60 * 3})
    same(counted(b, 'at("*").in_file("/rep.*c$/")', "e.name", "later", "e"), {"line": 120, "report": 60})
    same(counted(b, 'at("l*").in_file("*/report.c")', "e.name", "begins", "e"), {"line": 120})
    err = said(b, 'let n = count("n", []); at("price").in_file("report.c").on_enter(|c| n.add([]))')
    assert 'no function matches at("price").in_file("report.c")' in err, err


@case
def by_the_caller(b):
    """called_by(GLOB) is a call edge, across modules too; payloads add to sheets there, and do nothing else."""
    for handler, by in (("on_enter", "c"), ("later", "e"), ("begins", "e")):
        same(counted(b, 'at("total").called_by("handle")', "1", handler, by), {"1": 60})
        same(counted(b, 'at("total").called_by("shop!/^main$/")', "1", handler, by), {"1": 1})
    # The first call of malloc comes by way of the lazy resolver, which is nobody's caller.
    same(counted(b, 'at("malloc").called_by("shop!box")', "c.arg1"), {"32": 30, "33": 30})
    same(counted(b, 'at("malloc").called_by("shop!box")', "c.result != 0", "on_exit"), {"1": 60})
    got = counted(b, 'at("malloc")', "c.stack(3)")
    same([n for stack, n in got.items() if "box" in stack], [60])
    same(counted(b, 'at("price").called_by("main")', "c.result", "on_exit"), {"21": 1})
    # The same sheet by several edges, and beside a payload of all calls.
    err = said(b, 'let n = count("n", ["who"]); at("price").called_by("main").on_enter(|c| n.add(1)); '
               'at("price").called_by("handle").on_enter(|c| n.add(2)); at("price").on_enter(|c| n.add(3))')
    same(rows(err), {"1": 1, "2": 60, "3": 61})
    for does in ("c.record()", "c.stop()"):
        status, out, err = b.run(["--eval", f'at("price").called_by("main").on_enter(|c| {does})'], [built(b)])
        same((status, out), (2, ""))
        assert "SHEET.add(...) alone" in err and "leave called_by(GLOB) out" in err, err


@case
def fields_by_name(b):
    """c.NAME.FIELD is a number in what an argument points to, with its sign and width; what cannot be read is 0."""
    got = counted(b, 'at("total")', "c.o.kind")
    same(got, {"-2": 20, "-1": 20, "0": 21})
    err = said(b, 'let s = sum("s", [], ["cents"]); at("total").on_enter(|c| if c.o.number > 1 && c.o.price.cents >= 100 { s.add(c.o.price.cents) });')
    assert re.search(r"^ +58 +176,900$", err, re.M), err
    err = said(b, 'let n = count("n", []); at("total").on_enter(|c| if c.o.colour == 1 { n.add([]) })')
    assert "total has no field 'o.colour' that is known" in err, err
    # Two fields in two words, a text, and two beginnings of texts of two lengths: five to be read.
    err = said(b, 'let n = count("n", []); at("total").on_enter(|c| if c.o.number == 1 && c.o.price.cents == 2 && c.arg1 == "x" '
               '&& c.arg1.starts_with("a") && c.arg1.starts_with("bc") { n.add([]) })')
    assert "more than 4 texts and fields" in err, err
    # At a return it is what is there then; total changes nothing.
    same(counted(b, 'at("total")', "c.o.kind", "on_exit"), {"-2": 20, "-1": 20, "0": 21})


@case
def what_is_known_of_functions(b):
    """propagate(|f| ...) knows leaf, loops, file, line and prototype; not_below(GLOB) makes leaves."""
    err = said(b, 'propagate(|f| { if f.module == "shop" && f.file != "" '
               '{ print(`${f.name} ${f.leaf} ${f.loops} ${f.file} ${f.line} ${f.prototype}`) } record });')
    known = {line.split()[0]: line for line in err.splitlines() if ".c " in line}
    for name, leaf, loops, place in (("total", "true", "false", "shop.c 7"), ("price", "true", "true", "shop.c 10"),
                                     ("handle", "false", "false", "shop.c 11"), ("report", "false", "false", "report.c 5")):
        words = known[name].split()
        same(words[1:3], [leaf, loops])
        assert place in known[name], known[name]
    assert "price" in known["price"].split(None, 5)[-1] and "kind" in known["price"], known["price"]
    got = counted(b, 'not_below("report"); at("/^(line|report)$/")', "e.name", "later", "e")
    same(got, {"report": 60})
    got = counted(b, 'propagate(|f| if f.leaf { skip }); at("shop!/^(line|report|total)$/")', "e.name", "later", "e")
    same(got, {"report": 60})


@case
def results_that_two_options_ask_for(b):
    """-R NAME beside a spec that says what NAME gives: nothing is missing."""
    for first, second in (("total@retval/d64", "total"), ("total", "total@retval/d64")):
        assert "no prototype" not in said(b, "", "-R", first, "-R", second)
    for first, second in (("getpid@retval/d32", "getpid"),):
        assert "no prototype" not in said(b, "", "-R", first, "-R", second)


@case
def a_connection_that_is_not_waited_for(b):
    """What goes over a socket whose connect(2) says EINPROGRESS belongs to the peer."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        threading.Thread(target=lambda: server.accept()[0].recv(9), daemon=True).start()
        program = ("import socket, select; s = socket.socket(); s.setblocking(False); s.connect_ex(('127.0.0.1', %d)); "
                   "select.select([], [s], []); s.send(b'hello')" % port)
        status, _, err = b.run(["-S", "network"], [sys.executable, "-c", program])
    assert status == 0 and re.search(rf"127\.0\.0\.1:{port} +\d .* 5 bytes", err), err


if __name__ == "__main__":
    sys.exit(main(case, __doc__))
