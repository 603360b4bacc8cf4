"""Drives the console in headless Chromium during a demo. `scripts/check-console` runs it; every check is named."""

import argparse
import json
import pathlib
import signal
import sys
import time

from auction import auctions_are_drawn
from checks import PATIENCE_S, Check, Failed
from demo import Demo, free_port
from plane import planes, points_are_offers
from webdriver import Browser

HERE = pathlib.Path(__file__).parent
# People-like contractors: some refuse, some fail, none answers at once, so that there is something to see.
LIVELY = ("--rate", "12", "--contractor", str(HERE / "contractor.json"))
WIDE, NARROW = (1280, 800), (390, 844)
# Made focusable elements that can be seen, in the order of the document.
INTERACTIVE = """return [...document.querySelectorAll('a[href], button, input, summary, [tabindex="0"]')]
  .filter((e) => e.checkVisibility() && !e.disabled && !e.closest('dialog:not([open])'))"""


def strangers_see_totals(check, demo):
    browser = check.browser
    browser.go(demo.url + "/")
    check.until("without a token the page goes live", "return document.getElementById('status').dataset.state === 'live'")
    check.until("and shows totals", "return Number(document.getElementById('awards').textContent.replaceAll(',', '')) > 0")
    check.holds("names are hidden", browser.run("return document.querySelectorAll('.row, #engines-list tr, .policy, #agents-list tr, #compare-list tr, #winners-list tr').length") == 0)
    check.holds("and the page says who may see them", "administrator" in check.text("open-empty"), check.text("open-empty"))
    status, text = demo.get("/v1/console")
    check.holds("nor do they leave the gateway", status == 200 and "alice" not in text and "contractor" not in text, text[:300])
    check.fits("1280 wide, without a token")
    check.accessible("1280 wide, without a token")
    check.quiet("without a token")
    check.tab_to("the button for the token", "e.id === 'token-button'")
    browser.press("Enter")
    check.holds("Enter opens the token dialog", browser.run("return document.activeElement.id") == "token")
    browser.press(*"not-a-token", "Enter")
    check.until("a wrong token is refused in words", "return document.getElementById('token-result').textContent.includes('not accepted')")
    browser.press("Escape")
    check.holds("Escape closes it, the focus goes back",
                browser.run("return !document.getElementById('token-dialog').open && document.activeElement.id === 'token-button'"))
    status = browser.wait_for("""const r = await fetch('/v1/policies/default', {method: 'PUT',
      headers: {'Content-Type': 'application/json'}, body: '{"policy": "high"}'}); return r.status""")
    check.holds("the switch refuses whoever shows no token", status == 401, status)
    check.only_network("after refusals")


def numbers_move(check, demo):
    browser = check.browser
    browser.go("about:blank")
    browser.go(f"{demo.url}/#token={demo.token}")
    check.until("the token of the address is taken", "return sessionStorage.getItem('llmx-token') && !location.href.includes('token')")
    check.until("names are shown", "return document.querySelectorAll('#ended-list .row').length > 5")
    seen = set()
    deadline = time.monotonic() + PATIENCE_S
    while len(seen) < 4 and time.monotonic() < deadline:
        seen.add(check.text("awards"))
        time.sleep(0.3)
    check.holds("awards rise", len(seen) >= 4, seen)
    check.until("rounds per second are told", "return parseFloat(document.getElementById('rounds').textContent) > 1")
    check.until("latency is told", "return /ms|s$/.test(document.getElementById('p95').textContent)")
    clock, time_us = r"\d\d:\d\d:\d\d", r"0|[\d.,]+ (\u00b5s|ms|s|min)"
    check.has_axes("rounds per second", "rounds-chart", clock, r"[\d.]+/s", 5)
    check.has_axes("latency", "latency-chart", clock, time_us, 5)
    check.has_axes("latency histogram", "histogram-chart", "\u2264 [\\d.,]+ (\u00b5s|ms|s|min)", r"[\d,]+")
    check.until("the state stands in one line",
                "return /1 gateway.*1 engine.*4 lanes, each with an owner.*agents registered.*no alert/.test(document.getElementById('state-line').textContent)")
    check.until("policies stand side by side", "return document.querySelectorAll('#compare-list tr').length > 0")
    check.fits("1280 wide")
    check.accessible("1280 wide, overview")


