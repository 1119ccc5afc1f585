"""nginx and redis-server: how they are started, loaded, asked and stopped."""

import os, random, re, signal, socket, subprocess, time, urllib.request


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_until(what, seconds=30):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if what():
                return True
        except OSError:
            pass
        time.sleep(0.02)
    return False


def listens(port):
    return socket.create_connection(("127.0.0.1", port), 1).close() is None


def load(argv):
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=240,
    )
    return done.returncode, done.stdout.decode("latin1")


class Redis:
    needs, stop = ("redis-server", "redis-benchmark"), signal.SIGTERM

    def __init__(self, folder):
        self.folder, self.port = folder, free_port()
        self.argv = [
            "/usr/bin/redis-server",
            "--port",
            str(self.port),
            "--save",
            "",
            "--dir",
            folder,
            "--io-threads",
            "2",
            "--logfile",
            os.path.join(folder, "log"),
        ]

    def ask(self, *words):
        with socket.create_connection(("127.0.0.1", self.port), 30) as s:
            s.sendall(
                b"".join(
                    [b"*%d\r\n" % len(words)] + [b"$%d\r\n%s\r\n" % (len(w), w) for w in words]
                )
            )
            return s.recv(65536)

    def check(self, n):
        value = bytes(str(n * 7919), "ascii") * 50
        assert self.ask(b"SET", b"own%d" % n, value) == b"+OK\r\n"
        assert self.ask(b"GET", b"own%d" % n) == b"$%d\r\n%s\r\n" % (len(value), value)
        assert (
            self.ask(b"EVAL", b"local s = 0 for i = 1, 100 do s = s + i end return s", b"0")
            == b":5050\r\n"
        )
        if n % 20 == 10:
            assert self.ask(b"BGSAVE").startswith((b"+Background", b"-ERR")), "BGSAVE"

    def load(self, requests):
        status, out = load(
            [
                "redis-benchmark",
                "-p",
                str(self.port),
                "-n",
                str(requests),
                "-c",
                "20",
                "-t",
                "set,get,incr,lpush,lrange_100,zadd,mset",
                "-P",
                "4",
                "--csv",
            ]
        )
        return (
            []
            if status == 0 and out.count("\n") >= 7 and "rror" not in out
            else [f"redis-benchmark: status {status}: {out[-200:]!r}"]
        )

    def middle(self, pid):
        pass

    def log_errors(self):
        log = open(os.path.join(self.folder, "log"), errors="replace").read()
        return [
            line
            for line in log.splitlines()
            if re.search(r"crash|assert|BUG|# .*(fail|error)", line, re.I)
            and "overcommit" not in line
        ][:2]


class Nginx:
    needs, stop = ("nginx", "ab"), signal.SIGQUIT

    def __init__(self, folder):
        self.folder, self.port = folder, free_port()
        self.body = random.Random(1).randbytes(100_000)
        with open(os.path.join(folder, "file"), "wb") as f:
            f.write(self.body)
        user = "user root;" if os.getuid() == 0 else ""
        with open(os.path.join(folder, "conf"), "w") as f:
            f.write(
                f"{user} daemon off; worker_processes 2; pid {folder}/pid;"
                f" error_log {folder}/log notice; events {{ worker_connections 256; }}\n"
                f"http {{ access_log off; gzip on; client_body_temp_path {folder}/a;"
                f" proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;"
                f" uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;\n"
                f"  server {{ listen 127.0.0.1:{self.port} reuseport; root {folder}; }} }}"
            )
        self.argv = [
            "/usr/sbin/nginx",
            "-p",
            folder,
            "-c",
            os.path.join(folder, "conf"),
            "-e",
            os.path.join(folder, "log"),
        ]

    def check(self, n):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/file", timeout=30) as answer:
            assert answer.read() == self.body
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/none", timeout=30)
            assert False, "no 404"
        except urllib.error.HTTPError as error:
            assert error.code == 404

    def load(self, requests):
        found = []
        for keep in ([], ["-k"]):
            status, out = load(
                [
                    "ab",
                    "-q",
                    "-r",
                    "-n",
                    str(requests),
                    "-c",
                    "10",
                    *keep,
                    f"http://127.0.0.1:{self.port}/file",
                ]
            )
            failed = re.search(r"Failed requests:\s+(\d+)", out)
            if status or not failed or failed[1] != "0" or "Non-2xx" in out:
                found.append(f"ab {keep}: status {status}: {out[-300:]!r}")
        return found

    def middle(self, pid):
        os.kill(pid, signal.SIGHUP)

    def log_errors(self):
        return [
            l
            for l in open(os.path.join(self.folder, "log"))
            if re.search(r"\[(emerg|alert|crit|error)\]|exited on signal", l) and "/none" not in l
        ][:2]
