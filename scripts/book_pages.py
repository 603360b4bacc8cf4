"""Hooks of mkdocs.yml: what the pages of docs/ link to outside of docs/ is in the book as well.

README.md is the first page. Another page of Markdown keeps its path below `files/`, and so do its own links; a file of another
kind becomes a page that shows it, a folder a page that lists it. No link leaves the book for a file of the repository.
"""

import os
import posixpath
import re
import subprocess

from mkdocs.structure.files import File

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HOME = "README.md"
EMPTY_HEAD = re.compile(r"<thead>\s*<tr>(?:\s*<th[^>]*></th>)+\s*</tr>\s*</thead>\s*")
LINK = re.compile(r"(?<=\]\()([^()\s]+)(?=\))")
FENCE = re.compile(r"^( *)(```+|~~~+)")
CODE = re.compile(r"`[^`]+`")
ITEM = re.compile(r"^( *)(?:[*+-]|\d+\.) ")
# Files shown whole that a reader searches for; of the others, code above all, search knows nothing.
SEARCHED = re.compile(r"(?:\.conf|\.toml|\.example|\.ya?ml)$")
# Search shows what tells how before what tells why, and a chapter's beginning before its history.
WEIGHTS = [("start/", 4), ("decisions/", 0.3), ("files/CHANGELOG", 0.2), ("alerts/", 0.5), ("glossary", 2), ("operations", 2)]
LANGUAGES = {"cfg": "text", "conf": "nginx", "example": "bash", "py": "python", "rs": "rust", "sh": "bash", "wat": "text", "yml": "yaml"}


class Book:
    """Which file of the repository is which page."""

    def __init__(self):
        listed = subprocess.check_output(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, text=True)
        self.paths = [path for path in listed.splitlines() if os.path.exists(os.path.join(ROOT, path))]
        self.known = set(self.paths)
        self.folders = {"/".join(parts[:n]) for parts in (path.split("/") for path in self.paths) for n in range(1, len(parts))}
        # By the page's path in the book, that in the repository.
        self.added = {}

    def page_of(self, path):
        """The page or picture that stands for a file or folder; nothing where git knows none."""
        if path in self.folders and path + "/README.md" in self.known:
            path += "/README.md"
        if path == HOME:
            return "index.md"
        if path.startswith("docs/"):
            return path[len("docs/"):]
        # mkdocs passes over names that begin with a dot.
        page = "files/" + re.sub(r"(^|/)\.", r"\1", path)
        if path in self.folders:
            return page + "/README.md"
        if path not in self.known:
            return None
        return page if path.endswith((".md", ".svg", ".png")) else page + ".md"

    def source_of(self, page):
        """The page's path in the repository; that of a folder ends with a slash."""
        source = self.added.get(page, "docs/" + page)
        return source + "/" if source in self.folders else source

    def rewritten(self, page, text):
        """The page's text with links that hold in the book."""
        source, folder = self.source_of(page), posixpath.dirname(page) or "."

        def target(match):
            link = match.group(1)
            if re.match(r"[a-z][a-z0-9+.-]*:|#", link):
                return link
            file, mark, anchor = link.partition("#")
            path = posixpath.normpath(posixpath.join(posixpath.dirname(source), file))
            found = self.page_of(path)
            return posixpath.relpath(found, folder) + mark + anchor if found else link

        return "\n".join(line if is_code else LINK.sub(target, line) for line, is_code in marked(text))

    def outside(self, page, text):
        """What the page links to outside of docs/."""
        folder = posixpath.dirname(self.source_of(page))
        for line, is_code in marked(text):
            for link in () if is_code else LINK.findall(line):
                if not re.match(r"[a-z][a-z0-9+.-]*:|#", link):
                    path = posixpath.normpath(posixpath.join(folder, link.partition("#")[0]))
                    if self.page_of(path) and not path.startswith("docs/") and path != HOME:
                        yield path

    def text_of(self, page):
        """The Markdown of a page that docs/ does not hold."""
        path = self.added[page]
        if path in self.folders:
            return self.listing(path)
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            text = file.read()
        return text if path.endswith(".md") else shown(path, text)

    def listing(self, folder):
        lines = [f"# {folder}", "", "Files of this folder in the repository:", ""]
        for path in self.paths:
            if path.startswith(folder + "/"):
                name, page = path[len(folder) + 1:], self.page_of(path)
                lines.append(f"* [{name}]({name})" if page in self.added else f"* `{name}`")
        return unsearched("\n".join(lines))


