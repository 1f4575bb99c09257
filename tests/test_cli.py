"""The command line as a person meets it: a real process, its output and its exit code."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ale_py import roms

from rnd import _share_cores, cli
from rnd.cli import OTHER_NAMES, positionals
from rnd.commands.completion import tables
from rnd.config import Config
from rnd.config.flags import declared
from rnd.envs import native
from rnd.foundation.errors import UserError


def rnd(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "rnd", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )


def test_help_does_not_import_torch():
    code = "import sys; from rnd.cli import dispatch; dispatch(['--help']); assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "rnd train [GAME]" in done.stdout


def test_version_names_the_backends():
    done = rnd("--version")
    assert done.returncode == 0
    for word in ("rnd 0.", "torch 2.", "cuda", "ale-py", "gymnasium"):
        assert word in done.stdout
    assert f"native core: {native.version()}" in done.stdout


@pytest.mark.skipif(not native.available(), reason="no native core")
def test_version_names_the_instruction_set_that_environments_use():
    rom = Path(roms.get_rom_path("montezuma_revenge")).read_bytes()
    batch = native.AtariBatch(rom, "montezuma_revenge", np.zeros(1, np.uint64), threads=1)
    assert batch.simd in ("avx512", "avx2", "portable")
    assert native.version() == f"yes, {batch.simd}, {len(native.supported_games())} games"


def test_version_says_why_there_is_no_native_core(monkeypatch):
    monkeypatch.setattr(native, "_reason", "not built")
    assert "native core: not built" in cli.version().splitlines()


def test_train_help_explains_the_fields():
    done = rnd("train", "montezuma", "--help")
    assert done.returncode == 0
    for text in ("rnd train [GAME]", "--gamma-ext", "0.999", "Discount of the intrinsic stream", "--env.num-envs"):
        assert text in done.stdout


def test_help_is_broken_where_the_terminal_ends_only():
    """The lines of docstrings in the source were kept, beside those of the terminal."""
    said = rnd("train", "montezuma", "--help", COLUMNS="400").stdout
    assert "30,000 rollouts of 128 x 128 steps x 4 frames." in said  # a line of the source starts with the number
    assert "without memory. The paper's are whole environments in a fixed order." in said
    assert "the file may be left out: RUN/trace.json" in rnd("evaluate", "--help", COLUMNS="400").stdout


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["trane"], "nearest: train"),
        (["train", "montezumma"], "montezuma"),
        (["train", "ALE/MontezumasRevenge-v5"], "ALE/MontezumaRevenge-v5"),
        (["train", "CartPole-v11"], "CartPole-v1"),
        (["train", "--lr", "-1"], "--lr must be greater than 0"),
        (["train", "--lr", "banana"], "--lr must be a number, not 'banana'; the default is 0.001"),
        (["train", "--seed", "1-3"], "--seed 1-3 names several seeds; nearest: --seeds 1-3"),
        (["train", "--lr"], "--lr needs a value: a number"),
        (["train", "--frames", "-5"], "--frames must be greater than 0, not -5; the default is 600000"),
        (["train", "--frames", "1.5"], "--frames must be a whole number (600000, 600k, 1.5M), not '1.5'"),
        (["train", "--precision", "half"], "--precision must be one of tf32, float32, bf16, not 'half'"),
        (["train", "--env.workers", "two"], "--env.workers must be a whole number"),
        (["train", "--overlap=yes"], "--overlap is a switch"),
        (["train", "-x"], "'-x' is neither a flag nor the value of one"),
        (["train", "--env.num-envs", "0"], "--env.num-envs must be greater than 0"),
        (["train", "--env.num-envs", "30"], "nearest: --env.num-envs 32"),
        (["train", "--gama-ext", "0.9"], "nearest: --gamma-ext"),
        (["train", "--learning-rate", "1e-3"], "unknown flag --learning-rate; nearest: --lr"),
        (["train", "--bonus", "rdn"], "nearest: rnd"),
        (["train", "--policy", "cmm"], "cnn"),
        (["train", "--ext-coef", "0", "--int-coef", "0"], "both reward streams are switched off"),
        (["train", "--policy", "cnn"], "nearest: --policy mlp"),
        (["train", "--name", "../x"], "no run name"),
        (["train", "--writers", "tensorboard,wandb"], "pip install wandb"),
        (["train", "--env.first", "100"], "--env.first follows from the rank"),
        (["train", "--env.backend", "native"], "is no Atari game"),
        (["train", "montezuma", "--seed", "1", "gravitar"], "one name is wanted, not 2: montezuma gravitar"),
        (["bench", "learner", "--num-envs", "6"], "nearest: --num-envs 8"),
        (["bench", "learner", "--repeats", "-1"], "--repeats must be greater than 0"),
        (["bench", "envs", "--rounds", "0"], "--rounds must be greater than 0"),
    ],
)
def test_bad_input_gets_one_line_and_exit_code_2(arguments, hint, tmp_path, capfd, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)  # not installed, whatever is
    with pytest.raises(SystemExit) as left:
        cli.main([*arguments, *(["--out", str(tmp_path)] if arguments[0] == "train" else [])])
    said = capfd.readouterr().err
    assert left.value.code == 2, said
    assert len(said.strip().splitlines()) == 1 and hint in said, said
    assert not any(tmp_path.iterdir())


def test_flags_of_other_libraries_lead_to_ours():
    ours = declared(Config)
    assert {*OTHER_NAMES.values()} <= {*ours} and not {*OTHER_NAMES} & {*ours}


def test_names_and_flags_come_in_any_order():
    arguments = ["--frames", "5", "montezuma", "--overlap", "--env.num-envs=8", "--no-fast"]
    assert positionals(Config, arguments) == ["montezuma"]
    assert arguments == ["--frames", "5", "--overlap", "--env.num-envs=8", "--no-fast"]
    done = rnd("resume", "--frames", "1000", "nowhere")
    assert done.returncode == 2 and "nowhere is not a run folder" in done.stderr


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, None)],
)
def test_threads_do_not_spin_long_unless_told_to(given, expected, monkeypatch):
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.setenv(name, given[name]) if name in given else monkeypatch.delenv(name, raising=False)
    _share_cores()
    assert os.environ.pop("GOMP_SPINCOUNT", None) == expected


@pytest.mark.parametrize("module", ["rnd", "rnd.cli"])
def test_that_is_settled_before_torch_is_imported(module):
    code = f"import os, sys, {module}; print('rounds', os.environ['GOMP_SPINCOUNT'], 'torch' in sys.modules)"
    environment = {name: os.environ[name] for name in os.environ if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.stdout == "rounds 1000 False\n", done.stderr


def test_a_checkpoint_is_not_exported_in_16_bits(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    done = rnd("export", "--half", "--checkpoint", str(tmp_path))
    assert done.returncode == 2 and "--half is for the agent alone" in done.stderr


def test_an_output_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    done = rnd("train", "CartPole-v1", "--out", str(tmp_path / "file"))
    assert done.returncode == 2 and "cannot be made" in done.stderr and "Traceback" not in done.stderr


def test_a_short_atari_run_is_calm(tmp_path):
    """Nothing on the terminal but our own lines: no banners, no warnings."""
    done = rnd("train", "montezuma", "--frames", "512", "--env.num-envs", "4", "--rollout-steps", "16",
               "--out", str(tmp_path), "--name", "m")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "A.L.E" not in done.stdout
    assert (tmp_path / "m" / "metrics.csv").exists()
    assert "instead of 6,400" in done.stdout  # the random agent's steps are cut to a tenth of the run


COMPLETE = 'COMP_WORDS=(rnd {0}); COMP_CWORD={1}; _rnd rnd "{2}" "{3}"; echo "${{COMPREPLY[*]}}"'
"""What bash does on the tab key: the words, the number of the last one, the last one, the one before."""


def test_the_shell_completes_commands_flags_and_names(capsys, tmp_path):
    cli.dispatch(["completion", "bash"])
    script = capsys.readouterr().out

    def complete(line):
        before, word = ["rnd", *line.split(" ")][-2:]
        asked = COMPLETE.format(line, len(line.split(" ")), word, before)
        done = subprocess.run(["bash", "-c", script + asked], capture_output=True, text=True, check=True)
        assert not done.stderr
        return done.stdout.split()

    assert complete("tr") == ["train"]
    assert {*complete("")} == {*cli.COMMANDS}
    assert "--bonus" in complete("train --bon") and "--bonus-options.keep" in complete("train --bon")
    assert complete("train mont") == ["montezuma"]
    assert complete("train --bonus au") == ["autoencoder"]
    assert complete("paper figure3-") == ["figure3-release"]
    assert complete("bench envs --tr") == ["--translate"]
    assert complete("evaluate runs") == []  # then the shell completes files
    assert complete("train --config ") == []


def test_completion_and_the_reference_know_every_command():
    assert {name.split()[0] for name in tables()} == {*cli.COMMANDS}


def test_a_shell_without_completion_is_refused(capsys):
    with pytest.raises(UserError, match="nearest: zsh"):
        cli.dispatch(["completion", "zhs"])


def test_help_takes_a_command():
    assert rnd("help", "resume").stdout == rnd("resume", "--help").stdout != rnd("help").stdout
    assert "unknown command 'resum'; nearest: resume" in rnd("help", "resum").stderr


@pytest.mark.parametrize("flag", ["--lr", "--env.num-envs", "--bonus_options.clip"])
def test_a_run_is_not_resumed_with_other_settings(flag):
    with pytest.raises(UserError, match=f"leave out {flag.replace('_', '-')}, or .* rnd train --config RUN"):
        cli.dispatch(["resume", "runs/x", flag, "3"])
