#!/usr/bin/env python3
"""Compares sptrace's call counts with callgrind's, function by function, on real programs.

usage: tests/oracle.py [--quick] [--only GLOB]... [--mode OPTIONS]... [--at-least PERCENT] [--verbose] [--keep DIR]
       tests/oracle.py --self-check

Given: valgrind, a built sptrace (--sptrace, $SPTRACE or target/release/sptrace) and the programs of the machine.
Gives: for each workload the share of callgrind's calls that sptrace counted too, and every function whose count
differs, with the cause or `unexplained`; a last line `N passed, N failed`; status 1 if a share is below --at-least, or
more than one call in 100,000 is unexplained.

How the two are made comparable:
- The same environment on both sides, LD_PRELOAD and what else valgrind adds included (it is asked for it); no address
  randomisation; fixed hash seeds; glibc's choice of string functions pinned to the plain x86-64 variants by
  GLIBC_TUNABLES, because valgrind shows the program another CPU.
- callgrind runs twice, the second time with its address space shifted: a count that differs between the two depends on
  addresses or chance; it is compared with the range of both.
- callgrind's addresses are stated addresses (svma) of the object that `ob=`/`cob=` names, as sptrace's are. Only
  code outside of .text (init, fini, plt sections) has the object `???` and an actual address; that is turned round by
  the bias that `valgrind -v` tells of each object.
- The opcode at the site decides what callgrind calls a call. `call`: a call. A jump from a PLT stub or out of
  the loader's lazy-binding trampoline: the call's second half, counted for its target, and the call of the stub is not
  counted. Any other jump (or fall-through) to another function: a *tail*; sptrace may count it or not (it does where
  the target is a function of its own), so each callee has a range, calls to calls + tails.
- Between functions without symbols callgrind sees no tails, only jumps (`--collect-jumps=yes`): those to a callee's
  entry widen its range too.
- Functions of an IFUNC family (names from symbols or from the installed debug symbols) are summed up.
- What still differs is counted once more by breakpoints, without callgrind and sptrace (breakpoint_counts.py), at several
  places in memory: sptrace's own mappings move the program's, which changes what a table of addresses does.
Must not know: how sptrace works; it reads the csv of `sptrace report functions` and nothing else.
"""
import argparse, bisect, collections, contextlib, csv, fnmatch, glob, io, json, os, re, shutil, struct, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
STUB_SECTIONS = (".plt", ".plt.got", ".plt.sec", ".plt.bnd", ".iplt")
# The feature bits that glibc 2.36's ifunc selectors look at, as far as valgrind and the machine may differ.
NO_VARIANTS = "glibc.cpu.hwcaps=" + ",".join("-" + f for f in (
    "AVX2", "AVX", "AVX512F", "AVX512VL", "AVX512BW", "ERMS", "FSRM", "AVX_Fast_Unaligned_Load", "SSE4_1", "SSE4_2", "SSSE3", "BMI1", "BMI2", "LZCNT",
    "POPCNT", "MOVBE", "FMA", "FMA4", "RTM", "Fast_Unaligned_Copy", "Fast_Copy_Backward", "Prefer_No_VZEROUPPER", "AVX_Fast_Unaligned_Load"))


# ---------------------------------------------------------------- ELF: sections, bytes, symbols

