"""The code blocks of README and docs."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def file_of(block: str) -> str | None:
    """The file that a block shows, where its first line is `# name.py`: commands and later blocks of a page use it."""
    found = re.match(r"# (\w+\.py)\n", block)
    return found[1] if found else None


FILES = {name: block for page in PAGES for block in python_blocks(page) if (name := file_of(block))}