def visit(check, page, heading):
    """Goes to a page by its link in the navigation."""
    browser = check.browser
    browser.run(f"document.querySelector('.top nav a[href=\"{page}\"]').click()")
    check.until(f"{page} is shown, and its heading has the focus",
                "return document.querySelector('.page:not([hidden]) h2') === document.activeElement && document.activeElement.textContent === arguments[0]", heading)


def pages(check, demo, where):
    """Every page has its address, fits, and can be used by everybody."""
    browser = check.browser
    clock = r"\d\d:\d\d:\d\d"
    visit(check, "#/negotiations", "Negotiations")
    check.until("more endings are listed than on the overview", "return document.querySelectorAll('#all-ended-list .row').length > 10")
    check.fits(f"{where}, negotiations")
    check.accessible(f"{where}, negotiations")
    visit(check, "#/policies", "Policies")
    check.has_axes("rounds per second by policy", "policy-rounds-chart", clock, r"[\d.]+/s", 5)
    check.has_axes("latency by policy", "policy-latency-chart", "\u2264 [\\d.,]+ (\u00b5s|ms|s|min)", r"[\d.]+ %")
    check.until("each policy has a sentence on what it does, folded",
                """const all = [...document.querySelectorAll('.policy')]; return all.length > 5 && all.every((e) =>
                  !e.querySelector('details').open && e.querySelector('.about').textContent.length > 20)""")
    check.fits(f"{where}, policies")
    check.accessible(f"{where}, policies")
    check.shoot_extra(f"policies-{where[:4].strip()}.png")
    visit(check, "#/agents", "Agents")
    check.until("agents are listed with what they did", """return [...document.querySelectorAll('#agents-list tr')]
      .filter((e) => Number(e.children[3].textContent.replaceAll(',', '')) > 0 && /%$/.test(e.children[6].textContent) && /%$/.test(e.children[7].textContent)).length > 5""")
    check.fits(f"{where}, agents")
    check.accessible(f"{where}, agents")
    check.shoot_extra(f"agents-{where[:4].strip()}.png", "dark")
    browser.run("document.querySelector('#agents-list th a').click()")
    check.until("an agent has a page of its own", """return location.hash.startsWith('#/agents/') && document.getElementById('agent-tiles').children.length === 6
      && document.querySelectorAll('#agent-share li').length === 2""")
    check.until("with its registration", "return document.getElementById('agent-registration').textContent.includes('Topics')")
    check.fits(f"{where}, one agent")
    check.accessible(f"{where}, one agent")
    check.shoot_extra(f"agent-{where[:4].strip()}.png")
    browser.run("history.back()")
    check.until("back leads to the agents", "return location.hash === '#/agents' && !document.getElementById('page-agents').hidden")
    browser.run("location.hash = '#/no/such/page'")
    check.until("an address of no page says so", "return !document.getElementById('page-unknown').hidden")
    visit(check, "#/", "Overview")


def switches_are_seen(check, demo):
    """Switched by somebody else, the default policy is seen within a second: from the answer to the page, by the page's own clock."""
    check.browser.run("""const line = document.getElementById('default-line'); window.shown = [];
      const note = () => window.shown.push([performance.timeOrigin + performance.now(), line.textContent]);
      new MutationObserver(note).observe(line, { childList: true, characterData: true, subtree: true }); return null""")
    took_ms = []
    for policy in ("high", "low", "medium", "high", "low"):
        asked = time.time() * 1000
        status, text = demo.put("/v1/policies/default", demo.token, {"policy": policy})
        answered = time.time() * 1000
        check.holds(f"a switch to {policy} is taken", status == 200, text)
        seen = check.until(f"and seen: {policy}", "return window.shown.filter(([at, text]) => at >= arguments[0] && text.includes(arguments[1]))[0]?.[0]",
                           asked, f"default policy {policy}")
        took_ms.append(round(seen - answered))
    check.holds(f"each within a second, {max(took_ms)} ms at most", max(took_ms) < 1000, took_ms)


