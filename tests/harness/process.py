"""Processes as /proc shows them: who they are, what is mapped, whether anybody traces them.

Given process ids. Must not know sptrace, but for the name of its mappings.
"""

import ctypes, os, time


def children_of(pid):
    out = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as f:
                out += [int(p) for p in f.read().split()]
    except OSError:
        pass
    return out


def descendants(pid):
    out, todo = [], children_of(pid)
    while todo:
        p = todo.pop(0)
        out.append(p)
        todo += children_of(p)
    return out


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def alive_descendants(pid):
    return [p for p in descendants(pid) if alive(p)]


def become_subreaper():
    """Orphans below this process come to it."""
    ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def maps(pid):
    with open(f"/proc/{pid}/maps") as f:
        for line in f:
            fields = line.split(None, 5)
            start, end = (int(x, 16) for x in fields[0].split("-"))
            yield (
                start,
                end,
                fields[1],
                int(fields[2], 16),
                (fields[5].strip() if len(fields) > 5 else ""),
            )


def code_of(pid):
    """(start, end, offset, path) of what is mapped executable from files."""
    return [
        (s, e, o, p)
        for s, e, access, o, p in maps(pid)
        if "x" in access and p.startswith("/") and not p.endswith("(deleted)")
    ]


def differing_bytes(pid, code):
    """Bytes of `code` that are not those of the files."""
    differing = 0
    with open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for start, end, offset, path in code:
            try:
                with open(f"/proc/{pid}/root{path}", "rb") as f:
                    f.seek(offset)
                    expected = f.read(end - start)
            except OSError:
                continue
            memory.seek(start)
            got = memory.read(end - start)[: len(expected)]
            if got != expected:
                differing += sum(a != b for a, b in zip(got, expected))
    return differing


def status_field(pid, name):
    with open(f"/proc/{pid}/status") as f:
        for line in f:
            if line.startswith(name + ":"):
                return line.split(None, 1)[1].strip()
    return ""


def is_running(pid):
    try:
        return status_field(pid, "State")[:1] not in ("Z", "X", "")
    except (OSError, ProcessLookupError):
        return False


def tasks(pid):
    """Where each thread of a process stands: name, state, system call with its arguments and rip,
    what it waits for in the kernel.
    """
    found = []
    for tid in os.listdir(f"/proc/{pid}/task"):

        def read(name, tid=tid):
            try:
                return open(f"/proc/{pid}/task/{tid}/{name}").read().strip()
            except OSError as error:
                return error.strerror

        found.append(
            f"  {tid} {read('stat').partition(' ')[2][:24]} | {read('syscall')} | {read('wchan')}"
        )
    return "\n".join(found)


def wait_for(what, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        got = what()
        if got:
            return got
        time.sleep(0.01)
    return what()


def child_of(process):
    return int(open(f"/proc/{process.pid}/task/{process.pid}/children").read().split()[0])


def has_agent(pid):
    return "memfd:sptrace" in open(f"/proc/{pid}/maps").read()


def is_untraced(pid):
    return "TracerPid:\t0\n" in open(f"/proc/{pid}/status").read()


def is_native(pid):
    return not has_agent(pid) and is_untraced(pid)


def changed_text(pid):
    """Code of files that is not as in the file."""
    changed = []
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in maps:
            place, access, offset, _, inode, *path = line.split()
            if access != "r-xp" or inode == "0" or "memfd:" in line:
                continue
            start, end = (int(w, 16) for w in place.split("-"))
            memory.seek(start)
            with open(path[0], "rb") as f:
                f.seek(int(offset, 16))
                if memory.read(end - start).rstrip(b"\0") != f.read(end - start).rstrip(b"\0"):
                    changed.append(line)
    return changed


def is_armed(pid):
    return has_agent(pid) and is_untraced(pid) and not changed_text(pid)
