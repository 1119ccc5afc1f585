#!/usr/bin/env python3
"""Gives sptrace what it cannot use and checks that it says so well.

usage: tests/bad_input.py [--sptrace PATH] [--only GLOB]... [--list] [--seed N]

Given: a built sptrace (--sptrace, $SPTRACE or target/release/sptrace) and the small programs of any machine; the bad files
are made on the fly from a fixed seed.
Gives: one line a case, then `N passed, N failed` alone on the last line; status 1 if anything failed.
Checked for each error: the documented exit status (2 usage, 125 `run` failed, 126 cannot execute, 127 not found, 1 `report`
failed), nothing on stdout, exactly one line on stderr that begins `sptrace: ` and holds a hint (in brackets, or after a
semicolon), no panic, no file left behind, a former trace untouched. Where the command did run: its own output and status, and
what sptrace must say all the same.
Must not know: how sptrace works; of its texts only the prefix and the words that a case asks for.
"""
import os, random, resource, signal, struct, subprocess, sys, time

from harness.case import Cases, Skip
from harness.process import become_subreaper, children_of
from harness.refusal import CANNOT_EXECUTE, NOT_FOUND, OWN, REPORT, USAGE, changed, elf, main, no_panic, one_line, same_as_native

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
case = Cases()


# --- commands that cannot be run ---

@case
def command_missing(b): return b.fails(NOT_FOUND, "run", "no-such-command-here", says="not found")
@case
def command_missing_by_path(b): return b.fails(NOT_FOUND, "run", "--", "./nothing", "-x", says="no such file")
@case
def command_empty_name(b): return b.fails(NOT_FOUND, "run", "", says="empty")
@case
def command_is_a_directory(b): return b.fails(CANNOT_EXECUTE, "run", "/tmp", says="directory")
@case
def command_without_x(b): return b.fails(CANNOT_EXECUTE, "run", b.put("plain", b"#!/bin/sh\n", 0o644), says="chmod")
@case
def command_is_an_empty_file(b): return b.fails(CANNOT_EXECUTE, "run", b.put("empty", b""), says="empty")
@case
def command_is_a_script_without_shebang(b): return b.fails(CANNOT_EXECUTE, "run", b.put("script", b"echo hi\n"), says="#!/bin/sh")
@case
def command_is_a_script_of_a_missing_interpreter(b): return b.fails(CANNOT_EXECUTE, "run", b.put("script", b"#!/no/such/sh\n"), says="/no/such/sh")
@case
def command_is_text(b): return b.fails(CANNOT_EXECUTE, "run", b.put("text", b"\xff\xfe garbage " * 50), says="format")
@case
def command_is_32_bit(b): return b.fails(CANNOT_EXECUTE, "run", b.put("p32", changed(elf(), (4, b"\1"), (18, b"\3\0"))), says="32-bit")
@case
def command_is_aarch64(b): return b.fails(CANNOT_EXECUTE, "run", b.put("arm", changed(elf(), (18, struct.pack("<H", 183)))), says="aarch64")
@case
def command_is_an_object(b): return b.fails(CANNOT_EXECUTE, "run", b.put("object", changed(elf(), (16, b"\1\0"))), says="object")
@case
def command_is_half_an_elf_header(b): return b.fails(CANNOT_EXECUTE, "run", b.put("cut", elf()[:40]), says="truncated")
@case
def command_is_cut_in_its_program_headers(b): return b.fails(CANNOT_EXECUTE, "run", b.put("cut", elf()[:100]), says="truncated")
@case
def command_has_a_missing_dynamic_linker(b):
    return b.fails(CANNOT_EXECUTE, "run", b.put("p", elf().replace(b"/lib64/ld-linux-x86-64.so.2", b"/lib64/ld-linux-x86-64.so.9")), says="so.9")