def timeline_by_keyboard(check, where):
    browser = check.browser
    check.tab_to("a completed negotiation", "e.matches('#ended-list .row') && e.textContent.includes('completed')")
    row = "return document.activeElement.querySelector('.id')?.textContent"
    chosen = browser.run(row)
    browser.press("ArrowDown")
    below = browser.run(row)
    browser.press("ArrowUp")
    check.holds("arrows move in the list", below and below != chosen and browser.run(row) == chosen, (chosen, below))
    browser.press("Enter")
    check.until(f"Enter opens its page ({where})", """return !document.getElementById('page-negotiation').hidden && document.getElementById('timeline-title').textContent === arguments[0]
      && decodeURIComponent(location.hash) === `#/negotiations/${arguments[0]}`""", chosen)
    for kind, needle in [("called", "Call"), ("sent", "cfp"), ("message", "offer"), ("message", "score"), ("closed", "closed"),
                         ("decided", "Decision"), ("decided", "wins"), ("registered", "Register"), ("sent", "accept"),
                         ("committed", "Binding"), ("ended", "End")]:
        check.until(f"the timeline tells: {kind}, {needle}",
                    "return [...document.querySelectorAll(`[data-kind=\"${arguments[0]}\"]`)].some((e) => e.textContent.includes(arguments[1]))", kind, needle)
    check.until("each delivery is paired with its acknowledgement",
                "return [...document.querySelectorAll('.deliveries li')].filter((e) => /acknowledged after [\\d.,]+ (\u00b5s|ms)/.test(e.textContent)).length > 5")
    times = browser.run("""const e = document.querySelector('[data-kind="ended"]');
      return [e.querySelector('.time').textContent.slice(1), e.querySelector('.quiet').textContent.replace('after', '').trim()]""")
    check.holds("the times of the steps agree with the time it took", times[0] == times[1], times)
    check.tab_to("the deliveries", "e.matches('summary')", 10)
    before = browser.run("return document.activeElement.parentElement.open")
    browser.press("Enter")
    check.holds("Enter folds and unfolds them", browser.run("return document.activeElement.parentElement.open") != before)
    check.holds("the ranking shows who won", browser.run("return document.querySelectorAll('#timeline-ranking .winner').length") == 1)
    check.until("and what was scored", "return document.getElementById('timeline-ranking').textContent.includes('Scores offers by')")
    check.fits(f"{where}, one negotiation")
    check.accessible(f"{where}, one negotiation")
    for scheme in ("light", "dark"):
        check.readable(scheme, f"{where}, one negotiation")
    return chosen


def links_lead_there(check, demo, chosen):
    """Back and forward move between pages, and an address opened cold leads to the negotiation."""
    browser = check.browser
    browser.run("history.back()")
    check.until("back leads to the overview", "return location.hash === '#/' && !document.getElementById('page-overview').hidden")
    browser.run("history.forward()")
    opened = "return !document.getElementById('page-negotiation').hidden && document.querySelectorAll('.steps > li').length > 5 && document.getElementById('timeline-title').textContent === arguments[0]"
    check.until("forward leads to the negotiation again", opened, chosen)
    browser.go("about:blank")
    browser.go(f"{demo.url}/#/negotiations/{chosen}")
    check.until("so does its address, opened cold", opened, chosen)
    browser.run("location.hash = '#/'")
    check.until("the overview is there again", "return !document.getElementById('page-overview').hidden")
    check.tab_to("the search", "e.id === 'search-id'")
    browser.press(*chosen, "Enter")
    check.until("an id that is searched for leads to the negotiation", opened, chosen)
    browser.run("location.hash = '#/'")


def forgotten_is_told(check):
    browser = check.browser
    browser.run("location.hash = '#/negotiations/alice~never-called'")
    check.until("a negotiation nobody remembers is told as such",
                "return document.getElementById('timeline-about').textContent.startsWith('No engine remembers')")
    browser.run("location.hash = '#/'")
    check.only_network("after a journal that is gone")


def switch(check, demo, to):
    browser = check.browser
    visit(check, "#/policies", "Policies")
    check.tab_to(f"the switch to {to}", f"e.getAttribute('aria-label') === 'Make default: {to}@1'")
    browser.press("Enter")
    check.until("the switch is confirmed", f"return document.getElementById('policy-result').textContent.includes('now get {to}@1')")
    check.until("and shown", f"return document.querySelector('.policy[data-default=\"true\"] .name').textContent === '{to}@1'")
    status, text = demo.get("/v1/policies/default", demo.token)
    check.holds("and in force", status == 200 and json.loads(text)["policy"] == to, text)
    visit(check, "#/", "Overview")


