"""The exchange itself, as processes: nats-server, one engine, two gateways that can be killed."""

import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
BINARY = Path(os.environ.get("LLMX_BIN", ROOT / "target" / "release" / "llmx"))
START_S = 30.0


class Exchange:
    """The processes, in a folder of their own. `with Exchange(folder) as exchange`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = free_ports(3)
        self.urls = [f"http://127.0.0.1:{port}" for port in self.ports[1:]]
        self.gateways: list[subprocess.Popen[bytes] | None] = [None, None]
        self._processes: list[subprocess.Popen[bytes]] = []
        self._environment = {**os.environ, "LLMX_NATS": f"nats://127.0.0.1:{self.ports[0]}"}

    def __enter__(self) -> "Exchange":
        if not BINARY.exists():
            raise FileNotFoundError(f"{BINARY}: build it (cargo build --release), or name one in LLMX_BIN")
        port, store = str(self.ports[0]), str(self.folder / "nats")
        server: list[str | Path] = [nats_server(), "-a", "127.0.0.1", "-p", port, "-js", "-sd", store]
        self._processes.append(self._start("nats", server))
        subprocess.run([BINARY, "keys"], cwd=self.folder, check=True, stdout=subprocess.DEVNULL)
        until(lambda: is_listening(self.ports[0]), "nats-server")
        self._processes.append(self._start("engine", [BINARY, "engine", "--id", "e1"]))
        for number in (0, 1):
            self.start_gateway(number)
        return self

    def __exit__(self, *_: object) -> None:
        for process in [*filter(None, self.gateways), *reversed(self._processes)]:
            process.kill()
            process.wait()

    def start_gateway(self, number: int) -> None:
        """Starts a gateway and waits until it is ready."""
        listen = f"127.0.0.1:{self.ports[1 + number]}"
        command: list[str | Path] = [
            BINARY,
            "gateway",
            "--id",
            f"g{number}",
            "--listen",
            listen,
            "--jwks",
            "llmx-data/jwks.json",
        ]
        self.gateways[number] = self._start(f"gateway-{number}", command)
        until(lambda: is_ready(self.urls[number]), f"gateway {number}")

    def kill_gateway(self, number: int) -> None:
        """Kills a gateway: no farewell."""
        process = self.gateways[number]
        if process is not None:
            process.kill()
            process.wait()
            self.gateways[number] = None

    def token(self, agent: str, *options: str) -> str:
        """A token for an agent."""
        command = [str(BINARY), "token", agent, *options]
        return subprocess.run(command, cwd=self.folder, check=True, capture_output=True, text=True).stdout.strip()

    def token_file(self, agent: str) -> None:
        """A token in the file that the programs of the README read."""
        (self.folder / f"{agent}.jwt").write_text(self.token(agent))

    def _start(self, name: str, command: Sequence[str | Path]) -> "subprocess.Popen[bytes]":
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(command, cwd=self.folder, env=self._environment, stdout=log, stderr=log)


def nats_server() -> str:
    """The pinned nats-server, fetched where it is missing."""
    fetch = str(ROOT / "scripts" / "nats-server")
    named = os.environ.get("NATS_SERVER")
    return named or subprocess.run([fetch], check=True, capture_output=True, text=True).stdout.strip()


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on."""
    command = [str(ROOT / "scripts" / "free_ports.py"), str(count)]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    return [int(port) for port in found.stdout.split()]


def is_listening(port: int) -> bool:
    """Whether somebody listens on a port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def is_ready(url: str) -> bool:
    """Whether a gateway is ready."""
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def until(is_so: Callable[[], bool], what: str) -> None:
    """Waits for a process."""
    deadline = time.monotonic() + START_S
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not start within {START_S} s")
        time.sleep(0.02)


def end(process: "subprocess.Popen[str]", timeout_s: float = 15.0) -> str:
    """Asks a program to end, and gives what it printed; it must end well."""
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=timeout_s)
    assert process.returncode == 0, printed
    return printed
