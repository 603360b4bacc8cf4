"""What can be said of a dashboard's form without a Prometheus: its grid, titles, links, jobs and length."""

import re

# Width of Grafana's grid.
WIDTH = 24
# Panels that are open when a page is; more are folded into rows.
OPEN_MAX = 20
# Words no title may have, because they mean something to us only, or nothing to who has not read the description.
# `{name}` in a legend is no title.
BANNED = {
    "told", "tell", "tells", "heard", "hears", "beat", "beats", "pulse", "herald", "book", "shelf", "matter", "shed", "histories",
    "fold", "folded", "folds", "teller", "dossier", "slope", "what", "who", "how", "nothing", "something", "they", "it", "its",
}
# Titles that are one of these words and no more say of what.
BARE = {
    "messages", "bytes", "memory", "processor", "repeats", "duration", "documents", "rounds", "streams", "spans", "series", "tasks",
    "waiting", "stored", "decided", "ended", "refused", "allowed", "denied", "unreadable", "connected", "transitions", "given up",
    "trimmed", "deliveries", "agents", "readers", "workers", "decisions", "calls", "runs", "records", "discovery", "events",
}
URL = re.compile(r"^https?://[^/]+(/.*[^/])?$")
JOB = re.compile(r"""job\s*(=~|!~|=|!=)\s*["']([^"']*)["']""")
# `prometheus` is what Prometheus calls itself.
JOB_NAME = re.compile(r"^(\$\w+|prometheus)(\|(\$\w+|prometheus))*$")


def panels(dashboard):
    """Every panel, those in folded rows included; rows are none."""
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            yield from panel["panels"]
        else:
            yield panel


def rows(dashboard):
    """(row, its panels), folded or not."""
    found = []
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            found.append((panel, list(panel["panels"])))
        else:
            found[-1][1].append(panel)
    return found


def cells(place):
    """The cells of the grid a panel covers."""
    return {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}


def grid_faults(dashboard):
    """Panels that overlap, stand out of the grid, or leave a hole in it."""
    top = 0
    for row, held in rows(dashboard):
        if row["gridPos"] != {"h": 1, "w": WIDTH, "x": 0, "y": top}:
            yield f"row {row['title']!r} does not stand at line {top}"
        if row["collapsed"] != bool(row["panels"]):
            yield f"row {row['title']!r} is folded and empty, or open and holds its panels"
        begin = end = row["gridPos"]["y"] + 1
        covered = set()
        for panel in held:
            own = cells(panel["gridPos"])
            if own & covered:
                yield f"{panel['title']!r} overlaps"
            covered |= own
            end = max(end, panel["gridPos"]["y"] + panel["gridPos"]["h"])
        wanted = cells({"x": 0, "y": begin, "w": WIDTH, "h": end - begin})
        if covered - wanted:
            yield f"row {row['title']!r} has panels out of the grid"
        if wanted - covered:
            yield f"row {row['title']!r} has a hole of {len(wanted - covered)} cells"
        top = begin if row["collapsed"] else end


def title_faults(dashboard):
    """Titles that say nothing to a stranger, or are there twice."""
    titles = [panel["title"] for panel in panels(dashboard)]
    yield from (f"two panels are called {title!r}" for title in sorted({title for title in titles if titles.count(title) > 1}))
    for title in titles + [row["title"] for row, _ in rows(dashboard)] + [dashboard["title"]]:
        words = {word.lower() for word in re.findall(r"[A-Za-z]+", title)}
        if found := words & BANNED:
            yield f"title {title!r} has {', '.join(sorted(found))}"
    yield from (f"title {title!r} does not say of what" for title in titles if title.lower() in BARE)


def link_faults(dashboard):
    """Links that are not absolute, or whose address stands in the dashboard instead of a variable."""
    constants = {one["name"]: one["query"] for one in dashboard["templating"]["list"] if one["type"] == "constant"}
    urls = [link["url"] for link in dashboard["links"] if link["type"] == "link"]
    for panel in panels(dashboard):
        urls += [link["url"] for link in panel.get("links", [])]
        for override in panel["fieldConfig"]["overrides"]:
            urls += [link["url"] for one in override["properties"] if one["id"] == "links" for link in one["value"]]
    for url in urls:
        base = re.match(r"^\$\{(\w+)\}/", url)
        if not base:
            yield f"link {url} does not begin with a variable"
        elif not URL.match(constants.get(base[1], "")):
            yield f"link {url}: the variable {base[1]} is no absolute address"


def job_faults(dashboard):
    """Names of jobs that are not variables."""
    expressions = [target["expr"] for panel in panels(dashboard) for target in panel.get("targets", [])]
    expressions += [one["expr"] for one in dashboard["annotations"]["list"]]
    expressions += [one["definition"] for one in dashboard["templating"]["list"] if "definition" in one]
    for expression in expressions:
        for _, name in JOB.findall(expression):
            if not JOB_NAME.match(name):
                yield f"{expression} names the job {name}"


def length_faults(dashboard):
    """Pages on which too much is open."""
    count = sum(panel["type"] != "row" for panel in dashboard["panels"])
    if count > OPEN_MAX:
        yield f"{count} panels are open, more than {OPEN_MAX}"


def faults(dashboard):
    """What is wrong with a dashboard's form."""
    checks = (grid_faults, title_faults, link_faults, job_faults, length_faults)
    return [f"{dashboard['title']}: {fault}" for check in checks for fault in check(dashboard)]
