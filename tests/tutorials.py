#!/usr/bin/env python3
"""Tutorials and the README, replayed: is what they print what they say it prints?

usage: tests/tutorials.py [--sptrace PATH] [--only GLOB]... [--list] [--show]

Given: man/tutorials/*.md and README.md. A block ```console holds commands behind `$ ` (a line that ends in a
backslash, or in the middle of a quotation, goes on) and below each what it prints; a block whose words are a language and a file name
is written to that file. All commands of a page are run by one bash in a fresh folder, sptrace first in the path. Blocks
that are to be read, not run, have no language. What a page only needs, and a reader has (a server that runs), stands as
`$ ` commands in a comment `<!-- replay` ... `-->`; what they print is not looked at.
Gives: one line a page, then `N passed, N failed`; status 1 if something differs.
Compared: lines in order. `[...]` alone is any number of lines, within a line any text. A number is any number, with any
unit of time; a hexadecimal address any other; blanks are one. --show prints what was printed instead.
Must not know: how sptrace works.
"""
import fnmatch, glob, os, re, shutil, subprocess, sys, tempfile

from harness.case import ROOT, find_sptrace

NUMBER = r"-?\d[\d,.]*"
UNITS = ("ns", "us", "ms", "s", "m", "KiB", "MiB", "B", "kB", "MB")


def blocks(text):
    """(first line, words behind the fence, lines) of each block."""
    found, inside = [], None
    for number, line in enumerate(text.split("\n"), 1):
        if line == "<!-- replay": inside = (number, ["replay"], [])
        elif line.startswith("```") and inside is None: inside = (number, line[3:].split(), [])
        elif line.startswith("```") or line == "-->" and inside and inside[1] == ["replay"]: found.append(inside); inside = None
        elif inside is not None: inside[2].append(line)
    return found


def commands(lines):
    """(command, what it prints) of a console block."""
    found, goes_on = [], False
    for line in lines:
        if line.startswith("$ "): found.append(([line[2:]], []))
        elif goes_on: found[-1][0].append(line)
        elif found: found[-1][1].append(line)
        # By a backslash at its end, or as a quotation is open.
        goes_on = (line.startswith("$ ") or goes_on) and (line.endswith("\\") or "".join(found[-1][0]).count("'") % 2 == 1)
    return [("\n".join(c), printed) for c, printed in found]


def pattern(line):
    """A regular expression of what a line of a page allows."""
    out = []
    for part in re.split(r"(\[\.\.\.\])", line.strip()):
        if part == "[...]": out.append(".*"); continue
        for word in re.split(r"(\s+|0x[0-9a-f]+|sub_[0-9a-f]+|" + NUMBER + ")", part):
            if not word: continue
            if word.isspace(): out.append(r"\s+")
            elif word.startswith("0x"): out.append("0x[0-9a-f]+")
            elif word.startswith("sub_"): out.append(r"(?:sub_[0-9a-f]+|\w+)")
            elif re.fullmatch(NUMBER, word): out.append(NUMBER)
            else: out.append(re.escape(word))
    text = "".join(out)
    for unit in UNITS: text = re.sub(rf"(\\d\[\\d,\.\]\*)(\\s\+)?{unit}\b", lambda m: m[1] + (m[2] or "") + "(?:" + "|".join(UNITS) + ")", text)
    # What stands between a bracket and a number may be blanks or none.
    return re.compile(r"\s*" + text.replace(r"\[\s+", r"\[\s*") + r"\s*")


def differs(expected, printed):
    """None, or the line of the page that was not printed. Lines are taken as they come; [...] takes as many as it must."""
    while expected and not expected[-1].strip(): expected = expected[:-1]
    reach = {0}
    farthest, at = "", -1
    for number, line in enumerate(expected):
        if line.strip() == "[...]": reach = set(range(min(reach), len(printed) + 1)); continue
        wanted = pattern(line)
        after = {i + 1 for i in reach if i < len(printed) and wanted.fullmatch(printed[i])}
        if not after: return f"line {number + 1} of what is printed, {line!r}, is not there"
        reach = after
    return None if len(printed) in reach else f"more is printed: {printed[max(reach):][:3]}"


