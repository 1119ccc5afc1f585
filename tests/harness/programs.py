"""The programs of tests/programs as cases to compare, each in all variants that build.sh made.

Given the folder that they were built into. Must not know how they are run.
"""

import os

from harness.compare import Case

WORLDS = (
    "clone_vm",
    "daemon",
    "dumpable",
    "namespaces",
    "chroot",
    "limits",
    "brk",
    "sampled",
    "dropped",
    "rewritten",
    "rewritten5",
    "gs",
    "wrgsbase",
    "exec",
    "locked",
)


def program_cases(programs):
    """The programs of tests/programs, each in all variants that build.sh made."""
    # name: (arguments, threaded)
    settings = {
        "threads": ([], True),
        "procs": ([], True),
        "cancel": ([], True),
        "exceptions": ([], True),
        "panic": ([], True),
        "callforms": ([], False),
        "signals": ([], True),
        "jit": ([], True),
        "unwind": ([], True),
        "sigprof": (["1"], False),
        "manythreads": ([], True),
        "claimed": ([], True),
        "unborn": (["400000"], False),
        "sanitized": ([], True),
    }
    quick = (
        "O2",
        "static",
        "musl",
        "stripped",
        "cfi",
        "release",
        "nopie",
        "O1",
        "static-pie",
        "gap",
    )
    cases = []
    names = (
        sorted(
            n
            for n in os.listdir(programs)
            if "." not in n or n.rsplit(".", 1)[1] not in ("so", "new")
        )
        if programs
        else []
    )
    for name in names:
        base, _, variant = name.partition(".")
        arguments, threaded = settings.get(base, ([], False))
        runs = [(name, arguments)]
        if base == "sandbox":
            runs = [
                (f"{name}.{m}", [m])
                for m in ("seccomp", "filter", "tsc", "rlimit", "nofile", "mdwe", "mdwe-exec")
            ]
        if base == "filtered":
            runs = [(f"{name}.{m}", [m]) for m in ("docker", "service", "mdwx", "kill")]
        if base == "worlds":
            runs = [(f"{name}.{m}", [m]) for m in WORLDS]
        for case_name, args in runs:
            is_quick = variant in quick or base in ("nolibc", "sanitized")
            cases.append(
                Case(
                    f"programs/{case_name}",
                    [os.path.join(programs, name)] + args,
                    threaded=threaded,
                    quick=is_quick,
                    wx=case_name.split(".")[-1] in ("rewritten", "rewritten5"),
                    mid=base
                    in (
                        "sigprof",
                        "sleeper",
                        "cancel",
                        "alarm",
                        "procs",
                        "threads",
                        "exceptions",
                        "deep",
                        "procself",
                        "signals",
                        "mainexits",
                        "abyss",
                    ),
                )
            )
        if base in ("sandbox", "sandthrow") and variant == "O2":
            # Nothing is traced but ld.so's resolvers: what happens to the process must be seen all
            # the same.
            cases.append(
                Case(
                    f"notrace/{name}",
                    [os.path.join(programs, name)]
                    + (["seccomp"] if base == "sandbox" else arguments),
                    quick=True,
                    options=["-N", "_*"],
                )
            )
            cases.append(
                Case(
                    f"modules/{name}",
                    [os.path.join(programs, name)]
                    + (["seccomp"] if base == "sandbox" else arguments),
                    quick=True,
                    options=["-l", "ld*"],
                )
            )
        if base == "exceptions" and variant == "O2":
            # The unwinder is left out.
            cases.append(
                Case(
                    f"modules/{name}",
                    [os.path.join(programs, name)],
                    threaded=True,
                    quick=True,
                    options=["-l", name, "-l", "libc.*"],
                )
            )
        if (
            base
            in (
                "exceptions",
                "longjmp",
                "unwind",
                "cancel",
                "threads",
                "signals",
                "dlopen",
                "procs",
                "mainexits",
                "cancelasync",
            )
            and variant == "O2"
        ):
            # Its main is intercepted, whose caller is left out.
            cases.append(
                Case(
                    f"alone/{name}",
                    [os.path.join(programs, name)] + arguments,
                    threaded=threaded,
                    quick=True,
                    mid=base == "mainexits",
                    options=["-l", name],
                )
            )
            # No return address is replaced, nor those of roots.
            for name_of_case, options in (
                ("points.alone", ["-l", name]),
                ("points.depth", ["-D", "4"]),
                ("points.filter", ["-F", "*"]),
                ("points.root", ["-F", "f*"]),
            ):
                cases.append(
                    Case(
                        f"{name_of_case}/{name}",
                        [os.path.join(programs, name)] + arguments,
                        threaded=threaded,
                        quick=True,
                        mid=base == "mainexits",
                        options=["--return-points", *options],
                    )
                )
        if base == "worlds" and variant == "O2":
            # Nothing is traced but ld.so, and the process sets gs.
            cases.append(
                Case(
                    f"modules/{name}.gs",
                    [os.path.join(programs, name), "gs"],
                    quick=True,
                    options=["-l", "ld*"],
                )
            )
            # The first process of a pid namespace shows no event: whose number is whose must be
            # found out otherwise.
            cases.append(
                Case(
                    f"notrace/{name}.namespaces",
                    [os.path.join(programs, name), "namespaces"],
                    quick=True,
                    options=["-N", "*a*"],
                )
            )
        if base == "flow":
            # What is too deep or muted jumps to functions that read their return address.
            for name_of_case, options in (
                ("depth", ["-D", "4"]),
                ("depth.filter", ["-F", "*", "-D", "1"]),
                ("notrace", ["-N", "who_calls_frame"]),
            ):
                cases.append(
                    Case(
                        f"{name_of_case}/{name}",
                        [os.path.join(programs, name)],
                        quick=True,
                        options=options,
                    )
                )
            # Functions without a name: one of them takes its arguments off the stack.
            cases.append(
                Case(
                    f"filter.nameless/{name}",
                    [os.path.join(programs, name)],
                    quick=True,
                    options=["-F", "sub_*"],
                )
            )
        if base == "vanished":
            # Hooks take the places of most calls of the kernel: none that is unseen counts as one.
            cases.append(
                Case(
                    f"filter.syscalls/{name}",
                    [os.path.join(programs, name)],
                    quick=True,
                    options=["-F", "*", "--syscalls=all"],
                )
            )
        if base == "sigprof" and variant == "O2":
            # The unwinder is loaded late, by code that is not traced.
            cases.append(
                Case(
                    f"depth/{name}",
                    [os.path.join(programs, name)] + arguments,
                    quick=True,
                    options=["-D", "8"],
                )
            )
            # What tells of new libraries is a function that the filter names, too.
            cases.append(
                Case(
                    f"depth.filter/{name}",
                    [os.path.join(programs, name)] + arguments,
                    quick=True,
                    options=["-F", "*", "-D", "8"],
                )
            )
        if base == "sigprof" and variant == "O0":
            # Its prologues are moved, and store below the stack pointer: a signal may come
            # between.
            cases.append(
                Case(
                    f"depth.filter/{name}",
                    [os.path.join(programs, name)] + arguments,
                    quick=True,
                    options=["-F", "*", "-D", "9"],
                )
            )
            cases.append(
                Case(
                    f"root.filter/{name}",
                    [os.path.join(programs, name)] + arguments,
                    quick=True,
                    options=["-F", "f_tiny"],
                )
            )
        if base == "sigprof":
            cases.append(
                Case(
                    f"programs/sigprof.60s.{variant}",
                    [os.path.join(programs, name), "60"],
                    timeout_s=200,
                )
            )
        if variant == "O2" and base not in ("sandbox", "worlds"):
            # Every function that can be hooked is: prologues moved, return addresses replaced.
            cases.append(
                Case(
                    f"filter/{name}",
                    [os.path.join(programs, name)] + arguments,
                    threaded=threaded,
                    quick=True,
                    options=["-F", "*"],
                )
            )
    return cases
