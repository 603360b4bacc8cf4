#!/usr/bin/env python3
"""Writes the Grafana dashboards of `panels/` as files: grafana/dashboards/*.json.

    dashboards/generate.py            write them
    dashboards/generate.py --check    fail when a committed file is not what would be written

A dashboard is a list of rows of panels; where a panel stands, its data source, its id and the variables follow from
that. Every panel has a title, a description and a unit, or this program fails. Standard library only.
"""

import argparse
import json
import pathlib
import sys

from panels.model import EVERY_PROCESS
from panels import agents, documents, exchange, experiment, gateway, market, nats, policy, runtime, traffic

FOLDER = pathlib.Path(__file__).resolve().parent / "grafana" / "dashboards"
DASHBOARDS = [exchange.DASHBOARD, gateway.DASHBOARD, market.DASHBOARD, nats.DASHBOARD, policy.DASHBOARD,
              traffic.DASHBOARD, agents.DASHBOARD, documents.DASHBOARD, runtime.DASHBOARD, experiment.DASHBOARD]
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
# Width of Grafana's grid.
WIDTH = 24
# The classic model, which Grafana 11 to 13 read.
SCHEMA_VERSION = 41
# In every panel, and in nothing else.
TARGETS = '"targets": ['
# Where traces are looked up: the port of the profile `tracing`. Jaeger's own page, because Grafana's Explore is not for
# viewers without a login.
TRACES = "http://127.0.0.1:16686"
# A page for each alert: Prometheus of docker-compose.yml serves docs/alerts.
RUNBOOKS = "http://127.0.0.1:9090/consoles"
# What prometheus.yml calls the jobs; the names on the left are those of panels/model.py.
JOBS = {"gateways": "gateway", "engines": "engine", "servers": "nats", "agents": "agents", "generators": "traffic"}
# Panels beyond which a page is long: rows behind the first ones are folded.
PANELS_MAX = 20
# Spans that carry the negotiation that is typed in; engines have one for each message and delivery.
SEARCH = ("${traces}/search?service=llmx-engine&lookback=2d&limit=20"
          "&tags=%7B%22messaging.message.conversation_id%22%3A%22${negotiation:percentencode}%22%7D")
# The gateways' own page: negotiations one by one, policies and their switch.
CONSOLE = "http://127.0.0.1:8080"


def variable(name, label, query, **more):
    """A variable whose values are those of a label."""
    return {
        "name": name, "label": label, "type": "query", "datasource": SOURCE,
        "query": {"query": query, "refId": name}, "definition": query,
        "multi": True, "includeAll": True, "current": {"text": "All", "value": "$__all"},
        "refresh": 2, "sort": 1, **more,
    }


def constant(name, value):
    """A variable nobody changes."""
    return {"name": name, "type": "constant", "query": value, "current": {"text": value, "value": value}, "hide": 2}


def variables(jobs):
    """Data source, job, instance, a negotiation to look up, what jobs are called, and where other pages are."""
    matcher = f'up{{job=~"{"|".join(jobs)}"}}'
    return [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus",
         "current": {"text": "Prometheus", "value": "prometheus"}, "refresh": 1},
        *(constant(name, value) for name, value in JOBS.items()),
        # All of it is each value of the query, so the names of jobs stand in one place only.
        variable("job", "Job", f"label_values({matcher}, job)"),
        variable("instance", "Instance", 'label_values(up{job=~"$job"}, instance)', allValue=".*"),
        {"name": "negotiation", "label": "Negotiation", "type": "textbox", "query": "", "current": {"text": "", "value": ""},
         "description": "An id, for the link to its trace"},
        constant("traces", TRACES),
        constant("console", CONSOLE),
        constant("runbooks", RUNBOOKS),
    ]