class Image:
    """An ELF file as far as needed here: bytes at an svma, stub sections, function names by svma."""
    cache = {}

    @classmethod
    def of(cls, path):
        if path not in cls.cache: cls.cache[path] = cls(path)
        return cls.cache[path]

    def __init__(self, path):
        self.segments, self.stubs, self.names, self.text = [], [], {}, []
        try:
            with open(path, "rb") as f: self.data = f.read()
        except OSError: self.data = b""
        if self.data[:5] != b"\x7fELF\x02": return
        build_id = self.read(self.data, True)
        if build_id:
            debug = f"/usr/lib/debug/.build-id/{build_id[:2]}/{build_id[2:]}.debug"
            if os.path.exists(debug):
                with open(debug, "rb") as f: self.read(f.read(), False)

    def read(self, data, with_code):
        phoff, shoff = struct.unpack_from("<QQ", data, 32)
        phentsize, phnum, shentsize, shnum, shstrndx = struct.unpack_from("<HHHHH", data, 54)
        if with_code:
            for i in range(phnum):
                kind, _, offset, vaddr, _, size = struct.unpack_from("<IIQQQQ", data, phoff + i * phentsize)
                if kind == 1: self.segments.append((vaddr, size, offset))
        sections = [struct.unpack_from("<IIQQQQIIQQ", data, shoff + i * shentsize) for i in range(shnum)]
        names_at = sections[shstrndx][4] if shnum else 0
        build_id = None
        for s in sections:
            name = data[names_at + s[0]:data.index(b"\0", names_at + s[0])].decode()
            if with_code and name in STUB_SECTIONS: self.stubs.append((s[3], s[3] + s[5]))
            if name == ".note.gnu.build-id" and s[1] == 7: build_id = data[s[4] + 16:s[4] + s[5]].hex()
            if s[1] in (2, 11):  # SYMTAB, DYNSYM
                strings = sections[s[6]][4]
                for at in range(s[4], s[4] + s[5], 24):
                    st_name, info, _, shndx, value, _ = struct.unpack_from("<IBBHQQ", data, at)
                    if info & 15 in (0, 2, 10) and shndx not in (0, 0xfff1) and value and st_name:
                        end = data.index(b"\0", strings + st_name)
                        self.names.setdefault(value, set()).add(data[strings + st_name:end].decode("latin1"))
        return build_id

    def bytes_at(self, svma, count):
        for vaddr, size, offset in self.segments:
            if vaddr <= svma < vaddr + size: return self.data[offset + svma - vaddr:offset + svma - vaddr + count]
        return b""

    def in_stub(self, svma): return any(a <= svma < b for a, b in self.stubs)


def transfer_at(code):
    """What kind of control transfer the instruction bytes are: call, jump, return or other."""
    i = 0
    while i < len(code) and code[i] in (0x66, 0x67, 0xf2, 0xf3, 0x2e, 0x3e, 0x26, 0x36, 0x64, 0x65) or i < len(code) and code[i] & 0xf0 == 0x40: i += 1
    code = code[i:i + 2].ljust(2, b"\0")
    op, modrm = code
    if op == 0xe8: return "call"
    if op == 0xff: return {2: "call", 4: "jump"}.get(modrm >> 3 & 7, "other")
    if op in (0xe9, 0xeb) or 0x70 <= op <= 0x7f or 0xe0 <= op <= 0xe3 or (op == 0x0f and 0x80 <= modrm <= 0x8f): return "jump"
    if op in (0xc2, 0xc3): return "return"
    return "other"


# ---------------------------------------------------------------- callgrind's output

# A forked child's profile holds its parent's counts too: a dump just before the fork empties them.
FORKS = ("_Fork", "__GI__Fork", "__libc_fork", "fork", "__fork", "vfork", "__vfork")

NAME = re.compile(r"\((\d+)\)(?: (.*))?$")
BIASES = re.compile(r"Reading syms from (\S+).*?\n.*?svma 0x([0-9a-f]+), avma 0x([0-9a-f]+)")


def parse_callgrind(text):
    """Yields (site object, site function, site address, callee object, callee address, count, is jump) from a profile.

    Positions are written relative to the last cost line (`+n`, `-n`, `*`, decimal) or absolute (hex); the target of a
    `calls=` line too, but it does not become the last one. The line after `calls=` is the site. Names are numbered at
    their first use, objects and functions in number spaces of their own.
    """
    objects, functions = {}, {}
    def name(table, word):
        number, given = NAME.match(word).groups()
        if given is not None: table[number] = given
        return table[number]
    def position(word, last):
        if word == "*": return last
        if word[0] == "+": return last + int(word[1:])
        if word[0] == "-": return last - int(word[1:])
        return int(word, 16)
    ob = fn = cob = None
    last, pending = 0, None
    for line in text.split("\n"):
        first = line[:1]
        if first in "0123456789+-*" and first:
            last = position(line.split(" ", 1)[0], last)
            if pending:
                yield (ob, fn, last) + pending
                pending = cob = None
        elif line.startswith("calls="):
            count, target = line[6:].split()[:2]
            pending = (cob or ob, position(target, last), int(count), False)
        elif line.startswith(("jump=", "jcnd=")):  # `jump=count target`, `jcnd=followed/executed target`
            count, target = line[5:].split()[:2]
            pending = (ob, position(target, last), int(count.split("/")[0]), True)
        elif line.startswith("fn="): fn = name(functions, line[3:])
        elif line.startswith(("cfn=", "jfn=")): name(functions, line[4:])
        elif line.startswith("ob="): ob = name(objects, line[3:])
        elif line.startswith("cob="): cob = name(objects, line[4:])


