#!/usr/bin/env python3
"""Values of library calls, compared with ltrace: real programs under both, call by call.

usage: tests/ltrace.py [--sptrace PATH] [--conf FILE] [--only GLOB] [--show N]

Given: ltrace with its own prototypes (/etc/ltrace.conf), which sptrace gets too, and the programs; without ltrace nothing is
done and that is said. Each program runs with its calls bound when they are first made, and with all of them bound before
(LD_BIND_NOW). Compared are the program's own calls of the functions that the file describes: names, arguments and results, with
addresses made equal. Gives: a line a run with how many calls agree, then the kinds of differences that are left, with examples;
status 1 if less than 99 % of a run's calls agree, or if the comparison does not see a call that is made different.
Must not know: how values are shown.
"""
import argparse, collections, difflib, fnmatch, json, os, re, shutil, subprocess, sys, tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ENOUGH = 0.99
PROGRAMS = {
    "sort": "sort -r text", "ls": "ls -l folder", "wc": "wc text", "expr": "expr 3 + 4", "cut": "cut -c1-7 text",
    "date": "date -u -d 2020-01-02", "stat": "stat -c %n%s text", "basename": "basename /some/where", "tr": "tr a b",
}
# One implementation of the C library's for two names, and names that its headers give to others.
SAME = {"memcpy": "memmove", "strtol": "strtoll", "strtoul": "strtoull"}
# What a processor's own implementation is called.
OWN = re.compile(r"_(sse2|sse3|ssse3|sse42|sse4_1|sse4_2|avx|avx2|avx512|evex|evex512|erms|unaligned|no_vzeroupper|rtm|generic|fma)+$")


def plain(name):
    """A function's name, whichever implementation was chosen."""
    name = name.partition("@")[0].removeprefix("__GI_")
    while (shorter := OWN.sub("", name)) != name: name = shorter
    return SAME.get(name.lstrip("_"), name.lstrip("_"))


def equalise(text):
    name, paren, rest = text.partition("(")
    name = plain(name)
    rest = re.sub(r"\bnil\b|\bNULL\b", "0", rest)
    rest = re.sub(r"0x[0-9a-f]+", "0xX", rest)
    rest = re.sub(r"\s*= (<void>|None|\?)$", "", rest)
    # Sets of signals, which sptrace shows as a number in brackets, and what is behind a pointer to a number.
    rest = re.sub(r"~?<[\d,-]*>|\[0xX\]|\[0\]", "SET", rest)
    rest = re.sub(r"\[(-?\w+)\]", r"\1", rest)
    rest = re.sub(r"\{.*\}", "{}", rest)
    # Octal, which one writes with a zero more.
    rest = re.sub(r"\b00(\d)", r"0\1", rest)
    # Dots where a string is just as long as the limit.
    rest = rest.replace('"...', '"')
    rest = rest.replace('\\"', '"')
    # Bytes of structures, in which there are addresses, and a buffer that does not end with 0, which the file takes for a string.
    if name in ("memmove", "fwrite_unlocked"): rest = re.sub(r'".*"', "BYTES", rest)
    return f"{name}({rest}"


def jumped_to(program):
    """Functions that the program calls by its procedure linkage table, which is where ltrace stands."""
    shown = subprocess.run(["readelf", "-rW", program], stdout=subprocess.PIPE, text=True, check=True).stdout
    return {m[1] for m in re.finditer(r"R_X86_64_JUMP_SLO\w*\s+\S+\s+(\w+)@", shown)}


def described(conf):
    """Names of the functions that the file has prototypes of."""
    lines = (line.partition(";")[0] for line in open(conf))
    return {m[1] for line in lines if "(" in line and not line.startswith("typedef") and (m := re.search(r"(\w+)\s*\(", line))}


