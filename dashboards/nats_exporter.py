#!/usr/bin/env python3
"""Metrics of nats-servers for Prometheus, read from their monitoring ports.

    nats_exporter.py --listen 127.0.0.1:7777 --allow http://127.0.0.1:8222
    curl 'http://127.0.0.1:7777/metrics?target=http://127.0.0.1:8222'
    curl http://127.0.0.1:7777/targets

One scrape asks one server, so `up` says of each server whether it answers. `/targets` lists the servers for Prometheus's
`http_sd_configs`: those of --allow, and those of --allow-later from their first answer on. Prometheus need not reach
them itself, and one that goes stays in the list. Names and meanings are those of
prometheus-nats-exporter (natsio/prometheus-nats-exporter, flags `-varz -jsz=all`), of which this is the part that the
dashboards and rules read: either can serve them. Standard library only.
"""

import argparse
import http.server
import json
import sys
import threading
import urllib.parse
import urllib.request

# A server that takes longer is as good as silent; below Prometheus's scrape timeout, so that the scrape fails cleanly.
ASK_TIMEOUT_S = 3
# An answer larger than this is no answer of a nats-server that holds one exchange.
ANSWER_BYTES_MAX = 16 << 20
# The part of a client's request that is waited for.
REQUEST_TIMEOUT_S = 10
# How often a server that has never answered is asked.
LOOK_EVERY_S = 5

# Metric name, place in /varz, what it is.
SERVER = [
    ("gnatsd_varz_connections", ("connections",), "Client connections."),
    ("gnatsd_varz_subscriptions", ("subscriptions",), "Subscriptions."),
    ("gnatsd_varz_slow_consumers", ("slow_consumers",), "Clients cut off because they did not read, so far."),
    ("gnatsd_varz_in_msgs", ("in_msgs",), "Messages received so far."),
    ("gnatsd_varz_out_msgs", ("out_msgs",), "Messages sent so far."),
    ("gnatsd_varz_in_bytes", ("in_bytes",), "Bytes received so far."),
    ("gnatsd_varz_out_bytes", ("out_bytes",), "Bytes sent so far."),
    ("gnatsd_varz_cpu", ("cpu",), "Processor use in percent of one core."),
    ("gnatsd_varz_mem", ("mem",), "Resident memory in bytes."),
    ("gnatsd_varz_routes", ("routes",), "Routes to other servers of the cluster."),
    ("gnatsd_varz_jetstream_stats_storage", ("jetstream", "stats", "storage"), "Bytes stored on disk."),
    ("gnatsd_varz_jetstream_stats_memory", ("jetstream", "stats", "memory"), "Bytes stored in memory."),
    ("gnatsd_varz_jetstream_stats_api_total", ("jetstream", "stats", "api", "total"), "Requests to JetStream so far."),
    ("gnatsd_varz_jetstream_stats_api_errors", ("jetstream", "stats", "api", "errors"), "Refused ones among them."),
    ("gnatsd_varz_jetstream_config_max_storage", ("jetstream", "config", "max_storage"), "Most bytes on disk."),
    ("gnatsd_varz_jetstream_config_max_memory", ("jetstream", "config", "max_memory"), "Most bytes in memory."),
]
# Metric name, place in a stream's `state`, what it is.
STREAM = [
    ("jetstream_stream_total_messages", "messages", "Messages in the stream."),
    ("jetstream_stream_total_bytes", "bytes", "Bytes in the stream."),
    ("jetstream_stream_first_seq", "first_seq", "First sequence in the stream."),
    ("jetstream_stream_last_seq", "last_seq", "Last sequence in the stream."),
]
# Metric name, place in a consumer, what it is.
CONSUMER = [
    ("jetstream_consumer_num_pending", "num_pending", "Messages not yet delivered to the consumer."),
    ("jetstream_consumer_num_ack_pending", "num_ack_pending", "Messages delivered and not yet acknowledged."),
    ("jetstream_consumer_num_redelivered", "num_redelivered", "Messages delivered again and not yet acknowledged."),
]


class Page:
    """Collects samples by metric, then prints them in Prometheus's text format."""

    def __init__(self):
        self.families = {}

    def add(self, name, text, value, **labels):
        """One sample; `None` is left out."""
        if value is None:
            return
        pairs = ",".join(f'{key}="{escape(label)}"' for key, label in sorted(labels.items()))
        self.families.setdefault((name, text), []).append(f"{name}{{{pairs}}} {float(value):.17g}")

    def text(self):
        """All of it. As with the original, readings of a server are gauges, unless their name says otherwise."""
        lines = []
        for (name, text), samples in self.families.items():
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}", *samples]
        return "\n".join(lines) + "\n"


