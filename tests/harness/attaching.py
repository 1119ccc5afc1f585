"""Attaches to running programs and detaches again, and looks whether they are what they were."""

import csv, io, os, signal, subprocess, time

from harness.case import Failed
from harness.process import differing_bytes, is_running, maps, status_field, tasks


class NoCycle(Exception):
    pass


class Attacher:
    """`options` go before those of a case."""

    def __init__(self, sptrace, folder, rng, options=()):
        self.sptrace, self.folder, self.rng, self.options = sptrace, folder, rng, options

    def cycle(self, pids, seconds, options=(), how="for"):
        """One attach and detach. Gives what sptrace said, or raises."""
        trace = os.path.join(self.folder, "trace")
        command = [self.sptrace, "attach", "-o", trace, "-p", ",".join(map(str, pids))]
        command += [*self.options, *options]
        if how == "event":
            command += ["--stop-on", f"time:{max(1, int(seconds * 1000))}ms"]
        if how == "for":
            command += ["--for", f"{max(1, int(seconds * 1000))}ms"]
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        try:
            if isinstance(how, signal.Signals):
                time.sleep(seconds)
                process.send_signal(how)
            said = process.communicate(timeout=90)[1]
        except subprocess.TimeoutExpired:
            stand = "\n".join(
                [
                    f"{how}, sptrace:",
                    tasks(process.pid),
                    *(f"process {pid}:\n{tasks(pid)}" for pid in pids if is_running(pid)),
                ]
            )
            process.kill()
            raise Failed("sptrace does not end: " + (process.communicate()[1] or "") + stand)
        if (
            process.returncode in (-signal.SIGINT, -signal.SIGTERM)
            and isinstance(how, signal.Signals)
            and "attached" not in said
        ):
            return None, said  # asked to end before it had begun
        if process.returncode < 0:
            raise Failed(f"sptrace died by signal {-process.returncode}: {said}")
        return process.returncode, said

    def functions(self):
        """Names of the functions in the last trace."""
        r = subprocess.run(
            [
                self.sptrace,
                "report",
                "functions",
                "-i",
                os.path.join(self.folder, "trace"),
                "--format",
                "csv",
            ],
            capture_output=True,
            text=True,
            timeout=120,
        )
        if r.returncode != 0:
            raise Failed("the trace cannot be read: " + r.stderr.strip())
        return {row["function"] for row in csv.DictReader(io.StringIO(r.stdout))}

    def began_earlier(self):
        """Names of the functions that the last trace says were open when it began, outermost
        first, of each thread.
        """
        r = subprocess.run(
            [
                self.sptrace,
                "report",
                "tree",
                "-i",
                os.path.join(self.folder, "trace"),
                "--limit",
                "2000",
            ],
            capture_output=True,
            text=True,
            timeout=120,
        )
        found = {}
        for line in r.stdout.splitlines():
            if "/* began earlier" not in line:
                continue
            tid, _, rest = line.partition("[")[2].partition("]")
            found.setdefault(int(tid), []).append(rest.partition("|")[2].partition("(")[0].strip())
        return found

    def check(self, pid, code, said):
        """After a detach: the program as it was."""
        if not is_running(pid):
            return
        try:
            differing = differing_bytes(pid, code)
            if differing:
                raise Failed(f"{differing} bytes of code differ from the files: {said}")
            if status_field(pid, "TracerPid") != "0":
                raise Failed("it is still traced")
            left = [p for _, _, _, _, p in maps(pid) if "memfd:sptrace" in p]
            if left:
                raise Failed(f"{len(left)} mappings of sptrace are left: {said}")
        except (OSError, ProcessLookupError, ValueError):
            time.sleep(0.5)  # it may be about to end
            if is_running(pid):
                raise
