#!/usr/bin/python3 -SE
"""sptrace with strace's command line, for strace's own test suite (tests/strace_suite.sh).

usage: SPTRACE=sptrace tests/as_strace.py [option of strace]... COMMAND [ARG]...

Given strace's options; runs `sptrace run -q --syscalls-only --live` with those that say the same, and writes the lines to
where strace would (-o FILE, or standard error): without -f of the first process alone, without the column of threads where
strace has none, without signals or ends that were not asked for. An option that says nothing to sptrace ends it with status
98, and its name on standard error, which the suite's script counts by cause. Ends as the command did.
Must not know: how a call is shown.
"""
import os, signal, subprocess, sys, tempfile

SHORT = "+a:Ab:cCdDe:E:fFhiI:kno:O:p:P:qrs:S:tTu:U:vVwxX:yYzZ"
LONG = ["columns=", "trace=", "trace-path=", "string-limit=", "no-abbrev", "output=", "follow-forks", "output-separately", "quiet==", "silent==", "silence==", "decode-fds==", "env=", "help", "version",
        "relative-timestamps==", "absolute-timestamps==", "timestamps==", "syscall-times==", "strings-in-hex==", "const-print-style=", "abbrev=", "verbose=", "raw=", "signal=", "signals=",
        "status=", "successful-only", "failed-only", "syscall-number", "stack-traces", "inject=", "fault=", "read=", "write=", "kvm=", "attach=", "summary", "summary-only",
        "summary-columns=", "summary-sort-by=", "summary-syscall-overhead=", "summary-wall-clock", "debug", "daemonize==", "detach-on=", "seccomp-bpf", "interruptible=", "user=",
        "instruction-pointer", "decode-pids=", "pidns-translation", "secontext==", "tips==", "argv0=", "output-append-mode", "follow-forks", "strings="]
HEX_FORMS = {"": ["-xx"], "=all": ["-xx"], "=non-ascii": ["-x"], "=non-ascii-chars": ["-x"], "=none": []}
# Calls of other architectures, which a program of this one cannot make.
OF_OTHERS = {"mmap2", "fstat64", "stat64", "lstat64", "fcntl64", "_llseek", "umount"}
SILENT = {"--seccomp-bpf", "-I", "--interruptible"}


def unsupported(what):
    print(f"as_strace: unsupported: {what}", file=sys.stderr)
    sys.exit(98)


def signals_hidden_by(chosen):
    """Of `-e signal=SET`: whether a signal of this name is not shown."""
    is_inverse, names = chosen.startswith("!"), chosen.lstrip("!").split(",")
    if names == ["all"]: return lambda name: is_inverse
    if names == ["none"]: return lambda name: not is_inverse
    def plain(name): return name.strip().upper().removeprefix("SIG")
    named = {plain(signal.Signals(int(name)).name) if name.isdigit() and int(name) in signal.valid_signals() else plain(name) for name in names}
    return lambda name: (plain(name) in named) == is_inverse


def time_options(form):
    """strace's --absolute-timestamps[=FORM] in our letters."""
    parts = dict(part.split(":", 1) if ":" in part else (("precision" if part in ("s", "ms", "us", "ns") else "format"), part) for part in form.lstrip("=").split(",") if part)
    shown, precision = parts.get("format", "time"), parts.get("precision", "s")
    precision = {"0": "s", "6": "us"}.get(precision, precision)
    if shown == "none": return []
    return {("time", "s"): ["-t"], ("time", "us"): ["-t", "-t"], ("unix", "us"): ["-t", "-t", "-t"]}.get((shown, precision)) or unsupported(f"--absolute-timestamps={form.lstrip('=')}")


class Asked:
    """What strace is asked for."""

    def __init__(self):
        self.options, self.sets, self.output, self.follows, self.quiet, self.hidden_signals, self.status, self.environment = [], [], None, 0, 0, lambda name: False, None, []
        self.per_process = self.appends = False

    def event(self, text):
        kind, has_kind, value = text.partition("=")
        if not has_kind or kind in ("trace", "t"): return self.sets.append(value if has_kind else text)
        if kind in ("signal", "signals", "s"):
            self.hidden_signals = signals_hidden_by(value)
        elif kind in ("abbrev", "a"):
            if value in ("none", "!all"): self.options.append("-v")
            elif value != "all": unsupported("-e abbrev=SET")
        elif kind in ("verbose", "v") and value in ("all",): pass
        elif kind in ("quiet", "q", "silent", "silence"):
            if value in ("exit", "all") or "exit" in value.split(","): self.quiet = 2
        elif kind in ("decode-fds", "decode-fd"):
            if value == "path": self.options.append("-y")
            elif value in ("all", "socket,path"): self.options.append("-yy")
            elif value != "none": unsupported("-e decode-fds=SET")
        elif kind == "status":
            if value == "successful": self.options.append("-z")
            elif value == "failed": self.options.append("-Z")
            elif value != "all": unsupported("-e status=SET")
        else: unsupported(f"-e {kind}=")

    def drop(self, letter):
        """The last of several counts."""
        if letter in self.options:
            at = self.options.index(letter)
            del self.options[at : at + 2]

    def option(self, name, value):
        same = {"-a": "-a", "--columns": "-a", "-s": "-s", "--string-limit": "-s", "-P": "-P", "--trace-path": "-P"}
        flags = {"-v": "-v", "--no-abbrev": "-v", "-T": "-T", "-r": "-r", "-t": "-t", "-x": "-x", "-y": "-y", "-z": "-z", "-Z": "-Z", "-n": "-n", "--successful-only": "-z", "--failed-only": "-Z", "--syscall-number": "-n"}
        if name in same:
            if same[name] != "-P": self.drop(same[name])
            self.options += [same[name], value]
        elif name in flags:
            # Those that count are given as often; of the others once is enough.
            if flags[name] in ("-t", "-x", "-y") or flags[name] not in self.options: self.options.append(flags[name])
        elif name in ("-o", "--output"): self.output = value
        elif name in ("-f", "-F", "--follow-forks"): self.follows += 1
        elif name == "--output-separately": self.per_process = True
        elif name in ("-A", "--output-append-mode"): self.appends = True
        elif name == "-q": self.quiet += 1
        elif name in ("--quiet", "--silent", "--silence"): self.event("quiet=" + (value or "attach,personality").lstrip("="))
        elif name in ("-e",): self.event(value)
        elif name in ("--trace", "--abbrev", "--verbose", "--signal", "--signals", "--status", "--raw", "--inject", "--fault", "--read", "--write", "--kvm"): self.event(f"{name[2:]}={value}")
        elif name == "--decode-fds": self.event("decode-fds=" + (value or "path").lstrip("="))
        elif name == "--strings-in-hex": self.options += HEX_FORMS[value] if value in HEX_FORMS else unsupported(f"{name}{value}")
        elif name == "--syscall-times" and value in ("", "=us"): self.options.append("-T")
        elif name == "--relative-timestamps" and value in ("", "=us"): self.options.append("-r")
        elif name in ("--absolute-timestamps", "--timestamps"): self.options = [o for o in self.options if o != "-t"] + time_options(value)
        elif name in ("-X", "--const-print-style"):
            self.drop("-X")
            self.options += ["-X", value]
        elif name in ("-E", "--env"): self.environment.append(value)
        elif name in ("-h", "-V", "--help", "--version"): os.execvp("strace", ["strace", *sys.argv[1:]])
        elif name not in SILENT: unsupported(name)