def refused_where_open(check, demo):
    """An open console shows everything; the switch still needs the token."""
    browser = check.browser
    browser.run("sessionStorage.clear()")
    browser.go("about:blank")
    check.only_network("the last exchange is gone")
    browser.go(demo.url + "/#/policies")
    check.until("an open console names without a token", "return document.querySelectorAll('.policy button:not([hidden])').length > 0")
    check.quiet("open console")
    check.tab_to("a switch", "e.matches('.policy button')")
    browser.press("Enter")
    check.until("the switch is refused without a token",
                "return document.getElementById('policy-result').textContent.startsWith('Not switched')")
    check.only_network("after a refusal")


def hostile_names_stay_text(check):
    """Ids cannot hold markup, and the page does not rely on it: a snapshot that claims otherwise is drawn as text."""
    found = check.browser.wait_for("""
      const evil = '<img src=x onerror="window.hit=1"><script>window.hit=1</script>';
      const { drawState, drawOverview } = await import('/console/overview.js');
      const { drawPolicies } = await import('/console/policies.js');
      const { drawAgents } = await import('/console/agents.js');
      let s;
      do { // Lines over time have no name before there is a past.
        await new Promise((resolve) => setTimeout(resolve, 200));
        s = await (await fetch('/v1/console')).json();
      } while (s.history.length < 3);
      s.totals.ended_by_outcome = { [evil]: 3 };
      s.named.gateway = evil;
      s.named.agents = [{ agent: evil, capabilities: [evil] }];
      s.named.policies = [{ id: evil, name: evil, is_default: true, can_be_default: true, about: evil }];
      s.named.activity = { agents: [{ agent: evil, opened: 1, calls: 1, offers: 1, awards: 1, fair_ppm: 1, acknowledged: { count: 0 } }],
        policies: [{ policy: evil, ended: 1, awards: 1, offers: 1, ended_per_s: 1, round: { count: 1 }, durations: { 100: 1 }, history: s.history.map(() => 1) }] };
      s.named.engines = [{ engine: evil, heard_ms_ago: 1, owned: [0], open: 1, unacknowledged: 0, ended_per_s: 1, p95_us: 1, faults: [evil] }];
      s.named.open = [{ negotiation: evil, protocol: evil, phase: evil, policy: evil, called_at: s.at, age_us: 1, invited: 1, offers: 0 }];
      const { Plane } = await import('/console/plane.js');
      const terms = (value) => ({ [evil]: value, price: 1 });
      new Plane().draw({ entries: [{ what: 'proposed', by: evil, round: 1, step: 1, terms: terms(evil) }, { what: 'proposed', by: 'b', round: 1, step: 2, terms: terms('x') }] });
      drawState(s); drawOverview(s, () => false); drawPolicies(s); drawAgents(s);
      const ids = ['gateway', 'state-line', 'alerts-list', 'engines-list', 'agents-list', 'policies-list', 'policy-table', 'policy-rounds-legend',
        'open-list', 'outcomes-list', 'compare-list', 'winners-list', 'plane-wishes', 'plane-list', 'plane-legend'];
      const shown = ids.filter((id) => document.getElementById(id).textContent.includes('<img src=x'));
      await new Promise((resolve) => setTimeout(resolve, 200));
      return [ids.filter((id) => !shown.includes(id)), document.querySelectorAll('img').length, window.hit === undefined]""")
    check.holds("hostile names stay text", found == [[], 1, True], found)


def everything_is_reachable(check, where):
    """With the exchange gone nothing changes any more: every element has to take its turn, visibly."""
    browser = check.browser
    browser.run("document.activeElement.blur(); window.scrollTo(0, 0); window.reached = new Set(); window.plain = []; return null")
    total = browser.run(f"window.wanted = (() => {{{INTERACTIVE}}})(); return window.wanted.length")
    for _ in range(total + 3):
        browser.press("Tab")
        browser.run("""const e = document.activeElement; if (e === document.body) return;
          window.reached.add(e); const style = getComputedStyle(e);
          if (style.outlineStyle === 'none' || parseFloat(style.outlineWidth) < 2) window.plain.push(e.id || e.className)""")
    missed = browser.run("return window.wanted.filter((e) => !window.reached.has(e)).map((e) => e.outerHTML.slice(0, 120))")
    plain = browser.run("return window.plain")
    check.holds(f"all {total} interactive elements are reached by Tab ({where})", total > 10 and not missed, missed[:3])
    check.holds(f"and show their focus ({where})", not plain, plain[:5])


