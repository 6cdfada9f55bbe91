"""Debian's Firefox, driven by WebDriver BiDi (https://w3c.github.io/webdriver-bidi/), which it speaks without a driver.

Playwright drives only a Firefox of its own, and geckodriver is not in Debian. What the tests need of the protocol is a
dozen commands over one WebSocket, so both are here, in the standard library alone.
"""

import base64
import contextlib
import json
import os
import queue
import re
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import time
from pathlib import Path

NAMES = ("firefox-esr", "firefox")
WAIT = 180  # seconds: a page that is ready sooner is not waited for
PREFERENCES = {
    "app.update.enabled": False,
    "browser.shell.checkDefaultBrowser": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "remote.active-protocols": 1,
    "toolkit.telemetry.reportingpolicy.firstRun": False,
}
# What a page says to the preference of a visitor for dark colours; the protocol has no command for it.
SCHEMES = {"dark": 0, "light": 1}


def program():
    """The path of Firefox, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Socket:
    """A WebSocket client (RFC 6455): text messages both ways, no extensions."""

    def __init__(self, host, port, path):
        self._socket = socket.create_connection((host, port), timeout=WAIT)
        key = base64.b64encode(os.urandom(16)).decode()
        asked = [f"GET {path} HTTP/1.1", f"Host: {host}:{port}", "Upgrade: websocket", "Connection: Upgrade"]
        asked += [f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", "", ""]
        self._socket.sendall("\r\n".join(asked).encode())
        self._stream = self._socket.makefile("rb")
        status = self._stream.readline().decode()
        assert " 101 " in status, status
        while self._stream.readline().strip():
            pass
        self._socket.settimeout(None)

    def send(self, text):
        data = text.encode()
        length = (
            struct.pack("!B", 0x80 | len(data))
            if len(data) < 126
            else struct.pack("!BH", 0x80 | 126, len(data))
            if len(data) < 1 << 16
            else struct.pack("!BQ", 0x80 | 127, len(data))
        )
        mask = os.urandom(4)  # a client must mask what it sends
        repeated = (mask * (len(data) // 4 + 1))[: len(data)]
        masked = int.from_bytes(data, "big") ^ int.from_bytes(repeated, "big")
        self._socket.sendall(b"\x81" + length + mask + masked.to_bytes(len(data), "big"))

    def receive(self):
        """The next message, or None at the end."""
        whole = b""
        while head := self._stream.read(2):
            final, opcode, size = head[0] & 0x80, head[0] & 0x0F, head[1] & 0x7F
            if size == 126:
                (size,) = struct.unpack("!H", self._stream.read(2))
            elif size == 127:
                (size,) = struct.unpack("!Q", self._stream.read(8))
            data = self._stream.read(size)
            if opcode == 8:
                return None
            if opcode in {9, 10}:
                continue
            whole += data
            if final:
                return whole.decode()
        return None

    def close(self):
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class Firefox:
    """One browser with one tab: commands, and all that the page complained about or asked for.

    Args:
        path: of the program.
        scheme: `light` or `dark`.

    """

    def __init__(self, path, scheme="light"):
        self._profile = tempfile.TemporaryDirectory(prefix="bayesify-firefox-", ignore_cleanup_errors=True)
        settings = {**PREFERENCES, "layout.css.prefers-color-scheme.content-override": SCHEMES[scheme]}
        lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});" for name, value in settings.items()]
        Path(self._profile.name, "user.js").write_text("\n".join(lines))
        words = [path, "--headless", "--no-remote", "--profile", self._profile.name, "--remote-debugging-port", "0"]
        environment = os.environ | {"HOME": self._profile.name, "MOZ_DISABLE_CONTENT_SANDBOX": "1"}
        self._process = subprocess.Popen(
            words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
        )
        found = None
        for line in self._process.stderr:
            if found := re.search(r"WebDriver BiDi listening on ws://([\d.]+):(\d+)", line):
                break
        assert found, "Firefox ended before it listened"
        threading.Thread(target=self._process.stderr.read, daemon=True).start()
        self._socket = Socket(found[1], int(found[2]), "/session")
        self._replies: queue.Queue = queue.Queue()
        self._number = 0
        self.complaints, self.asked = [], []
        threading.Thread(target=self._listen, daemon=True).start()
        self.version = self.command("session.new", capabilities={})["capabilities"]["browserVersion"]
        self.command("session.subscribe", events=["log.entryAdded", "network.beforeRequestSent"])
        self._tab = self.command("browsingContext.getTree")["contexts"][0]["context"]

    def command(self, method, **params):
        """Send a command and wait for its result."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": params}))
        while True:
            reply = self._replies.get(timeout=WAIT)
            if reply.get("id") == self._number:
                break
        if reply["type"] == "error":
            raise RuntimeError(f"{method}: {reply['error']}: {reply['message']}")
        return reply["result"]

    def size(self, width, height):
        self.command("browsingContext.setViewport", context=self._tab, viewport={"width": width, "height": height})

    def open(self, url):
        self.command("browsingContext.navigate", context=self._tab, url=url, wait="complete")

    def evaluate(self, expression):
        """The value of an expression that JSON can hold; promises are waited for."""
        function = f"async () => JSON.stringify(await ({expression}))"
        said = self.command(
            "script.callFunction", functionDeclaration=function, target={"context": self._tab}, awaitPromise=True
        )
        if said["type"] == "exception":
            raise RuntimeError(said["exceptionDetails"]["text"])
        value = said["result"].get("value")
        return None if value is None else json.loads(value)

    def until(self, expression):
        """Wait until an expression is true of the page."""
        end = time.monotonic() + WAIT
        while not (value := self.evaluate(expression)):
            assert time.monotonic() < end, f"still not so after {WAIT} s: {expression}"
            time.sleep(0.05)
        return value

    def stroke(self, points):
        """Press, move and release the mouse along points of the window."""
        (first, *rest) = [{"type": "pointerMove", "x": round(x), "y": round(y), "duration": 30} for x, y in points]
        moves = [first, {"type": "pointerDown", "button": 0}, *rest, {"type": "pointerUp", "button": 0}]
        mouse = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": moves}
        self.command("input.performActions", context=self._tab, actions=[mouse])

    def press(self, *keys):
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self.command(
            "input.performActions", context=self._tab, actions=[{"type": "key", "id": "keys", "actions": actions}]
        )

    def screenshot(self):
        """The visible part of the page as PNG."""
        return base64.b64decode(self.command("browsingContext.captureScreenshot", context=self._tab)["data"])

    def close(self):
        with contextlib.suppress(Exception):
            self.command("browser.close")
        self._socket.close()
        try:
            self._process.wait(120)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stderr.close()
        self._profile.cleanup()

    def _listen(self):
        with contextlib.suppress(OSError, ValueError):
            while (text := self._socket.receive()) is not None:
                message = json.loads(text)
                if message.get("type") != "event":
                    self._replies.put(message)
                elif message["method"] == "log.entryAdded":
                    entry = message["params"]
                    if entry["level"] in {"error", "warn"}:
                        self.complaints.append(entry["text"])
                else:
                    self.asked.append(message["params"]["request"]["url"])
