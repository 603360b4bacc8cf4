"""Drives the console in headless Chromium during a demo. `scripts/check-console` runs it; every check is named."""

import argparse
import json
import pathlib
import signal
import sys
import time

from checks import PATIENCE_S, Check, Failed
from demo import Demo, free_port
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
    check.holds("names are hidden", browser.run("return document.querySelectorAll('.row, .engine, .policy, #agents-list li').length") == 0)
    check.holds("and the page says who may see them", "administrator" in check.text("open-empty"), check.text("open-empty"))
    status, text = demo.get("/v1/console")
    check.holds("nor do they leave the gateway", status == 200 and "alice" not in text and "contractor" not in text, text[:300])
    check.fits("1280 wide, without a token")
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
    check.until("the token of the address is taken", "return sessionStorage.getItem('llmx-token') && !location.href.includes('#')")
    check.until("names are shown", "return document.querySelectorAll('#ended-list .row').length > 5")
    check.until("agents are listed", "return document.querySelectorAll('#agents-list li').length === 12")
    seen = set()
    deadline = time.monotonic() + PATIENCE_S
    while len(seen) < 4 and time.monotonic() < deadline:
        seen.add(check.text("awards"))
        time.sleep(0.3)
    check.holds("awards rise", len(seen) >= 4, seen)
    check.until("rounds per second are told", "return parseFloat(document.getElementById('rounds').textContent) > 1")
    check.until("latency is told", "return /ms|s$/.test(document.getElementById('p95').textContent)")
    check.until("the line is drawn", "return document.querySelector('#rounds-chart .line').getAttribute('d').length > 20")
    check.until("every lane has an owner", "return document.getElementById('lanes-line').textContent.includes('every lane owned')")
    check.fits("1280 wide")


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
    check.until(f"Enter opens its timeline ({where})", "return document.getElementById('timeline').open && document.getElementById('timeline-title').textContent === arguments[0]", chosen)
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
    check.fits(f"{where}, timeline open")
    for scheme in ("light", "dark"):
        check.readable(scheme, f"{where}, timeline open")
    return chosen


def close_timeline(check, chosen):
    check.browser.press("Escape")
    check.until("Escape closes the timeline, the focus goes back to its row",
                "return !document.getElementById('timeline').open && document.activeElement.querySelector?.('.id')?.textContent === arguments[0]", chosen)


def forgotten_is_told(check):
    browser = check.browser
    browser.wait_for("(await import('/console/panels.js')).actions.open('alice~never-called', document.getElementById('token-button')); return 1")
    check.until("a negotiation nobody remembers is told as such",
                "return document.getElementById('timeline-about').textContent.startsWith('No engine remembers')")
    browser.press("Escape")
    check.until("and closes", "return !document.getElementById('timeline').open && document.activeElement.id === 'token-button'")
    check.only_network("after a journal that is gone")


def switch(check, demo, to):
    browser = check.browser
    check.tab_to(f"the switch to {to}", f"e.getAttribute('aria-label') === 'Make {to}@1 the default'")
    browser.press("Enter")
    check.until("the switch is confirmed", f"return document.getElementById('policy-result').textContent.includes('now get {to}@1')")
    check.until("and shown", f"return document.querySelector('.policy[data-default=\"true\"] .name').textContent === '{to}@1'")
    status, text = demo.get("/v1/policies/default", demo.token)
    check.holds("and in force", status == 200 and json.loads(text)["policy"] == to, text)