def loses_and_finds(check, demo, llmx, port):
    browser = check.browser
    demo.kill()
    check.until("a lost connection is told", "return document.getElementById('status').dataset.state === 'lost'")
    everything_is_reachable(check, "1280 wide")
    again = Demo(llmx, port, 60, *LIVELY)
    try:
        check.until("the page comes back by itself", "return document.getElementById('status').dataset.state === 'live'")
        check.until("the token goes on, and names with it: runs of a demo sign with one key",
                    "return sessionStorage.getItem('llmx-token') !== null && document.querySelectorAll('#ended-list .row').length > 0")
        check.only_network("lost and found")
    finally:
        again.kill()


def bargains_are_drawn(check, llmx):
    """What the parties of a bargain proposed, turn by turn."""
    browser = check.browser
    demo = Demo(llmx, free_port(), 90, "--protocol", "alternating", "--rate", "4")
    try:
        browser.go("about:blank")
        # The demo before was killed under an open page: what the browser noted of that is no fault of this one.
        check.only_network("between two demos")
        browser.go(f"{demo.url}/#token={demo.token}")
        long_one = """const s = await (await fetch('/v1/console', { headers: { Authorization: `Bearer ${sessionStorage.getItem('llmx-token')}` } })).json();
          return (s.named?.ended ?? []).filter((e) => e.offers >= 6).map((e) => e.negotiation)[0] ?? null"""
        deadline = time.monotonic() + PATIENCE_S
        while not (chosen := browser.wait_for(long_one)) and time.monotonic() < deadline:
            time.sleep(0.5)
        check.holds("a bargain of several offers has ended", chosen is not None)
        browser.run("location.hash = `#/negotiations/${arguments[0]}`", chosen)
        check.until("its offers are drawn, issue by issue", "return document.querySelectorAll('#bargain-charts .uplot').length > 0 && document.querySelectorAll('#bargain-legend li').length >= 2")
        found = browser.run("""const c = document.querySelector('#bargain-charts .chart').uplot;
          return [c.axes[0]._values.filter((v) => /^turn \\d+$/.test(v)).length, c.axes[1]._values.filter(Boolean).length, c.data.length]""")
        check.holds("over turns, a line for each party, with axes", found[0] >= 2 and found[1] >= 2 and found[2] >= 3, found)
        points_are_offers(check, demo, chosen)
        check.fits("1280 wide, a bargain")
        check.accessible("1280 wide, a bargain")
        browser.run("document.getElementById('plane-guess').click()")
        browser.size(1280, 1240)
        time.sleep(1)
        check.shoot("console-bargain.png")
        browser.size(*NARROW, is_mobile=True)
        check.fits("390 wide, a bargain")
        browser.size(*WIDE)
        check.quiet("a bargain")
    finally:
        demo.kill()


