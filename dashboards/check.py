#!/usr/bin/env python3
"""Asks a running Prometheus everything that dashboards, rules and alerts ask, and fails where nothing comes back.

    dashboards/check.py --prometheus http://127.0.0.1:9090 [--markdown]
    dashboards/check.py --static        only what can be judged without one; needs promtool

Without a Prometheus: the form of the dashboards (grid.py), every query, configuration, rules, their tests and runbooks.

A query of a panel or a recording rule must give at least one finite value and none that is infinite or not a number.
An alert that does not fire gives nothing, so of an alert every selector must find series, and Prometheus must have
evaluated it without an error, and its runbook must be served. Exceptions stand in allow.json with their reasons; one that names nothing fails as well.
Exit code 0 when everything is as it should be, 1 otherwise. Standard library only.
"""

import argparse
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

import grid
from watch import Prometheus

HERE = pathlib.Path(__file__).resolve().parent
# Grafana's own variables, as they stand on a scrape interval of 5 s. The others are those of the dashboard, all chosen.
VARIABLES = {"$__rate_interval": "20s", "$__interval": "10s", "$__range": "15m"}
# Where alerts link to: absolute, by what Prometheus knows of itself and of Grafana.
RUNBOOKS = "{{ $externalURL }}/consoles"
DASHBOARD = re.compile(r'dashboard: "\{\{ \$externalLabels\.grafana \}\}/d/([\w-]+)"')
# Words of PromQL that are no metric names.
WORDS = {"and", "or", "unless", "by", "without", "on", "ignoring", "group_left", "group_right", "bool", "offset", "inf", "nan"}
GROUPING = re.compile(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)")
# The expression of an alert, on one line or several.
EXPRESSION = re.compile(r"^ +expr: (.*(?:\n {10,}.*)*)", re.MULTILINE)
SELECTOR = re.compile(r"(?<![\w.])([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(\{[^}]*\})?(\s*\()?")


def dashboards():
    """The committed dashboards."""
    return [json.loads(path.read_text()) for path in sorted((HERE / "grafana" / "dashboards").glob("*.json"))]


def resolved(dashboard, expression):
    """An expression with the variables of its dashboard as they are when all is chosen."""
    variables = dashboard["templating"]["list"]
    constants = {f"${one['name']}": one["query"] for one in variables if one["type"] == "constant"}
    [jobs] = [re.search(r'job=~"([^"]+)"', one["definition"])[1] for one in variables if one["name"] == "job"]
    chosen = {f"${one['name']}": one["allValue"] for one in variables if "allValue" in one} | {"$job": jobs}
    for name, value in (VARIABLES | chosen | constants).items():
        expression = expression.replace(name, value)
    return expression


def panel_queries(without=()):
    """(name, expression) of every query of every panel, in the committed files; but for the dashboards of these uids."""
    for dashboard in dashboards():
        if dashboard["uid"] in without:
            continue
        for panel in grid.panels(dashboard):
            for target in panel.get("targets", []):
                yield f"{dashboard['title']} / {panel['title']} / {target['refId']}", resolved(dashboard, target["expr"])


def annotation_queries():
    """(name, expression) of the dashboards' annotations; that nothing happened is no fault, so they only have to parse."""
    for dashboard in dashboards():
        for annotation in dashboard["annotations"]["list"]:
            yield f"{dashboard['title']} / annotation {annotation['name']}", resolved(dashboard, annotation["expr"])


def selectors(expression):
    """The selectors of an expression: names of metrics, with their matchers."""
    found = []
    for name, matchers, is_call in SELECTOR.findall(GROUPING.sub(" ", re.sub(r"\[[^\]]*\]", "", expression))):
        if not is_call and name.lower() not in WORDS:
            found.append(name + matchers)
    return sorted(set(found))


def judge_query(prometheus, expression):
    """(whether it is fine, what came back)."""
    try:
        values = prometheus.values(expression)
    except ValueError as error:
        return False, f"refused: {error}"
    strange = sum(not math.isfinite(value) for value in values)
    if strange:
        return False, f"{strange} of {len(values)} values not finite"
    if not values:
        return False, "nothing"
    return True, f"{len(values)} values, {min(values):.4g} to {max(values):.4g}"


