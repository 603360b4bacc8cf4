"""A demo of the exchange in a process of its own, with its console."""

import json
import pathlib
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / "scripts"))
from free_ports import free_port  # noqa: E402,F401 (check.py and plane.py take it from here)


class Demo:
    """`llmx demo` on a port of loopback; `kill` ends it at once, as a crash would."""

    def __init__(self, llmx, port, duration_s, *arguments):
        command = [llmx, "demo", "--listen", f"127.0.0.1:{port}", "--duration", str(duration_s), "--json", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.said = []
        self.url = None
        self.token = None
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        deadline = time.monotonic() + 60
        while self.url is None:
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError("the demo does not start:\n" + "".join(self.said))
            time.sleep(0.05)

    def _read(self):
        for line in self.process.stderr:
            self.said.append(line)
            found = re.search(r"console: (http://\S+)/#token=(\S+)", line)
            if found:
                self.token = found.group(2)
                self.url = found.group(1)

    def get(self, path, token=None):
        """Status and text of a request that is no browser's."""
        return self._ask("GET", path, token, None)

    def put(self, path, token, body):
        return self._ask("PUT", path, token, json.dumps(body).encode())

    def post(self, path, token, body):
        return self._ask("POST", path, token, json.dumps(body).encode())

    def _ask(self, method, path, token, body):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        headers |= {"Content-Type": "application/json"} if body else {}
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(urllib.request.Request(self.url + path, body, headers, method=method), timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
