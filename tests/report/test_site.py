"""The docs site: built without a warning, every page reachable, every link inside it leads somewhere."""

import re
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from .browser import Browser, need_browser

ROOT = Path(__file__).parents[2]
PAGES = ("index", "tutorial", "reference/api")


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """Built as `make docs` does."""
    pytest.importorskip("sphinx")
    out = tmp_path_factory.mktemp("site")
    makefile = (ROOT / "Makefile").read_text()
    command = re.search(r"^\t\$\(BIN\)/python (-m sphinx.*) docs docs/_build/html$", makefile, re.M)
    assert command is not None
    arguments = [sys.executable, *command[1].split(), "-d", out / "doctrees", ROOT / "docs", out / "html"]
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return out / "html"


class Page(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, path: Path):
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.links += [found[name] for name in ("href", "src") if found.get(name)]
        self.anchors |= {found[name] for name in ("id", "name") if found.get(name)}


def test_every_link_inside_leads_somewhere_and_every_page_is_reached(site):
    pages = {path: Page(path) for path in site.rglob("*.html")}
    wrong, reached, waiting = [], set(), [site / "index.html"]
    while waiting:
        path = waiting.pop()
        if path in reached or path not in pages:
            continue
        reached.add(path)
        for link in pages[path].links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                wrong.append(f"{path.relative_to(site)}: {link}")
            elif target in pages:
                waiting.append(target)
                if parts.fragment and unquote(parts.fragment) not in pages[target].anchors:
                    wrong.append(f"{path.relative_to(site)}: {link}")
    assert not wrong
    written = {site / page.relative_to(ROOT / "docs").with_suffix(".html") for page in ROOT.glob("docs/**/*.md")}
    written = {path for path in written if "_build" not in path.parts and path.stem != "log"}
    assert written <= reached
    assert len(written) > 15


def test_the_reference_has_every_flag(site):
    text = (site / "reference" / "commands.html").read_text()
    assert all(
        flag in text for flag in ("--gamma-ext", "--env.num-envs", "--bonus-options.keep", "--against", "--seeds")
    )
    assert "Discount of the extrinsic stream" in text


def test_code_of_docstrings_can_be_pasted_and_parameters_are_described(site):
    text = unescape(re.sub("<[^>]+>", "", (site / "reference" / "api.html").read_text()))
    assert 'rnd.train("montezuma", frames=10_000_000, env={"num_envs": 32}' in text
    assert not re.search("[“”‘’]", text)
    assert "gamma (float) -- discount of the running sum" in " ".join(text.split())


@pytest.mark.parametrize("width", [1400, 400])
def test_the_browser_finds_no_error(site, width):
    need_browser()
    window = Browser(width)
    try:
        for name in PAGES:
            window.console()
            window.open(site / f"{name}.html")
            assert window.until("document.readyState === 'complete'")
            assert window.console() == []
            assert window.run("document.documentElement.scrollWidth") <= width
    finally:
        window.close()
