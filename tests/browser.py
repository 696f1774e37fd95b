"""A headless Chromium for tests of pages, by chromedriver's HTTP interface."""

import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.request
from contextlib import contextmanager

import pytest

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
]


class Browser:
    def __init__(self, port, binary, profile):
        self._url = f"http://127.0.0.1:{port}/session"
        options = {"binary": binary, "args": [*FLAGS, f"--user-data-dir={profile}"]}
        capabilities = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        self._url += "/" + self._post("", {"capabilities": {"alwaysMatch": capabilities}})["sessionId"]

    def _post(self, path, content):
        request = urllib.request.Request(
            self._url + path, json.dumps(content).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def _command(self, name, **parameters):
        return self._post("/goog/cdp/execute", {"cmd": name, "params": parameters})

    def open(self, path, width=1280, height=900, scheme="light"):
        self._command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        self._command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self._post("/url", {"url": f"file://{path}"})

    def run(self, script):
        """What a script returns."""
        return self._post("/execute/sync", {"script": script, "args": []})

    def wait(self, condition, seconds=20):
        """Until an expression is true."""
        end = time.monotonic() + seconds
        while not self.run(f"return Boolean({condition})"):
            assert time.monotonic() < end, f"it never came to be: {condition}"
            time.sleep(0.1)

    def errors(self):
        """What the page has written to the console, warnings and worse."""
        return [one["message"] for one in self._post("/se/log", {"type": "browser"}) if one["level"] != "INFO"]

    def screenshot(self):
        """A PNG of the whole page."""
        shot = self._command("Page.captureScreenshot", captureBeyondViewport=True)
        return base64.b64decode(shot["data"])

    def close(self):
        urllib.request.urlopen(urllib.request.Request(self._url, method="DELETE"), timeout=30).close()


@contextmanager
def chromium(folder):
    """Yield a Browser; skips where there is none. folder: for its profile."""
    binary = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if not (binary and driver):
        pytest.skip("no Chromium with chromedriver is installed (apt-get install chromium chromium-driver)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        browser = Browser(port, binary, folder)
        try:
            yield browser
        finally:
            browser.close()
    finally:
        process.terminate()
        process.wait()