def routines_are_told(check, llmx):
    """A negotiation whose award pinned a protocol document: which one, what carried it out, and the result."""
    browser = check.browser
    demo = Demo(llmx, free_port(), 90, "--routines", "--rate", "4")
    try:
        browser.go("about:blank")
        check.only_network("between two demos")
        browser.go(f"{demo.url}/#token={demo.token}")
        completed = """const s = await (await fetch('/v1/console', { headers: { Authorization: `Bearer ${sessionStorage.getItem('llmx-token')}` } })).json();
          return (s.named?.ended ?? []).filter((e) => e.outcome === 'completed').map((e) => e.negotiation)"""
        told, opened, deadline = {}, set(), time.monotonic() + PATIENCE_S
        while not {"a function", "natural language"} <= set(told) and time.monotonic() < deadline:
            for chosen in [one for one in browser.wait_for(completed) if one not in opened][:8]:
                opened.add(chosen)
                browser.run("location.hash = `#/negotiations/${arguments[0]}`", chosen)
                kind = check.until(f"{chosen} says what carried it out", """const named = [...document.querySelectorAll('#timeline-facts div')]
                  .find((e) => e.querySelector('dt').textContent === 'Carried out by');
                  return document.getElementById('timeline-title').textContent === arguments[0] && named?.querySelector('dd').textContent""", chosen)
                told[kind] = chosen
        check.holds("awards are carried out by functions and in natural language", {"a function", "natural language"} <= set(told), told)
        step = "return document.querySelector('#timeline-body li[data-kind=\"reported\"]')?.textContent"
        browser.run("location.hash = `#/negotiations/${arguments[0]}`", told["a function"])
        check.until("its document stands among the facts", """return [...document.querySelectorAll('#timeline-facts div')]
          .some((e) => e.querySelector('dt').textContent === 'Document' && e.querySelector('dd').textContent.length === 28)""")
        check.until("and the report has document, kind and result", f"const told = (() => {{{step}}})(); return /by a function under .{{27}}=: 575$/.test(told ?? '')")
        check.fits("1280 wide, a routine")
        check.accessible("1280 wide, a routine")
        check.quiet("a routine")
    finally:
        demo.kill()


# The newest negotiations that ended, of an outcome, under the token of the page.
ENDED = """const s = await (await fetch('/v1/console', { headers: { Authorization: `Bearer ${sessionStorage.getItem('llmx-token')}` } })).json();
  return (s.named?.ended ?? []).filter((e) => e.outcome === arguments[0] && !/~t\\d+$/.test(e.negotiation)).map((e) => e.negotiation)[0] ?? null"""


def opened_ended(check, demo, outcome, what):
    """Opens the page of a negotiation that ended so."""
    browser = check.browser
    browser.go("about:blank")
    check.only_network("between two demos")
    browser.go(f"{demo.url}/#token={demo.token}")
    deadline = time.monotonic() + PATIENCE_S
    while not (chosen := browser.wait_for(ENDED, outcome)) and time.monotonic() < deadline:
        time.sleep(0.5)
    check.holds(f"{what} has ended {outcome}", chosen is not None)
    browser.run("location.hash = `#/negotiations/${arguments[0]}`", chosen)
    return chosen


def looks_right(check, what):
    """A page fits at both widths, can be used by everybody and reports no error."""
    browser = check.browser
    check.fits(f"1280 wide, {what}")
    check.accessible(f"1280 wide, {what}")
    for scheme in ("light", "dark"):
        check.readable(scheme, what)
    browser.size(*NARROW, is_mobile=True)
    check.fits(f"390 wide, {what}")
    browser.size(*WIDE)
    check.quiet(what)


def texts_are_withheld(check, demo, chosen, selector, what):
    """Without a token an open console tells that there was a text, and not the text."""
    browser = check.browser
    browser.run("sessionStorage.clear()")
    browser.go("about:blank")
    browser.go(f"{demo.url}/#/negotiations/{chosen}")
    check.until(f"without a token the steps of {what} are told",
                "return document.querySelectorAll(arguments[0]).length > 0", selector)
    check.holds("but nothing that agents wrote", browser.run("return document.querySelectorAll('#page-negotiation q').length") == 0)


def panels_are_told(check, llmx):
    """Rounds with whom they asked, and the finding with what each seat contributed."""
    browser = check.browser
    demo = Demo(llmx, free_port(), 120, "--protocol", "panel", "--rate", "2", "--console", "open")
    try:
        chosen = opened_ended(check, demo, "consensus", "a panel")
        check.until("its rounds are told", "return /Round 1 \\d+ asked, \\d+ replied/.test(document.getElementById('finding-rounds').textContent)")
        check.until("and its finding, with the calls it took",
                    "return /\\d+ of \\d+ agree in round \\d+, stopped by (answers|selection); \\d+ asks to seats/.test(document.getElementById('finding-line').textContent)")
        seats = browser.run("return [...document.querySelectorAll('#finding-seats tr')].map((e) => [...e.children].map((c) => c.textContent))")
        check.holds("every seat has its importance, one in all for each round",
                    len(seats) >= 4 and abs(sum(float(seat[4]) for seat in seats) - round(sum(float(seat[4]) for seat in seats))) < 0.02, seats)
        check.holds("and its share, one on the mean", abs(sum(float(seat[5]) for seat in seats) / len(seats) - 1) < 0.02, seats)
        check.holds("administrators see the answer", browser.run("return document.querySelectorAll('#finding-answer q').length") == 1)
        for kind, needle in [("called", "panel"), ("asked", "Round 1 seats are asked"), ("message", "answer"), ("found", "Finding"), ("ended", "consensus")]:
            check.until(f"the timeline tells: {kind}, {needle}",
                        "return [...document.querySelectorAll(`[data-kind=\"${arguments[0]}\"]`)].some((e) => e.textContent.includes(arguments[1]))", kind, needle)
        looks_right(check, "a panel")
        check.shoot_extra("panel-1280.png")
        texts_are_withheld(check, demo, chosen, "#finding-seats tr", "a panel")
    finally:
        demo.kill()


