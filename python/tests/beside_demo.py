"""Six processes of this package among twelve contractors of `llmx demo --listen`: `python -m tests.beside_demo [SECONDS]`.

Ten calls a second under the policy `high`, which waits for every offer; a minute of them unless told otherwise. From the
demo's log: how many of the offers that were asked for came, and how long they took from the call, by SDK. Fails when the
demo finds a violation, when an offer is missing, or when no call reached all twelve.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from llmx import Contractor, IncomingCall, Inform, Job, Offer, run

from .exchange import BINARY, free_ports, is_ready, until

CONTRACTORS = 12
OURS = 6
CALLS_PER_S = 10
SECONDS = 60
NAME = "python"


def contractor(name: str) -> Contractor:
    """One that answers at once."""
    bob = Contractor(name, topics=["courier"])

    @bob.on_call
    async def answer(call: IncomingCall) -> Offer:
        return call.offer({"price": 80_000_000, "delivery_ms": 2000})

    @bob.on_commit
    async def work(job: Job) -> Inform:
        return job.done()

    return bob


def play(folder: Path, seconds: int) -> Any:
    """Runs the demo with our processes beside it; its summary."""
    [port] = free_ports(1)
    url, key = f"http://127.0.0.1:{port}", str(folder / "key.pem")
    rust = str(CONTRACTORS - OURS)
    command = [str(BINARY), "demo", "--listen", f"127.0.0.1:{port}", "--key", key, "--console", "off", "--agents", rust]
    command += ["--policy", "high", "--rate", str(CALLS_PER_S), "--duration", str(seconds)]
    command += ["--export", str(folder / "log.jsonl"), "--json"]
    with (folder / "demo.log").open("wb") as log:
        demo = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=log)
    until(lambda: is_ready(url), "the demo")
    ours = []
    try:
        for number in range(OURS):
            name = f"{NAME}-{number}"
            token, file = subprocess.check_output([str(BINARY), "token", name, "--key", key]), folder / f"{name}.jwt"
            file.write_bytes(token.strip())
            program = [sys.executable, "-m", "tests.beside_demo", "--contractor", name, url, str(file)]
            with (folder / f"{name}.log").open("wb") as log:
                ours.append(subprocess.Popen(program, stdout=log, stderr=log))
        said, _ = demo.communicate(timeout=seconds + 120)
    finally:
        for process in [demo, *ours]:
            process.kill()
            process.wait()
    assert demo.returncode == 0, said.decode() + (folder / "demo.log").read_text()
    return json.loads(said)


def figures(log: Path) -> dict[str, Any]:
    """From calls that reached all contractors: offers asked for and made, and the milliseconds to them, by SDK."""
    called: dict[str, int] = {}
    took_us: dict[str, list[int]] = defaultdict(list)
    for line in log.open(encoding="utf-8"):
        record = json.loads(line)["line"].get("record")
        for entry in record["record"]["entries"] if record else ():
            message = entry.get("message", {})
            if message.get("act") == "cfp" and len(message["pinned"]["invited"]) == CONTRACTORS:
                called[message["negotiation"]] = record["time"]
            elif message.get("act") == "offer" and message["negotiation"] in called:
                kind = "python" if message["from"].startswith(NAME) else "rust"
                took_us[kind].append(record["time"] - called[message["negotiation"]])
    median = {kind: statistics.median(times) / 1000 for kind, times in took_us.items()}
    p95 = {kind: statistics.quantiles(times, n=20)[-1] / 1000 for kind, times in took_us.items()}
    offers = sum(map(len, took_us.values()))
    return {
        "calls_to_all": len(called),
        "offers": offers,
        "completion": offers / max(1, len(called) * CONTRACTORS),
        "offer_ms_median": median,
        "offer_ms_p95": p95,
        "added_ms_median": median.get("python", 0.0) - median.get("rust", 0.0),
    }


def main() -> None:
    """Runs it, prints the figures, and judges."""
    if sys.argv[1:2] == ["--contractor"]:
        _, _, name, url, token = sys.argv
        run(contractor(name), gateways=url, token_file=token)
        return
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    with tempfile.TemporaryDirectory() as folder:
        summary = play(Path(folder), seconds)
        found = figures(Path(folder) / "log.jsonl")
    violations = summary["invariant_violations"]["total"]
    found = {"violations": violations, "calls": summary["cfps"], "awards": summary["awards"], **found}
    print(json.dumps(found, indent=1))  # noqa: T201
    if violations or found["completion"] != 1.0 or not found["calls_to_all"]:
        sys.exit("not in order")


if __name__ == "__main__":
    main()