def read(words):
    """The options before the command. (getopt knows no options whose value may be left out.)"""
    optional = {l[:-2] for l in LONG if l.endswith("==")}
    rest, asked = list(words), Asked()
    while rest and rest[0].startswith("-") and rest[0] not in ("-", "--"):
        word = rest.pop(0)
        name, has_value, value = word[2:].partition("=")
        if word.startswith("--") and name in optional:
            asked.option(f"--{name}", f"={value}" if has_value else "")
            continue
        if word.startswith("--"):
            wanting = [l[:-1] for l in LONG if l.endswith("=") and l[:-1].startswith(name)]
            plain = [l for l in LONG if not l.endswith("=") and l.startswith(name)]
            known = [l for l in (*wanting, *plain) if l == name] or [*wanting, *plain]
            if len(set(known)) != 1: unsupported(f"--{name}")
            if known[0] in wanting and not has_value: value = rest.pop(0) if rest else unsupported(word)
            asked.option(f"--{known[0]}", value)
            continue
        letters = word[1:]
        while letters:
            letter, letters = letters[0], letters[1:]
            if letter not in SHORT: unsupported(f"-{letter}")
            if SHORT[SHORT.index(letter) + 1 :].startswith(":"):
                value, letters = letters or (rest.pop(0) if rest else unsupported(word)), ""
                asked.option(f"-{letter}", value)
            else: asked.option(f"-{letter}", "")
    if rest and rest[0] == "--": rest.pop(0)
    return asked, rest


def chosen(lines, asked):
    """The lines that strace would write, of all of ours."""
    first = None
    for line in lines:
        tid, _, text = line.partition(" ")
        text = text.lstrip(" ")
        first = first or tid
        if not asked.follows and tid != first: continue
        if text.startswith("+++ exited") and asked.quiet > 1: continue
        if text.startswith("--- SIG") and asked.hidden_signals(text.split()[1]): continue
        yield f"{tid:<5} {text}" if asked.follows and asked.output else text


def main():
    asked, command = read(sys.argv[1:])
    if not command: unsupported("no command")
    for pair in asked.environment:
        name, has_value, value = pair.partition("=")
        if has_value: os.environ[name] = value
        else: os.environ.pop(name, None)
    sets = []
    if asked.sets: sets = ["-e", ",".join(",".join(name for name in chosen.split(",") if name not in OF_OTHERS) for chosen in asked.sets)]
    if len(asked.sets) > 1 and any(s.startswith("!") for s in asked.sets): unsupported("several -e trace= with !")
    with tempfile.TemporaryDirectory(prefix="as_strace") as folder:
        lines = f"{folder}/lines"
        tool = [os.environ["SPTRACE"], "run", "-q", "-o", f"{folder}/trace", f"--live={lines}", "-f", *asked.options, *sets]
        # The command has the descriptors that it would have under strace.
        done = subprocess.run([*tool, "--", *command], close_fds=False)
        text = open(lines, encoding="latin-1").read().splitlines() if os.path.exists(lines) else []
        kept = [line + "\n" for line in chosen(text, asked)]
        if asked.output is None: sys.stderr.writelines(kept)
        elif asked.output.startswith("|"): subprocess.run(["/bin/sh", "-c", asked.output[1:]], input="".join(kept), encoding="latin-1")
        elif asked.per_process or asked.follows > 1:
            for line in kept:
                tid, _, rest = line.partition(" ")
                with open(f"{asked.output}.{tid}", "a", encoding="latin-1") as f: f.write(rest.lstrip(" "))
        else:
            with open(asked.output, "a" if asked.appends else "w", encoding="latin-1") as f: f.writelines(kept)
    if done.returncode < 0:
        import resource
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        try: signal.signal(-done.returncode, signal.SIG_DFL)
        except OSError: pass
        os.kill(os.getpid(), -done.returncode)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
