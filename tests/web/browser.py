# SPDX-License-Identifier: MIT
"""Headless Chromium, driven through its debugging pipe; and PNG pictures as numbers."""

import base64
import json
import os
import struct
import subprocess
import tempfile
import time
import zlib


class Browser:
    """One tab. Coordinates are pixels of the page."""

    def __init__(self):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        read_commands, self.commands = os.pipe()
        self.replies, write_replies = os.pipe()

        def give_pipes():  # Chromium reads commands from 3 and answers on 4
            high = [os.dup2(read_commands, 90), os.dup2(write_replies, 91)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen(
            ["chromium", "--headless=new", "--no-sandbox", "--use-angle=swiftshader",
             "--enable-unsafe-swiftshader", "--hide-scrollbars", "--remote-debugging-pipe",
             f"--user-data-dir={self.profile.name}", "about:blank"],
            preexec_fn=give_pipes, close_fds=False, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        os.close(read_commands)
        os.close(write_replies)
        self.buffer, self.count, self.session = b"", 0, None
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(each for each in targets if each["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page["targetId"],
                                 flatten=True)["sessionId"]
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)  # clipboards require it
        self.size(1440, 900)

    def call(self, method, **parameters):
        self.count += 1
        message = {"id": self.count, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.buffer:
                data = os.read(self.replies, 1 << 20)
                if not data:
                    raise RuntimeError("Chromium ended")
                self.buffer += data
            text, self.buffer = self.buffer.split(b"\0", 1)
            reply = json.loads(text)
            if reply.get("id") == self.count:
                if "error" in reply:
                    raise RuntimeError(f"{method}: {reply['error']['message']}")
                return reply["result"]

    def size(self, width, height, ratio=1):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=ratio, mobile=False)

    def ask(self, expression):
        """Returns the value of an expression of JavaScript."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True,
                           userGesture=True, awaitPromise=True)
        return result["result"].get("value")

    def wait(self, expression, seconds=30):
        """Waits until the expression is true; returns whether that happened."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.ask(expression):
                return True
            time.sleep(0.05)
        return False

    def go(self, address):
        self.call("Page.navigate", url="about:blank")  # so that a fragment alone loads, too
        self.call("Page.navigate", url=address)

    def click(self, x, y):
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, clickCount=1,
                      button="none" if kind == "mouseMoved" else "left")
            time.sleep(0.15)

    def key(self, name, code, text=""):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, windowsVirtualKeyCode=code,
                      text=text if kind == "keyDown" else "")
            time.sleep(0.1)

    def press_control(self, letter):
        control = {"key": "Control", "code": "ControlLeft", "windowsVirtualKeyCode": 17}
        other = {"key": letter.lower(), "code": "Key" + letter,
                 "windowsVirtualKeyCode": ord(letter), "modifiers": 2,
                 "commands": ["paste"] if letter == "V" else []}
        for kind, key in (("rawKeyDown", control), ("rawKeyDown", other), ("keyUp", other),
                          ("keyUp", control)):
            self.call("Input.dispatchKeyEvent", type=kind, **key)
            time.sleep(0.1)

    def type(self, text):
        for letter in text:
            code = 190 if letter == "." else ord(letter.upper())
            self.key(letter, code, text=letter)

    def picture(self):
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def close(self):
        try:
            self.session = None
            self.call("Browser.close")
        except (OSError, RuntimeError):
            pass
        self.process.wait(timeout=30)
        self.profile.cleanup()


def read_png(data):
    """Returns width, height and rows of RGB triples of an 8-bit picture without interlacing."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, packed = 8, b""
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + size]
        if kind == b"IHDR":
            width, height, depth, color, _, _, interlaced = struct.unpack(">IIBBBBB", body)
            assert depth == 8 and color in (2, 6) and not interlaced
        elif kind == b"IDAT":
            packed += body
        at += 12 + size
    channels = 3 if color == 2 else 4
    raw, stride, rows = zlib.decompress(packed), width * channels, []
    before = bytearray(stride)
    for y in range(height):
        line = raw[y * (stride + 1):(y + 1) * (stride + 1)]
        kind, row = line[0], bytearray(line[1:])
        if kind == 2:
            row = bytearray((a + b) & 255 for a, b in zip(row, before))
        elif kind != 0:
            for i in range(stride):
                left = row[i - channels] if i >= channels else 0
                up = before[i]
                if kind == 1:
                    guess = left
                elif kind == 3:
                    guess = (left + up) // 2
                else:
                    corner = before[i - channels] if i >= channels else 0
                    p = left + up - corner
                    guess = min((abs(p - left), 0, left), (abs(p - up), 1, up),
                                (abs(p - corner), 2, corner))[2]
                row[i] = (row[i] + guess) & 255
        rows.append([tuple(row[i:i + 3]) for i in range(0, stride, channels)])
        before = row
    return width, height, rows