@case
def command_cut_anywhere_ends_as_untraced(b):
    """Past the headers the kernel begins to load it: it dies by a signal, and so do we, or one line says why not."""
    found, data, rng = [], elf(), random.Random(b.seed)
    for length in [4096, 20000, len(data) // 2, len(data) - 1] + [rng.randrange(64, len(data)) for _ in range(6)]:
        found += [f"cut at {length}: {f}" for f in ends_as_untraced(b, b.put("cut", data[:length]))]
    return found


@case
def command_changed_at_random_ends_as_untraced(b):
    found, data, rng = [], elf(), random.Random(b.seed)
    for n in range(40):
        changes = [(rng.randrange(1000 if n % 2 else len(data)), bytes([rng.randrange(256)])) for _ in range(1 + n % 8)]
        broken = changed(data, *changes)
        found += [f"changed at {[hex(c[0]) + '=' + c[1].hex() for c in changes]}: {f}" for f in ends_as_untraced(b, b.put("fuzzed", broken))]
    return found


def ends_as_untraced(bench, command):
    try: native = subprocess.run([command, "--version"], cwd=bench.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=20).returncode
    except OSError: native = None
    except subprocess.TimeoutExpired: return []  # what does not end untraced says nothing
    got = bench.run("run", "--", command, "--version")
    found = no_panic(got)
    if native is None or got.returncode == CANNOT_EXECUTE:
        found += one_line(got)
        if got.returncode != CANNOT_EXECUTE: found.append(f"status {got.returncode}, not {CANNOT_EXECUTE}")
        if native is not None and native >= 0: found.append(f"refused, but runs untraced with status {native}")
    elif got.returncode != native: found.append(f"status {got.returncode}, untraced {native}: {got.stderr[:200]!r}")
    return found


# --- outputs ---

@case
def output_is_a_directory(b): return b.fails(OWN, "run", "-o", "/tmp", "/bin/true", says="directory")
@case
def output_folder_is_missing(b): return b.fails(OWN, "run", "-o", "no/such/place", "/bin/true", says="folder does not exist")
@case
def output_is_empty(b): return b.fails(USAGE, "run", "-o", "", "/bin/true")
@case
def output_is_full_at_once(b): return b.fails(OWN, "run", "-o", "/dev/full", "/bin/true", says="no space left")
@case
def output_below_a_file(b): return b.fails(OWN, "run", "-o", b.put("file", b"x") + "/trace", "/bin/true", says="folder does not exist")
@case
def output_is_on_a_file_system_without_writing(b): return b.fails(OWN, "run", "-o", "/proc/sptrace.data", "/bin/true")


@case
def output_without_permission(b):
    os.mkdir(b.path("mine"), 0o555)
    if os.geteuid() != 0: return b.fails(OWN, "run", "-o", "mine/trace", "/bin/true", says="permission denied")
    os.chmod(b.folder, 0o755)
    drop = lambda: (os.setgroups([]), os.setgid(65534), os.setuid(65534))
    try: subprocess.run([b.sptrace, "--version"], stdout=subprocess.DEVNULL, check=True, preexec_fn=drop, cwd="/")
    except (OSError, subprocess.CalledProcessError): raise Skip("nobody cannot run this sptrace")
    return b.fails(OWN, "run", "-o", "mine/trace", "/bin/true", says="permission denied", before=drop)


@case
def output_device_survives_a_missing_command(b):
    """A device that the user named is not removed with the trace that never began."""
    if os.geteuid() != 0: raise Skip("needs root to make a device")
    try: os.mknod(b.path("null"), 0o666 | 0o020000, os.makedev(1, 3))
    except OSError as e: raise Skip(f"cannot make a device: {e}")
    return b.fails(NOT_FOUND, "run", "-o", "null", "no-such-command-here")


@case
def termination_at_any_moment_leaves_no_command(b):
    """SIGTERM to sptrace before, while and after it starts the command: either both end by it or there is no command yet."""
    found = []
    become_subreaper()  # what sptrace leaves behind becomes our child
    for n in range(40):
        process = subprocess.Popen([b.sptrace, "run", "-q", "-o", "trace", "/bin/sleep", "60"], cwd=b.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        time.sleep(n * 0.001)
        process.terminate()
        try: _, text = process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            found.append(f"after {n} ms: does not end")
            text = b""
        if process.returncode not in (-15, -9) or text: found.append(f"after {n} ms: status {process.returncode}, {text[:200]!r}")
        for left in children_of(os.getpid()):
            os.kill(left, signal.SIGKILL)
            os.waitpid(left, 0)
            found.append(f"after {n} ms: the command is left")
    return found


@case
def former_trace_survives_a_missing_command(b):
    b.trace()
    return b.fails(NOT_FOUND, "run", "-o", "good", "no-such-command-here")


@case
def former_trace_is_kept_as_old(b):
    first = b.trace()
    b.run("report", "-i", "good")
    b.trace("/bin/true")
    if open(b.path("good.old"), "rb").read() != first: return ["the former trace is not in good.old"]
    # What reports have left beside it has gone with it.
    said = [b.run("report", "-i", name).stderr for name in ("good", "good.old", "good")]
    return [] if not any(said) else [f"reports have something to say: {said}"]


@case
def disk_full_in_mid_run_ends_the_recording_only(b):
    if os.geteuid() != 0: raise Skip("needs root to mount a small file system")
    os.mkdir(b.path("small"))
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", b.path("small")], stderr=subprocess.DEVNULL).returncode: raise Skip("cannot mount a tmpfs")
    try:
        found, got = same_as_native(b, ["/bin/sh", "-c", "ls -lR /usr/share/doc; exit 7"], "-q", "-o", "small/trace")
        found += one_line(got, "ended early")
        if b"no space left" not in got.stderr.lower(): found.append("does not say why")
        found += never_looks_whole(b, "small/trace")
    finally: subprocess.run(["umount", b.path("small")], check=True)
    return found


@case
def disk_running_low_ends_the_recording_only(b):
    """Before the volume is full, while the trace can still be ended in order."""
    if os.geteuid() != 0: raise Skip("needs root to mount a small file system")
    os.mkdir(b.path("small"))
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", b.path("small")], stderr=subprocess.DEVNULL).returncode: raise Skip("cannot mount a tmpfs")
    try:
        with open(b.path("small/other"), "wb") as f: f.write(bytes(19 << 20))
        found, got = same_as_native(b, ["/bin/sh", "-c", "ls -lR /usr/share /usr/lib; ls -lR /usr/share /usr/lib; exit 7"], "-q", "-o", "small/trace")
        found += one_line(got, "runs low")
        free = os.statvfs(b.path("small")).f_bavail * 4096
        if free < 1 << 20: found.append(f"only {free} bytes are free")
        for view in ("summary", "coverage"):
            report = b.run("report", view, "-i", "small/trace")
            if report.returncode or b"running low" not in report.stdout: found.append(f"{view}: status {report.returncode}, {report.stdout[-200:]!r}")
    finally: subprocess.run(["umount", b.path("small")], check=True)
    return found


@case
def file_size_limit_is_an_error_and_no_signal(b): return b.fails(OWN, "run", "-o", "trace", "/bin/true", says="ulimit", before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536)))


