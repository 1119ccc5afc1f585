"""Runs the tests of strace's suite and says why those that fail do.

Given the work directory of tests/strace_suite.sh, what is run in strace's place, a glob of tests,
how many run at once and how many shall pass; writes the files `passed` and `failed`, prints a line
for each cause. Must not know what is run in strace's place.
"""

import collections, concurrent.futures, fnmatch, os, re, signal, subprocess, sys

SECONDS = 30
SKIPPED = 77


def tests_of(folder, glob):
    rule = "print-tests: ; @echo $(TESTS)\n"
    command = ["make", "-s", "-f", "Makefile", "-f", "-", "print-tests"]
    made = subprocess.run(command, cwd=folder, input=rule, text=True, capture_output=True)
    names = (name.removesuffix(".test").removesuffix(".gen") for name in made.stdout.split())
    kinds = dict(zip(names, made.stdout.split()))
    return {name: file for name, file in kinds.items() if fnmatch.fnmatch(name, glob)}


def cause_of(status, output):
    """Why a test has failed."""
    unsupported = re.search(r"as_strace: unsupported: (.*)", output)
    if unsupported:
        return f"option {unsupported[1]}"
    if status in (124, 137) or "timed out" in output:
        return "takes too long"
    code = re.search(r"failed with code (\d+)", output)
    if code:
        return f"ends with status {code[1]}"
    for line in output.splitlines():
        # Of a diff between what is expected and what was shown.
        differs = re.match(r"[-+](?![-+])(?:\d+ +)?([a-z_0-9]+|---|\+\+\+)", line)
        if differs:
            return f"shows {differs[1]} otherwise"
    if "pattern" in output or "match" in output:
        return "other lines than expected"
    return "other"


def run(folder, wrapper, file):
    environment = {
        **os.environ,
        "STRACE": wrapper,
        "STRACE_ARCH": "x86_64",
        "STRACE_NATIVE_ARCH": "x86_64",
        "SIZEOF_KERNEL_LONG_T": "8",
        "SIZEOF_LONG": "8",
        "MIPS_ABI": "",
        "srcdir": ".",
        "TIMEOUT_DURATION": str(SECONDS),
    }
    command = ["timeout", "-k", "5", str(SECONDS), "./run.sh", f"./{file}"]
    path = f"{folder}/{file}.ours"
    # To a file: what a test leaves behind may keep it open. Then what is left is ended.
    with open(path, "w") as kept:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=kept,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        status = process.wait()
    end_session(process.pid)
    with open(path, encoding="latin-1") as kept:
        return status, kept.read()


def end_session(session):
    """Kills the processes of a test that are left."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                if os.getsid(int(entry)) == session:
                    os.kill(int(entry), signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass


def main():
    work, wrapper, glob, jobs, wanted = sys.argv[1:]
    folder = f"{work}/strace/tests"
    tests = tests_of(folder, glob)
    passed, failed, skipped = [], {}, []
    with concurrent.futures.ThreadPoolExecutor(int(jobs)) as pool:
        done = pool.map(lambda item: (item, run(folder, wrapper, item[1])), tests.items())
        for (name, _), (status, output) in done:
            if status == 0:
                passed.append(name)
            elif status == SKIPPED:
                skipped.append(name)
            else:
                failed[name] = cause_of(status, output)
    with open(f"{work}/passed", "w") as out:
        out.writelines(f"{name}\n" for name in passed)
    with open(f"{work}/failed", "w") as out:
        out.writelines(f"{name}: {cause}\n" for name, cause in sorted(failed.items()))
    for cause, count in collections.Counter(failed.values()).most_common():
        example = next(name for name, why in failed.items() if why == cause)
        print(f"{count:5} {cause} (as {example})")
    print(f"{len(passed)} passed, {len(failed)} failed, {len(skipped)} skipped")
    return 0 if len(passed) >= int(wanted) else 1


if __name__ == "__main__":
    sys.exit(main())
