"""Watches, through Prometheus alone, what faults do to an exchange: the alerts that tell of them, and rounds."""

import json
import time
import urllib.error
import urllib.parse
import urllib.request

ASK_TIMEOUT_S = 10
# Until an alert fires, and until it has cleared: the longest `for` of those watched is 30 s, their windows a minute.
ALERT_MAX_S = 150
# Until negotiations end again at half the rate of before, once what was killed is back.
RECOVERY_MAX_S = 90
# Rounds are counted over windows of this length: four scrapes.
WINDOW_S = 20
ROUNDS = f"sum(rate(exchange_negotiations_closed_total[{WINDOW_S}s]))"
# What is killed, and the alerts that have to tell of it.
ALERTS = {"gateway-2": ["GatewayDown"], "engine-2": ["EngineDown"], "nats": ["NatsDown", "NatsMajorityLost", "LogUnavailable"]}
# The same with three nats-servers, of which one may be missing.
ALERTS_IN_CLUSTER = {"gateway-2": ["GatewayDown"], "engine-2": ["EngineDown"], "nats-2": ["NatsDown"]}
# Without this nothing can be logged, so no negotiation can end.
STOPS_EVERYTHING = {"nats"}
HEADER = ("| killed | rounds/s before | alerts | fire after | rounds/s meanwhile, least and mean | clear after its return | rounds/s after |\n"
          "|---|---|---|---|---|---|---|")


class Prometheus:
    """The HTTP API of one Prometheus."""

    def __init__(self, url):
        self.url = url.rstrip("/")

    def ask(self, path, **parameters):
        """The `data` of an answer; `ValueError` carries what Prometheus refused."""
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=ASK_TIMEOUT_S) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise ValueError(json.load(error).get("error", str(error))) from error

    def values(self, expression):
        """The values of an expression now."""
        data = self.ask("query", query=expression)
        if data["resultType"] == "scalar":
            return [float(data["result"][1])]
        return [float(sample["value"][1]) for sample in data["result"]]

    def values_between(self, expression, start, end):
        """The values of an expression between two times (seconds since 1970), every five seconds."""
        data = self.ask("query_range", query=expression, start=start, end=end, step=5)
        return [float(value) for series in data["result"] for _, value in series["values"]]


def rounds(prometheus):
    """Negotiations that ended, per second, over the last window."""
    return sum(prometheus.values(ROUNDS))


def wait_until(is_so, most_s):
    """Seconds until something is so; nothing when it takes too long."""
    began = time.monotonic()
    while time.monotonic() - began < most_s:
        if is_so():
            return time.monotonic() - began
        time.sleep(1)
    return None


def firing(prometheus, alerts):
    """Those of the alerts that fire."""
    chosen = f'ALERTS{{alertname=~"{"|".join(alerts)}", alertstate="firing"}}'
    found = prometheus.ask("query", query=f"count by (alertname) ({chosen})")["result"]
    return {sample["metric"]["alertname"] for sample in found}


def seconds(duration):
    """A duration in words."""
    return "never" if duration is None else f"{duration:.0f} s"


def one_fault(prometheus, name, alerts, kill, start):
    """Kills one part, starts it again, prints a line of the table; the faults found."""
    early = firing(prometheus, alerts)
    before = rounds(prometheus)
    kill(name)
    killed_at = time.time()
    fired = wait_until(lambda: len(firing(prometheus, alerts)) == len(alerts), ALERT_MAX_S)
    # The first window that holds nothing of before the kill, and what follows.
    meanwhile = prometheus.values_between(ROUNDS, min(killed_at + WINDOW_S, time.time()), time.time()) or [0.0]
    start(name)
    cleared = wait_until(lambda: not firing(prometheus, alerts), ALERT_MAX_S)
    recovered = wait_until(lambda: rounds(prometheus) > before / 2, RECOVERY_MAX_S)
    after = rounds(prometheus)
    print(f"| {name} | {before:.1f} | {', '.join(alerts)} | {seconds(fired)} | {min(meanwhile):.1f}, {sum(meanwhile) / len(meanwhile):.1f} "
          f"| {seconds(cleared)} | {after:.1f} |", flush=True)
    faults = [f"{alert} fired before {name} was killed" for alert in sorted(early)]
    faults += [f"no rounds before {name} was killed"] if before == 0 else []
    faults += [f"not all of {', '.join(alerts)} fired for {name}"] if fired is None else []
    faults += [f"not all of {', '.join(alerts)} cleared after {name} came back"] if cleared is None else []
    faults += [f"no rounds after {name} came back"] if recovered is None else []
    # Without one gateway or engine of two everything must go on.
    if min(meanwhile) == 0 and name not in STOPS_EVERYTHING:
        faults.append(f"no rounds while {name} was gone")
    return faults


def faults_in_turn(prometheus, alerts_by_name, kill, start):
    """Kills each part in its turn, prints a table; the faults found."""
    print(HEADER)
    return [fault for name, alerts in alerts_by_name.items() for fault in one_fault(prometheus, name, alerts, kill, start)]
