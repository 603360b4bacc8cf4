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

from panels import exchange, gateway, market, nats, policy, runtime, traffic

FOLDER = pathlib.Path(__file__).resolve().parent / "grafana" / "dashboards"
DASHBOARDS = [exchange.DASHBOARD, gateway.DASHBOARD, market.DASHBOARD, nats.DASHBOARD, policy.DASHBOARD,
              traffic.DASHBOARD, runtime.DASHBOARD]
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
# Spans that carry the negotiation that is typed in; engines have one for each message and delivery.
SEARCH = ("${traces}/search?service=llmx-engine&lookback=2d&limit=20"
          "&tags=%7B%22messaging.message.conversation_id%22%3A%22${negotiation:percentencode}%22%7D")
# The gateways' own page: negotiations one by one, policies and their switch.
CONSOLE = "http://127.0.0.1:8080"


def variable(name, label, query, everything):
    """A variable whose values are those of a label; `everything` is the expression that matches all of them."""
    return {
        "name": name, "label": label, "type": "query", "datasource": SOURCE,
        "query": {"query": query, "refId": name}, "definition": query,
        "multi": True, "includeAll": True, "allValue": everything, "current": {"text": "All", "value": "$__all"},
        "refresh": 2, "sort": 1,
    }


def constant(name, value):
    """A variable nobody changes."""
    return {"name": name, "type": "constant", "query": value, "current": {"text": value, "value": value}, "hide": 2}


def variables(jobs):
    """Data source, job, instance, a negotiation to look up, and where traces and the console are."""
    matcher = f'up{{job=~"{jobs}"}}'
    return [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus",
         "current": {"text": "Prometheus", "value": "prometheus"}, "refresh": 1},
        variable("job", "Job", f"label_values({matcher}, job)", jobs),
        variable("instance", "Instance", 'label_values(up{job=~"$job"}, instance)', ".*"),
        {"name": "negotiation", "label": "Negotiation", "type": "textbox", "query": "", "current": {"text": "", "value": ""},
         "description": "An id, for the link to its trace"},
        constant("traces", TRACES),
        constant("console", CONSOLE),
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
        one("Trace of the negotiation", SEARCH, "bolt", "Type its id above; needs deploy/tracing.env"),
    ]


def annotations():
    """What happened when: processes that started, phases of a generator, alerts that fired."""
    def one(name, expression, title, color):
        return {"name": name, "datasource": SOURCE, "enable": True, "hide": False, "iconColor": color,
                "expr": expression, "titleFormat": title, "useValueForTime": False, "step": "10s"}
    return [
        one("Starts", 'changes(process_start_time_seconds{job=~"gateway|engine|agents|traffic"}[30s]) > 0', "{{instance}} started", "blue"),
        one("Phases", "changes(trafficgen_phase[30s]) > 0 and trafficgen_phase == 1", "{{instance}}: {{phase}}", "purple"),
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


def panel_document(panel, number, place):
    """One panel as Grafana reads it."""
    for member in ("title", "description", "unit"):
        if not getattr(panel, member):
            sys.exit(f"panel {panel.title!r} has no {member}")
    document = {
        "id": number, "type": panel.kind, "title": panel.title, "description": panel.description, "gridPos": place,
        "datasource": SOURCE, "fieldConfig": {"defaults": defaults(panel), "overrides": []}, "options": options(panel),
        "targets": [target(panel, index, query) for index, query in enumerate(panel.queries)],
    }
    if changes := transformations(panel):
        document["transformations"] = changes
    return document


def panels_of(dashboard):
    """All panels of a dashboard, row by row, each row as wide as the grid."""
    documents, top, number = [], 0, 0
    for row in dashboard.rows:
        number += 1
        documents.append({"id": number, "type": "row", "title": row.title, "collapsed": False, "panels": [],
                          "gridPos": {"h": 1, "w": WIDTH, "x": 0, "y": top}})
        top, left, height = top + 1, 0, 0
        for panel in row.panels:
            if left + panel.width > WIDTH:
                top, left, height = top + height, 0, 0
            number += 1
            documents.append(panel_document(panel, number, {"h": panel.height, "w": panel.width, "x": left, "y": top}))
            left, height = left + panel.width, max(height, panel.height)
        top += height
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