def links():
    """The other dashboards, the console, and the traces."""
    def one(title, url, icon, tooltip):
        return {"title": title, "type": "link", "url": url, "keepTime": False, "includeVars": False, "asDropdown": False,
                "icon": icon, "targetBlank": True, "tags": [], "tooltip": tooltip}
    return [
        {"title": "Dashboards", "type": "dashboards", "tags": ["llmx"], "asDropdown": True, "includeVars": False,
         "keepTime": True, "icon": "external link", "targetBlank": False, "tooltip": "", "url": ""},
        one("Console", "${console}/", "external link", "Negotiations one by one, agents, policies and their switch"),
        one("Runbooks", "${runbooks}/README.md", "doc", "A page for each alert: what it means, what to check first"),
        one("Trace of the negotiation", SEARCH, "bolt", "Type its id above; needs deploy/tracing.env"),
    ]


def annotations():
    """What happened when: processes that started, phases of a generator, cells of an experiment, alerts that fired."""
    def one(name, expression, title, color):
        return {"name": name, "datasource": SOURCE, "enable": True, "hide": False, "iconColor": color,
                "expr": expression, "titleFormat": title, "useValueForTime": False, "step": "10s"}
    return [
        one("Starts", 'changes(process_start_time_seconds{' + EVERY_PROCESS + '}[30s]) > 0', "{{instance}} started", "blue"),
        one("Phases", "changes(trafficgen_phase[30s]) > 0 and trafficgen_phase == 1", "{{instance}}: {{phase}}", "purple"),
        one("Cells", "trafficgen_cell_info == 1", "cell {{cell}}", "green"),
        one("Alerts", 'ALERTS{alertstate="firing", alertname!="Watchdog"}', "{{alertname}} {{instance}}", "red"),
    ]


def defaults(panel):
    """`fieldConfig.defaults` of a panel."""
    field = {"unit": panel.unit, "color": {"mode": panel.color}, "custom": {}, "mappings": panel.mappings,
             "noValue": panel.no_value, "decimals": panel.decimals, "min": panel.low, "max": panel.high}
    steps = panel.thresholds or [(None, "green")]
    field["thresholds"] = {"mode": "absolute", "steps": [{"color": color, "value": value} for value, color in steps]}
    if panel.kind == "timeseries":
        field["custom"] = {
            "drawStyle": "line", "lineWidth": 1, "fillOpacity": 30 if panel.stack else 5, "showPoints": "never",
            "spanNulls": False, "stacking": {"mode": "normal" if panel.stack else "none", "group": "A"},
            "thresholdsStyle": {"mode": "line" if panel.thresholds else "off"}, "axisSoftMin": 0,
        }
    return {key: value for key, value in field.items() if value not in (None, "")}


