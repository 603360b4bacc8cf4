"""An exchange, its load and a Prometheus as processes of this machine: what docker-compose.yml runs, without containers."""

import pathlib
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "scripts"))
from free_ports import free_ports  # noqa: E402

# Until a process answers: an engine of a debug build on a busy machine, with room.
START_MAX_S = 60
# What alerts say of Grafana, which does not run here.
GRAFANA = "http://127.0.0.1:3000"
# A process that is asked to end and does not is killed.
END_MAX_S = 15


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

    def __init__(self, folder, programs):
        self.folder = folder
        self.llmx, self.nats_server, self.prometheus = programs
        self.commands = {}
        self.processes = {}
        # What prometheus.yml calls a process, and where it listens here.
        self.places = {}
        # Where metrics are read, by the name of the process.
        self.pages = {}

    def start(self, name, *command):
        """Starts one, or the same again; what it prints goes to a file."""
        command = self.commands.setdefault(name, [str(word) for word in command])
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)

    def start_llmx(self, name, place, *arguments):
        """Starts a process of ours with a port for its metrics, under the name prometheus.yml has for it."""
        [port] = free_ports(1)
        self.start(name, self.llmx, *arguments, "--listen", f"127.0.0.1:{port}")
        self.places[place] = f"127.0.0.1:{port}"
        self.pages[name] = f"http://127.0.0.1:{port}/metrics"
        return f"http://127.0.0.1:{port}"

    def kill(self, name):
        """Ends one without a warning."""
        self.processes[name].kill()
        self.processes[name].wait()

    def dead(self):
        """The processes that have ended by themselves."""
        return sorted(name for name, process in self.processes.items() if process.poll() is not None)

    def end(self):
        """Ends all, the last one first."""
        for process in reversed(self.processes.values()):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(END_MAX_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def start_nats(stack):
    """nats-server and the exporter of its metrics; the address of the first."""
    client, monitor, exporter = free_ports(3)
    (stack.folder / "nats.conf").write_text(
        f'server_name: nats\nlisten: "127.0.0.1:{client}"\nhttp: "127.0.0.1:{monitor}"\n'
        'jetstream { store_dir: "nats", max_file_store: 8GB, max_memory_store: 256MB }\n')
    stack.start("nats", stack.nats_server, "-c", "nats.conf")
    wait_for(f"http://127.0.0.1:{monitor}/healthz")
    target = f"http://127.0.0.1:{monitor}"
    stack.start("exporter", sys.executable, HERE / "nats_exporter.py", "--listen", f"127.0.0.1:{exporter}", "--allow", target)
    stack.places["nats-exporter:7777"] = f"127.0.0.1:{exporter}"
    stack.pages["exporter"] = f"http://127.0.0.1:{exporter}/metrics?target={target}"
    return f"nats://127.0.0.1:{client}"


def start_exchange(stack, rate):
    """The exchange, and `rate` calls per second to its contractors."""
    bus = ("--nats", start_nats(stack))
    subprocess.run([stack.llmx, "keys", "--out", "keys"], cwd=stack.folder, check=True, stdout=subprocess.DEVNULL)
    engines, gateways = ("engine-1", "engine-2"), ("gateway-1", "gateway-2")
    addresses = [stack.start_llmx(name, f"{name}:9464", "engine", *bus, "--id", name, "--trim", "after-checkpoint", "--checkpoint-every", 200)
                 for name in engines]
    keys = ("--jwks", "keys/jwks.json", "--issuer", "llmx-local")
    entries = [stack.start_llmx(name, f"{name}:8080", "gateway", *bus, "--id", name, *keys) for name in gateways]
    for address in addresses + entries:
        wait_for(f"{address}/readyz")
    access = ("--gateway", ",".join(entries), "--key", "keys/signing-key.pem")
    # Every other contractor asks a model, whose answers are often faulty.
    examples = HERE.parent / "examples"
    [stub] = free_ports(1)
    stack.start("model-stub", f"{stack.llmx}-lab", "model-stub", "--listen", f"127.0.0.1:{stub}", "--script", examples / "model-stub-faulty.toml")
    model = (examples / "model.toml").read_text().replace("127.0.0.1:9090", f"127.0.0.1:{stub}")
    (stack.folder / "model.toml").write_text(model)
    asking = ("--model", "model.toml", "--model-share", "0.5")
    wait_for(stack.start_llmx("contractors", "contractors:9464", "contractors", *access, *asking) + "/readyz")
    start_parcels(stack, access, examples)
    wait_for(stack.start_llmx("initiator", "initiator:9464", "traffic", *access, "--rate", rate, "--duration", 24 * 3600) + "/readyz")


def start_parcels(stack, access, examples):
    """Contractors that follow a protocol document by a routine, and calls that name it."""
    topic = ("--topic", "parcels")
    routines = ("--count", 3, "--prefix", "parcel-", "--routines", examples / "routines.toml")
    wait_for(stack.start_llmx("parcel-contractors", "parcel-contractors:9464", "contractors", *access, *topic, *routines) + "/readyz")
    named = ("--initiator", "carol", "--task", 1500, "--document", examples / "parcel-price.md")
    wait_for(stack.start_llmx("parcel-initiator", "parcel-initiator:9464", "traffic", *access, *topic, *named, "--rate", 1, "--duration", 24 * 3600)
             + "/readyz")


def start_prometheus(stack):
    """Prometheus with the repository's configuration, names replaced by the addresses of this run; its address."""
    [port] = free_ports(1)
    text = (HERE / "prometheus" / "prometheus.yml").read_text()
    places = stack.places | {"/etc/prometheus/rules": str(HERE / "prometheus" / "rules"), "127.0.0.1:9090": f"127.0.0.1:{port}",
                             "${GRAFANA_URL}": GRAFANA}
    # A name can be the end of a longer one.
    for name, place in sorted(places.items(), key=lambda one: -len(one[0])):
        if name not in text:
            sys.exit(f"prometheus.yml does not name {name}")
        text = text.replace(name, place)
    (stack.folder / "prometheus.yml").write_text(text)
    stack.start("prometheus", stack.prometheus, "--config.file=prometheus.yml", "--storage.tsdb.path=prometheus",
                f"--web.listen-address=127.0.0.1:{port}", f"--web.external-url=http://127.0.0.1:{port}", "--web.route-prefix=/",
                f"--web.console.templates={HERE.parent / 'docs' / 'alerts'}")
    wait_for(f"http://127.0.0.1:{port}/-/ready")
    return f"http://127.0.0.1:{port}"
