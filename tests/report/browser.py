"""A real browser for tests: Debian's chromium through chromedriver, spoken to by plain HTTP (W3C WebDriver)."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--hide-scrollbars",
    "--autoplay-policy=no-user-gesture-required",
)


class Browser:
    """One window. `open`, `run` a script, `console` messages, `screenshot`."""

    def __init__(self, width: int = 1280, height: int = 900, *, dark: bool = False):
        self._driver = subprocess.Popen(
            ["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._address = f"http://127.0.0.1:{self._port()}"
        options = {"args": [*FLAGS, f"--window-size={width},{height}"]}
        wanted = {"alwaysMatch": {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}
        self._session = self._call("POST", "/session", {"capabilities": wanted})["sessionId"]
        scheme = {"features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]}
        self.devtools("Emulation.setEmulatedMedia", scheme)
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.devtools("Emulation.setDeviceMetricsOverride", metrics)

    def _port(self) -> int:
        assert self._driver.stdout is not None
        for line in self._driver.stdout:
            if "on port" in line and "started successfully" in line:
                return int(line.rstrip(".\n").rsplit(" ", 1)[1])
        raise RuntimeError("chromedriver did not start")

    def _call(self, method: str, path: str, body: object = None):
        data = json.dumps(body if body is not None else {}).encode() if method == "POST" else None
        request = urllib.request.Request(
            self._address + path, data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.load(error)["value"]["message"]) from None

    def _at(self, path: str) -> str:
        return f"/session/{self._session}{path}"

    def devtools(self, command: str, parameters: object) -> object:
        return self._call("POST", self._at("/goog/cdp/execute"), {"cmd": command, "params": parameters})

    def open(self, path: Path) -> None:
        self._call("POST", self._at("/url"), {"url": path.resolve().as_uri()})

    def run(self, script: str):
        """The value of a JavaScript expression; a promise is waited for."""
        text = (
            f"const done = arguments[arguments.length - 1]; Promise.resolve({script}).then(done, e => done(String(e)));"
        )
        return self._call("POST", self._at("/execute/async"), {"script": text, "args": []})

    def until(self, script: str, seconds: float = 20.0) -> bool:
        """Wait until an expression becomes true."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.run(script):
                return True
            time.sleep(0.1)
        return False

    def console(self) -> list[str]:
        """Messages since the last call."""
        return [entry["message"] for entry in self._call("POST", self._at("/se/log"), {"type": "browser"})]

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._call("GET", self._at("/screenshot"))))

    def close(self) -> None:
        try:
            self._call("DELETE", self._at(""))
        finally:
            self._driver.terminate()
            self._driver.wait(20)


def need_browser() -> None:
    """Skip where there is none."""
    if not shutil.which("chromedriver") or not (shutil.which("chromium") or shutil.which("google-chrome")):
        pytest.skip("no browser here: apt-get install chromium chromium-driver")
