"""The page in a real browser: no error, every picture loaded, the map complete, the video playing."""

import shutil
from pathlib import Path

import pytest
from rich.console import Console

from rnd.report.options import WatchOptions
from rnd.report.page import write_page
from rnd.report.runs import read_run
from rnd.report.watch import watch

from .browser import Browser, need_browser
from .test_watch import trained  # noqa: F401  a fixture

STORED = Path(__file__).parent / "stored"


@pytest.fixture(scope="module")
def browser():
    need_browser()
    window = Browser()
    yield window
    window.close()


@pytest.fixture(scope="module")
def page(tmp_path_factory, trained):  # noqa: F811
    """A run of Montezuma's Revenge with a video."""
    need_browser()
    folder = tmp_path_factory.mktemp("page") / "run"
    shutil.copytree(STORED / "rnd-s1", folder)
    watch(trained, WatchOptions(fps=10, out=str(folder / "watch" / "episode")), Console(quiet=True))
    write_page([read_run(folder)], folder / "report.html")
    return folder / "report.html"


def opened(browser, path):
    browser.console()
    browser.open(path)
    assert browser.until("document.readyState === 'complete'")


def test_no_error_and_all_pictures(browser, page):
    opened(browser, page)
    assert browser.console() == []
    assert browser.run("[...document.images].length") == 1
    assert browser.run("[...document.images].every(i => i.complete && i.naturalWidth > 100)") is True
    assert browser.run("document.querySelectorAll('.chart path.mean').length") >= 12


def test_the_map_has_24_rooms_that_can_be_seen(browser, page):
    opened(browser, page)
    rooms = "[...document.querySelectorAll('.pyramid .room')]"
    assert browser.run(f"{rooms}.length") == 24
    assert browser.run(f"new Set({rooms}.map(r => r.dataset.room)).size") == 24
    assert browser.run(f"{rooms}.every(r => r.getBoundingClientRect().width > 8)") is True
    inside = "document.querySelector('.pyramid').getBoundingClientRect()"
    assert browser.run(f"{rooms}.every(r => r.getBoundingClientRect().left >= {inside}.left - 1)") is True
    assert browser.run(f"{rooms}.every(r => r.getBoundingClientRect().right <= {inside}.right + 1)") is True
    for above, below in ((1, 5), (5, 11), (11, 19), (2, 6), (7, 13), (13, 21)):  # ladders lead straight down
        lefts = [
            browser.run(f"document.querySelector('[data-room=\"{n}\"] rect').x.baseVal.value") for n in (above, below)
        ]
        assert lefts[0] == lefts[1]
    colour = "getComputedStyle(document.querySelector('.room.seen rect')).fill"
    before = browser.run(colour)
    browser.run("document.querySelector('.switch button[value=often]').click()")
    assert browser.run(colour) != before
    browser.run("document.querySelector('[data-room=\"1\"]').focus()")
    assert "room 1 (start): first after" in browser.run("document.querySelector('.said').textContent")


def test_the_video_plays(browser, page):
    opened(browser, page)
    video = "document.querySelector('video')"
    assert browser.until(f"{video}.readyState >= 3")
    assert (browser.run(f"{video}.videoWidth"), browser.run(f"{video}.videoHeight")) == (1152, 480)
    browser.run(f"{video}.play().then(() => true)")
    assert browser.until(f"{video}.currentTime > 0.3")
    assert browser.run(f"{video}.error === null") is True


def test_the_pointer_reads_the_curve(browser, page):
    opened(browser, page)
    browser.run(
        "(() => { const s = document.querySelector('.chart svg'), b = s.getBoundingClientRect();"
        "s.dispatchEvent(new PointerEvent('pointermove', {clientX: b.right - 14, clientY: b.top + 40})); })()"
    )
    text = browser.run("document.querySelector('.chart .tip').innerText")
    run = read_run(page.parent)
    assert "786,432 frames" in text and f"{run.last('return_mean'):,.0f}" in text


@pytest.mark.parametrize(
    "folders", [["rnd-s1", "rnd-s2", "rnd-s3", "ppo-s1"], ["minigrid-s1"], ["pitfall-s1"], ["empty"]]
)
def test_other_pages_open_without_error(browser, tmp_path, folders):
    (tmp_path / "empty").mkdir()
    paths = [tmp_path / name if name == "empty" else STORED / name for name in folders]
    write_page([read_run(path) for path in paths], tmp_path / "report.html")
    opened(browser, tmp_path / "report.html")
    assert browser.console() == []
    assert browser.run("document.querySelector('h1').innerText.length > 3") is True


@pytest.mark.parametrize(("width", "dark"), [(390, True), (390, False), (1600, True)])
def test_nothing_is_wider_than_the_screen_and_the_theme_is_followed(page, width, dark):
    need_browser()
    window = Browser(width, 900, dark=dark)
    try:
        window.open(page)
        assert window.run("document.documentElement.scrollWidth") <= width
        red = int(window.run("getComputedStyle(document.body).backgroundColor").split("(")[1].split(",")[0])
        assert (red < 60) == dark
    finally:
        window.close()
