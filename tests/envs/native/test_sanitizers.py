"""The core under AddressSanitizer and UndefinedBehaviorSanitizer: the games, random ROMs, and altered saved states."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

native = pytest.importorskip("rnd.envs.native")
if not native.available():
    pytest.skip(native.why_unavailable(), allow_module_level=True)

from rnd.envs.native.roms import rom_path  # noqa: E402

SOURCE = Path(__file__).parents[3] / "src" / "rnd" / "envs" / "native"


@pytest.fixture(scope="module")
def sanitize(tmp_path_factory) -> Path:
    """The driver, built here."""
    cmake = shutil.which("cmake")
    if cmake is None:
        pytest.skip("no cmake here")
    folder = tmp_path_factory.mktemp("sanitize")
    flags = ["-DRND_SANITIZE=ON", "-DCMAKE_BUILD_TYPE=RelWithDebInfo"]
    compilers = {name: value for name, value in os.environ.items() if name != "CXX"}  # conftest.py hides them
    for command in ([cmake, "-S", SOURCE, "-B", folder, *flags], [cmake, "--build", folder, "--parallel", "2"]):
        subprocess.run(command, check=True, capture_output=True, env=compilers)
    return folder / "sanitize"


@pytest.mark.long
def test_random_roms(sanitize):
    done = subprocess.run([sanitize, "random", "1000"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "1000 random ROMs: clean" in done.stdout


@pytest.mark.long
@pytest.mark.parametrize("game", native.supported_games())
def test_games(game, sanitize):
    frames = "100000" if game in native.supported_games()[:7] else "10000"
    done = subprocess.run([sanitize, frames, f"{game}={rom_path(game)}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"{game}: clean" in done.stdout


@pytest.mark.long
@pytest.mark.parametrize("game", ["montezuma_revenge", "gravitar", "solaris", "freeway"])
def test_altered_states(game, sanitize):
    """One game per bank-switching scheme."""
    command = [sanitize, "states", "2000", f"{game}={rom_path(game)}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"{game}: clean" in done.stdout and " 0 of" not in done.stdout
