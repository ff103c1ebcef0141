"""A browser for the tests of the site: Chromium through its driver (WebDriver), without a library."""

import base64
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage")
TIMEOUT_S = 120


def program(*names):
    found = next(filter(None, map(shutil.which, names)), None)
    if not found:
        raise SystemExit(f"site: {names[0]} is missing: script/bootstrap --tests")
    return found


class Browser:
    """Ends its processes at the end of its `with`, also when that fails or is interrupted."""

    def __enter__(self):
        self.driver, self.profile = None, tempfile.mkdtemp(prefix="holdfast-site-")
        # As the other ways to end, it leaves through `__exit__`.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        driver = program("chromedriver", "/usr/lib/chromium-browser/chromedriver")
        self.driver = subprocess.Popen([driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.base = f"http://127.0.0.1:{port}"
        # The environment may name a proxy, which nothing here may use.
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        options = {
            "binary": self.binary(),
            "args": [*ARGUMENTS, f"--user-data-dir={self.profile}"],
            "perfLoggingPrefs": {"enableNetwork": True, "enablePage": False},
        }
        capabilities = {"goog:chromeOptions": options, "goog:loggingPrefs": {"performance": "ALL"}}
        end = time.monotonic() + TIMEOUT_S
        while True:
            try:
                self.opener.open(f"{self.base}/status", timeout=5).read()
                break
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)
        session = self.call("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})
        self.base += f"/session/{session['sessionId']}"

    def binary(self):
        """Returns the program of the browser, which has one page and no window. The shell without
        windows computes less, but opens no page by itself, and the driver waits for one."""
        shell = shutil.which("chromium-headless-shell")
        browser = f"{shell} --headless" if shell else f'{program("chromium", "chromium-browser", "google-chrome")} --headless=new'
        wrapper = Path(self.profile) / "browser"
        wrapper.write_text(f'#!/bin/sh\nexec {browser} "$@" data:,\n')
        wrapper.chmod(0o755)
        return str(wrapper)

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data=data, method=method)
        try:
            with self.opener.open(request, timeout=TIMEOUT_S) as response:
                return json.loads(response.read())["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.loads(error.read())["value"]["message"]) from error

    def open(self, address):
        self.call("POST", "/url", {"url": address})

    def run(self, script, *values):
        return self.call("POST", "/execute/sync", {"script": script, "args": list(values)})

    def run_async(self, script, *values):
        return self.call("POST", "/execute/async", {"script": script, "args": list(values)})

    @contextlib.contextmanager
    def frame(self, selector):
        """In its `with`, scripts run in a frame of the page."""
        [element] = self.call("POST", "/elements", {"using": "css selector", "value": selector})
        self.call("POST", "/frame", {"id": element})
        try:
            yield
        finally:
            self.call("POST", "/frame", {"id": None})

    def evaluate(self, expression):
        """Returns the value of an expression, also on a page whose scripts are off."""
        return self.command("Runtime.evaluate", returnByValue=True, expression=expression)["result"]["value"]

    def command(self, name, **parameters):
        return self.call("POST", "/goog/cdp/execute", {"cmd": name, "params": parameters})

    def size(self, width, height=900):
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500)

    def prefer(self, scheme="light", motion="reduce"):
        """Colours, and whether things move."""
        preferred = {"prefers-color-scheme": scheme, "prefers-reduced-motion": motion}
        features = [{"name": name, "value": value} for name, value in preferred.items()]
        self.command("Emulation.setEmulatedMedia", features=features)

    def scripts(self, are_on):
        self.command("Emulation.setScriptExecutionDisabled", value=not are_on)

    def until(self, what, script, *values):
        """Waits until a script returns something true, and returns it."""
        end = time.monotonic() + TIMEOUT_S
        while True:
            value = self.run(script, *values)
            if value:
                return value
            if time.monotonic() > end:
                raise AssertionError(f"not in {TIMEOUT_S} s: {what}")
            time.sleep(0.03)

    def click(self, selector):
        self.until(f"{selector} exists", "return !!document.querySelector(arguments[0])", selector)
        self.run("document.querySelector(arguments[0]).click()", selector)

    def text(self, selector):
        return self.run("return document.querySelector(arguments[0])?.textContent.trim() ?? ''", selector)

    def requests(self):
        """Returns the addresses that were requested since the last call."""
        entries = self.call("POST", "/se/log", {"type": "performance"})
        messages = (json.loads(entry["message"])["message"] for entry in entries)
        return [message["params"]["request"]["url"] for message in messages if message["method"] == "Network.requestWillBeSent"]

    def picture(self, path):
        size = self.run("return [document.documentElement.scrollWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": size[0], "height": min(size[1], 6000), "scale": 1}
        shot = self.command("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot["data"]))

    def __exit__(self, *_):
        if self.driver:
            self.driver.terminate()
            self.driver.wait()
        # The driver leaves the browser running when it is terminated. Its processes name the profile,
        # which is of this test alone.
        listed = subprocess.run(["ps", "-eo", "pid=,args="], stdout=subprocess.PIPE, text=True, check=True)
        for line in listed.stdout.splitlines():
            pid, _, command = line.strip().partition(" ")
            if f"--user-data-dir={self.profile}" in command:
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError:
                    pass
        shutil.rmtree(self.profile, ignore_errors=True)
