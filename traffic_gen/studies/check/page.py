"""A report in headless Chromium: no errors, no sideways scroll, readable in light and dark, every figure with its texts."""

import argparse
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "gateway" / "console" / "check"))

from checks import Check, Failed  # noqa: E402
from webdriver import Browser  # noqa: E402

FIGURES = """return [...document.querySelectorAll('figure')].map((figure) => {
  const svg = figure.querySelector('svg');
  if (!svg) return [figure.textContent.slice(0, 60), 'no picture'];
  const texts = [...svg.querySelectorAll('text')].map((text) => text.textContent.trim());
  const faults = [];
  if (!svg.querySelector('title')?.textContent) faults.push('no title');
  if (!(svg.querySelector('desc')?.textContent.length > 20)) faults.push('no alternative');
  if (svg.getAttribute('role') !== 'img' || !svg.getAttribute('aria-label')) faults.push('no label for a screen reader');
  if (texts.filter((text) => /\\(.+\\)$/.test(text)).length < 2) faults.push('axes without units');
  if (svg.getBoundingClientRect().width < 200) faults.push('too small');
  if (!figure.querySelector('figcaption')?.textContent) faults.push('no caption');
  return [svg.querySelector('title')?.textContent, faults.join(', ')];
})"""


def run(check, address, figures):
    browser = check.browser
    for width, height, is_mobile in ((1280, 900, False), (390, 844, True)):
        where = f"{width} pixels"
        browser.size(width, height, is_mobile)
        browser.go(address)
        browser.run("document.querySelectorAll('details').forEach((e) => { e.open = true; })")
        check.fits(where)
        found = browser.run(FIGURES)
        faulty = [(title, faults) for title, faults in found if faults]
        check.holds(f"{figures} figures at least, each with title, units and alternative: {where}",
                    len(found) >= figures and not faulty, faulty or len(found))
        for scheme in ("light", "dark"):
            check.readable(scheme, where)
        check.quiet(where)
    inner = browser.run("return performance.getEntriesByType('resource').length")
    check.holds("nothing is loaded from elsewhere", inner == 0, inner)
    browser.size(1280, 1700)
    browser.go(address)
    check.shoot("experiments.png")
    check.shoot_extra("experiments-dark.png", "dark")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--driver", required=True)
    parser.add_argument("--chromium", required=True)
    parser.add_argument("--page", required=True, type=pathlib.Path)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    arguments = parser.parse_args()
    browser = Browser(arguments.driver, arguments.chromium)
    check = Check(browser, arguments.out, "", True)
    try:
        run(check, arguments.page.resolve().as_uri(), 6)
    except (Failed, RuntimeError) as failure:
        sys.exit(f"the report is not in order after {check.passed} checks: {failure}")
    finally:
        browser.quit()
    print(f"the report is in order: {check.passed} checks, Chromium {browser.version}")


if __name__ == "__main__":
    main()