def theirs(path, wanted):
    calls = []
    for line in open(path, encoding="latin-1"):
        found = re.match(r"(\w+)\((.*)\)\s+= (.*)$", line)
        if found and found[1] in wanted: calls.append(f"{found[1]}({found[2]}) = {found[3]}")
        # One that does not return.
        elif (found := re.match(r"(\w+)\((.*) <unfinished", line)) and found[1] in wanted: calls.append(f"{found[1]}({found[2]})")
    return calls


def ours(sptrace, trace, program, wanted):
    shown = subprocess.run([sptrace, "report", "export", "jsonl", "-i", trace], stdout=subprocess.PIPE, check=True).stdout.decode("latin-1")
    rows = (json.loads(line) for line in shown.splitlines())
    rows = [row for row in rows if row.get("call") and row["caller_module"] == program and plain(row["function"]) in wanted]
    rows.sort(key=lambda row: row["start_ns"])
    return [row["call"] + (f" = {row['result']}" if row["end"] == "return" else "") for row in rows]


def compare(left, right):
    agree, different = 0, []
    for tag, i, j, k, l in difflib.SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        if tag == "equal": agree += j - i
        else: different += [(left[i + n] if i + n < j else None, right[k + n] if k + n < l else None) for n in range(max(j - i, l - k))]
    return agree, different


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sptrace", default=os.environ.get("SPTRACE", f"{ROOT}/target/release/sptrace"))
    parser.add_argument("--conf", default="/etc/ltrace.conf")
    parser.add_argument("--only", default="*")
    parser.add_argument("--show", type=int, default=2)
    options = parser.parse_args()
    if not shutil.which("ltrace") or not os.path.exists(options.conf): return print("skip: no ltrace with its prototypes")
    names = described(options.conf)
    if compare(["f(1) = 2", "g(3) = 0"], ["f(1) = 2", "g(4) = 0"])[0] != 1 or equalise("f(1) = 2") == equalise("f(1) = 3"):
        return print("FAIL: a difference is not seen") or 1
    passed, failed, kinds = 0, 0, collections.defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        open(f"{folder}/text", "w").writelines(f"{n * 7919 % 101} some text\n" for n in range(60))
        os.mkdir(f"{folder}/folder")
        for n in range(5): open(f"{folder}/folder/{n}", "w").close()
        for name, command in PROGRAMS.items():
            program = shutil.which(name)
            if not fnmatch.fnmatch(name, options.only) or not program: continue
            linked = names & jumped_to(program)
            wanted = {plain(name) for name in linked}
            words = [program, *command.split()[1:]]
            for how, more in (("unbound", {}), ("bound", {"LD_BIND_NOW": "1"})):
                env = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC0", "HOME": folder, **more}
                run = lambda *tool: subprocess.run(["setarch", "-R", *tool, *words], cwd=folder, env=env, stdin=open(f"{folder}/text"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=60)
                run("ltrace", "-F", options.conf, "-o", f"{folder}/ltrace")
                done = run(options.sptrace, "run", "-q", "-o", f"{folder}/trace", "-A", "*", "--prototypes", options.conf, "--")
                if done.returncode != 0: return print(f"FAIL {name}: {done.stderr.decode()}") or 1
                left = [equalise(call) for call in theirs(f"{folder}/ltrace", linked)]
                right = [equalise(call) for call in ours(options.sptrace, f"{folder}/trace", os.path.basename(program), wanted)]
                agree, different = compare(left, right)
                most = max(len(left), len(right))
                good = most >= 5 and agree >= ENOUGH * most
                passed, failed = passed + good, failed + (not good)
                print(f"{'ok  ' if good else 'FAIL'} {name}, {how}: {agree} of {most} calls, {100 * agree / max(most, 1):.2f} %", flush=True)
                for pair in different: kinds[" / ".join((call or "nothing").partition("(")[0] for call in pair)].append((name, pair))
    for kind, found in sorted(kinds.items(), key=lambda item: -len(item[1])):
        print(f"differs: {kind}, {len(found)} calls")
        for name, (left, right) in found[: options.show]: print(f"    {name}\n      ltrace: {left}\n      ours:   {right}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
