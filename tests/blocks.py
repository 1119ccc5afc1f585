#!/usr/bin/env python3
"""Basic blocks of the kernel's functions: `sptrace ktrace --blocks` and `sptrace analyze --kernel` in guests.

usage: tests/blocks.py [--sptrace PATH] [--kernel VERSION]... [--only GLOB]... [--list] [--keep FOLDER]

Given: a built sptrace, cc, and what tests/vm/run needs; without one of these all is skipped, in one line. Gives: one line a case
and kernel, then `N passed, N failed` alone on the last line; status 1 if anything failed. Each kernel is booted once, and
tests/vm/blocks.sh records there what is looked at here. Must not know: how sptrace works.
"""
import collections, json, re, sys

import guest
from harness.case import Cases

case = Cases()
HOOKED = ("pipe_write", "vfs_write", "try_to_wake_up")


class Flow:
    """A graph with what was counted."""
    def __init__(self, text):
        graph = json.loads(text)
        self.blocks = {row["block"]: row for row in graph["blocks"]}
        self.counts = {name: int(row["count"]) for name, row in self.blocks.items() if row["count"] != ""}
        self.edges = [(row["from"], row["to"], int(row["count"] or 0)) for row in graph["edges"]]

    def into(self, block): return sum(n for _, to, n in self.edges if to == block)

    def out_of(self, block): return sum(n for start, _, n in self.edges if start == block)


def flow(g, name, function):
    assert not g.read(f"{name}.{function}.error"), g.read(f"{name}.{function}.error")
    return Flow(g.read(f"{name}.{function}.json"))


def missed(g, name, function):
    """Hits that came while another was dealt with, which the kernel does not record."""
    found = re.search(rf"^sptrace: blocks of {function}: \d+ calls.*; (\d+) hits missed", g.said(name), re.M)
    return int(found[1]) if found else 0


@case
def nearly_all_blocks_are_hooked_and_the_ways_are_told(g):
    said, told = g.recorded("pipes"), []
    for function in HOOKED:
        line = re.search(rf"blocks of {function}: every block: (\d+) of (\d+) hooks accepted; (\d+) by a jump, (\d+) by the function tracer, (\d+) by a breakpoint", said)
        accepted, tried, jumps, tracer, breakpoints = map(int, line.groups())
        assert accepted > 0.85 * tried and jumps > accepted / 2 and jumps + tracer + breakpoints == accepted, line[0]
        refused = re.findall(rf"does not let ({function}\S*?), (.*?) \((.*?)\)+ be recorded", said)
        assert len(refused) == tried - accepted and all(why for *_, why in refused), (refused, line[0])
        assert all(what.startswith("ud2") or "switches itself" in what for _, what, _ in refused), refused
        told.append(f"{function} {accepted}/{tried}, {jumps} jumps")
    return "; ".join(told)


@case
def control_passes_along_edges_only(g):
    said = g.recorded("pipes")
    lost = int(re.search(r", (\d+) lost$", said, re.M)[1])
    assert lost or "along no edge" not in said, said
    assert lost == sum(missed(g, "pipes", function) for function in HOOKED) < 500, said
    assert all(int(n) > 10 for n in re.findall(r"^sptrace: blocks of \w+: (\d+) calls", said, re.M)), said


@case
def counts_obey_the_conservation_of_flow(g):
    found = []
    for function in HOOKED:
        # Of a function in which hits are missed, the flow has gaps.
        if missed(g, "pipes", function) and function == "try_to_wake_up": continue
        f, calls = flow(g, "pipes", function), g.counts("pipes")[function]
        executed = [b for b, n in f.counts.items() if n]
        entry = f"{function}+0x0"
        assert len(executed) > 10 and f.counts[entry] == calls, (function, len(executed), f.counts.get(entry), calls)
        left = 0
        for block in executed:
            count, is_exit = f.counts[block], f.blocks[block]["exit"] != ""
            assert f.into(block) + (calls if block == entry else 0) == count, (function, block, count, f.into(block))
            left += count - f.out_of(block) if is_exit else 0
            assert is_exit or f.out_of(block) == count, (function, block, count, f.out_of(block))
        assert left == calls, (function, left, calls)
        found.append(f"{function}: {len(executed)} of {len(f.blocks)} blocks, {calls} calls")
    return "; ".join(found)


