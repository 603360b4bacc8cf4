"""The book in headless Chromium; `scripts/check-book` runs it."""

import argparse
import collections
import functools
import html.parser
import http.server
import pathlib
import posixpath
import re
import sys
import threading
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "gateway" / "console" / "check"))

from checks import Check, Failed  # noqa: E402
from webdriver import Browser  # noqa: E402

# What is searched for, and the pages of which one must be among the first that are found.
SEARCHES = [("award", r"start/|contract-net|glossary"), ("mandate", r"bargaining|glossary|alternating-offers"),
            ("nats permissions", r"^operations|nats\.example\.conf")]
FIRST_HITS = 5
SIZES = [(1280, 900, False), (390, 844, True)]
SCHEMES = ("light", "dark")
PICTURES = ["index.md", "docs/agents.md", "docs/operations.md", "docs/metrics.md", "docs/spec/contract-net.md"]
# Pages that one template or one kind of text makes: axe reads each eighth.
ALIKE = re.compile(r"^(?:alerts|decisions|files)/")
# The browser refuses, and notes, whatever a page asks of another host.
OWN_HOST_ONLY = "default-src 'self' data: blob: 'unsafe-inline' 'unsafe-eval'"
AXE = """const r = await axe.run(document, { resultTypes: ['violations'] });
  return [r.passes.length, r.violations.flatMap((v) => v.nodes.map((n) => [v.id, n.html.slice(0, 200), n.failureSummary.slice(0, 240)]))]"""
OTHERS = """return performance.getEntriesByType('resource').map((e) => e.name)
  .filter((name) => !name.startsWith(arguments[0]) && !/^(?:data|blob):/.test(name))"""
HITS = """const hits = [...document.querySelectorAll('.md-search-result__item a.md-search-result__link')].map((a) => a.href);
  return hits.length ? hits : null"""


class Page(html.parser.HTMLParser):
    """The links and anchors of a page."""

    def __init__(self, text):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            if name in ("href", "src") and value:
                self.links.append(value)


class Handler(http.server.SimpleHTTPRequestHandler):
    def end_headers(self):
        self.send_header("Content-Security-Policy", OWN_HOST_ONLY)
        super().end_headers()

    def log_message(self, *arguments):
        pass


def broken_links(book):
    """Links inside the book that lead to no file or no anchor, and how many there are in all."""
    pages = {path.relative_to(book).as_posix(): Page(path.read_text()) for path in sorted(book.rglob("*.html"))}
    broken, count = [], 0
    for name, page in pages.items():
        # The page of an address that is not there knows no folder: its links begin at the root.
        for link in [] if name == "404.html" else page.links:
            found = urllib.parse.urlsplit(link)
            if found.scheme or found.netloc:
                continue
            count += 1
            path = posixpath.normpath(posixpath.join(posixpath.dirname(name), urllib.parse.unquote(found.path))) if found.path else name
            anchor = urllib.parse.unquote(found.fragment)
            if not (book / path).exists():
                broken.append(f"{name}: {link}")
            elif anchor and path in pages and anchor not in pages[path].anchors:
                broken.append(f"{name}: {link}: no such anchor")
    return broken, count, sorted(pages)


def search(check, address):
    browser = check.browser
    for text, wanted in SEARCHES:
        browser.go(address + "index.html")
        browser.run("document.querySelector('[data-md-component=search-query]').focus()")
        browser.press(*text)
        hits = check.until(f"search for {text!r} finds pages", HITS)
        pages = list(dict.fromkeys(hit.removeprefix(address).partition("#")[0].partition("?")[0] for hit in hits))
        check.holds(f"search for {text!r} finds {pages[:FIRST_HITS]}", any(re.search(wanted, page) for page in pages[:FIRST_HITS]), pages)
    check.quiet("search")


def look(check, address, pages):
    """Each page without a message of the browser and without a violation in light and dark, and never wider than the screen."""
    browser, faults, count = check.browser, collections.defaultdict(list), 0
    for page in pages:
        for scheme in SCHEMES:
            browser.cdp("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
            browser.size(*SIZES[0])
            browser.go(address + page)
            shown = browser.run("return document.body.dataset.mdColorScheme")
            if shown != {"light": "default", "dark": "slate"}[scheme]:
                faults["colours"].append((page, f"{shown} where the system is {scheme}"))
            browser.run(check.axe)
            passes, violations = browser.wait_for(AXE)
            count += 1
            for rule, *found in violations if passes >= 10 else [["axe-core did not run"]]:
                faults[rule].append((page, scheme, *found))
            for entry in browser.log():
                if entry["level"] in ("SEVERE", "WARNING"):
                    faults["message of the browser"].append((page, entry["message"]))
            for name in browser.run(OTHERS, address):
                faults["other host"].append((page, name))
        for size in SIZES:
            browser.size(*size)
            width, inner = browser.run("return [document.documentElement.scrollWidth, innerWidth]")
            if width > inner:
                faults["sideways"].append((page, f"{width} pixels on a screen of {inner}"))
    told = [f"{rule}: {len(found)}, such as\n" + "\n".join(f"    {place}" for place in found[:: len(found) // 4 + 1])
            for rule, found in sorted(faults.items())]
    check.holds(f"{len(pages)} pages in light and dark: axe-core finds nothing in {count} runs; no message, no other host, nothing sideways",
                not told, "\n" + "\n".join(told))


def pictures(check, address, pages):
    for source in PICTURES:
        page = source.removeprefix("docs/").replace(".md", ".html")
        check.holds(f"the book has {page}", page in pages)
        for width, height, is_mobile in SIZES:
            check.browser.size(width, height, is_mobile)
            for scheme in SCHEMES:
                check.browser.cdp("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
                check.browser.go(address + page)
                check.shoot(f"{page.removesuffix('.html').replace('/', '-')}-{width}-{scheme}.png", scheme)


def run(check, address, book, is_every, only):
    broken, count, pages = broken_links(book)
    check.holds(f"{count} links of {len(pages)} pages lead somewhere", not broken, "\n" + "\n".join(broken[:50]))
    search(check, address)
    pictures(check, address, pages)
    alike = [page for page in pages if ALIKE.match(page)]
    read = [page for page in pages if is_every or page not in alike or alike.index(page) % 8 == 0]
    look(check, address, [page for page in read if re.search(only or "", page)])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--driver", "--chromium"):
        parser.add_argument(name, required=True)
    for name in ("--axe", "--book", "--out"):
        parser.add_argument(name, required=True, type=pathlib.Path)
    parser.add_argument("--every", action="store_true")
    parser.add_argument("--only", help="a pattern of pages, when the book's looks are worked on")
    arguments = parser.parse_args()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=arguments.book))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    browser = Browser(arguments.driver, arguments.chromium)
    check = Check(browser, arguments.out, arguments.axe.read_text(), True)
    try:
        run(check, f"http://127.0.0.1:{server.server_port}/", arguments.book, arguments.every, arguments.only)
    except (Failed, RuntimeError) as failure:
        sys.exit(f"the book is not in order after {check.passed} checks: {failure}")
    finally:
        browser.quit()
        server.shutdown()
    print(f"the book is in order: {check.passed} checks, Chromium {browser.version}")


if __name__ == "__main__":
    main()
