#!/usr/bin/env python3
"""Runs an exchange and a Prometheus on this machine for a while, then runs check.py against them.

    dashboards/live_check.py --llmx target/release/llmx --seconds 60 --markdown
    dashboards/live_check.py --kill         then kill a gateway, an engine and nats-server as well: each time the alerts
                                            must fire and clear, and negotiations must end before, and again afterwards

Starts nats-server, two engines, two gateways, twelve contractors, calls that arrive at random, the exporter, and
Prometheus with the repository's configuration and rules, all on loopback and in a temporary folder; ends them all
afterwards. What each process shows of itself also has to please `promtool check metrics`. Needs `prometheus`, `promtool`
and nats-server (`scripts/nats-server`). Exit code 0 when everything is as it should be. Standard library only.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.request

import watch
from processes import HERE, Stack, start_exchange, start_prometheus

# Of a gateway; the label sets are closed, so this does not grow with agents.
SERIES_MAX = 3200
TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"


def page_faults(name, url):
    """What is wrong with the metrics of one process; prints how many it has."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        kind, text = answer.headers["Content-Type"], answer.read().decode()
    series = sum(bool(line) and not line.startswith("#") for line in text.splitlines())
    families = sum(line.startswith("# TYPE ") for line in text.splitlines())
    lint = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    said = (lint.stdout + lint.stderr).strip()
    print(f"| {name} | {families} | {series} | {'in order' if lint.returncode == 0 else said.replace(chr(10), '; ')} |")
    faults = [f"the metrics of {name}: {line}" for line in said.splitlines()] if lint.returncode else []
    faults += [f"the metrics of {name} come as {kind}"] if kind != TEXT_FORMAT else []
    faults += [f"{name} exposes {series} series"] if name.startswith("gateway") and series > SERIES_MAX else []
    return faults


def judge(stack, arguments):
    """Runs every check; the faults that are not printed yet."""
    prometheus = start_prometheus(stack)
    time.sleep(arguments.seconds)
    check = [sys.executable, HERE / "check.py", "--prometheus", prometheus]
    code = subprocess.run(check + ["--markdown"] * arguments.markdown, check=False).returncode
    faults = ["check.py found faults"] if code else []
    print("\n| process | metrics | series | promtool check metrics |\n|---|---|---|---|")
    faults += [fault for name, url in stack.pages.items() for fault in page_faults(name, url)]
    if arguments.kill:
        print()
        faults += watch.faults_in_turn(watch.Prometheus(prometheus), watch.ALERTS, stack.kill, stack.start)
    return faults + [f"{name} has ended by itself" for name in stack.dead()]


def main():
    """Starts everything, checks, ends everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llmx", type=pathlib.Path, default=HERE.parent / "target" / "release" / "llmx", help="%(default)s")
    parser.add_argument("--nats-server", type=pathlib.Path, default=HERE.parent / ".tools" / "nats-server", help="%(default)s")
    parser.add_argument("--prometheus", default="prometheus", help="the program (%(default)s)")
    parser.add_argument("--seconds", type=float, default=60, help="how long it runs before it is checked (%(default)s)")
    parser.add_argument("--rate", type=float, default=10, help="calls per second (%(default)s)")
    parser.add_argument("--markdown", action="store_true", help="as for check.py")
    parser.add_argument("--kill", action="store_true", help="kill processes afterwards, and watch the alerts")
    arguments = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)
    programs = (arguments.llmx.resolve(), arguments.nats_server.resolve(), arguments.prometheus)
    with tempfile.TemporaryDirectory(prefix="llmx-live-check-") as folder:
        stack = Stack(pathlib.Path(folder), programs)
        try:
            start_exchange(stack, arguments.rate)
            faults = judge(stack, arguments)
        finally:
            stack.end()
    for fault in faults:
        print(f"FAULT {fault}", file=sys.stderr)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
