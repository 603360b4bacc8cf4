#!/usr/bin/env python3
"""Runs an exchange and a Prometheus on this machine for a while, then runs check.py against them.

    dashboards/live_check.py --llmx target/release/llmx --seconds 60 --markdown
    dashboards/live_check.py --kill         then kill a gateway, an engine and nats-server as well: each time the alerts
                                            must fire and clear, and negotiations must end before, and again afterwards

Starts nats-server, two engines, two gateways, twelve contractors, calls that arrive at random, the exporter, and
Prometheus with the repository's configuration and rules, all on loopback and in a temporary folder; ends them all
afterwards. Needs `prometheus` and nats-server (`scripts/nats-server`). Exit code: that of check.py. Standard library only.
"""

import argparse
import contextlib
import json
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
# Until a process answers: an engine of a debug build on a busy machine, with room.
START_MAX_S = 60
# A process that is asked to end and does not is killed.
END_MAX_S = 15
# Until an alert fires, and until it has cleared: the longest `for` below is 30 s, and windows are a minute long.
ALERT_MAX_S = 150
# What is killed, and the alerts that have to tell of it.
KILLS = {"gateway-2": ["GatewayDown"], "engine-2": ["EngineDown"], "nats": ["NatsDown", "NatsMajorityLost", "LogUnavailable"]}


def free_ports(count):
    """Ports of loopback that were free a moment ago."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def wait_for(url):
    """Until the address answers 2xx."""
    end = time.monotonic() + START_MAX_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except (urllib.error.URLError, OSError) as error:
            if time.monotonic() > end:
                sys.exit(f"{url} does not answer: {error}")
            time.sleep(0.2)


class Stack:
    """Processes, and the folder they write to."""

    def __init__(self, folder):
        self.folder = folder
        self.commands = {}
        self.processes = {}

    def start(self, name, *command):
        """Starts one, or the same again; what it prints goes to a file."""
        command = self.commands.setdefault(name, [str(word) for word in command])
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)

    def kill(self, name):
        """Ends one without a warning."""
        self.processes[name].kill()
        self.processes[name].wait()

    def end(self):
        """Ends all, the last one first."""
        for process in reversed(self.processes.values()):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(END_MAX_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def start_exchange(stack, arguments, ports):
    """The exchange and its load; the scrape addresses that stand for those of the stack of docker-compose.yml."""
    nats, monitor, exporter, *rest = ports
    (stack.folder / "nats.conf").write_text(
        f'server_name: nats\nlisten: "127.0.0.1:{nats}"\nhttp: "127.0.0.1:{monitor}"\n'
        'jetstream { store_dir: "nats", max_file_store: 8GB, max_memory_store: 256MB }\n')
    stack.start("nats", arguments.nats_server, "-c", "nats.conf")
    wait_for(f"http://127.0.0.1:{monitor}/healthz")
    subprocess.run([arguments.llmx, "keys", "--out", "keys"], cwd=stack.folder, check=True, stdout=subprocess.DEVNULL)
    places = {"http://nats:8222": f"http://127.0.0.1:{monitor}", "nats-exporter:7777": f"127.0.0.1:{exporter}"}
    bus = ("--nats", f"nats://127.0.0.1:{nats}")
    for number, port in enumerate(rest[:2], 1):
        stack.start(f"engine-{number}", arguments.llmx, "engine", *bus, "--id", f"engine-{number}", "--listen", f"127.0.0.1:{port}",
                    "--trim", "after-checkpoint", "--checkpoint-every", 200)
        places[f"engine-{number}:9464"] = f"127.0.0.1:{port}"
    for number, port in enumerate(rest[2:4], 1):
        stack.start(f"gateway-{number}", arguments.llmx, "gateway", *bus, "--id", f"gateway-{number}", "--listen", f"127.0.0.1:{port}",
                    "--jwks", "keys/jwks.json", "--issuer", "llmx-local")
        places[f"gateway-{number}:8080"] = f"127.0.0.1:{port}"
    for port in rest[:4]:
        wait_for(f"http://127.0.0.1:{port}/readyz")
    gateways = ("--gateway", ",".join(f"http://127.0.0.1:{port}" for port in rest[2:4]), "--key", "keys/signing-key.pem")
    stack.start("exporter", sys.executable, HERE / "nats_exporter.py", "--listen", f"127.0.0.1:{exporter}", "--allow", f"http://127.0.0.1:{monitor}")
    stack.start("agents", arguments.llmx, "agents", *gateways)
    stack.start("traffic", arguments.llmx, "traffic", *gateways, "--rate", arguments.rate, "--duration", 24 * 3600)
    return places


def start_prometheus(stack, arguments, places, port):
    """Prometheus with the repository's configuration, names replaced by the addresses of this run."""
    text = (HERE / "prometheus" / "prometheus.yml").read_text()
    places |= {"/etc/prometheus/rules": str(HERE / "prometheus" / "rules"), "127.0.0.1:9090": f"127.0.0.1:{port}"}
    for name, place in places.items():
        if name not in text:
            sys.exit(f"prometheus.yml does not name {name}")
        text = text.replace(name, place)
    (stack.folder / "prometheus.yml").write_text(text)
    stack.start("prometheus", arguments.prometheus, "--config.file=prometheus.yml", "--storage.tsdb.path=prometheus",
                f"--web.listen-address=127.0.0.1:{port}")
    wait_for(f"http://127.0.0.1:{port}/-/ready")