def replay(page, sptrace, show):
    with open(page, encoding="utf-8") as f: text = f.read()
    folder = tempfile.mkdtemp(prefix="sptrace-tutorial-")
    faults, count = [], 0
    try:
        os.mkdir(os.path.join(folder, ".bin"))
        os.symlink(sptrace, os.path.join(folder, ".bin", "sptrace"))
        env = {"PATH": f"{folder}/.bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": os.path.join(folder, ".home"), "LC_ALL": "C.UTF-8", "TERM": "dumb", "USER": "user"}
        os.mkdir(env["HOME"])
        bash = subprocess.Popen(["bash", "--norc"], cwd=folder, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
        for line, words, lines in blocks(text):
            if len(words) == 2:
                with open(os.path.join(folder, words[1]), "w", encoding="utf-8") as f: f.write("\n".join(lines) + "\n")
            if words[:1] not in (["console"], ["replay"]): continue
            for command, expected in commands(lines):
                if words == ["replay"]: expected = ["[...]"]
                count += 1
                bash.stdin.write(f"{command}\nprintf '\\n%s\\n' =:=end\n")
                bash.stdin.flush()
                printed = []
                for got in bash.stdout:
                    if got == "=:=end\n": break
                    printed.append(got.rstrip("\n"))
                if printed and not printed[-1]: printed.pop()
                # On a busy machine a wait may be long enough to be told.
                printed = [got for got in printed if not re.search(r"/\* waited \S+ \S+ for sptrace \*/", got) or any("waited" in line for line in expected)]
                if show: print(f"$ {command}", *printed, sep="\n")
                why = differs(expected, printed)
                if why: faults.append(f"{os.path.relpath(page, ROOT)}:{line}: $ {command}\n    {why}\n    printed: " + "\n             ".join(printed[:12]))
        bash.stdin.close()
        bash.wait(timeout=20)
    finally:
        subprocess.run(["pkill", "-s", str(bash.pid)], check=False)
        shutil.rmtree(folder, ignore_errors=True)
    return count, faults


def self_check():
    assert differs(["a 5 ms", "[...]", "z"], ["a 7.3 us", "b", "c", "z"]) is None
    assert differs(["a", "b"], ["a"]) and differs(["a"], ["a", "b"]) and differs(["a 5"], ["a x"])
    assert differs(["call([...], 7) = 3"], ["call(2, 9) = 5"]) is None and differs(["openat = 3"], ["openat = -1 ENOENT"])
    assert commands(["$ a 'b", "  c' d", "e"]) == [("a 'b\n  c' d", ["e"])]
    assert commands(["$ a \\", "  b", "c", "$ d"]) == [("a \\\n  b", ["c"]), ("d", [])]
    print("the replay finds what it should")
    return 0


def main(argv):
    if "--self-check" in argv: return self_check()
    def values(option): return [argv[i + 1] for i, a in enumerate(argv) if a == option]
    sptrace = find_sptrace(*values("--sptrace")[:1])
    pages = [os.path.join(ROOT, "README.md")] + sorted(glob.glob(os.path.join(ROOT, "man", "tutorials", "*.md")))
    only = values("--only")
    names = {p: os.path.splitext(os.path.basename(p))[0] for p in pages}
    pages = [p for p in pages if not only or any(fnmatch.fnmatch(names[p], g) for g in only)]
    if "--list" in argv: print(*names.values(), sep="\n"); return 0
    passed = failed = 0
    for page in pages:
        count, faults = replay(page, sptrace, "--show" in argv)
        if count == 0: continue
        print(f"{'FAILED ' if faults else 'ok     '} {names[page]}: {count} commands", *faults, sep="\n  ", flush=True)
        passed, failed = passed + (not faults), failed + bool(faults)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__": sys.exit(main(sys.argv[1:]))