def judge_alert(prometheus, rule):
    """(whether it is fine, what came back)."""
    if rule["health"] != "ok":
        return False, f"{rule['health']}: {rule.get('lastError', '')}"
    missing = []
    names = selectors(rule["query"])
    for selector in names:
        # Counters with a matcher on something rare exist from the start, at 0; that is the point of the check.
        if not prometheus.values(f"count({selector})"):
            missing.append(selector)
    if missing:
        return False, "no series: " + ", ".join(missing)
    if fault := link_fault(prometheus, rule):
        return False, fault
    return True, f"{len(names)} selectors, {rule['state']}"


def link_fault(prometheus, rule):
    """What is wrong with an alert's links: its runbook must be served, and what a firing one says be absolute."""
    page = f"{prometheus.url}/consoles/{rule['name']}.md"
    try:
        with urllib.request.urlopen(page, timeout=10) as answer:
            if not answer.read().decode().startswith(f"# {rule['name']}"):
                return f"{page} is no runbook of it"
    except urllib.error.URLError as error:
        return f"{page}: {error}"
    for alert in rule["alerts"]:
        said = alert["annotations"]
        if not said["runbook_url"].endswith(f"/consoles/{rule['name']}.md"):
            return f"its runbook is {said['runbook_url']}"
        if relative := [said[name] for name in ("runbook_url", "dashboard") if not re.match(r"https?://[^/]+/", said[name])]:
            return f"no absolute address: {', '.join(relative)}"
    return ""


def judgements(prometheus, without):
    """(kind, name, whether it is fine, what came back) of everything, but for the panels of some dashboards."""
    for name, expression in panel_queries(without):
        yield "panel", name, *judge_query(prometheus, expression)
    for name, expression in annotation_queries():
        try:
            yield "annotation", name, True, f"{len(prometheus.values(expression))} values"
        except ValueError as error:
            yield "annotation", name, False, f"refused: {error}"
    groups = prometheus.ask("rules")["groups"]
    if not groups:
        yield "rule", "all", False, "Prometheus has no rules"
    for rule in (rule for group in groups for rule in group["rules"]):
        if rule["type"] == "alerting":
            yield "alert", rule["name"], *judge_alert(prometheus, rule)
        else:
            yield "rule", rule["name"], *judge_query(prometheus, rule["query"])


def words(text):
    """A text on one line, however it was broken."""
    return " ".join(text.split())


def papers():
    """What is wrong with alerts' annotations, tests and pages, without a Prometheus."""
    pages = {path.stem for path in (HERE.parent / "docs" / "alerts").glob("*.md")} - {"README"}
    text = "".join(path.read_text() for path in sorted((HERE / "prometheus" / "rules").glob("alerts*.yml")))
    alerts = set(re.findall(r"^ +- alert: (\w+)$", text, re.MULTILINE))
    tests = "".join(path.read_text() for path in (HERE / "prometheus" / "tests").glob("*.yml"))
    tested = set(re.findall(r'alertname="(\w+)"', tests))
    uids = {dashboard["uid"] for dashboard in dashboards()}
    faults = [f"docs/alerts/{name}.md is missing" for name in sorted(alerts - pages)]
    faults += [f"docs/alerts/{name}.md is about no alert" for name in sorted(pages - alerts)]
    faults += [f"{name} has no test" for name in sorted(alerts - tested)]
    matchers = re.findall(r'alertname =~? "?([\w|]+)', (HERE.parent / "deploy" / "alertmanager.yml").read_text())
    inhibited = {name for matcher in matchers for name in matcher.split("|")}
    faults += [f"deploy/alertmanager.yml: there is no alert {name}" for name in sorted(inhibited - alerts)]
    for block in re.split(r"^ +- alert: ", text, flags=re.MULTILINE)[1:]:
        name = block.split()[0]
        wanted = ["severity:", "component:", "summary:", "description:", f'runbook_url: "{RUNBOOKS}/{name}.md"']
        faults += [f"{name} lacks {member}" for member in wanted if member not in block]
        page = HERE.parent / "docs" / "alerts" / f"{name}.md"
        if page.is_file() and words(EXPRESSION.search(block)[1].strip("|")) not in words(page.read_text()):
            faults.append(f"docs/alerts/{name}.md shows another expression than the rule")
        shown = re.search(DASHBOARD, block)
        if not shown or shown[1] not in uids:
            faults.append(f"{name} names no dashboard that exists")
    return faults


