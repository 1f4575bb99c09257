"""The zoo: what is listed, where agents come from, and what a folder of one holds."""

from __future__ import annotations

import dataclasses
import functools
import http.server
import json
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import rnd
from rnd import cli, run
from rnd.checkpoint import card, zoo
from rnd.checkpoint.export import load_agent
from rnd.config.presets import preset
from rnd.foundation.errors import UserError
from rnd.metrics.metrics import read_csv
from rnd.report.page import write_page
from rnd.report.runs import read_run
from rnd.training.evaluation import evaluate

RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """An agent of CartPole after two rollouts, with its evaluation."""
    config = preset("CartPole-v1")
    env = dataclasses.replace(config.env, num_envs=4)
    out = str(tmp_path_factory.mktemp("runs"))
    config = dataclasses.replace(config, env=env, rollout_steps=64, frames=512, out=out, name="run", device="cpu")
    path = run.start(config, Console(quiet=True)).path
    (path / "evaluation.json").write_text(json.dumps(evaluate(load_agent(path), 4).to_dict()))
    return path


@pytest.fixture
def own(trained, tmp_path) -> Path:
    """A copy of the run, to spoil."""
    return Path(shutil.copytree(trained, tmp_path / "own"))


@pytest.fixture
def folder(trained, tmp_path, monkeypatch) -> Path:
    """A zoo with the agent `pole`, which is also the index of the package."""
    folder = tmp_path / "agents"
    card.write_card(trained, folder / "pole")
    (tmp_path / "zoo.json").write_text(json.dumps(zoo.index_of(folder)))
    monkeypatch.setattr(zoo, "INDEX", tmp_path / "zoo.json")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("RND_ZOO", str(folder))
    monkeypatch.chdir(tmp_path)
    return folder


def listing(capsys) -> str:
    assert cli.dispatch(["zoo"]) == 0
    return str(capsys.readouterr().out)


# --- folders -------------------------------------------------------------------------------------------


def test_a_card_is_light_listed_and_played(folder, trained, capsys):
    page, score = (folder / "pole" / "README.md").read_text(), zoo.read_score(trained)
    head = page.split("---")[1]
    assert f"value: {score.mean:.2f} +/- {score.std:.2f}" in head and "CartPole-v1" in head
    assert "The agent's file has no bonus." in page
    text = listing(capsys)
    assert "pole" in text and f"{score.mean:,.1f}" in text and "(policy alone)" in text and text.count("here") == 2
    assert load_agent(zoo.locate("zoo:pole")).bonus is None
    cli.dispatch(["evaluate", "zoo:pole", "--episodes", "2", "--device", "cpu"])
    assert Path("runs/evaluate/pole.json").exists()
    long = "an-agent-whose-name-fills-most-of-a-narrow-terminal-and-is-not-cut"
    shutil.copytree(folder / "pole", folder / long)
    assert f"{long}  " in listing(capsys)
    cli.dispatch(["export", str(trained), "--card", "--bonus", "yes"])
    assert load_agent(zoo.locate("zoo:run")).bonus is not None


def test_the_folder_of_an_agent_is_its_file(folder, trained):
    """Nothing is written into it, as with its file; a run is a run, even with such a file."""
    before = sorted((folder / "pole").iterdir())
    assert rnd.load(folder / "pole").path == zoo.locate(str(folder / "pole")) == folder / "pole" / zoo.AGENT
    cli.dispatch(["evaluate", str(folder / "pole"), "--episodes", "2", "--device", "cpu"])
    assert sorted((folder / "pole").iterdir()) == before and Path("runs/evaluate/pole.json").exists()
    run = Path(shutil.copytree(trained, "run"))
    shutil.copy(folder / "pole" / zoo.AGENT, run)
    assert zoo.locate("run") == run
    shutil.rmtree(run / "checkpoints")
    assert zoo.locate("run") == run / zoo.AGENT


def test_a_folder_without_a_trace_says_how_to_make_one(folder, trained):
    for target, path in (
        ("zoo:pole", folder / "pole"),
        (str(folder / "pole"), folder / "pole"),
        (str(trained), trained),
    ):
        with pytest.raises(UserError, match=f"^{path} has no trace.json; to make one: rnd evaluate {target} --trace$"):
            cli.dispatch(["replay", target])
    cli.dispatch(
        ["evaluate", "zoo:pole", "--episodes", "2", "--device", "cpu", "--trace", str(folder / "pole/trace.json")]
    )
    for target in ("zoo:pole", str(folder / "pole"), str(folder / "pole" / zoo.AGENT)):
        cli.dispatch(["replay", target])


