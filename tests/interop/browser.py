# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, driven over the WebDriver protocol with the standard library alone."""

import base64
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request

START_SECONDS = 60
KEYS = {"Enter": "\ue007", "Escape": "\ue00c", "Tab": "\ue004"}


class BrowserError(AssertionError):
    pass


def find():
    """The driver and the browser, or None where they are not installed."""
    driver, browser = shutil.which("chromedriver"), shutil.which("chromium")
    return (driver, browser) if driver and browser else None


class Browser:
    def __init__(self, driver, browser, directory):
        self.log = open(directory / "chromedriver.log", "wb")
        self.process = subprocess.Popen(
            [driver, "--port=0"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log, text=True
        )
        self.base = f"http://127.0.0.1:{self._port()}"
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        arguments += ["--disable-background-networking", f"--user-data-dir={directory / 'profile'}"]
        options = {"binary": browser, "args": arguments}
        capabilities = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        answer = self._call("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})
        self.session = f"/session/{answer['sessionId']}"

    def _port(self):
        for line in self.process.stdout:
            if "started successfully on port" in line:
                return int(line.rsplit("port", 1)[1].strip(" .\n"))
        raise BrowserError("chromedriver ended before it listened")

    def _call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=START_SECONDS) as response:
                return json.load(response)["value"]
        except urllib.error.HTTPError as error:
            raise BrowserError(f"{method} {path}: {error.read().decode(errors='replace')}") from None

    def command(self, method, path, body=None):
        return self._call(method, self.session + path, body)

    def devtools(self, name, **parameters):
        return self.command("POST", "/goog/cdp/execute", {"cmd": name, "params": parameters})

    def open(self, url):
        self.command("POST", "/url", {"url": url})

    def run(self, script, *arguments):
        return self.command("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def size(self, width, height, dark=False):
        self.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = "dark" if dark else "light"
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def press(self, *keys):
        actions = []
        for key in keys:
            value = KEYS.get(key, key)
            actions += [{"type": "keyDown", "value": value}, {"type": "keyUp", "value": value}]
        self.command("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def wait(self, condition, what=None, seconds=30):
        """Until the JavaScript expression is true; returns its value."""
        deadline = time.monotonic() + seconds
        while True:
            value = self.run(f"return {condition}")
            if value:
                return value
            if time.monotonic() > deadline:
                text = self.run("return document.body.innerText")
                raise BrowserError(f"{what or condition} did not come true in {seconds} s; the page says:\n{text}")

    def screenshot(self, path):
        path.write_bytes(base64.b64decode(self.command("GET", "/screenshot")))

    def console(self):
        """What the page and the browser have complained about since the last call."""
        entries = self.command("POST", "/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if entry["level"] in ("SEVERE", "WARNING")]

    def close(self):
        try:
            self.command("DELETE", "")
        finally:
            self.process.terminate()
            self.process.wait(timeout=START_SECONDS)
            self.process.stdout.close()
            self.log.close()
