"""The words dashboards are written in."""

import dataclasses

# Matches what the variables of a dashboard choose.
CHOSEN = 'job=~"$job", instance=~"$instance"'
# Prometheus jobs, as constants of every dashboard: whoever calls them otherwise changes them in generate.py.
GATEWAYS, ENGINES, SERVERS, AGENTS, GENERATORS = "$gateways", "$engines", "$servers", "$agents", "$generators"
# Matches every process of ours.
EVERY_PROCESS = f'job=~"{GATEWAYS}|{ENGINES}|{AGENTS}|{GENERATORS}"'
# Green, then what to look at, then what is wrong.
GREEN, YELLOW, RED = "green", "yellow", "red"


@dataclasses.dataclass(frozen=True)
class Query:
    """A PromQL expression and how its series are called."""

    expression: str
    legend: str = "__auto"


@dataclasses.dataclass(frozen=True)
class Panel:
    """One panel. `width` is in columns of 24, `height` in rows of Grafana's grid."""

    kind: str
    title: str
    description: str
    unit: str
    queries: tuple
    width: int = 8
    height: int = 8
    stack: bool = False
    thresholds: tuple = ()
    mappings: tuple = ()
    color: str = "palette-classic"
    decimals: int | None = None
    low: float | None = None
    high: float | None = None
    no_value: str = ""
    value: str = "Value"
    # Of a table: (column, text, address).
    links: tuple = ()


@dataclasses.dataclass(frozen=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: tuple


@dataclasses.dataclass(frozen=True)
class Dashboard:
    """A dashboard. `jobs` are the Prometheus jobs it is about. Of a long one, rows behind the first `open_rows` are folded."""

    uid: str
    title: str
    description: str
    jobs: tuple
    rows: tuple
    open_rows: int = 1


def series(title, description, unit, *queries, **more):
    """Lines over time."""
    return Panel("timeseries", title, description, unit, queries, **more)


def stat(title, description, unit, expression, **more):
    """One number on its colour."""
    settings = {"width": 4, "height": 4, "color": "thresholds"} | more
    return Panel("stat", title, description, unit, (Query(expression),), **settings)


def heatmap(title, description, unit, expression, **more):
    """A histogram over time."""
    return Panel("heatmap", title, description, unit, (Query(expression, "{{le}}"),), **more)


def table(title, description, unit, value, expression, **more):
    """Labels and a value, now."""
    return Panel("table", title, description, unit, (Query(expression),), value=value, **more)


def timeline(title, description, query, texts, **more):
    """States over time; `texts` gives the text and colour of each value."""
    mapping = {str(value): {"text": text, "color": color, "index": index}
               for index, (value, (text, color)) in enumerate(texts.items())}
    return Panel("state-timeline", title, description, "short", (query,), color="thresholds",
                 mappings=({"type": "value", "options": mapping},), **more)


def rate(metric, by="", matchers="", interval="$__rate_interval"):
    """Events per second of the chosen processes, summed by labels."""
    more = f", {matchers}" if matchers else ""
    grouping = f" by ({by})" if by else ""
    return f"sum{grouping} (rate({metric}{{{CHOSEN}{more}}}[{interval}]))"


def quantile(share, metric, by="", matchers=""):
    """A quantile of a histogram of the chosen processes. Groups in which nothing happened are left out."""
    labels = f"{by}, le" if by else "le"
    counted = rate(f"{metric}_count", by, matchers)
    happened = f"on ({by}) ({counted} > 0)" if by else f"on () ({counted} > 0)"
    return f"histogram_quantile({share}, {rate(f'{metric}_bucket', labels, matchers)}) and {happened}"


def quantiles(metric, matchers="", shares=(0.5, 0.95, 0.99)):
    """Several quantiles as queries."""
    return tuple(Query(quantile(share, metric, "", matchers), f"p{share * 100:g}") for share in shares)


def gauge_sum(metric, by="", matchers=""):
    """The sum of a gauge over the chosen processes."""
    more = f", {matchers}" if matchers else ""
    grouping = f" by ({by})" if by else ""
    return f"sum{grouping} ({metric}{{{CHOSEN}{more}}})"