def test_tables_keep_the_first_and_the_last_row_and_all_of_the_time(own, tmp_path, monkeypatch):
    monkeypatch.setattr(card, "MAX_ROWS", 10)
    rows = range(1, 101)
    (own / "metrics.csv").write_text("iteration,frames,loss\n" + "".join(f"{i},{i * 256},0.{i}\n" for i in rows))
    lines = [f"{i},{i / 10},{2560 / i},{i / 20}\n" for i in rows]
    (own / "timing.csv").write_text("iteration,seconds,frames_per_second,learning\n" + "".join(lines))
    out = card.write_card(own, tmp_path / "out")
    metrics, timing = read_csv(out / "metrics.csv"), read_csv(out / "timing.csv")
    assert [*metrics["iteration"]] == [*timing["iteration"]] == [*range(1, 101, 11)]
    assert {*(out / "metrics.csv").read_text().splitlines()} < {*(own / "metrics.csv").read_text().splitlines()}
    assert sum(timing["seconds"]) == pytest.approx(sum(rows) / 10, rel=1e-5)
    assert sum(timing["learning"]) == pytest.approx(sum(rows) / 20, rel=1e-5)
    frames = np.multiply(timing["seconds"], timing["frames_per_second"])
    assert frames == pytest.approx([256, *[11 * 256] * 9], rel=1e-4)
    short = card.write_card(own, tmp_path / "short") / "timing.csv"
    monkeypatch.setattr(card, "MAX_ROWS", 100)
    assert card.write_card(own, tmp_path / "all").joinpath("timing.csv").read_text() == (own / "timing.csv").read_text()
    assert short.read_text() == (out / "timing.csv").read_text()


def test_the_folder_of_a_card_can_be_reported(folder, tmp_path):
    read = read_run(folder / "pole")
    assert read.finished and not read.warnings
    write_page([read], tmp_path / "page.html")
    assert "CartPole" in (tmp_path / "page.html").read_text()


# --- odd runs and agents --------------------------------------------------------------------------------


def test_a_run_without_an_ended_episode_has_a_card(own, tmp_path, capsys, monkeypatch):
    """Nor an evaluation: its score is no 0."""
    out = card.write_card(own, tmp_path / "agents" / "new")
    description = json.loads((out / "agent.json").read_text())
    description["row"] |= {"return_mean": None, "return_best": None}
    (out / "agent.json").write_text(json.dumps(description))
    (out / "evaluation.json").unlink()
    page = card.card(out)
    assert "| best return in training | no episode ended |" in page and "mean_reward" not in page
    monkeypatch.setenv("RND_ZOO", str(out.parent))
    assert "not evaluated" in listing(capsys)


ODD = {
    "evaluation.json": ["[]", "{}", "3", "{", '{"mean_return_interval_95": [1]}', "\xff", "[" * 9**5],
    "run.json": ["[]", "{}", '{"command": 3, "started": "x"}', '{"command": ["rnd"], "started": 3}'],
    "timing.csv": ["seconds\nx\n", "seconds\n1\n", "iteration,seconds\n1,inf\n", "a" * 2**17],
    "metrics.csv": ["", "iteration\nx\n", "frames\n3\n"],
}  # fmt: skip


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in ODD.items() for text in texts])
def test_odd_files_of_a_run_are_one_line(name, text, own, tmp_path):
    (own / name).write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError, match=rf"{name} (is not|cannot be read)"):
        card.write_card(own, tmp_path / "out")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("agent.json", lambda data: data["config"].pop("bonus")),
        ("agent.json", lambda data: data.update(frames="many")),
        ("agent.json", lambda data: data["config"]["env"].update(id="\x1b[31mred")),
        ("evaluation.json", lambda data: data.update(mean_return=float("nan"))),
        ("evaluation.json", lambda data: data.update(mean_return_interval_95=None)),
    ],
)
def test_an_odd_agent_hides_no_other(name, change, folder, capsys):
    odd = Path(shutil.copytree(folder / "pole", folder / "odd"))
    data = json.loads((odd / name).read_text())
    change(data)
    (odd / name).write_text(json.dumps(data))
    lines = listing(capsys).splitlines()
    assert lines[1].startswith("pole  ")
    assert lines[2].startswith("odd is not listed: ") and name in lines[2] and "\x1b" not in lines[2]