class Counts:
    """Calls and tails by callee (object base name, svma), with what is needed to name and explain them."""

    def __init__(self):
        self.calls, self.tails, self.jumps, self.paths = collections.Counter(), collections.Counter(), collections.Counter(), {}
        self.sites = collections.defaultdict(set)

    def add_profile(self, text, log):
        biases = sorted((int(avma, 16), int(avma, 16) - int(svma, 16), path) for path, svma, avma in BIASES.findall(log))
        def resolve(ob, address):
            if ob != "???": return ob, address
            best = None
            for avma, bias, path in biases:  # the object whose loaded segments hold the address
                if any(v <= address - bias < v + s for v, s, _ in Image.of(path).segments): best = (path, address - bias)
            return best or ("???", address)
        stub_tails, stub_targets = collections.Counter(), {}
        for ob, fn, site, cob, target, count, is_jump in parse_callgrind(text):
            ob, site = resolve(ob, site)
            cob, target = resolve(cob, target)
            if is_jump:
                self.jumps[os.path.basename(cob), target] += count
                continue
            if Image.of(cob).in_stub(target):  # the stub's own jump is counted instead
                if transfer_at(Image.of(ob).bytes_at(site, 12)) == "jump": stub_tails[cob, target] += count
                continue
            key = (os.path.basename(cob), target)
            self.paths[os.path.basename(cob)] = cob
            kind = transfer_at(Image.of(ob).bytes_at(site, 12))
            second_half = Image.of(ob).in_stub(site) or "_dl_runtime_resolve" in (fn or "")
            if kind == "jump" and Image.of(ob).in_stub(site): stub_targets[ob, site] = key
            if kind == "call" or (kind == "jump" and second_half): self.calls[key] += count
            else:
                self.tails[key] += count
                self.sites[key].add(kind)
        for (path, stub), count in stub_tails.items():  # a jump to a stub makes the stub's jump a tail, not a call
            key = next((stub_targets[path, at] for at in range(stub, stub + 16) if (path, at) in stub_targets), None)
            moved = min(count, self.calls[key])
            self.calls[key] -= moved
            self.tails[key] += moved


