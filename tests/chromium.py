"""A page in headless Chromium, driven by the DevTools protocol with nothing but Python's own library.

Given: the path of a page. Gives: `Page`, which loads it, evaluates JavaScript, moves the mouse, presses keys and takes pictures.
Knows nothing of the pages of sptrace.
"""
import base64, json, os, shutil, socket, struct, subprocess, tempfile, time, urllib.request


def find():
    return next((p for p in ("chromium", "chromium-browser", "google-chrome") if shutil.which(p)), None)


class Socket:
    """The client's side of a WebSocket (RFC 6455), text only."""
    def __init__(self, url, timeout_s):
        host, _, path = url.removeprefix("ws://").partition("/")
        name, _, port = host.partition(":")
        self.socket = socket.create_connection((name, int(port)), timeout_s)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(f"GET /{path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode())
        self.read = self.socket.makefile("rb")
        while self.read.readline() not in (b"\r\n", b""): pass

    def send(self, text):
        data, mask = text.encode(), os.urandom(4)
        size = struct.pack("!BB", 0x81, 0x80 | len(data)) if len(data) < 126 else struct.pack("!BBH", 0x81, 0xfe, len(data)) if len(data) < 65536 else struct.pack("!BBQ", 0x81, 0xff, len(data))
        self.socket.sendall(size + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data)))

    def receive(self):
        text = b""
        while True:
            first, second = self.read.read(2)
            length = second & 127
            if length == 126: length, = struct.unpack("!H", self.read.read(2))
            elif length == 127: length, = struct.unpack("!Q", self.read.read(8))
            data = self.read.read(length)
            if first & 15 in (0, 1): text += data
            if first & 15 == 8: raise ConnectionError("the browser has closed the connection")
            if first & 0x80 and first & 15 in (0, 1): return text.decode()


class Page:
    """A page that is loaded; of a dark or a light system."""
    def __init__(self, path, width=1400, height=850, dark=False, timeout_s=60):
        self.folder, self.timeout_s, self.number, self.errors = tempfile.mkdtemp(prefix="sptrace-chromium-"), timeout_s, 0, []
        self.process = subprocess.Popen([find(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
                                         f"--user-data-dir={self.folder}", "--remote-debugging-port=0", f"--window-size={width},{height}", "about:blank"],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            port = self.wait_for(lambda: open(os.path.join(self.folder, "DevToolsActivePort")).readline().strip())
            targets = self.wait_for(lambda: [t for t in json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=10)) if t["type"] == "page"])
            self.socket = Socket(targets[0]["webSocketDebuggerUrl"], timeout_s)
            for domain in ("Page", "Runtime", "Network"): self.call(f"{domain}.enable")
            # A page that needs the network shows that here.
            self.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=-1, uploadThroughput=-1)
            self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
            self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
            self.load(path)
        except BaseException:
            self.close()
            raise

    def __enter__(self): return self

    def __exit__(self, *_): self.close()

    def close(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def wait_for(self, look):
        """What `look` gives once it gives anything."""
        end = time.monotonic() + self.timeout_s
        while True:
            try:
                found = look()
                if found: return found
            except (OSError, ValueError): pass
            if time.monotonic() > end or self.process.poll() is not None: raise TimeoutError("the browser does not answer")
            time.sleep(0.05)

    def call(self, method, **params):
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": params}))
        while True:
            said = json.loads(self.socket.receive())
            if said.get("method") == "Runtime.exceptionThrown": self.errors.append(said["params"]["exceptionDetails"].get("exception", {}).get("description", "?"))
            if said.get("id") != self.number: continue
            if "error" in said: raise RuntimeError(f"{method}: {said['error']['message']}")
            return said["result"]

    def load(self, path):
        self.call("Page.navigate", url="file://" + os.path.abspath(path.partition("#")[0]) + ("#" + path.partition("#")[2] if "#" in path else ""))
        self.until("document.readyState === 'complete'")

    def evaluate(self, code):
        """The value of an expression; promises are waited for."""
        done = self.call("Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in done: raise RuntimeError(f"{code}: {done['exceptionDetails'].get('exception', {}).get('description', '?')}")
        return done["result"].get("value")

    def until(self, code):
        return self.wait_for(lambda: self.evaluate(f"Boolean({code})"))

    def mouse(self, kind, x, y, **more): self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x, y, times=1, modifiers=0):
        self.mouse("mouseMoved", x, y, modifiers=modifiers)
        for n in range(1, times + 1):
            self.mouse("mousePressed", x, y, button="left", clickCount=n, modifiers=modifiers)
            self.mouse("mouseReleased", x, y, button="left", clickCount=n, modifiers=modifiers)

    def drag(self, x0, x1, y, modifiers=0):
        self.mouse("mouseMoved", x0, y, modifiers=modifiers)
        self.mouse("mousePressed", x0, y, button="left", clickCount=1, modifiers=modifiers)
        for part in range(1, 6): self.mouse("mouseMoved", x0 + (x1 - x0) * part / 5, y, button="left", buttons=1, modifiers=modifiers)
        self.mouse("mouseReleased", x1, y, button="left", clickCount=1, modifiers=modifiers)

    def key(self, key, modifiers=0):
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else None)
        codes = {"Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        more = {"text": text} if text else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, modifiers=modifiers, windowsVirtualKeyCode=codes.get(key, 0), **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, modifiers=modifiers, windowsVirtualKeyCode=codes.get(key, 0))

    def type(self, text): self.call("Input.insertText", text=text)

    def picture(self, path):
        with open(path, "wb") as out: out.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
