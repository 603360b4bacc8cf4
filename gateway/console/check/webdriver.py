"""As much of W3C WebDriver as the check of the console needs, over chromedriver, with the standard library only."""

import json
import re
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

KEYS = {"Tab": "\ue004", "Enter": "\ue007", "Escape": "\ue00c", "ArrowDown": "\ue015", "ArrowUp": "\ue013"}
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


class Browser:
    """A headless Chromium in a profile of its own; `quit` ends it."""

    def __init__(self, driver, binary):
        self.profile = tempfile.TemporaryDirectory(prefix="llmx-console-")
        self.process = subprocess.Popen(
            [driver, "--port=0", "--log-level=WARNING"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.base = f"http://127.0.0.1:{self._port()}"
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                     "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
                     f"--user-data-dir={self.profile.name}"]
        options = {"binary": binary, "args": arguments}
        capabilities = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        try:
            session = self._call("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}}, timeout=60)
        except Exception:
            self.quit()
            raise
        self.session = f"/session/{session['sessionId']}"
        self.version = session["capabilities"]["browserVersion"]
        self.post("/timeouts", {"script": 60_000, "pageLoad": 60_000, "implicit": 0})

    def _port(self):
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            line = self.process.stdout.readline()
            found = re.search(r"started successfully on port (\d+)", line)
            if found:
                return int(found.group(1))
            if not line:
                break
        raise RuntimeError("chromedriver does not start")

    def _call(self, method, path, body=None, timeout=90):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, {"Content-Type": "application/json"}, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=timeout) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.load(error)["value"]["message"].splitlines()[0]) from None

    def post(self, path, body=None):
        return self._call("POST", self.session + path, body or {})

    def go(self, url):
        self.post("/url", {"url": url})

    def run(self, script, *arguments):
        """Runs a function body in the page and gives what it returns."""
        return self.post("/execute/sync", {"script": script, "args": list(arguments)})

    def wait_for(self, script, *arguments):
        """Runs an async function body in the page and gives what it resolves to."""
        body = f"const done = arguments[arguments.length - 1]; (async (...a) => {{{script}}})(...arguments).then(done, (e) => done(String(e)))"
        return self.post("/execute/async", {"script": body, "args": list(arguments)})

    def size(self, width, height, is_mobile=False):
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_mobile}
        self.cdp("Emulation.setDeviceMetricsOverride", metrics)

    def cdp(self, command, parameters):
        return self.post("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def press(self, *names):
        """Presses keys one after the other; a name of one character types it."""
        actions = []
        for name in names:
            value = KEYS.get(name, name)
            actions += [{"type": "keyDown", "value": value}, {"type": "keyUp", "value": value}]
        self.post("/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def screenshot(self):
        return self._call("GET", self.session + "/screenshot")

    def log(self):
        """What the browser's console got since the last call."""
        return self.post("/se/log", {"type": "browser"})

    def quit(self):
        try:
            if hasattr(self, "session"):
                self._call("DELETE", self.session)
        except (OSError, RuntimeError):
            pass
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.profile.cleanup()