@case
def max_size_ends_the_recording_only(b):
    found, got = same_as_native(b, ["/bin/sh", "-c", "ls -lR /usr/share/doc; exit 7"], "-q", "--max-size", "100K", "-o", "trace")
    found += one_line(got, "--max-size")
    size = os.path.getsize(b.path("trace"))
    if size > 100 * 1024 + (1 << 20): found.append(f"the trace has {size} bytes")
    report = b.run("report", "-i", "trace")
    if report.returncode != 0: found.append(f"the trace cannot be read: {report.stderr[:200]!r}")
    return found


@case
def ring_is_too_small(b): return b.fails(USAGE, "run", "--ring", "1M", "ls", says="2M")
@case
def ring_and_max_size(b): return b.fails(USAGE, "run", "--ring", "2M", "--max-size", "2M", "ls", says="--max-size")
@case
def ring_into_a_device(b): return b.fails(OWN, "run", "-q", "--ring", "2M", "-o", "/dev/null", "/bin/true", says="regular file")


@case
def ring_is_readable_after_a_kill(b):
    process = subprocess.Popen([b.sptrace, "run", "-q", "--ring", "2M", "-o", "trace", "--", "/bin/sh", "-c", "while :; do ls -lR /usr/lib; done"], cwd=b.folder,
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ, XDG_CACHE_HOME=os.path.join(os.path.dirname(b.folder), "cache")), start_new_session=True)
    for _ in range(200):
        time.sleep(0.05)
        if os.path.exists(b.path("trace")) and os.stat(b.path("trace")).st_blocks * 512 > 2 << 20: break
    time.sleep(0.3)
    process.kill()
    process.wait()
    os.killpg(process.pid, signal.SIGKILL)  # the command has no end of its own
    got = b.run("report", "functions", "-i", "trace")
    found = no_panic(got) + never_looks_whole(b, "trace")
    if got.returncode or b"dropped by --ring" not in got.stderr or got.stdout.count(b"\n") < 10: found.append(f"status {got.returncode}, {got.stderr[:200]!r}, {len(got.stdout)} bytes")
    return found


