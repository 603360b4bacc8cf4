"""Checks with names: each is printed once it holds, and the first that does not ends the run."""

import base64
import json
import re
import time

PATIENCE_S = 30


class Failed(Exception):
    """A check that does not hold."""


class Check:
    def __init__(self, browser, folder, axe, every_page):
        self.browser, self.folder, self.axe, self.every_page, self.passed = browser, folder, axe, every_page, 0

    def holds(self, name, condition, found=""):
        if not condition:
            raise Failed(f"{name}: {found}" if found != "" else name)
        self.passed += 1
        print(f"  ok  {name}", flush=True)

    def until(self, name, script, *arguments):
        """Passes once the script gives something true; gives what it gave."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            try:
                found = self.browser.run(script, *arguments)
            except RuntimeError as error:
                # What the script looks at may not be there yet.
                if "javascript error" not in str(error):
                    raise
                found = None
            if found:
                self.holds(name, True)
                return found
            time.sleep(0.1)
        where, focused, shown = self.browser.run(
            "return [location.hash, document.activeElement?.outerHTML.slice(0, 200), document.body.innerText.slice(0, 1500)]")
        raise Failed(f"{name}: not within {PATIENCE_S} s. At {where}, the focus at {focused}; the browser noted "
                     f"{json.dumps(self.browser.log())[:1500]}. The page shows:\n{shown}")

    def text(self, id):
        return self.browser.run("return document.getElementById(arguments[0]).textContent", id)

    def fits(self, where):
        width, inner = self.browser.run("return [document.documentElement.scrollWidth, innerWidth]")
        wide = self.browser.run("""const w = innerWidth; return [...document.querySelectorAll('body *')]
          .filter((e) => e.checkVisibility() && !e.closest('.skip, .unseen, .scroll') && e.getBoundingClientRect().right > w + 1)
          .map((e) => e.id || e.className || e.tagName).slice(0, 5)""")
        self.holds(f"nothing overflows sideways: {where}", width <= inner and not wide, f"{width} > {inner} {wide}")

    def readable(self, scheme, where):
        """Text has the contrast WCAG 2 asks for (4.5) under a colour scheme."""
        self.browser.cdp("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        faint = self.browser.run("""
          const parts = (color) => color.match(/[\\d.]+/g).map(Number);
          const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
            .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
          const behind = (e) => { for (; e; e = e.parentElement) { const c = parts(getComputedStyle(e).backgroundColor);
            if (c.length === 3 || c[3] === 1) return c; } return [255, 255, 255]; };
          return [...document.querySelectorAll('body *')]
            .filter((e) => e.checkVisibility() && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))
            .map((e) => { const [a, b] = [light(parts(getComputedStyle(e).color)), light(behind(e))];
              return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), e.textContent.slice(0, 30)]; })
            .filter(([ratio]) => ratio < 4.5)""")
        self.browser.cdp("Emulation.setEmulatedMedia", {"features": []})
        self.holds(f"text stands out, {scheme}: {where}", not faint, faint[:5])

    def axes(self, id):
        """The labels on the x and the y axis of a chart, and how many points its first series has."""
        return self.browser.run("""const c = document.getElementById(arguments[0]).uplot; if (!c) return [[], [], 0];
          const said = (axis) => (axis._values ?? []).filter((v) => v !== null && v !== '');
          return [said(c.axes[0]), said(c.axes[1]), c.data[1].filter((v) => v !== null).length]""", id)

    def has_axes(self, name, id, x, y, least=2):
        """Passes once a chart has labels of these forms on its axes, and points."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            found = self.axes(id)
            xs, ys = ([label for label in labels if re.fullmatch(form, label)] for labels, form in zip(found, (x, y)))
            if len(xs) >= 2 and len(ys) >= 2 and found[2] >= least:
                break
            time.sleep(0.3)
        self.holds(f"axes with units: {name}", len(xs) >= 2 and len(ys) >= 2 and found[2] >= least, found)

    def accessible(self, where):
        """axe-core finds no violation, in either colour scheme."""
        for scheme in ("light", "dark"):
            self.browser.cdp("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
            self.browser.run(self.axe)
            found = self.browser.wait_for("""const r = await axe.run(document, { resultTypes: ['violations'] });
              return [r.passes.length, r.violations.map((v) => [v.id, v.nodes.length, v.nodes[0].html.slice(0, 160)])]""")
            self.holds(f"axe-core finds nothing, {scheme}: {where}", len(found) == 2 and found[0] > 10 and not found[1], found)
        self.browser.cdp("Emulation.setEmulatedMedia", {"features": []})

    def quiet(self, where):
        noise = [entry for entry in self.browser.log() if entry["level"] in ("SEVERE", "WARNING")]
        self.holds(f"no console error: {where}", not noise, json.dumps(noise)[:800])

    def only_network(self, where):
        """After refusals that were asked for: the browser notes each failed request, and nothing else may be noted."""
        noise = [entry for entry in self.browser.log()
                 if entry["level"] in ("SEVERE", "WARNING") and entry["source"] != "network"]
        self.holds(f"no script error: {where}", not noise, json.dumps(noise)[:800])

    def tab_to(self, name, script, most=150):
        """Presses Tab until the focused element fulfils the script (`e` is the element)."""
        for _ in range(most):
            self.browser.press("Tab")
            if self.browser.run(f"const e = document.activeElement; return Boolean({script})"):
                self.holds(f"by Tab: {name}", True)
                return
        raise Failed(f"Tab never comes to: {name}")

    def shoot(self, name, scheme="light"):
        self.browser.cdp("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        time.sleep(0.3)
        (self.folder / name).write_bytes(base64.b64decode(self.browser.screenshot()))
        self.browser.cdp("Emulation.setEmulatedMedia", {"features": []})

    def shoot_extra(self, name, scheme="light"):
        if self.every_page:
            self.shoot(name, scheme)
