"""The page in a real browser: no error, every image loaded, the map complete, the video playing."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_origin, get_type_hints

import pytest
from rich.console import Console

from rnd import cli
from rnd.config import Config, EnvConfig
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


def test_no_error_and_all_images(browser, page):
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
    "folders",
    [
        ["rnd-s1", "rnd-s2", "rnd-s3", "ppo-s1"],
        ["rnd-s1", "ppo-s1", "minigrid-s1", "pitfall-s1"],
        ["minigrid-s1"],
        ["pitfall-s1"],
        ["empty"],
    ],
)
def test_other_pages_open_without_error(browser, tmp_path, folders):
    (tmp_path / "empty").mkdir()
    paths = [tmp_path / name if name == "empty" else STORED / name for name in folders]
    write_page([read_run(path) for path in paths], tmp_path / "report.html")
    opened(browser, tmp_path / "report.html")
    assert browser.console() == []
    assert browser.run("document.querySelector('h1').innerText.length > 3") is True


HOSTILE = (
    """</script></style></title><script>window.attacked = 1</script><img src=x onerror="window.attacked = 1">'"`[/x]"""
)


def hostile(value):
    """`value` with markup in every text."""
    if isinstance(value, dict):
        return {name: hostile(one) for name, one in value.items()}
    if isinstance(value, list):
        return [hostile(one) for one in value]
    return value + HOSTILE if isinstance(value, str) else value


def restore_choices(cls, values, original):
    """Texts with a few allowed values stay as they are: a config with others is not read at all."""
    hints = get_type_hints(cls)
    values |= {name: original[name] for name in values if get_origin(hints.get(name)) is Literal}


@pytest.mark.parametrize("name", ["rnd-s1", "pitfall-s1", "minigrid-s1"])
def test_markup_in_any_text_of_a_run_folder_does_nothing(browser, tmp_path, name, monkeypatch):
    """In every text of config.json and run.json, in keys of run.json, in headers of tables, in the folder's name."""
    folders = [tmp_path / f"a{i}{HOSTILE.replace('/', '|')}" for i in range(2)]
    for i, folder in enumerate(folders):
        shutil.copytree(STORED / name, folder)
        config = hostile(original := json.loads((folder / "config.json").read_text()))
        restore_choices(Config, config, original)
        restore_choices(EnvConfig, config["env"], original["env"])
        (folder / "config.json").write_text(json.dumps(config | {"lr": 0.1 / (i + 1)}))
        about = hostile(json.loads((folder / "run.json").read_text()))
        about["packages"] |= {HOSTILE: HOSTILE}
        (folder / "run.json").write_text(json.dumps(about | {HOSTILE: HOSTILE}))
        for table in ("metrics.csv", "timing.csv"):
            header, _, rows = (folder / table).read_text().partition("\n")
            quoted = HOSTILE.replace('"', '""')
            rows = "\n".join(line + ",1" for line in rows.splitlines())
            (folder / table).write_text(f'{header},"{quoted}"\n{rows}\n')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        cli.main(["report", *map(str, folders)])
    assert stop.value.code == 0
    opened(browser, tmp_path / "report.html")
    assert browser.console() == []  # nothing that the content policy had to refuse either
    assert browser.run("window.attacked") is None
    assert browser.run("[...document.querySelectorAll('script, img, style')].length") == browser.run(
        "document.querySelectorAll('.chart script').length + document.querySelectorAll('img.layout').length + 2"
    )
    assert browser.run("document.querySelectorAll('.chart path.mean').length") >= 12
    text = browser.run("document.body.textContent")
    assert HOSTILE in text and json.loads((folders[0] / "config.json").read_text())["policy"] in text
    move = "s.dispatchEvent(new PointerEvent('pointermove', {clientX: s.getBoundingClientRect().right - 14}))"
    browser.run(f"(() => {{ const s = document.querySelector('.chart svg'); {move}; }})()")
    assert browser.run("document.querySelector('.tip').hidden") is False  # our own script runs
    assert browser.run("window.attacked") is None


def test_the_content_policy_refuses_what_is_not_ours(browser, page, tmp_path):
    """A second line of defence: script, handler and style that get into the page all the same."""
    attack = "<script>window.attacked = 1</script><img src=x onerror='window.attacked = 1'><b style='color:red'>x</b>"
    text = page.read_text().replace("<footer>", attack + "<footer>")
    (tmp_path / "page.html").write_text(text)
    opened(browser, tmp_path / "page.html")
    assert browser.run("window.attacked") is None
    assert sum("Content Security Policy" in message for message in browser.console()) >= 3


def test_twelve_groups_have_twelve_colours(browser, tmp_path):
    runs = [read_run(STORED / "rnd-s1") for _ in range(12)]
    for i, run in enumerate(runs):
        run.config = replace(run.config, lr=1e-4 * (i + 1))
    write_page(runs, tmp_path / "report.html")
    opened(browser, tmp_path / "report.html")
    lines = "[...document.querySelector('.chart').querySelectorAll('path.mean')]"
    colours = browser.run(f"{lines}.map(line => getComputedStyle(line).stroke)")
    assert len(colours) == 12 == len(set(colours))


def test_no_word_is_broken_on_a_phone(tmp_path):
    need_browser()
    run = read_run(STORED / "rnd-s1")
    run.described |= {
        "packages": {"gymnasium": "1.4.0"},
        "platform": "Linux-6.1.0-13-cloud-amd64-x86_64-with-glibc2.36",
    }
    write_page([run], tmp_path / "report.html")
    window = Browser(390, 900)
    try:
        window.open(tmp_path / "report.html")
        window.run("document.querySelectorAll('details').forEach(one => one.open = true)")
        cells = "[...document.querySelectorAll('.reproduce td:first-child')]"
        lines = (
            "cell => {const r = document.createRange(); r.selectNodeContents(cell); return r.getClientRects().length}"
        )
        assert set(window.run(f"{cells}.map({lines})")) == {1}
        assert "gymnasium" in window.run(f"{cells}.map(cell => cell.textContent)")
    finally:
        window.close()


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