@case
def counts_are_those_of_the_kernels_own_probes(g):
    g.recorded("counted")
    profiles = [{name: int(hits) for name, hits, _ in re.findall(r"^ *(o_0x\w+) +(\d+) +(\d+)", g.read(f"profile{i}"), re.M)} for i in (0, 1)]
    theirs = {f"pipe_write+{name[2:]}": profiles[1][name] - profiles[0][name] for name in profiles[1]}
    ours = flow(g, "counted", "pipe_write").counts
    assert len(theirs) > 50 and theirs["pipe_write+0x0"] == 100, theirs
    different = {b: (n, ours.get(b)) for b, n in theirs.items() if ours.get(b) != n}
    assert not different, different
    return f"{len(theirs)} blocks, {sum(theirs.values())} hits"


@case
def a_call_that_waits_does_so_in_one_of_its_blocks(g):
    waits = [c for c in g.calls("pipes") if c["function"] == "waiting" and (c["caller"] or "").startswith("pipe_write+")]
    assert waits, "no pipe_write waited, though its pipe was full"
    return f"{len(waits)} times in {collections.Counter(c['caller'] for c in waits).most_common(1)[0][0]}"


@case
def exits_give_durations(g):
    g.recorded("exits")
    calls = [c for c in g.calls("exits") if c["function"] == "pipe_write"]
    assert len(calls) == 100 and all(c["duration_ns"] for c in calls) and {c["caller"] for c in calls} == {"write"}, calls[:3]
    inside = {c["function"] for c in g.calls("exits") if c["caller"] == "pipe_write" and c["module"] == "[kernel]"}
    assert inside and all(name.startswith("pipe_write+") for name in inside), inside


@case
def a_single_block_is_hooked_before_and_after(g):
    g.recorded("single")
    block = g.read("single").strip()
    calls = [c for c in g.calls("single") if c["module"] == "[kernel]"]
    assert {c["function"] for c in calls} == {block} and len(calls) == 100, collections.Counter(c["function"] for c in calls)


@case
def an_instrument_begins_and_ends_when_it_should(g):
    assert "it begins after 500ms" in g.recorded("staggered"), g.said("staggered")
    calls = g.calls("staggered")
    begun = min(c["start_ns"] for c in calls)
    reads = [(c["start_ns"] - begun) / 1e9 for c in calls if c["function"] == "vfs_read"]
    all_reads = [(c["start_ns"] - begun) / 1e9 for c in calls if c["function"] == "read"]
    assert reads and 0.3 < min(reads) and max(reads) < 1.9 and len(reads) < len(all_reads) * 0.8, (reads, len(all_reads))


@case
def functions_and_blocks_go_together(g):
    g.recorded("both")
    counts = g.counts("both")
    assert counts["pipe_write"] == 100 and counts["pipe_write+0x0"] == 100 and counts["vfs_write"] > 200, counts
    callers = collections.Counter(c["caller"] for c in g.calls("both") if c["function"] == "pipe_write")
    assert callers == {"vfs_write": 100}, callers


@case
def wrong_names_are_answered_in_a_line(g):
    for name in ("wrong", "nothing"): assert "no_such_function" in g.said(name) and len(g.said(name).splitlines()) == 1, g.said(name)
    assert "somebody's probe stands in pipe_write" in g.said("hooked") and not g.read("hooked.out"), g.said("hooked")
    assert "no block holds pipe_write+0xfffff" in g.said("nowhere") and g.read("nowhere.status") == "125\n", g.said("nowhere")


@case
def pictures_have_all_blocks(g):
    blocks = len(flow(g, "pipes", "pipe_write").blocks)
    assert g.read("pipe_write.svg").count('<rect class="block') == blocks and g.read("pipe_write.dot").count("fillcolor") == blocks


@case
def nothing_is_left_also_after_a_kill(g):
    assert g.read("before.probes") == g.read("recorded.probes"), g.read("recorded.probes")
    assert g.read("killed.probes").count("pipe_write") > 50 or g.read("killed.probes").count("sptraceb0_") > 50, g.read("killed.probes")
    assert g.read("before.probes") == g.read("cleaned.probes"), (g.said("cleaned"), g.read("cleaned.probes"))


if __name__ == "__main__": sys.exit(guest.main(case, "blocks.sh", __doc__))