def refused_where_open(check, demo):
    """An open console shows everything; the switch still needs the token."""
    browser = check.browser
    browser.run("sessionStorage.clear()")
    browser.go("about:blank")
    check.only_network("the last exchange is gone")
    browser.go(demo.url + "/")
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
      const { draw } = await import('/console/panels.js');
      const s = await (await fetch('/v1/console')).json();
      s.totals.ended_by_outcome = { [evil]: 3 };
      s.named.gateway = evil;
      s.named.agents = [{ agent: evil, capabilities: [evil] }];
      s.named.policies = [{ id: evil, name: evil, is_default: true, can_be_default: true }];
      s.named.engines = [{ engine: evil, heard_ms_ago: 1, owned: [0], open: 1, unacknowledged: 0, ended_per_s: 1, p95_us: 1 }];
      s.named.open = [{ negotiation: evil, protocol: evil, phase: evil, policy: evil, called_at: s.at, age_us: 1, invited: 1, offers: 0 }];
      draw(s, () => false);
      const shown = ['gateway', 'agents-list', 'policies-list', 'engines-list', 'open-list', 'outcomes-list']
        .filter((id) => document.getElementById(id).textContent.includes('<img src=x'));
      await new Promise((resolve) => setTimeout(resolve, 200));
      return [shown.length, document.querySelectorAll('img').length, window.hit === undefined]""")
    check.holds("hostile names stay text", found == [6, 1, True], found)


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
        check.until("a token of another exchange is refused in words",
                    "return document.getElementById('token-dialog').open && document.getElementById('token-result').textContent.includes('not accepted')")
        check.holds("and forgotten", browser.run("return sessionStorage.getItem('llmx-token')") is None)
        check.only_network("lost and found")
    finally:
        again.kill()


def run(check, llmx):
    browser = check.browser
    port = free_port()
    browser.size(*WIDE)
    demo = Demo(llmx, port, 240, *LIVELY)
    try:
        print("without a token", flush=True)
        strangers_see_totals(check, demo)
        print("1280 wide", flush=True)
        numbers_move(check, demo)
        close_timeline(check, timeline_by_keyboard(check, "1280 wide"))
        switch(check, demo, "high")
        switch(check, demo, "medium")
        check.quiet("1280 wide")
        print("390 wide", flush=True)
        browser.size(*NARROW, is_mobile=True)
        browser.go(demo.url + "/")
        check.until("names are shown after a reload", "return document.querySelectorAll('#ended-list .row').length > 5")
        check.fits("390 wide")
        chosen = timeline_by_keyboard(check, "390 wide")
        check.shoot("console-narrow.png")
        close_timeline(check, chosen)
        switch(check, demo, "low")
        check.quiet("390 wide")
        browser.size(*WIDE)
        browser.go(demo.url + "/")
        switch(check, demo, "medium")
        browser.go(demo.url + "/")
        check.until("the history survives a reload",
                    "return document.querySelector('#rounds-chart .line').getAttribute('d').split('L').length > 15")
        check.until("open negotiations are listed", "return document.querySelectorAll('#open-list .row').length > 2")
        check.shoot("console.png")
        for scheme in ("light", "dark"):
            check.readable(scheme, "the page")
        forgotten_is_told(check)
        print("lost and found", flush=True)
        loses_and_finds(check, demo, llmx, port)
    finally:
        demo.kill()
    print("open to everybody", flush=True)
    opened = Demo(llmx, free_port(), 60, "--console", "open")
    try:
        refused_where_open(check, opened)
        hostile_names_stay_text(check)
    finally:
        opened.kill()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--llmx", required=True)
    parser.add_argument("--driver", required=True)
    parser.add_argument("--chromium", required=True)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    arguments = parser.parse_args()
    # Asked to end, or out of time: what was started is ended too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("the check was asked to end"))
    began = time.monotonic()
    browser = Browser(arguments.driver, arguments.chromium)
    check = Check(browser, arguments.out)
    try:
        run(check, arguments.llmx)
    except (Failed, RuntimeError) as failure:
        sys.exit(f"the console is not in order after {check.passed} checks: {failure}")
    finally:
        browser.quit()
    print(f"the console is in order: {check.passed} checks in {time.monotonic() - began:.0f} s, Chromium {browser.version}")


if __name__ == "__main__":
    main()