def teams_are_told(check, llmx):
    """Members, steps and conclusion of a team."""
    browser = check.browser
    demo = Demo(llmx, free_port(), 120, "--protocol", "team", "--rate", "2", "--console", "open")
    try:
        chosen = opened_ended(check, demo, "concluded", "a team")
        check.until("its members are told, and who leads",
                    "const all = [...document.querySelectorAll('#team-members li')]; return all.length >= 2 && all.filter((e) => e.textContent.includes('lead')).length === 1")
        for kind, needle in [("called", "team"), ("floor", "Say"), ("floor", "the floor is with"), ("concluded", "Conclusion"), ("ended", "concluded")]:
            check.until(f"the timeline tells: {kind}, {needle}",
                        "return [...document.querySelectorAll(`[data-kind=\"${arguments[0]}\"]`)].some((e) => e.textContent.includes(arguments[1]))", kind, needle)
        check.holds("administrators see what was said", browser.run("return document.querySelectorAll('[data-kind=\"floor\"] q').length") > 0)
        looks_right(check, "a team")
        check.shoot_extra("team-1280.png")
        texts_are_withheld(check, demo, chosen, '[data-kind="floor"]', "a team")
    finally:
        demo.kill()


def families_are_trees(check):
    """A team, its tasks with owner and state, and a sub-team under the task it works on; names that claim to be markup stay text."""
    told = check.browser.wait_for("""
      const { FamilyTree } = await import('/console/family.js');
      const tree = new FamilyTree(), evil = '<img src=x onerror="window.hit=1">';
      tree.open('ann~job~s2-1');
      tree.see({ named: { open: [{ negotiation: 'ann~job~s2-1', phase: 'discussing' }, { negotiation: 'ann~jobless', phase: 'discussing' }],
        ended: [{ negotiation: 'ann~job~t1', outcome: 'completed' }] } });
      tree.draw({ negotiation: 'ann~job', entries: [
        { what: 'floor', tasks: [{ task: 1, status: 'open', owner: 'bob' }, { task: 2, status: 'open', owner: evil }] },
        { what: 'floor', tasks: [{ task: 1, status: 'done' }] }] });
      const node = (item) => [item.firstElementChild.textContent, item.querySelector(':scope > .quiet').textContent,
        [...item.querySelectorAll(':scope > ul > li')].map(node)];
      const shown = [...document.querySelectorAll('#family-tree > li')].map(node);
      const found = [shown, document.querySelector('#family-tree [aria-current]').textContent, document.getElementById('family-panel').hidden];
      tree.open('ann~alone');
      return [...found, document.getElementById('family-panel').hidden, window.hit === undefined]""")
    evil = '<img src=x onerror="window.hit=1">'
    sub_team = ["sub-team", "discussing", []]
    tasks = [["task 1", "of bob, completed", []], ["task 2", f"of {evil}, open", [sub_team]]]
    check.holds("a family is a tree", told == [[["team ann~job", "", tasks]], "sub-team", False, True, True], told)