def never_looks_whole(bench, trace):
    """What an ended recording left is refused or called incomplete."""
    got = bench.run("report", "-i", trace)
    found = no_panic(got)
    if not got.stderr and b"early" not in got.stdout and b"incomplete" not in got.stdout: found.append(f"the partial trace looks whole: {got.stdout[-200:]!r}")
    return found


# --- traces ---

@case
def trace_missing(b): return b.fails(REPORT, "report", "-i", "nothing", says="no such file")
@case
def trace_missing_by_default(b): return b.fails(REPORT, "report", says="sptrace.data")
@case
def trace_is_a_directory(b): return b.fails(REPORT, "report", "-i", "/tmp", says="not a regular file")
@case
def trace_is_a_device(b): return b.fails(REPORT, "report", "-i", "/dev/zero", says="not a regular file")
@case
def trace_is_empty(b): return b.fails(REPORT, "report", "-i", b.put("trace", b""), says="empty")
@case
def trace_is_foreign(b): return b.fails(REPORT, "report", "-i", "/bin/ls", says="not an sptrace trace")
@case
def trace_is_of_another_version(b): return b.fails(REPORT, "report", "-i", b.put("trace", changed(b.trace(), (8, struct.pack("<I", 4711)))), says="4711")
@case
def trace_has_no_system_calls(b): return b.fails(REPORT, "report", "lines", "-i", b.put("trace", b.trace()), says="--syscalls")
@case
def set_of_system_calls_has_a_wrong_name(b): return b.fails(USAGE, "run", "--syscalls=read,raed", "--", "true", says="column 6")
@case
def set_of_system_calls_has_a_wrong_expression(b): return b.fails(USAGE, "run", "--syscalls-only=/(/", "--", "true", says="column 1")
@case
def system_calls_with_and_without_functions(b): return b.fails(USAGE, "run", "--syscalls", "--syscalls-only", "--", "true", says="cannot be used with")
@case
def spec_of_values_has_a_wrong_format(b): return b.fails(USAGE, "run", "-A", "f@arg1/q", "--", "true", says="column 8 ('q'): formats are")
@case
def spec_of_values_has_a_wrong_type(b): return b.fails(USAGE, "run", "-A", "f@arg1/{itn}", "--", "true", says="there is no type")
@case
def spec_of_results_names_an_argument(b): return b.fails(USAGE, "run", "-R", "f@arg1", "--", "true", says="use -A")
@case
def file_of_prototypes_has_a_wrong_line(b): return b.fails(USAGE, "run", "-A", "f", "--prototypes", b.put("conf", b"int f(int);\nint g(itn);\n"), "--", "true", says=":2:")
@case
def file_of_prototypes_without_values(b): return b.fails(USAGE, "run", "--prototypes", "/dev/null", "--", "true", says="of use with -A or -R")
@case
def trace_is_cut_in_its_header(b): return b.fails(REPORT, "report", "-i", b.put("trace", b.trace()[:30]))