def options(panel):
    """`options` of a panel, by its kind."""
    reduce = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    return {
        "timeseries": {"legend": {"displayMode": "table", "placement": "bottom", "showLegend": True,
                                  "calcs": ["mean", "max", "lastNotNull"]},
                       "tooltip": {"mode": "multi", "sort": "desc"}},
        "stat": {"reduceOptions": reduce, "colorMode": "background", "graphMode": "area", "textMode": "auto"},
        "bargauge": {"reduceOptions": reduce, "orientation": "horizontal", "displayMode": "gradient"},
        "gauge": {"reduceOptions": reduce, "showThresholdLabels": False, "showThresholdMarkers": True},
        "table": {"showHeader": True, "cellHeight": "sm"},
        "heatmap": {"calculate": False, "cellGap": 1, "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64},
                    "yAxis": {"unit": panel.unit}, "tooltip": {"mode": "single", "yHistogram": False},
                    "legend": {"show": True}},
        "state-timeline": {"showValue": "never", "mergeValues": True, "rowHeight": 0.8,
                           "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True}},
    }[panel.kind]


def target(panel, index, query):
    """One query of a panel."""
    is_table = panel.kind == "table"
    return {
        "refId": chr(ord("A") + index), "datasource": SOURCE, "expr": query.expression, "legendFormat": query.legend,
        "editorMode": "code", "instant": is_table, "range": not is_table,
        "format": {"table": "table", "heatmap": "heatmap"}.get(panel.kind, "time_series"),
    }


def transformations(panel):
    """A table keeps its labels and one value, without the time."""
    if panel.kind != "table":
        return []
    return [{"id": "organize", "options": {"excludeByName": {"Time": True, "__name__": True}, "renameByName": {"Value": panel.value}}}]


def overrides(panel):
    """Columns of a table whose values are links."""
    def one(column, title, url):
        links = [{"title": title, "url": url, "targetBlank": True}]
        return {"matcher": {"id": "byName", "options": column}, "properties": [{"id": "links", "value": links}]}
    return [one(*link) for link in panel.links]


def panel_document(panel, number, place):
    """One panel as Grafana reads it."""
    for member in ("title", "description", "unit"):
        if not getattr(panel, member):
            sys.exit(f"panel {panel.title!r} has no {member}")
    document = {
        "id": number, "type": panel.kind, "title": panel.title, "description": panel.description, "gridPos": place,
        "datasource": SOURCE, "fieldConfig": {"defaults": defaults(panel), "overrides": overrides(panel)}, "options": options(panel),
        "targets": [target(panel, index, query) for index, query in enumerate(panel.queries)],
    }
    if changes := transformations(panel):
        document["transformations"] = changes
    return document


def lines(panels):
    """(panel, place within the row) for each panel: lines are filled from the left, then stretched, so that no hole is left."""
    line, filled = [], []
    for panel in panels:
        if sum(one.width for one in line) + panel.width > WIDTH:
            filled.append(line)
            line = []
        line.append(panel)
    top = 0
    for line in filled + [line] * bool(line):
        height, left, free = max(panel.height for panel in line), 0, WIDTH - sum(panel.width for panel in line)
        for number, panel in enumerate(line):
            # What is free is shared out evenly; the first ones get one column more where it does not come out even.
            width = panel.width + free // len(line) + (number < free % len(line))
            yield panel, {"h": height, "w": width, "x": left, "y": top}
            left += width
        top += height


def panels_of(dashboard):
    """All panels of a dashboard, row by row, each row as wide as the grid. Folded rows hold their panels."""
    documents, top, number = [], 0, 0
    is_long = sum(len(row.panels) for row in dashboard.rows) > PANELS_MAX
    for index, row in enumerate(dashboard.rows):
        number += 1
        is_folded = is_long and index >= dashboard.open_rows
        head = {"id": number, "type": "row", "title": row.title, "collapsed": is_folded, "panels": [],
                "gridPos": {"h": 1, "w": WIDTH, "x": 0, "y": top}}
        documents.append(head)
        top += 1
        end = top
        for panel, place in lines(row.panels):
            number += 1
            document_of = panel_document(panel, number, place | {"y": top + place["y"]})
            (head["panels"] if is_folded else documents).append(document_of)
            end = max(end, top + place["y"] + place["h"])
        # A folded row takes one line; Grafana moves what is below when it is opened.
        top = top if is_folded else end
    return documents


def document(dashboard):
    """A dashboard as Grafana reads it."""
    return {
        "uid": dashboard.uid, "title": dashboard.title, "description": dashboard.description, "tags": ["llmx"],
        "schemaVersion": SCHEMA_VERSION, "version": 1, "editable": False, "graphTooltip": 1, "refresh": "10s",
        "time": {"from": "now-15m", "to": "now"}, "timezone": "browser", "links": links(),
        "annotations": {"list": annotations()}, "templating": {"list": variables(dashboard.jobs)},
        "panels": panels_of(dashboard),
    }


def text(dashboard):
    """What its file holds."""
    return json.dumps(document(dashboard), indent=1, ensure_ascii=False) + "\n"


def main():
    """Writes or checks every file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with what is there, write nothing")
    is_check = parser.parse_args().check
    wanted = {FOLDER / (dashboard.uid.removeprefix("llmx-") + ".json"): text(dashboard) for dashboard in DASHBOARDS}
    if not is_check:
        for path, content in wanted.items():
            path.write_text(content)
    stale = [path.name for path, content in wanted.items() if not path.is_file() or path.read_text() != content]
    stray = sorted(path.name for path in FOLDER.glob("*.json") if path not in wanted)
    if stale or stray:
        sys.exit(f"run dashboards/generate.py: out of date {stale}, not generated {stray}")
    print(f"{len(wanted)} dashboards, {sum(content.count(TARGETS) for content in wanted.values())} panels")


if __name__ == "__main__":
    main()
