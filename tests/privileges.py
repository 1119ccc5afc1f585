#!/usr/bin/env python3
"""Changes of users, groups and capabilities: `sptrace ktrace --privileges` in guests.

usage: tests/privileges.py [--sptrace PATH] [--kernel VERSION]... [--only GLOB]... [--list] [--keep FOLDER]

Given: a built sptrace, cc, and what tests/vm/run needs; without one of these all is skipped, in one line. Gives: one line a case
and kernel, then `N passed, N failed` alone on the last line; status 1 if anything failed. tests/vm/privileges.sh records in each
guest what is looked at here. Must not know: how sptrace works.
"""
import sys

import guest
from harness.case import Cases

case = Cases()


def changes(g, name): return [(c["caller"], c["function"]) for c in g.calls(name) if c["module"] == "[privileges]"]


@case
def every_change_is_seen_in_its_system_call_and_escalations_are_marked(g):
    assert "privileges: by a probe at commit_creds" in g.recorded("changes"), g.said("changes")
    found = changes(g, "changes")
    calls, texts = [c for c, _ in found], [t for _, t in found]
    assert calls == ["setresgid", "setresuid", "setresuid", "setgid", "setuid", "unshare"], found
    assert texts[0] == "change: egid 0 -> 100", texts
    assert texts[1].startswith("change: euid 0 -> 1000, loses ") and texts[1].endswith(" capabilities"), texts
    assert texts[2].startswith("ESCALATION: euid 1000 -> 0, gains "), texts
    assert texts[3] == "change: gid 0 -> 1000, egid 100 -> 1000", texts
    assert texts[4].startswith("change: uid 0 -> 1000, euid 0 -> 1000, loses "), texts
    assert texts[5].startswith("in another user namespace: gains "), texts
    counts = {line.split()[0]: line.split()[-1] for line in g.read("changes.out").splitlines()}
    assert int(counts["effective"], 16) == 0 and int(counts["back"], 16).bit_count() == int(texts[2].split()[-2]), (counts, texts)
    return "; ".join(texts)


@case
def a_program_that_is_marked_set_user_id_is_an_escalation(g):
    g.recorded("suid")
    found = changes(g, "suid")
    assert g.read("suid.out").splitlines()[1].startswith("executed 1000 0 "), g.read("suid.out")
    escalations = [(c, t) for c, t in found if t.startswith("ESCALATION")]
    assert len(escalations) == 1 and "euid 1000 -> 0" in escalations[0][1], found
    assert escalations[0][0] in ("execve", "commit_creds"), escalations
    assert "ESCALATION" in g.report("suid", "functions"), g.report("suid", "functions")


@case
def what_changes_nothing_is_not_shown_and_nothing_is_left(g):
    g.recorded("quiet")
    assert changes(g, "quiet") == [], changes(g, "quiet")
    assert g.read("before.probes") == g.read("after.probes")


if __name__ == "__main__": sys.exit(guest.main(case, "privileges.sh", __doc__))