@case
def trace_cut_anywhere_is_no_panic_and_never_whole(b):
    found, data, rng = [], b.trace(), random.Random(b.seed)
    for length in [rng.randrange(len(data)) for _ in range(25)] + [len(data) - 1]:
        for view in ("summary", "tree", "functions", "coverage", "folded"):
            b.put("trace", data[:length])
            got = b.run("report", view, "-i", "trace")
            if got.returncode not in (0, REPORT): found.append(f"{view} of {length} bytes: status {got.returncode}")
            if got.returncode == REPORT: found += [f"{view} of {length} bytes: {f}" for f in one_line(got)]
            found += no_panic(got)
        found += [f"cut at {length}: {f}" for f in never_looks_whole(b, "trace")]
    return found


@case
def trace_changed_at_random_is_no_panic(b):
    found, data, rng = [], b.trace(), random.Random(b.seed)
    for n in range(40):
        at = rng.randrange(len(data))
        b.put("trace", changed(data, (at, bytes([data[at] ^ (1 + rng.randrange(255))]))))
        got = b.run("report", "tree" if n % 2 else "summary", "-i", "trace")
        found += no_panic(got)
        if got.returncode not in (0, REPORT): found.append(f"changed at {at}: status {got.returncode}")
        if got.returncode == REPORT: found += [f"changed at {at}: {f}" for f in one_line(got)] if n % 2 == 0 or not got.stdout else []
    return found


# --- filters, options, streams ---

@case
def filter_unknown(b):
    b.trace()
    return b.fails(REPORT, "report", "tree", "-i", "good", "-F", "no_such_function_x", says="no_such_function_x")
@case
def filter_unknown_to_hide(b):
    b.trace()
    return b.fails(REPORT, "report", "-i", "good", "-N", "no_such*x", says="no_such*x")
@case
def thread_unknown(b):
    b.trace()
    return b.fails(REPORT, "report", "-i", "good", "--tid", "1", says="no thread 1")
@case
def time_range_empty(b):
    b.trace()
    return b.fails(REPORT, "report", "-i", "good", "--from", "2s", "--to", "1s", says="--from")
@case
def csv_of_a_tree(b):
    b.trace()
    return b.fails(REPORT, "report", "tree", "-i", "good", "--format", "csv", says="csv")
@case
def subcommand_unknown(b): return b.fails(USAGE, "rum", "ls", says="rum")
@case
def option_unknown(b): return b.fails(USAGE, "run", "--no-such-option", "ls", says="--no-such-option")
@case
def run_without_command(b): return b.fails(USAGE, "run", "-q", says="COMMAND")
@case
def on_full_unknown(b): return b.fails(USAGE, "run", "--on-full", "burst", "ls", says="block, drop")
@case
def max_size_is_no_size(b): return b.fails(USAGE, "run", "--max-size", "big", "ls", says="--max-size")
@case
def max_size_is_zero(b): return b.fails(USAGE, "run", "--max-size", "0", "ls", says="--max-size")
@case
def max_size_is_too_large(b): return b.fails(USAGE, "run", "--max-size", "99999999999G", "ls", says="--max-size")
@case
def max_size_is_negative(b): return b.fails(USAGE, "run", "--max-size=-1M", "ls", says="--max-size")
@case
def buffer_is_too_large(b): return b.fails(USAGE, "run", "--buffer", "1T", "ls", says="--buffer")
@case
def buffer_is_too_small(b): return b.fails(USAGE, "run", "--buffer", "1K", "ls", says="--buffer")
@case
def depth_is_zero(b): return b.fails(USAGE, "run", "-D", "0", "ls", says="depth")
@case
def depth_is_no_number(b): return b.fails(USAGE, "run", "-D", "deep", "ls", says="deep")
@case
def view_unknown(b): return b.fails(USAGE, "report", "branches", says="summary, functions, tree")
@case
def view_is_a_trace_file(b):
    b.trace("/bin/true")
    return b.fails(USAGE, "report", "good", says="named by -i FILE")