def ask(port, expression):
    """The samples of an expression now."""
    query = urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?{query}", timeout=10) as answer:
        return json.load(answer)["data"]["result"]


def wait_until(port, alerts, is_firing):
    """Seconds until all these alerts fire, or none of them does; nothing when it takes too long."""
    began = time.monotonic()
    names = "|".join(alerts)
    while time.monotonic() - began < ALERT_MAX_S:
        firing = ask(port, f'count by (alertname) (ALERTS{{alertname=~"{names}", alertstate="firing"}})')
        if len(firing) == (len(alerts) if is_firing else 0):
            return time.monotonic() - began
        time.sleep(1)
    return None


def rounds(port):
    """Negotiations that ended in the last 20 seconds."""
    samples = ask(port, "sum(increase(exchange_negotiations_closed_total[20s]))")
    return float(samples[0]["value"][1]) if samples else 0.0


def kill_and_watch(stack, port):
    """Kills each process in its turn; the number of things that were not as they should be."""
    faults = 0
    print("| killed | rounds in 20 s before | alerts | fire after | rounds meanwhile | clear after its return | rounds after |\n|---|---|---|---|---|---|---|")
    for name, alerts in KILLS.items():
        before = rounds(port)
        stack.kill(name)
        fired = wait_until(port, alerts, True)
        meanwhile = rounds(port)
        stack.start(name)
        cleared = wait_until(port, alerts, False)
        time.sleep(25)
        after = rounds(port)
        # Without nats-server nothing can go on; without one gateway or engine of two everything must.
        is_fine = fired is not None and cleared is not None and before > 0 and after > 0 and (meanwhile > 0 or name == "nats")
        faults += not is_fine
        there, gone = ("never" if value is None else f"{value:.0f} s" for value in (fired, cleared))
        print(f"| {name} | {before:.0f} | {', '.join(alerts)} | {there} | {meanwhile:.0f} | {gone} | {after:.0f} |", flush=True)
    return faults


def main():
    """Starts everything, waits, checks, ends everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llmx", type=pathlib.Path, default=HERE.parent / "target" / "release" / "llmx", help="%(default)s")
    parser.add_argument("--nats-server", type=pathlib.Path, default=HERE.parent / ".tools" / "nats-server", help="%(default)s")
    parser.add_argument("--prometheus", default="prometheus", help="the program (%(default)s)")
    parser.add_argument("--seconds", type=float, default=60, help="how long it runs before it is checked (%(default)s)")
    parser.add_argument("--rate", type=float, default=10, help="calls per second (%(default)s)")
    parser.add_argument("--markdown", action="store_true", help="as for check.py")
    parser.add_argument("--kill", action="store_true", help="kill processes afterwards, and watch the alerts")
    arguments = parser.parse_args()
    arguments.llmx, arguments.nats_server = arguments.llmx.resolve(), arguments.nats_server.resolve()
    with tempfile.TemporaryDirectory(prefix="llmx-live-check-") as folder:
        stack = Stack(pathlib.Path(folder))
        try:
            *ports, port = free_ports(8)
            start_prometheus(stack, arguments, start_exchange(stack, arguments, ports), port)
            time.sleep(arguments.seconds)
            check = [sys.executable, HERE / "check.py", "--prometheus", f"http://127.0.0.1:{port}"]
            code = subprocess.run(check + ["--markdown"] * arguments.markdown, check=False).returncode
            if arguments.kill and kill_and_watch(stack, port):
                code = 1
        finally:
            stack.end()
    sys.exit(code)


if __name__ == "__main__":
    main()