def rankings_say_why(check):
    """The terms of the offers that the viewer is told, beside their scores, and how far the winner is ahead."""
    told = check.browser.wait_for("""
      const { ranking } = await import('/console/timeline.js');
      const decided = { cause: 'score', winners: ['bob'], ranked: [{ contractor: 'bob', score: 912000 }, { contractor: 'carol', score: 880000 }] };
      const texts = (terms) => [...ranking(decided, terms).querySelectorAll('tr')].map((row) => [...row.children].map((cell) => cell.textContent));
      return [texts(new Map()), texts(new Map([['bob', { price: 7500000, delivery_ms: 900 }]]))]""")
    sealed = [["1", "bob", "", "91.20", "wins, 3.20 ahead"], ["2", "carol", "", "88.00", ""]]
    terms = [["1", "bob", "price 7.5, delivery ms 900", "", "91.20", "wins, 3.20 ahead"], ["2", "carol", "not told", "", "88.00", ""]]
    check.holds("a ranking says why the winner won", told == [sealed, terms], told)


def run(check, llmx):
    browser = check.browser
    port = free_port()
    browser.size(*WIDE)
    demo = Demo(llmx, port, 400, *LIVELY)
    try:
        print("without a token", flush=True)
        strangers_see_totals(check, demo)
        print("1280 wide", flush=True)
        numbers_move(check, demo)
        links_lead_there(check, demo, timeline_by_keyboard(check, "1280 wide"))
        check.shoot_extra("overview-1280.png")
        pages(check, demo, "1280 wide")
        switches_are_seen(check, demo)
        switch(check, demo, "high")
        check.quiet("1280 wide")
        print("390 wide", flush=True)
        browser.size(*NARROW, is_mobile=True)
        browser.go(demo.url + "/")
        check.until("names are shown after a reload", "return document.querySelectorAll('#ended-list .row').length > 5")
        check.fits("390 wide")
        check.accessible("390 wide, overview")
        check.shoot("console-narrow.png")
        timeline_by_keyboard(check, "390 wide")
        check.shoot_extra("negotiation-390.png", "dark")
        browser.run("location.hash = '#/'")
        pages(check, demo, "390 wide")
        switch(check, demo, "low")
        check.quiet("390 wide")
        browser.size(*WIDE)
        browser.go(demo.url + "/")
        switch(check, demo, "medium")
        browser.go(demo.url + "/")
        check.has_axes("rounds per second, after a reload", "rounds-chart", r"\d\d:\d\d:\d\d", r"[\d.]+/s", 15)
        check.until("open negotiations are listed", "return document.querySelectorAll('#open-list .row').length > 2")
        browser.size(1280, 1240)
        time.sleep(1)
        check.shoot("console.png")
        check.shoot("console-dark.png", "dark")
        browser.size(*WIDE)
        for scheme in ("light", "dark"):
            check.readable(scheme, "the page")
        forgotten_is_told(check)
        print("lost and found", flush=True)
        loses_and_finds(check, demo, llmx, port)
    finally:
        demo.kill()
    print("a routine", flush=True)
    routines_are_told(check, llmx)
    print("a bargain", flush=True)
    bargains_are_drawn(check, llmx)
    print("an auction", flush=True)
    auctions_are_drawn(check, llmx, opened_ended, looks_right)
    print("a panel", flush=True)
    panels_are_told(check, llmx)
    print("a team", flush=True)
    teams_are_told(check, llmx)
    print("its utility plane", flush=True)
    planes(check, llmx)
    print("open to everybody", flush=True)
    opened = Demo(llmx, free_port(), 60, "--console", "open")
    try:
        refused_where_open(check, opened)
        hostile_names_stay_text(check)
        families_are_trees(check)
        rankings_say_why(check)
    finally:
        opened.kill()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--llmx", required=True)
    parser.add_argument("--driver", required=True)
    parser.add_argument("--chromium", required=True)
    parser.add_argument("--axe", required=True, type=pathlib.Path, help="axe.min.js of axe-core")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--every-page", action="store_true", help="a picture of every page, not only those of docs/")
    arguments = parser.parse_args()
    # Asked to end, or out of time: what was started is ended too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("the check was asked to end"))
    began = time.monotonic()
    browser = Browser(arguments.driver, arguments.chromium)
    check = Check(browser, arguments.out, arguments.axe.read_text(), arguments.every_page)
    try:
        run(check, arguments.llmx)
    except (Failed, RuntimeError) as failure:
        sys.exit(f"the console is not in order after {check.passed} checks: {failure}")
    finally:
        browser.quit()
    print(f"the console is in order: {check.passed} checks in {time.monotonic() - began:.0f} s, Chromium {browser.version}")


if __name__ == "__main__":
    main()