def callgrind(argv, env, work, extra):
    """One callgrind run; gives the Counts of the program and of its forked children."""
    for old in glob.glob(os.path.join(work, "profile.*")) + glob.glob(os.path.join(work, "log.*")): os.unlink(old)
    command = ["setarch", "-R", "valgrind", "-v", "-v", f"--log-file={work}/log.%p", "--tool=callgrind", "--dump-instr=yes", "--skip-direct-rec=no",
               "--skip-plt=yes", "--vgdb=no", "--collect-jumps=yes", *(f"--dump-before={f}" for f in FORKS), *extra, f"--callgrind-out-file={work}/profile.%p", *argv]
    done = subprocess.run(command, env=env, cwd=os.path.join(work, "cwd"), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    counts = Counts()
    logs = "\n".join(open(path, errors="replace").read() for path in sorted(glob.glob(os.path.join(work, "log.*"))))  # a forked child's has no biases of its own
    for path in glob.glob(os.path.join(work, "profile.*")):
        if os.path.getsize(path) == 0: continue
        with open(path) as f: counts.add_profile(f.read(), logs)
    if not counts.calls: raise SystemExit(f"oracle: callgrind gave no profile (status {done.returncode}): {done.stderr.decode()[-300:]}")
    return counts


def valgrind_environment(env, work):
    """The environment of a program under valgrind, which is started by a shell that sets PWD."""
    out = subprocess.run(["valgrind", "-q", "--tool=none", "/usr/bin/env", "-0"], env=env, cwd=os.path.join(work, "cwd"), stdout=subprocess.PIPE, check=True).stdout
    return dict(e.split("=", 1) for e in out.decode().split("\0") if "=" in e)


# ---------------------------------------------------------------- sptrace's counts

def read_csv(text):
    """Calls by (module, svma) and names from `sptrace report functions --format csv`."""
    calls, names = collections.Counter(), {}
    for row in csv.DictReader(io.StringIO(text)):
        key = (row["module"], int(row["address"], 16))
        calls[key] += int(row["calls"])
        names[key] = row["function"]
    return calls, names


def run_sptrace(sptrace, argv, env, work, options=()):
    trace = os.path.join(work, "trace.data")
    done = subprocess.run(["setarch", "-R", sptrace, "run", "--loader", *options, "-o", trace, "--", *argv], env=env, cwd=os.path.join(work, "cwd"),
                          stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    for line in done.stderr.decode("latin1").split("\n"):
        if line.startswith("sptrace:"): print("    " + line)
    report = subprocess.run([sptrace, "report", "functions", "-i", trace, "--format", "csv"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if report.returncode != 0: raise RuntimeError(f"sptrace report failed: {report.stderr.decode()[-300:]}")
    return report.stdout.decode()


# ---------------------------------------------------------------- comparison

VARIANT = re.compile(r"(_(sse|sse2|ssse3|sse4_1|sse4_2|sse42|avx|avx2|avx512|evex|evex512|erms|rtm|unaligned|no_vzeroupper|fma|fma4|bmi2|slow|vec|c|ia32|generic|lzcnt|popcnt|movbe))+$")


def family_of(names):
    """The IFUNC family that a function belongs to by its names, or None."""
    for name in sorted(names):
        bare = VARIANT.sub("", name)
        if bare != name:
            bare = bare.lstrip("_")
            return {"memcpy": "memmove", "mempcpy": "memmove", "bcmp": "memcmp"}.get(bare, bare)
    return None


class Row:
    """One callee or family: callgrind's range (low to high, of both runs), sptrace's count, and how they differ."""

    def __init__(self): self.runs, self.tails, self.jumps, self.got, self.names, self.keys = [0, 0], [0, 0], [0, 0], 0, set(), []

    def low(self): return min(self.runs)
    def high(self): return max(self.runs[i] + self.tails[i] + self.jumps[i] for i in (0, 1))
    def difference(self): return max(self.low() - self.got, 0) or -max(self.got - self.high(), 0)


def rows_of(first, second, got, csv_names):
    """Merges the three counts by callee, IFUNC families into one."""
    rows = {}
    paths = dict(second.paths, **first.paths)
    for key in set(first.calls) | set(first.tails) | set(second.calls) | set(second.tails) | set(got):
        module, svma = key
        names = Image.of(paths[module]).names.get(svma, set()) if module in paths else set()
        names = names or ({csv_names[key]} if key in csv_names else set())
        family = family_of(names)
        row = rows.setdefault((module, family) if family else key, Row())
        for i, counts in enumerate((first, second)):
            row.runs[i] += counts.calls[key]
            row.tails[i] += counts.tails[key]
            row.jumps[i] += counts.jumps[key]
        row.got += got[key]
        row.names |= {family + " (family)"} if family else names
        row.keys.append(key)
    return rows


def native_counts(argv, env, work, functions, layout="fixed"):
    """How often each (path, svma) is entered in a run that only gdb watches; {} without gdb. `layout`: random or fixed."""
    wanted = os.path.join(work, "counts.json")
    with open(wanted, "w") as f: json.dump(functions, f)
    try:
        subprocess.run(["gdb", "-q", "-batch", "-x", os.path.join(HERE, "breakpoint_counts.py"), "--args", *argv], env=dict(env, COUNTS_OF=wanted, LAYOUT=layout),
                       cwd=os.path.join(work, "cwd"), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=600)  # as under the others: python looks
        with open(wanted) as f: return {function: hits for function, hits in zip(functions, json.load(f)) if isinstance(hits, int)}
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return {}


# One that is the same each time, and some that are not: what depends on addresses seldom agrees in all of them.
NATIVE_LAYOUTS = ("fixed", "random", "random", "random")


def cause_of(where, row, first, entries):
    """Why a row differs, or `unexplained`."""
    module, at = where
    if row.runs[0] != row.runs[1]: return "differs between two callgrind runs"
    if module.startswith("ld-linux") or module.startswith("ld-musl"): return "loader start-up (valgrind starts it in its own way)"
    if module in ("[vdso]", "linux-vdso.so.1") or (module == "[unknown]" and at >> 40 == 0x7f): return "vdso (valgrind hides it)"
    if any(name.endswith(("time_syscall", "gettimeofday_syscall", "_vsyscall")) for name in row.names): return "vdso (valgrind hides it)"
    if any(name.endswith("@plt") for name in row.names): return "stub before its slot was bound (callgrind skips stubs)"
    if module == "[jit]": return "generated code"
    if row.names & set(FORKS) and row.got < row.low() <= row.got * 2: return "the call of fork stands in the child's profile, too"
    if isinstance(at, str): return "ifunc variants with different inner calls"
    if row.got == 0 and where not in entries[0] and row.names == set():
        before = bisect.bisect_right(entries[1].get(module, []), at) - 1
        if before >= 0: return "inner label (no symbol, no function entry)"
    return "unexplained"


def compare(label, first, second, got, csv_names, at_least, verbose, natively=lambda functions, layout: {}):
    """Prints the comparison; gives whether the share of matched calls is high enough. `natively` counts the entries of
    functions in a run without callgrind and sptrace, for those that differ for no other cause."""
    rows = rows_of(first, second, got, csv_names)
    by_module = collections.defaultdict(list)
    for module, svma in sorted(got): by_module[module].append(svma)
    entries = (set(got), by_module)
    total = sum(r.low() for r in rows.values())
    missed = sum(min(max(r.low() - r.got, 0), r.low()) for r in rows.values())
    extra = sum(max(r.got - r.high(), 0) for r in rows.values())
    tails = sum(min(r.tails) for r in rows.values())
    tails_seen = sum(min(max(r.got - r.low(), 0), min(r.tails)) for r in rows.values())
    share = 100.0 * (total - min(total, missed + extra)) / total if total else 0.0
    differing = sorted(((w, r) for w, r in rows.items() if r.difference()), key=lambda item: -abs(item[1].difference()))
    reasons = {where: cause_of(where, row, first, entries) for where, row in differing}
    paths = dict(second.paths, **first.paths)
    doubtful = {where: (paths[where[0]], where[1]) for where, row in differing if reasons[where] == "unexplained" and where[0] in paths}
    hits = collections.defaultdict(list)
    for layout in NATIVE_LAYOUTS:
        open_ones = {where: function for where, function in doubtful.items() if reasons[where] == "unexplained"}
        if not open_ones: break
        for function, count in natively(sorted(open_ones.values()), layout).items(): hits[function].append(count)
        for where, function in open_ones.items():
            if len(set(hits[function])) > 1: reasons[where] = "depends on addresses (differs under gdb, too)"
            elif hits[function] and hits[function][0] == rows[where].got: reasons[where] = "under gdb as in sptrace: the program does otherwise under valgrind"
    causes = collections.Counter()
    listed = []
    for where, row in differing:
        cause = reasons[where]
        causes[cause] += abs(row.difference())
        at = where[1] if isinstance(where[1], str) else f"{where[1]:#x}"
        listed.append(f"    {row.difference():+9d}  {where[0]} {at} {'/'.join(sorted(row.names))[:60] or '?'}: "
                      f"callgrind {row.low()}{'' if row.low() == row.high() else f' to {row.high()}'}, sptrace {row.got}{', gdb ' + '/'.join(map(str, hits[doubtful[where]])) if where in doubtful else ''}: {cause}")
    good = share >= at_least and total > 0 and causes["unexplained"] * 100_000 <= total
    print(f"{'ok  ' if good else 'FAIL'} {label}: {share:.4f} % of {total} calls matched ({missed} missed, {extra} too many; {len(rows)} callees); tails {tails_seen} of {tails} recorded")
    for cause, count in causes.most_common(): print(f"    {count:9d}  calls: {cause}")
    shown = listed if verbose else listed[:25]
    print("\n".join(shown) + ("\n" if shown else "") + (f"    ... and {len(listed) - len(shown)} smaller ones (--verbose)\n" if len(shown) < len(listed) else ""), end="", flush=True)
    return good


# ---------------------------------------------------------------- workloads

SQL = """create table t(id integer primary key, name text, value real);
with recursive n(i) as (select 1 union all select i + 1 from n where i < SIZE) insert into t select i, 'name ' || (i * 7919 % 1009), i * 1.5 from n;
create index by_name on t(name);
select count(*), sum(value) from t; select name, count(*) from t group by name order by 2 desc, 1 limit 3; update t set value = value + 1 where id % 3 = 0;"""
PYTHON = """import json, re
class Point:
    def __init__(self, x): self.x = x
    def twice(self): return self.x * 2
rows = json.loads(json.dumps([{"id": i, "tags": list(range(i % 4))} for i in range(SIZE)]))
print(sum(Point(r["id"]).twice() for r in rows), len(re.findall(r"[0-9]+", str(rows))), sorted(str(i) for i in range(SIZE))[:3])"""
PERL = """my %h; $h{$_ % 31} .= "x$_" for 1 .. SIZE; my $n = 0; for (sort keys %h) { $n++ while $h{$_} =~ /x(\\d+)7/g; } print "$n\\n";
sub fib { my $n = shift; $n < 2 ? $n : fib($n - 1) + fib($n - 2) } print fib(12), join(",", (map { $_ * 2 } 1 .. 50)), "\\n";"""
BASH = """fib() { if (( $1 < 2 )); then r=$1; else local n=$1 t; fib $((n-1)); t=$r; fib $((n-2)); r=$((r+t)); fi; }
fib 11; echo $r; for ((i = 0; i < SIZE; i++)); do x=${x:0:20}$i; case $x in *7*) y=${x//1/a};; esac; done; echo "$x $y"; a=(5 3 1); echo "${a[@]/3/4}"; ( echo subshell )"""
LUA = """local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end print(fib(15))
local t = {} for i = 1, SIZE do t[i] = tostring((i * 7919) % 1009) end table.sort(t) print(t[1], #table.concat(t, ","))
print((table.concat(t):gsub("%d%d", function(s) return "<" .. s .. ">" end)):len())"""
C = "\n".join(f"struct s{i} {{ int a[{i + 1}]; long b; }};\nstatic long f{i}(struct s{i} *p, int n) {{ long r = 0; for (int k = 0; k < n; k++) {{ if (p->a[k % {i + 1}] & 1) r += p->b * k; else r ^= f_next(k); }} return r; }}\nlong g{i}(struct s{i} *p) {{ return f{i}(p, {i * 3}) + f{i}(p, {i}); }}" for i in range(12))


def workloads(folder, quick):
    """name -> command; inputs are written to the folder. Sizes give seconds under callgrind."""
    size = lambda text, n: text.replace("SIZE", str(n if quick else 5 * n))
    inputs = os.path.join(folder, "inputs")  # of their own: python lists the folder of its script
    os.makedirs(inputs, exist_ok=True)
    def put(name, text):
        path = os.path.join(inputs, name)
        with open(path, "w") as f: f.write(text)
        return path
    data = put("data", "".join(f"{i * 7919 % 1009} line {i * 31 % 101}\n" for i in range(4000 if quick else 20000)))
    cc1 = subprocess.run(["gcc", "-print-prog-name=cc1"], stdout=subprocess.PIPE, text=True).stdout.strip() if shutil.which("gcc") else "/nonexistent"
    repo = os.path.join(folder, "repo")
    if os.path.exists("/usr/bin/git") and not os.path.exists(repo):
        os.makedirs(repo)
        env = {"PATH": "/usr/bin:/bin", "HOME": folder, "GIT_AUTHOR_DATE": "2020-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2020-01-01T00:00:00Z"}
        script = "git init -q . && git config user.name t && git config user.email t@example.org; for i in $(seq 60); do seq $i $((i * 3)) >> f; echo $i > g$((i % 3)); git add -A; git commit -qm \"commit $i\"; done"
        subprocess.run(["sh", "-c", script], cwd=repo, env=env, check=True, stdout=subprocess.DEVNULL)
    return {
        "sqlite3": ["/usr/bin/sqlite3", "-batch", ":memory:", f".read {put('main.sql', size(SQL, 4000))}"],
        "python3": ["/usr/bin/python3", "-S", "-B", "-E", put("main.py", size(PYTHON, 1500))],
        "perl": ["/usr/bin/perl", put("main.pl", size(PERL, 12000))],
        "bash": ["/bin/bash", "--norc", put("main.sh", size(BASH, 800))],
        "xz": ["/usr/bin/xz", "-6", "-k", "-c", data],
        "lua5.4": ["/usr/bin/lua5.4", put("main.lua", size(LUA, 3000))],
        "git.log": ["/usr/bin/git", "--no-pager", "-C", repo, "log", "-p", "--stat"],
        "cc1": [cc1, "-quiet", "-O2" if not quick else "-O1", put("main.c", "long f_next(long);\n" + C), "-o", "/dev/null"],
    }


def base_environment(folder):
    return {"PATH": "/usr/bin:/bin", "HOME": folder, "LC_ALL": "C", "TZ": "UTC", "PYTHONHASHSEED": "0", "PERL_HASH_SEED": "0", "PERL_PERTURB_KEYS": "0",
            "GIT_CONFIG_NOSYSTEM": "1", "GLIBC_TUNABLES": NO_VARIANTS}


# ---------------------------------------------------------------- the oracle's own check

KNOWN = """#include <stdio.h>
#define KEEP __attribute__((noinline, noclone, noipa))
KEEP static long fib(long n) { return n < 2 ? n : fib(n - 1) ^ fib(n - 2); }
KEEP static long leaf(long n) { return n + 1; }
KEEP static long tail(long n) { return leaf(n * 2); }
static long (*volatile pointer)(long) = leaf;
int main(void) { long s = fib(16); for (int i = 0; i < 250; i++) s += tail(i) + pointer(i); printf("%ld\\n", s); return 0; }
"""


def self_check(work):
    """On a program whose counts are known, the parser must give them, and the comparison must notice each kind of error."""
    os.makedirs(os.path.join(work, "cwd"))
    source, program = os.path.join(work, "known.c"), os.path.join(work, "known")
    with open(source, "w") as f: f.write(KNOWN)
    subprocess.run(["gcc", "-O2", "-g", source, "-o", program], check=True)
    env = base_environment(work)
    first, second = callgrind([program], env, work, []), callgrind([program], env, work, ["--aspace-minaddr=0x180000000"])
    address = {n: a for a, names in Image.of(program).names.items() for n in names}
    results = []
    def expect(what, right):
        results.append(right)
        print(f"{'ok  ' if right else 'FAIL'} {what}" + ("" if right else f"\n{said_last[0]}"), flush=True)
    said_last = [""]
    at = lambda counter, name: counter[("known", address[name])]
    expect("fib(16) is 3193 calls", at(first.calls, "fib") == 3193)
    expect("tail 250 calls", at(first.calls, "tail") == 250)
    expect("leaf 250 calls through a pointer and 250 tails", (at(first.calls, "leaf"), at(first.tails, "leaf")) == (250, 250))
    expect("printf is found through its stub", any(m.startswith("libc") and "printf" in Image.of(first.paths[m]).names.get(a, ()) for m, a in first.calls))
    expect("no callee is left without an object", not any(m == "???" for m, _ in first.calls))
    kinds = {"call": "e8 00 00 00 00|ff d0|41 ff 14 24|ff 15 00 00 00 00|66 66 48 e8 00|3e ff d0|f2 e8 00", "jump": "e9 00|eb 00|74 00|0f 84 00|ff e0|41 ff e3|3e ff e0|e3 00", "return": "c3|f3 c3|c2 08 00", "other": "90|0f 05|ff 30"}
    expect("opcodes are told apart", all(transfer_at(bytes.fromhex(b)) == k for k, v in kinds.items() for b in v.split("|")))
    wanted = {("known", n): (program, address[n]) for n in ("fib", "tail", "leaf")}
    hits = native_counts([program], env, work, list(wanted.values()) + [(program + ".so", 0)]) if shutil.which("gdb") else None
    if hits is not None: expect("gdb counts entries, and knows none of an object that is not there", list(hits.values()) == [3193, 250, 500])
    def csv_of(change):
        lines = ["module,function,calls,total_ns,self_ns,address,symbol"]
        for (module, svma), n in sorted((first.calls + first.tails).items()):
            n = change(module, svma, n)
            if n: lines.append(f"{module},sub_{svma:x},{n},0,0,{svma:#x},")
        return lines
    def verdict(lines, natively=lambda functions, layout: {}):
        # its words only if it is wrong: "FAIL" in a right self-check would be read as one
        said = io.StringIO()
        with contextlib.redirect_stdout(said): passed = compare("self-check", first, second, *read_csv("\n".join(lines)), 99.9, False, natively)
        said_last[0] = said.getvalue()
        return passed
    fib = address["fib"]
    expect("the same counts match", verdict(csv_of(lambda m, a, n: n)))
    expect("a function that is missing is noticed", not verdict(csv_of(lambda m, a, n: 0 if (m, a) == ("known", fib) else n)))
    expect("1 % too few is noticed", not verdict(csv_of(lambda m, a, n: n - 32 if (m, a) == ("known", fib) else n)))
    few = csv_of(lambda m, a, n: n - 1 if (m, a) == ("known", fib) else n)
    expect("one call without a cause is noticed", not verdict(few))
    expect("one call less than under callgrind is right if gdb counts so, too", verdict(few, lambda functions, layout: {f: 3192 for f in functions}))
    expect("or one that depends on addresses", verdict(few, lambda functions, layout: {f: 3192 + (layout == "fixed") for f in functions}))
    expect("but not if gdb counts as callgrind", not verdict(few, lambda functions, layout: {f: 3193 for f in functions}))
    expect("1 % too many is noticed", not verdict(csv_of(lambda m, a, n: n + 32 if (m, a) == ("known", fib) else n)))
    expect("a wrong address is noticed", not verdict([l.replace(f"{fib:#x}", f"{fib + 4:#x}") for l in csv_of(lambda m, a, n: n)]))
    expect("an empty trace is noticed", not verdict(csv_of(lambda m, a, n: 0)))
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if all(results) else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small inputs (CI)")
    parser.add_argument("--only", action="append", metavar="GLOB")
    parser.add_argument("--at-least", type=float, default=99.9, metavar="PERCENT")
    parser.add_argument("--verbose", action="store_true", help="every differing function, not the first 25")
    parser.add_argument("--mode", action="append", metavar="OPTIONS", help="record with these, as in --mode=--count; each workload once with each")
    parser.add_argument("--self-check", action="store_true")
    parser.add_argument("--callgrind-only", action="store_true", help="compare the two callgrind runs with each other (tries the workloads without sptrace)")
    parser.add_argument("--keep", metavar="DIR", help="work there and leave everything for inspection")
    parser.add_argument("--sptrace", metavar="PATH")
    args = parser.parse_args()
    work = args.keep or tempfile.mkdtemp(prefix="sptrace-oracle-", dir="/var/tmp")
    os.makedirs(work, exist_ok=True)
    try:
        return self_check(work) if args.self_check else run_all(args, os.path.abspath(work))
    finally:
        if not args.keep: shutil.rmtree(work, ignore_errors=True)


def run_all(args, work):
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
    candidates = [args.sptrace, os.environ.get("SPTRACE"), os.path.join(target, "release", "sptrace")]
    sptrace = next((os.path.abspath(p) for p in candidates if p and os.path.exists(p)), None)
    if sptrace is None and not args.callgrind_only: sys.exit("oracle: no sptrace found (build it with `cargo build --release`, or give --sptrace PATH)")
    os.makedirs(os.path.join(work, "cwd"), exist_ok=True)
    passed = failed = 0
    env = base_environment(work)
    full_env = valgrind_environment(env, work)
    for name, argv in workloads(work, args.quick).items():
        if args.only and not any(fnmatch.fnmatch(name, g) for g in args.only): continue
        if not os.path.exists(argv[0]):
            print(f"skip {name}: {argv[0]} is not installed")
            continue
        started = time.monotonic()
        first = callgrind(argv, env, work, [])
        second = callgrind(argv, env, work, ["--aspace-minaddr=0x180000000"])
        if args.callgrind_only:
            seconds = time.monotonic() - started
            unsteady = sum(abs(first.calls[k] - second.calls[k]) for k in set(first.calls) | set(second.calls))
            print(f"{name}: {sum(first.calls.values())} calls, {sum(first.tails.values())} tails, {len(first.calls)} callees, {unsteady} calls differ between the runs, "
                  f"{sum(n for (m, _), n in first.calls.items() if m == '???')} without an object, {seconds:.1f} s", flush=True)
            continue
        for options in args.mode or [""]:
            named = f"{name} {options}".strip()
            try:
                text = run_sptrace(sptrace, argv, full_env, work, options.split())
                if args.keep:
                    with open(os.path.join(work, named.replace("/", "_") + ".csv"), "w") as f: f.write(text)
                good = compare(named, first, second, *read_csv(text), args.at_least, args.verbose, lambda functions, layout: native_counts(argv, full_env, work, functions, layout))
            except (RuntimeError, KeyError, ValueError) as error:
                print(f"FAIL {named}: {error!r}", flush=True)
                good = False
            passed, failed = passed + good, failed + (not good)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed and not args.callgrind_only else 0


if __name__ == "__main__":
    sys.exit(main())