def promtool(*arguments):
    """What promtool has against something; empty when nothing."""
    done = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).strip() if done.returncode else ""


def unparsable():
    """Queries of panels and annotations that are no PromQL: promtool reads them as if they were rules."""
    queries = [*panel_queries(), *annotation_queries()]
    rules = [{"record": f"query:{number}", "expr": expression} for number, (_, expression) in enumerate(queries)]
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
        # JSON is YAML.
        json.dump({"groups": [{"name": "queries", "rules": rules}]}, file)
        file.flush()
        fault = promtool("check", "rules", file.name)
    for number, (name, _) in reversed([*enumerate(queries)]):
        fault = fault.replace(f"query:{number}", name)
    return [fault] if fault else []


def configuration():
    """What promtool has against prometheus.yml, with the rules where they are here."""
    rules = str(HERE / "prometheus" / "rules")
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
        file.write((HERE / "prometheus" / "prometheus.yml").read_text().replace("/etc/prometheus/rules", rules))
        file.flush()
        fault = promtool("check", "config", file.name)
    return [fault] if fault else []


def static():
    """Judges what needs no Prometheus."""
    faults = papers() + unparsable() + configuration() + [fault for one in dashboards() for fault in grid.faults(one)]
    names = {f"panel: {name}" for name, _ in panel_queries()}
    allowed = json.loads((HERE / "allow.json").read_text())
    faults += [f"allow.json: {name} names nothing that exists" for name in allowed if name.startswith("panel: ") and name not in names]
    faults += [fault for path in sorted((HERE / "prometheus" / "tests").glob("*.yml")) if (fault := promtool("test", "rules", path))]
    for fault in faults:
        print(f"FAULT {fault}", file=sys.stderr)
    print(f"{len(names)} queries of panels, configuration, rules, their tests and pages: " + (f"{len(faults)} faults" if faults else "in order"))
    return 1 if faults else 0


def main():
    """Asks, prints a table, and judges."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prometheus", default="http://127.0.0.1:9090", metavar="URL", help="%(default)s")
    parser.add_argument("--markdown", action="store_true", help="print every line, as a table; otherwise only what is wrong")
    parser.add_argument("--without", action="append", default=[], metavar="UID", help="a dashboard whose processes do not run there")
    parser.add_argument("--static", action="store_true", help="ask no Prometheus")
    arguments = parser.parse_args()
    if arguments.static:
        sys.exit(static())
    allowed = json.loads((HERE / "allow.json").read_text())
    prometheus = Prometheus(arguments.prometheus)
    counts, faults, known = {}, papers(), set()
    if arguments.markdown:
        print("| | what | is | came back |\n|---|---|---|---|")
    for kind, name, is_fine, what in judgements(prometheus, arguments.without):
        reason = allowed.get(f"{kind}: {name}")
        verdict = "ok" if is_fine else "allowed" if reason else "FAULT"
        known.add(f"{kind}: {name}")
        counts.setdefault(kind, {}).setdefault(verdict, 0)
        counts[kind][verdict] += 1
        if verdict == "FAULT":
            faults.append(f"{kind} {name}: {what}")
        if arguments.markdown:
            print(f"| {kind} | {name} | {verdict} | {what}{'; ' + reason if verdict == 'allowed' else ''} |")
    faults += [f"allow.json: {name} names nothing that exists" for name in sorted(set(allowed) - known)]
    for kind, verdicts in counts.items():
        print(f"{kind}: " + ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items())))
    for fault in faults:
        print(f"FAULT {fault}", file=sys.stderr)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