def escape(label):
    """A label's value as the text format wants it."""
    return str(label).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def find(document, place):
    """The value at a place, or nothing."""
    for member in place:
        document = document.get(member) if isinstance(document, dict) else None
    return document


def ask(target, path):
    """A document of a server's monitoring port."""
    with urllib.request.urlopen(target + path, timeout=ASK_TIMEOUT_S) as answer:
        return json.loads(answer.read(ANSWER_BYTES_MAX))


def page_of(target):
    """Every metric of one server."""
    page = Page()
    varz = ask(target, "/varz")
    server = varz.get("server_name", "")
    for name, place, text in SERVER:
        page.add(name, text, find(varz, place), server_name=server)
    jsz = ask(target, "/jsz?consumers=true")
    for account in jsz.get("account_details") or []:
        for stream in account.get("stream_detail") or []:
            add_stream(page, server, stream)
    return page.text()


def add_stream(page, server, stream):
    """One stream and its consumers, as this server sees them."""
    leads = find(stream, ("cluster", "leader")) in (None, server)
    labels = {"server_name": server, "stream_name": stream["name"], "is_stream_leader": str(leads).lower()}
    for name, member, text in STREAM:
        page.add(name, text, find(stream, ("state", member)), **labels)
    for consumer in stream.get("consumer_detail") or []:
        leads = find(consumer, ("cluster", "leader")) in (None, server)
        more = {"consumer_name": consumer["name"], "is_consumer_leader": str(leads).lower()}
        for name, member, text in CONSUMER:
            page.add(name, text, consumer.get(member), **labels, **more)


class Servers:
    """The servers that may be asked, and those of them that are part of the exchange."""

    def __init__(self, allowed, later):
        self.allowed = frozenset(allowed) | frozenset(later)
        self.present = set(allowed)

    def look(self):
        """Asks those that have never answered, until all have."""
        while missing := self.allowed - self.present:
            for target in sorted(missing):
                try:
                    ask(target, "/varz")
                    self.present.add(target)
                except (OSError, ValueError):
                    pass
            threading.Event().wait(LOOK_EVERY_S)

    def document(self):
        """What Prometheus reads."""
        return json.dumps([{"targets": [target]} for target in sorted(self.present)])


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers /metrics?target=URL, /targets and /healthz."""

    timeout = REQUEST_TIMEOUT_S
    servers = Servers([], [])

    def do_GET(self):
        """One request."""
        url = urllib.parse.urlsplit(self.path)
        if url.path == "/healthz":
            return self.answer(200, "alive\n")
        if url.path == "/targets":
            return self.answer(200, self.servers.document(), "application/json")
        if url.path != "/metrics":
            return self.answer(404, "there is /metrics?target=URL, /targets and /healthz\n")
        target = urllib.parse.parse_qs(url.query).get("target", [""])[0]
        # Only what was named at the start: whoever reaches this port must not be able to reach further through it.
        if target not in self.servers.allowed:
            return self.answer(403, "the target is none of those given with --allow or --allow-later\n")
        try:
            text = page_of(target)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            return self.answer(502, f"{target}: {error}\n")
        return self.answer(200, text, "text/plain; version=0.0.4; charset=utf-8")

    def answer(self, status, text, kind="text/plain; charset=utf-8"):
        """Writes the answer."""
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, form, *values):
        """A scrape every few seconds is no news; failures are seen as `up == 0`."""


def main():
    """Serves until it is ended."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--listen", default="127.0.0.1:7777", metavar="ADDRESS", help="host:port (%(default)s)")
    parser.add_argument("--allow", action="append", required=True, metavar="URL", help="a monitoring port; repeatable")
    parser.add_argument("--allow-later", action="append", default=[], metavar="URL", help="one that need not be there; repeatable")
    arguments = parser.parse_args()
    host, _, port = arguments.listen.rpartition(":")
    clean = [[url.rstrip("/") for url in urls] for urls in (arguments.allow, arguments.allow_later)]
    Handler.servers = Servers(*clean)
    threading.Thread(target=Handler.servers.look, daemon=True).start()
    with http.server.ThreadingHTTPServer((host, int(port)), Handler) as server:
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            sys.exit(0)


if __name__ == "__main__":
    main()