def shown(path, text):
    kind = path.rsplit(".", 1)[-1]
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall(r"`{3,}", text))])
    page = f"# {path}\n\n{fence}{LANGUAGES.get(kind, kind)}\n{text.rstrip()}\n{fence}\n"
    return page if SEARCHED.search(path) else unsearched(page)


def unsearched(page):
    return "---\nsearch:\n  exclude: true\n---\n" + page


def marked(text):
    """The lines of a page, and whether each belongs to a block of code."""
    fence = None
    for line in text.split("\n"):
        found = FENCE.match(line)
        if fence is None and found:
            fence = found.group(2)
            yield line, True
        else:
            yield line, fence is not None
            if fence and found and found.group(2).startswith(fence) and line.strip() == found.group(2):
                fence = None


def as_python_markdown(text):
    """What other readers of Markdown take and Python-Markdown does not: a list right behind its sentence, what belongs to an
    item indented by less than four blanks, `\\|` in a table's code."""
    lines, before, width = [], "", 0
    for line, is_code in marked(text):
        item = None if is_code else ITEM.match(line)
        if item and not item.group(1):
            if before.strip() and not width:
                lines.append("")
            width = len(item.group())
        elif width and line.startswith(" " * width):
            line = "    " + line[width:]
        elif line.strip() and (is_code or not before.strip()):
            width = 0
        if line.lstrip().startswith("|") and not is_code:
            line = CODE.sub(lambda match: match.group().replace("\\|", "|"), line)
        lines.append(line)
        before = line
    return "\n".join(lines)


BOOK = Book()


def on_config(config):
    """Entries of the navigation that name files outside of docs/ (`../ARCHITECTURE.md`) or a folder's pages (`alerts/*`)."""

    def entry(value):
        if isinstance(value, list):
            return [item for part in value for item in many(part)]
        if isinstance(value, dict):
            return {title: entry(part) for title, part in value.items()}
        return named(value)

    def named(value):
        path = posixpath.normpath(posixpath.join("docs", value))
        page = BOOK.page_of(path)
        if page and not path.startswith("docs/") and path != HOME:
            BOOK.added[page] = path
        return page or value

    def many(value):
        if isinstance(value, str) and value.endswith("/*"):
            folder = "docs/" + value[:-1]
            return [path[len("docs/"):] for path in BOOK.paths
                    if path.startswith(folder) and path.endswith(".md") and not path.endswith("/README.md")]
        return [entry(value)]

    config.nav = entry(config.nav)
    return config


def on_files(files, config):
    BOOK.added["index.md"] = HOME
    waiting = [*BOOK.added, *(file.src_uri for file in files if file.src_uri.endswith(".md"))]
    while waiting:
        page = waiting.pop()
        source = BOOK.source_of(page)
        if not source.endswith(".md"):
            continue
        with open(os.path.join(ROOT, source), encoding="utf-8") as file:
            text = file.read()
        for path in BOOK.outside(page, text):
            found = BOOK.page_of(path)
            if found not in BOOK.added:
                BOOK.added[found] = path
                waiting.append(found)
    for page, path in BOOK.added.items():
        if page.endswith(".md"):
            files.append(File.generated(config, page, content=BOOK.text_of(page)))
        else:
            files.append(File.generated(config, page, abs_src_path=os.path.join(ROOT, path)))
    return files


def on_page_markdown(markdown, page, config, files):
    weight = next((weight for start, weight in WEIGHTS if page.file.src_uri.startswith(start)), 1)
    page.meta.setdefault("search", {}).setdefault("boost", weight)
    return as_python_markdown(BOOK.rewritten(page.file.src_uri, markdown))


def on_page_content(html, page, config, files):
    """Tables without empty heads. The theme takes a title's `<name>` for a tag."""
    page.title = page.title.replace("&lt;", "\u2039").replace("&gt;", "\u203a")
    return EMPTY_HEAD.sub("", html).replace("<th></th>", "<td></td>")


def on_post_page(output, page, config):
    return with_search_named(output)


def on_post_template(output, template_name, config):
    return with_search_named(output)


def with_search_named(output):
    """Who hears the page is told what the dialog is for."""
    return output.replace('data-md-component="search" role="dialog"', 'data-md-component="search" role="dialog" aria-label="Search"')
