"""Part `conformance` of scripts/check-bridges: the suite of the MCP project against two bridges that take requests in turn."""

import contextlib
import http.client
import http.server
import itertools
import json
import subprocess
import threading

SUITE, NODE = "@modelcontextprotocol/conformance@0.2.0-alpha.12", "node@22"
# What is run, by revision: scenarios that need no fixture of the suite's own.
SCENARIOS = {
    "2026-07-28": [
        "tools-list", "http-header-validation", "dns-rebinding-protection", "input-required-result-unsupported-methods",
        "server-stateless",
    ],
    "2025-11-25": ["server-initialize", "ping", "tools-list", "dns-rebinding-protection"],
}
# Checks that want a tool of the suite's own and are "not testable" without: whichever passes is to go from this list.
BASELINE = {
    "sep-2575-server-rejects-undeclared-capability",
    "sep-2575-missing-capability-http-400",
    "sep-2575-http-server-no-independent-requests-on-stream",
    "sep-2575-server-no-log-without-loglevel",
}
SCENARIO_S = 120
HOP_BY_HOP = {"connection", "transfer-encoding", "keep-alive"}


class Balancer(http.server.ThreadingHTTPServer):
    """A proxy on loopback: each request goes to the next of these addresses, with a token where it has none."""

    daemon_threads = True

    def __init__(self, token):
        super().__init__(("127.0.0.1", 0), Forwarder)
        self.url, self.token, self.turn = f"http://127.0.0.1:{self.server_port}", token, None
        self.served = set()

    def start(self, addresses):
        self.turn = itertools.cycle(addresses)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, address):
        """A client that goes away is no fault here."""


class Forwarder(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def forward(self):
        address = next(self.server.turn)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with contextlib.closing(http.client.HTTPConnection(address, timeout=SCENARIO_S)) as upstream:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in HOP_BY_HOP:
                    upstream.putheader(name, value)
            if "Authorization" not in self.headers:
                upstream.putheader("Authorization", f"Bearer {self.server.token}")
            upstream.endheaders(body)
            answer = upstream.getresponse()
            self.server.served.add(address)
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in HOP_BY_HOP:
                    self.send_header(name, value)
            if answer.getheader("Content-Length") is None and answer.status not in (202, 204):
                self.send_header("Connection", "close")
            self.end_headers()
            while piece := answer.read1(65536):
                self.wfile.write(piece)
                self.wfile.flush()

    do_GET = do_POST = do_DELETE = do_OPTIONS = do_PUT = forward

    def log_message(self, *_):
        pass


def scenario(suite, url, revision, name, folder):
    """How many checks passed, and how many of the baseline did not.

    Raises ValueError where another fails, one of the baseline passes, or there is no report.
    """
    programs = suite / "node_modules/.bin"
    command = [programs / "node", programs / "conformance", "server", "--url", f"{url}/mcp"]
    folder.mkdir(parents=True)
    command += ["--scenario", name, "--spec-version", revision, "--output-dir", folder]
    ran = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=SCENARIO_S)
    reports = sorted(folder.rglob("checks.json"))
    if not reports:
        raise ValueError(f"{name}: no report: {(ran.stdout + ran.stderr)[-1500:]}")
    checks = json.loads(reports[-1].read_text())
    told = [check for check in checks if check["status"] in ("SUCCESS", "FAILURE", "WARNING")]
    passed = {check["id"] for check in told if check["status"] == "SUCCESS"}
    failed = {check["id"]: check.get("errorMessage", check["status"]) for check in told if check["status"] != "SUCCESS"}
    if wrong := {id: why for id, why in failed.items() if id not in BASELINE}:
        raise ValueError(f"{name}: {wrong}")
    if better := (passed - failed.keys()) & BASELINE:
        raise ValueError(f"{name}: {', '.join(sorted(better))} pass: take them out of the baseline")
    if not passed:
        raise ValueError(f"{name}: no check has passed")
    return len(told) - len(failed), len(failed)
