"""The real, unmodified commands of the machine as cases to compare.

Given inputs (`fixtures.py`); gives cases. Must not know how they are run.
"""

import shutil

from harness.compare import Case

NODE = (
    "let s=0;for(let i=0;i<300000;i++)s=(s*31+i)|0;"
    "console.log(s,[3,1,2].sort(),JSON.stringify({a:[1,2,{b:3}]}));"
    'setTimeout(()=>{console.log("later");process.exit(8)},20)'
)
ADDRESS = (rb"0x[0-9a-f]{6,}", b"0x")


MPLAYER_TIMES = [
    ADDRESS,
    (rb"(?s)\r?V: .*?(?=\r|\n|$)", b"V"),
    (rb"(?m)^BENCHMARK.*$", b"BENCHMARK"),
    (rb"[\r\n]+(V[\r\n]*)+", b"\n"),
]


def command_cases(fixture):
    """The real, unmodified commands of the machine."""
    f = fixture
    sh = lambda script: ["/bin/sh", "-c", script]
    rustc = shutil.which("rustc")
    return [
        Case("ls", ["/bin/ls", "-lR", "/usr/share"], timeout_s=300),
        Case("ls.small", ["/bin/ls", "-lR", "/usr/share/doc"], quick=True),
        Case("bash", ["/bin/bash", f("bash.sh")], quick=True),
        Case("python3", ["/usr/bin/python3", f("main.py")], quick=True),
        Case("python3.threads", ["/usr/bin/python3", f("threads.py")], threaded=True, quick=True),
        Case("perl", ["/usr/bin/perl", f("main.pl")], quick=True),
        Case("git.log", ["/usr/bin/git", "-C", f("repo"), "log", "-p", "--stat"], quick=True),
        Case(
            "git.status",
            ["/usr/bin/git", "-C", f("repo"), "status", "--porcelain=v2", "--branch"],
            quick=True,
        ),
        Case(
            "sqlite3",
            ["/usr/bin/sqlite3", "-batch", "db", f".read {f('main.sql')}"],
            quick=True,
            files=["db"],
        ),
        Case(
            "sqlite3.filter",
            ["/usr/bin/sqlite3", "-batch", "db", f".read {f('main.sql')}"],
            quick=True,
            files=["db"],
            options=["-F", "sqlite3_*"],
        ),
        # setjmp is hooked where it is called from a site that is not patched
        Case(
            "bash.filter", ["/bin/bash", f("bash.sh")], quick=True, options=["-F", "*", "-D", "1"]
        ),
        Case(
            "python3.filter",
            ["/usr/bin/python3", f("main.py")],
            quick=True,
            options=["-F", "*Object*"],
        ),
        Case(
            "gcc",
            ["/usr/bin/gcc", "-O2", "-c", f("compile.c"), "-o", "out.o"],
            quick=True,
            files=["out.o"],
            timeout_s=300,
        ),
        Case(
            "g++",
            ["/usr/bin/g++", "-O1", "-c", f("exceptions.cpp"), "-o", "out.o"],
            files=["out.o"],
            timeout_s=600,
        ),
        Case(
            "gcc.link",
            ["/usr/bin/gcc", "-O1", "-pthread", f("alarm.c"), "-o", "out"],
            files=["out"],
            timeout_s=300,
        ),
        Case(
            "xz",
            ["/usr/bin/xz", "-T2", "-2", "--block-size=262144", "-c", f("small")],
            threaded=True,
            quick=True,
        ),
        Case("xz.roundtrip", sh(f"xz -T2 -1 -c {f('text')} | xz -dc | md5sum"), threaded=True),
        Case("zstd", ["/usr/bin/zstd", "-T2", "-3", "-c", f("text")], threaded=True, quick=True),
        Case("lua5.4", ["/usr/bin/lua5.4", f("main.lua")], quick=True),
        Case(
            "openssl", ["/usr/bin/openssl", "dgst", "-sha256", f("text"), f("small")], quick=True
        ),
        Case(
            "openssl.enc",
            sh(
                f"openssl enc -aes-256-cbc -pbkdf2 -S 00112233 -k key -in {f('text')} | openssl"
                " dgst -md5"
            ),
        ),
        Case(
            "sort",
            ["/usr/bin/sort", "--parallel=4", "-S", "2M", "-k3", f("text")],
            threaded=True,
            quick=True,
        ),
        Case(
            "mplayer",
            [
                "/usr/bin/mplayer",
                "-noconfig",
                "all",
                "-nolirc",
                "-benchmark",
                "-nosound",
                "-vo",
                "md5sum:outfile=sums",
                f("clip.mpg"),
            ],
            redact=MPLAYER_TIMES,
            files=["sums"],
            quick=True,
        ),
        Case(
            "mplayer.null",
            [
                "/usr/bin/mplayer",
                "-noconfig",
                "all",
                "-nolirc",
                "-benchmark",
                "-nosound",
                "-vo",
                "null",
                f("clip.mpg"),
            ],
            redact=MPLAYER_TIMES,
        ),
        Case(
            "ffmpeg",
            [
                "/usr/bin/ffmpeg",
                "-v",
                "error",
                "-threads",
                "4",
                "-i",
                f("clip.mpg"),
                "-f",
                "framemd5",
                "-",
            ],
            threaded=True,
            timeout_s=300,
        ),
        Case(
            "rustc",
            [
                rustc or "/nonexistent",
                "--edition",
                "2021",
                "--crate-name",
                "p",
                f("panic.rs"),
                "-o",
                "p",
            ],
            threaded=True,
            timeout_s=600,
        ),
        Case(
            "busybox",
            [
                "/bin/busybox",
                "sh",
                "-c",
                (
                    f"busybox sort {f('small')} | busybox sha256sum; busybox awk '{{s+=$1}} END"
                    f" {{printf \"%.3f\\n\", s}}' {f('small')}; exit 7"
                ),
            ],
            quick=True,
        ),
        # Nobody knows its setjmp by name.
        Case(
            "busybox.depth",
            ["/bin/busybox", "sh", "-c", f"busybox sort {f('small')} | busybox sha256sum; exit 7"],
            quick=True,
            options=["-F", "*", "-D", "3"],
        ),
        Case(
            "awk",
            [
                "/usr/bin/awk",
                "{n[length($2)]++} END {for (i = 0; i < 12; i++) print i, n[i] + 0}",
                f("small"),
            ],
            quick=True,
        ),
        Case("sed", ["/bin/sed", "-E", "s/([a-z]+) ([a-z]+)/\\2 \\1/g;5q", f("text")]),
        Case("grep", ["/bin/grep", "-rnE", "(ab|cd)+e.*z$", f("text")], quick=True),
        Case("find", ["/usr/bin/find", "/usr/lib", "-name", "*.so*", "-newermt", "2000-01-01"]),
        Case(
            "tar",
            sh(
                f"tar --sort=name --mtime=@0 --owner=0 --group=0 -C {f('repo')} -cf - d1 d3 | gzip"
                " -n | md5sum"
            ),
            quick=True,
        ),
        Case(
            "make",
            sh("printf 'all: a b\\na b:\\n\\t@echo make $@\\n' > Makefile; make -s -j2 | sort"),
        ),
        Case(
            "gdb",
            [
                "/usr/bin/gdb",
                "-nx",
                "-batch",
                "-ex",
                "print sizeof(int)*7",
                "-ex",
                "info line main",
                "/usr/bin/lua5.4",
            ],
            timeout_s=300,
        ),
        Case(
            "vim",
            [
                "/usr/bin/vim",
                "-u",
                "NONE",
                "-es",
                "-c",
                "%s/a/B/g",
                "-c",
                "3,$d",
                "-c",
                "w! out",
                "-c",
                "q!",
                f("small"),
            ],
            files=["out"],
        ),
        Case("node", ["/usr/bin/node", "-e", NODE], threaded=True),
        Case("false", ["/bin/false"], quick=True, mid=False),
        Case("killed", sh("kill -SEGV $$"), quick=True, mid=False),
        Case("stdin", sh("cat; echo $?"), quick=True, mid=False),
    ]
