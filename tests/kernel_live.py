#!/usr/bin/env python3
"""Lines of the kernel's frames while they happen: `sptrace ktrace --live` to a serial line, files and commands, in guests.

usage: tests/kernel_live.py [--sptrace PATH] [--kernel VERSION]... [--only GLOB]... [--list] [--keep FOLDER]

Given: a built sptrace, cc, and what tests/vm/run needs; without one of these all is skipped, in one line. Gives: one line a case
and kernel, then `N passed, N failed` alone on the last line; status 1 if anything failed. tests/vm/live.sh records in each guest
what is looked at here. Must not know: how sptrace works.
"""
import collections, os, re, subprocess, sys, tempfile

import guest
from harness.case import Cases

case = Cases()
BEGIN, END, INSTANT = r"(\d+\.\d{6}) (\d+) (.+) \{", r"(\d+\.\d{6}) (\d+) \} (.+) (\d+) us", r"(\d+\.\d{6}) (\d+) ([^{}]+)"
# A line of 115200 bit/s, with a start bit and a stop bit for each byte.
SERIAL_BYTES_A_SECOND = 11520


def lines(text):
    """Names of what began, of what ended, and of the rest; all lines must be whole."""
    found = collections.Counter()
    for line in text.splitlines():
        kind = next((k for k, form in (("begin", BEGIN), ("end", END), ("instant", INSTANT)) if re.fullmatch(form, line)), None)
        assert kind, f"no line of ours: {line!r}"
        found[kind, re.fullmatch({"begin": BEGIN, "end": END, "instant": INSTANT}[kind], line)[3]] += 1
    return found


@case
def a_serial_line_has_what_was_chosen_and_bears_it(g):
    g.recorded("serial")
    text = g.read(".serial")
    found = lines(text)
    writes = g.counts("serial", "[system calls]")["write"]
    assert set(found) <= {("begin", "write"), ("end", "write")} and found["begin", "write"] == found["end", "write"] == writes > 200, (found, writes)
    seconds = len(text) / SERIAL_BYTES_A_SECOND
    assert seconds < 1.5, seconds
    return f"{writes} calls in {len(text)} bytes, {seconds:.2f} s of a line"


@case
def a_file_has_calls_of_a_hooked_function(g):
    g.recorded("file")
    assert lines(g.read("file.lines")) == {("begin", "pipe_write"): 100, ("end", "pipe_write"): 100}


@case
def a_command_gets_everything_and_is_not_recorded_itself(g):
    g.recorded("piped")
    found, counts = lines(g.read("piped.lines")), g.counts("piped", "[system calls]")
    begun = {name: n for (kind, name), n in found.items() if kind == "begin" and name in counts}
    assert begun == dict(counts), (begun, counts)


@case
def a_slow_output_holds_up_nothing_and_what_it_lacks_is_said(g):
    g.recorded("slow")
    text = g.read("slow.lines")
    left_out = sum(map(int, re.findall(r"^\.\.\. (\d+) lines left out", text, re.M)))
    written = sum(1 for line in text.splitlines() if not line.startswith("..."))
    assert left_out > 0 and written > 500, (left_out, written)
    frames = sum(1 for _ in g.calls("slow"))
    assert frames <= written + left_out <= 2.1 * frames, (frames, written, left_out)
    return f"{written} written, {left_out} left out"


@case
def a_call_that_does_not_return_is_seen_at_once(g):
    g.recorded("hung")
    open_calls = collections.Counter()
    begun = {}
    for line in g.read("hung.lines").splitlines():
        if m := re.fullmatch(BEGIN, line): begun[m[2]] = float(m[1])
        elif m := re.fullmatch(END, line): open_calls[m[2]] = float(m[1]) - begun.pop(m[2], float(m[1]))
    assert begun or max(open_calls.values()) > 1, g.read("hung.lines")


@case
def what_cannot_be_opened_is_said_in_a_line(g):
    assert g.read("wrong.status") == "125\n" and "/no/such/folder/x" in g.said("wrong") and len(g.said("wrong").splitlines()) == 1, g.said("wrong")


@case
def the_lines_of_before_a_crash_are_there(g):
    here = os.path.dirname(os.path.abspath(__file__))
    with tempfile.TemporaryDirectory() as out:
        files = [f"{g.sptrace}:/sptrace", f"{g.folder}/../brackets:/brackets", "/dev/null:/crash"]
        got = subprocess.run([os.path.join(here, "vm/run"), *[w for f in files for w in ("--file", f)], g.kernel, os.path.join(here, "vm/live.sh"), out], capture_output=True, text=True)
        assert got.returncode == 125 and "nothing came back" in got.stderr, got.stderr[-500:]
        with open(os.path.join(out, ".serial"), errors="replace") as f: text = f.read()
        found = lines(text[:text.rindex("\n") + 1])
        assert found["end", "write"] > 200, found
        with open(os.path.join(out, ".console"), errors="replace") as f: console = f.read()
        dumped = console.partition("Dumping ftrace instance sptrace-")[2]
        if g.kernel == "6.1": assert not dumped, "kernels before 6.9 dump the top level's buffers only"
        # The last of all is the write(2) that has crashed it.
        else: assert re.findall(r"sys_enter: NR (\d+) ", dumped)[-1:] == ["1"] and "sys_exit" in dumped, console[-2000:]
        return f"{sum(found.values())} lines, {dumped.count('sys_enter')} calls dumped by the kernel"


if __name__ == "__main__": sys.exit(guest.main(case, "live.sh", __doc__))