def test_an_agent_that_names_code_is_listed_and_not_imported(folder, capsys):
    description = json.loads((folder / "pole" / "agent.json").read_text())
    description["config"]["bonus"] = "a_module_of_a_stranger:Bonus"
    shutil.copytree(folder / "pole", folder / "strange")
    (folder / "strange" / "agent.json").write_text(json.dumps(description))
    lines = listing(capsys).splitlines()
    assert lines[1].startswith("pole  ") and "a_module_of_a_stranger:Bonus" in lines[2]


def test_no_link_out_of_the_run_is_followed(own, tmp_path):
    private = tmp_path / "private"
    private.mkdir()
    (private / "episode.mp4").write_text("of somebody else")
    (own / "watch").symlink_to(private)
    (own / "rooms.json").unlink(missing_ok=True)
    (own / "rooms.json").symlink_to(private / "episode.mp4")
    out = card.write_card(own, tmp_path / "out")
    assert not (out / "episode.mp4").exists() and not (out / "rooms.json").exists()
    (own / "watch").unlink()
    (own / "watch").mkdir()
    (own / "watch" / "episode.mp4").write_text("its own")
    assert (card.write_card(own, tmp_path / "out") / "episode.mp4").read_text() == "its own"


# --- the index, and where files come from ------------------------------------------------------------------


@pytest.fixture
def address(folder, monkeypatch):
    """The zoo's folder at an http address; the folder itself has another name, so that nothing is found there."""
    served = folder.rename(folder.with_name("served"))
    quiet = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(quiet, directory=str(served)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.delenv("RND_ZOO")
    # Installed: in no checkout, and results/ of the environment's lib folder is nobody's.
    monkeypatch.setattr(zoo, "__file__", str(folder / "a" / "b" / "c" / "zoo.py"))
    shutil.copytree(served / "pole", folder / "results" / "pole")
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()


def test_an_installed_package_lists_its_index_and_says_what_to_set(address, capsys):
    text = listing(capsys)
    assert "pole" in text and "not here" in text and "set RND_ZOO (or --zoo) to a folder or an http(s) address" in text
    with pytest.raises(UserError, match=r"the agent pole is not here; set RND_ZOO"):
        zoo.locate("zoo:pole")
    with pytest.raises(UserError, match="no agent 'pool'; nearest: pole"):
        zoo.locate("zoo:pool")
    with pytest.raises(UserError, match="no folder and no http"):
        zoo.locate("zoo:pole", "nowhere")


def test_an_agent_is_downloaded_once(address, tmp_path, capsys):
    cli.dispatch(["evaluate", "zoo:pole", "--episodes", "1", "--device", "cpu", "--zoo", address])
    path = zoo.locate("zoo:pole")  # from the cache, without an address
    assert path == tmp_path / "cache/rnd/zoo/pole/agent.safetensors.xz"
    assert [*path.parent.iterdir()] == [path]
    assert "cached" in listing(capsys)
    path.write_bytes(b"damaged")
    assert zoo.is_agent(zoo.locate("zoo:pole", address), zoo.index()["pole"])


@pytest.mark.parametrize("damage", ["shorter", "longer", "altered", "missing"])
def test_another_file_is_not_used(damage, address, tmp_path):
    path = tmp_path / "served" / "pole" / zoo.AGENT
    data = path.read_bytes()
    changed = {"shorter": data[:-1], "longer": data + b"\0", "altered": data[:-1] + bytes([data[-1] ^ 1])}
    path.write_bytes(changed[damage]) if damage in changed else path.unlink()
    with pytest.raises(UserError, match="cannot be read" if damage == "missing" else "its size or SHA-256 differs"):
        zoo.locate("zoo:pole", address)
    assert not (tmp_path / "cache").exists()
    if damage != "missing":
        with pytest.raises(UserError, match="is not the agent pole of the index"):
            zoo.locate("zoo:pole", str(tmp_path / "served"))


def test_the_index_fits_the_agents_in_results():
    if not RESULTS.is_dir():
        pytest.skip("the source distribution has no results")
    stored = json.loads(zoo.INDEX.read_text())
    assert stored == json.loads(json.dumps(zoo.index_of(RESULTS))), "python benchmarks/zoo_index.py"
    assert stored


def test_listing_is_quick_and_needs_no_torch(folder):
    for number in range(20):
        shutil.copytree(folder / "pole", folder / f"pole-{number}")
    begun = time.process_time()
    assert len([*zoo.listed(folder)]) == 21
    assert time.process_time() - begun < 0.5
    text = "import sys; import rnd.checkpoint.zoo, rnd.commands.zoo; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", text], check=True)
