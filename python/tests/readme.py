"""The programs of the README."""

import re
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
PROGRAM = re.compile(r"<!-- (\w+\.py) -->\n```python\n(.*?)```", re.DOTALL)


def programs() -> dict[str, str]:
    """Each by the name that stands above it."""
    return dict(PROGRAM.findall(README.read_text(encoding="utf-8")))


def write_programs(folder: Path) -> None:
    """Writes them as files."""
    for name, text in programs().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_programs(Path(sys.argv[1]))