@case
def time_is_no_time(b): return b.fails(USAGE, "report", "--min-time", "5 parsecs", says="parsecs")
@case
def options_of_one_view_are_refused_for_others(b):
    b.trace("/bin/true")
    wrong = (("functions", "--fold"), ("summary", "--around", "1ms"), ("flame", "--slowest", "1", "main"), ("summary", "--columns", "calls"),
             ("flame", "--focus", "main"), ("functions", "--loader"), ("tree", "--format", "svg"), ("functions", "--follow"), ("summary", "--diff", "good"), ("flame", "--partition"))
    return [said for view in wrong for said in b.fails(1, "report", "-i", "good", *view, says=" for ")]
@case
def columns_and_slowest_are_wrong(b):
    b.trace("/bin/true")
    return (b.fails(1, "report", "functions", "-i", "good", "--columns", "calls,size", says="there is no column 'size'")
            + b.fails(1, "report", "tree", "-i", "good", "--slowest", "0", "main", says="is not how many calls"))
@case
def time_is_negative(b): return b.fails(USAGE, "report", "--min-time=-1s", says="--min-time")


@case
def stdout_closed_pipe_ends_a_report_quietly(b):
    b.trace("/bin/ls", "-l", "/usr/lib")
    found = []
    for view in ("tree", "functions", "folded", "summary", "coverage"):
        reader, writer = os.pipe()
        os.close(reader)
        got = b.run("report", view, "-i", "good", stdout=writer)
        os.close(writer)
        if got.returncode != 0 or got.stderr: found.append(f"{view}: status {got.returncode}, stderr {got.stderr[:200]!r}")
    return found


@case
def stdout_full_fails_a_report(b):
    b.trace()
    found = []
    for view in ("tree", "functions", "folded", "summary", "coverage"):
        with open("/dev/full", "wb") as full: got = b.run("report", view, "-i", "good", stdout=full)
        found += [f"{view}: {f}" for f in one_line(got, "no space left")]
        if got.returncode != REPORT: found.append(f"{view}: status {got.returncode}, not {REPORT}")
    return found


@case
def stderr_full_or_closed_disturbs_nothing(b):
    found = []
    with open("/dev/full", "wb") as full:
        for status, argv in ((7, ("run", "-o", "t", "--", "/bin/sh", "-c", "exit 7")), (NOT_FOUND, ("run", "./nothing")), (USAGE, ("run",)), (REPORT, ("report", "-i", "nothing")), (0, ("run", "-o", "t", "/bin/true"))):
            got = b.run(*argv, stderr=full)
            if got.returncode != status: found.append(f"{argv}: status {got.returncode}, not {status}")
            got = b.run(*argv, stderr=None, before=lambda: os.close(2))
            if got.returncode != status: found.append(f"{argv} with stderr closed: status {got.returncode}, not {status}")
    return found


@case
def no_cache_place_disturbs_nothing(b):
    found = []
    for env in ({"XDG_CACHE_HOME": "/dev/null", "HOME": "/dev/null"}, {"XDG_CACHE_HOME": "relative", "HOME": ""}, {"XDG_CACHE_HOME": "/proc/1/none"}):
        got = subprocess.run([b.sptrace, "run", "-q", "-o", "trace", "/bin/echo", "hi"], cwd=b.folder, env=dict(os.environ, **env), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if (got.returncode, got.stdout, got.stderr) != (0, b"hi\n", b""): found.append(f"{env}: status {got.returncode}, {got.stdout!r}, {got.stderr[:200]!r}")
    return found


if __name__ == "__main__":
    sys.exit(main(case, __doc__))
