"""Drive a headless Chromium by the DevTools protocol over pipes: no driver, no library."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_browser() -> str | None:
    """Return the path of a browser of this kind, None where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page in a browser. Call it as a context manager."""

    def __init__(self, path: str, profile: Path, width: int = 1000, height: int = 800) -> None:
        here, self._write = os.pipe()
        self._read, there = os.pipe()
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run"]
        options += [f"--user-data-dir={profile}", f"--window-size={width},{height}", "--disable-background-networking"]
        # the protocol is spoken on descriptors 3 and 4; the new ends may be these already
        command = f'exec "$@" 3<&{here} 4>&{there}'
        self._process = subprocess.Popen(
            ["bash", "-c", command, "bash", path, *options, "about:blank"],
            pass_fds=(here, there),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(here)
        os.close(there)
        self._waiting, self._number, self._session = b"", 0, ""
        self.errors: list[str] = []
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        for domain in ("Runtime", "Log", "Page"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.terminate()
        try:
            self._process.wait(10.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._read)
        os.close(self._write)

    def call(self, method: str, **given: Any) -> dict[str, Any]:
        """Return the answer to a command of the protocol; keep errors that the page logs."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": given}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            if answer.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.errors.append(json.dumps(answer["params"]))
        assert "error" not in answer, answer["error"]
        return dict(answer["result"])

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._waiting:
            part = os.read(self._read, 1 << 16)
            assert part, "the browser has ended"
            self._waiting += part
        text, _, self._waiting = self._waiting.partition(b"\0")
        return dict(json.loads(text))

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression in the page."""
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def wait(self, expression: str, seconds: float = 60.0) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + seconds
        while not self.evaluate(f"Boolean({expression})"):
            assert time.monotonic() < end, (
                f"not in {seconds} s: {expression}; {self.evaluate('document.body.innerText')}"
            )
            time.sleep(0.1)

    def drag(self, start: tuple[float, float], end: tuple[float, float] | None = None) -> None:
        """Press the mouse at a place of the window, move to another one (default: the same), and release."""
        end = end or start
        steps = [("mouseMoved", start), ("mousePressed", start), ("mouseMoved", end), ("mouseReleased", end)]
        for kind, (x, y) in steps:
            button = {} if kind == "mouseMoved" and start == end else {"button": "left", "buttons": 1, "clickCount": 1}
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)

    def screenshot(self, path: Path) -> None:
        """Write an image of the window."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
