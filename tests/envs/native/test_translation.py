"""Translated games: the same bytes as the interpreter's, and a cache that is not trusted blindly."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ale_py")
native = pytest.importorskip("rnd.envs.native")
if not native.available():
    pytest.skip(native.why_unavailable(), allow_module_level=True)

from test_batch import Rig  # noqa: E402

from rnd.config import Config, EnvConfig  # noqa: E402
from rnd.config.presets import ATARI_GAMES  # noqa: E402
from rnd.envs.native import translation  # noqa: E402
from rnd.envs.native._core import record_reached, scheme  # noqa: E402
from rnd.envs.native.exactness import compare_game  # noqa: E402
from rnd.envs.native.instructions import OPCODES, Opcode  # noqa: E402
from rnd.envs.native.roms import read_rom  # noqa: E402
from rnd.envs.native.translation import TranslatedGame  # noqa: E402
from rnd.envs.native.translation_cache import NotTranslatedError  # noqa: E402
from rnd.envs.native.translator import EXECUTED, MIRROR_SHIFT, Program  # noqa: E402
from rnd.envs.native_envs import NativeEnvs  # noqa: E402

GAME = "freeway"
SLICED = "montezuma_revenge"
"""Its ROM is seen in slices (E0), and loops cross from one to the next."""
COMPILER = shutil.which("c++") or shutil.which("g++")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler here")

FAKE_COMPILER = """#!/bin/sh
if [ "$1" = --version ]; then echo "a compiler for tests"; exit 0; fi
echo compiled >> {log}
sleep 0.5
while [ "$1" != -o ]; do shift; done
echo "an object" > "$2"
"""


def test_a_recording_finds_what_chance_does_not() -> None:
    """Random play alone reaches 2,289 instructions, and none of the rooms that a trained agent plays in."""
    rom = read_rom(SLICED)
    program = Program(rom, scheme(SLICED), record_reached(rom, SLICED, translation.RECORDED_FRAMES, 1))
    assert 2_600 < len(program.instructions) < 3_200  # more would be data that a program run wild executes
    # Two loops that draw such rooms. Static paths do not lead to them.
    assert {place_of(0xD38D, 4), place_of(0xD66C, 5)} <= program.instructions.keys()


def test_a_recording_may_be_short() -> None:
    for frames in range(4):
        assert len(record_reached(read_rom(GAME), GAME, frames, 1)) == 32 * 1024


def place_of(pc: int, view: int) -> int:
    return (8 * (pc >> 10 & 3) + view) * 1024 + pc % 1024


def sliced_program(code: dict[int, tuple[int, bytes]]) -> Program:
    """A program of E0: code by its address, with the slice that it lies in."""
    rom, reached = bytearray(8 * 1024), bytearray(32 * 1024)
    for pc, (view, text) in code.items():
        rom[view * 1024 + pc % 1024 : view * 1024 + pc % 1024 + len(text)] = text
        reached[place_of(pc, view)] = EXECUTED | pc >> 13 << MIRROR_SHIFT
    return Program(bytes(rom), "kE0", bytes(reached))


def test_a_loop_across_two_slices_stays_in_translated_code() -> None:
    inx, back = b"\xe8", b"\xd0\xfb"
    program = sliced_program({0xF3FE: (2, inx + inx), 0xF400: (5, inx + back)})  # back to 0xF3FE
    start, turn = place_of(0xF3FE, 2), place_of(0xF400, 5)
    assert {start, turn} <= program.leaders
    assert f"switch (m.cartridge.slice[1]) {{ case 5: goto at_{turn:04X}; }}" in "".join(program.block(start))
    text = "".join(program.block(turn))
    assert "switch (m.cartridge.slice[0]) { case 2: if (cycle >= kFrameCycles)" in text
    assert f"goto at_{start:04X}" in text


@pytest.mark.parametrize(("pc", "view"), [(0xF000, 2), (0xF400, 2), (0xFC00, 7)])
def test_only_a_switch_of_its_own_slice_leaves_a_block(pc: int, view: int) -> None:
    program = sliced_program({pc: (view, bytes([0xAD, 0xE9, 0xFF, 0xEA]))})  # LDA: slice 1 of the second window; NOP
    place = place_of(pc, view)
    assert program.may_switch(program.instructions[place]) == (pc == 0xF400)
    assert (place + 3 in program.leaders) == (pc == 0xF400)
    assert ("image != before" in "".join(program.block(place))) == (pc == 0xF400)


def test_the_docs_show_what_the_translator_makes() -> None:
    """Ten instructions in docs/native.md, of a program of ours."""
    waits, loop = bytes([0xAD, 0x84, 0x02, 0xD0, 0xFB]), bytes([0xC6, 0x80, 0xA6, 0x80, 0xBD, 0x00, 0xF1])
    code = waits + loop + bytes([0x85, 0x09, 0x85, 0x02, 0x8A, 0xD0, 0xF2, 0x4C, 0x00, 0xF0])
    reached = bytes([EXECUTED | 0xF000 >> 13 << MIRROR_SHIFT]) + bytes(32 * 1024 - 1)
    text = Program(code.ljust(4096, b"\0"), "k4K", reached).blocks()
    page = (Path(__file__).parents[3] / "docs" / "native.md").read_text()
    shown = re.sub(r"//.*", "", page.partition("```cpp\n")[2].partition("```")[0])
    assert shown.split() == text.split()


def test_every_opcode_is_in_the_table_once() -> None:
    """The interpreter's compiler checks the same (cpu.hpp)."""
    assert sorted(OPCODES) == list(range(256))
    assert OPCODES[0xA9] == Opcode("LDA", "IMM", "READ", 2, (0, 0))
    assert OPCODES[0x30] == Opcode("BMI", "REL", "BRANCH", 2, (0x7F, 0xFF))


@pytest.fixture
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(translation, "RECORDED_FRAMES", 500)
    return tmp_path / "cache" / "rnd" / "translated"


@pytest.fixture
def fake_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, private_cache: Path) -> Path:
    """A compiler that takes half a second; returns the file that counts its calls."""
    log = tmp_path / "log"
    log.touch()
    program = tmp_path / "compiler"
    program.write_text(FAKE_COMPILER.format(log=log))
    program.chmod(0o755)
    monkeypatch.setenv("CXX", str(program))
    return log


def quick_translation(game: str, folder: Path) -> str:
    """Compiled quickly. Most of what it plays was not recorded."""
    if COMPILER is None:
        pytest.skip("no C++ compiler here")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        patch.setenv("CXX", COMPILER)
        patch.setattr(translation, "RECORDED_FRAMES", 500)
        patch.setattr(translation, "FLAGS", translation.FLAGS.replace("-O3", "-O1"))
        return str(TranslatedGame(game, read_rom(game), Rig(game, 1).batch.simd).make())


@pytest.fixture(scope="module")
def freeway(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A translation of the smallest game."""
    return quick_translation(GAME, tmp_path_factory.mktemp("cache"))


@pytest.mark.parametrize("game", [GAME, pytest.param(SLICED, marks=pytest.mark.long)])
def test_a_translated_game_has_the_interpreters_state_at_every_step(game: str, freeway: str, tmp_path: Path) -> None:
    interpreted, translated = Rig(game, 2, max_episode_frames=900), Rig(game, 2, max_episode_frames=900)
    translated.batch.translate(freeway if game == GAME else quick_translation(game, tmp_path))
    for t, actions in enumerate(np.random.default_rng(0).integers(3, size=(700, 2))):
        assert interpreted.step(actions) == translated.step(actions), t
        assert interpreted.batch.save(0) == translated.batch.save(0), t


def test_interpreter_and_translation_continue_each_others_states(freeway: str) -> None:
    one, other = Rig(GAME, 1, seed=4), Rig(GAME, 1, seed=5)
    other.batch.translate(freeway)
    rng = np.random.default_rng(1)
    for _ in range(6):
        for actions in rng.integers(3, size=(int(rng.integers(1, 60)), 1)):
            one.step(actions)
        other.batch.load(0, one.batch.save(0))
        for actions in rng.integers(3, size=(40, 1)):
            assert one.step(actions) == other.step(actions)
        one, other = other, one


def test_a_translated_game_equals_ale_py(freeway: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TranslatedGame, "__init__", lambda *_: None)
    monkeypatch.setattr(TranslatedGame, "load_or_make", lambda _, batch: batch.translate(freeway))
    result = compare_game(GAME, 4_000, seed=9, translate=True)
    assert result.exact, result.first_mismatch


def test_only_a_translation_for_this_core_is_loaded(tmp_path: Path) -> None:
    batch = Rig(GAME, 1).batch
    with pytest.raises(ValueError, match="cannot open shared object"):
        batch.translate(str(tmp_path / "missing.so"))
    with pytest.raises(ValueError, match="it is not one"):
        batch.translate(str(sys.modules["rnd.envs.native._core"].__file__))
    if COMPILER:
        source = tmp_path / "other.cpp"
        source.write_text('extern "C" const char rnd_translation[200] = "another version";')
        subprocess.run([COMPILER, "-shared", "-fPIC", source, "-o", tmp_path / "other.so"], check=True)
        with pytest.raises(ValueError, match="another version of the core"):
            batch.translate(str(tmp_path / "other.so"))


# ---- the cache ----


def game(rom: bytes | None = None) -> TranslatedGame:
    return TranslatedGame(GAME, rom or read_rom(GAME), "portable")


def test_a_translation_is_made_once(fake_compiler: Path, private_cache: Path) -> None:
    assert game().find() is None
    (private_cache / f".new-{game().folder.name}-left").mkdir(parents=True)  # by a process that was killed
    private_cache.chmod(0o700)
    made = game().make()
    assert game().make() == made == game().find()
    assert fake_compiler.read_text() == "compiled\n"
    assert {path.name for path in private_cache.iterdir()} == {made.parent.name, f"{made.parent.name}.lock"}
    assert private_cache.stat().st_mode & 0o777 == 0o700


def test_the_key_is_rom_core_instruction_set_and_compiler(
    fake_compiler: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = {game().folder, game(read_rom("pitfall")).folder, TranslatedGame(GAME, read_rom(GAME), "avx2").folder}
    other = tmp_path / "other"
    other.write_text(FAKE_COMPILER.format(log=fake_compiler).replace("for tests", "of another version"))
    other.chmod(0o755)
    monkeypatch.setenv("CXX", str(other))
    folders.add(game().folder)
    assert len(folders) == 4
    monkeypatch.setattr(translation, "sources", "another core")
    with pytest.raises(NotTranslatedError, match="not those of the core"):
        game()


def damage(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"?")


def replace_by_link(path: Path) -> None:
    target = path.with_name(f"{path.name}.elsewhere")
    path.rename(target)
    path.symlink_to(target)


def replace_by_file(path: Path) -> None:
    shutil.rmtree(path)
    path.touch()


def forge_manifest(path: Path) -> None:
    manifest = path.with_name("manifest.json")
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "rom": "another"}))


@pytest.mark.parametrize(
    "harm",
    [
        damage,
        replace_by_link,
        forge_manifest,
        lambda path: path.chmod(0o620),
        lambda path: path.parent.chmod(0o770),
        lambda path: replace_by_link(path.parent),
        lambda path: replace_by_file(path.parent),
        lambda path: path.with_name("manifest.json").unlink(),
        lambda path: path.with_name("manifest.json").write_text("{"),
        lambda path: path.with_name("manifest.json").write_text("[" * 100_000),
        lambda path: path.unlink(),
    ],
)
def test_a_damaged_or_foreign_entry_is_made_again(harm, fake_compiler: Path) -> None:
    made = game().make()
    harm(made)
    assert game().problem() is not None
    assert game().find() is None
    assert game().make() == made and game().problem() is None
    assert fake_compiler.read_text() == "compiled\n" * 2


def test_an_object_that_cannot_be_loaded_is_made_again(fake_compiler: Path) -> None:
    """Though its hash fits."""
    batch = Rig(GAME, 1).batch
    bad = TranslatedGame(GAME, read_rom(GAME), batch.simd)
    bad.make()
    assert bad.problem() is None
    with closing(NativeEnvs(config(frames=1_000), 1)) as env:
        assert env.spec.backend == "native core, 1 thread"
    assert not bad.folder.exists()
    with pytest.raises(ValueError, match=r"invalid ELF header|file too short"):
        bad.load_or_make(batch)
    assert fake_compiler.read_text() == "compiled\n" * 2


def test_without_a_compiler_a_good_entry_is_used(fake_compiler: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = game().make()
    monkeypatch.setenv("CXX", "no-compiler-in-tests")
    assert game().find() == game().make() == made
    with pytest.raises(NotTranslatedError, match="no C\\+\\+ compiler"):
        game(read_rom("pitfall"))
    one = game()
    damage(made)
    with pytest.raises(NotTranslatedError, match="no C\\+\\+ compiler named"):
        game()
    with pytest.raises(NotTranslatedError, match="no C\\+\\+ compiler"):
        one.make()


def test_a_blank_name_of_a_compiler_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "c++"
    program.write_text(FAKE_COMPILER)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    translation.compiler.cache_clear()
    for blank in (None, "", "  "):
        assert translation.compiler(blank) == (["c++"], "a compiler for tests\n")
    translation.compiler.cache_clear()
    for wrong in ('"', str(tmp_path)):
        with pytest.raises(NotTranslatedError):
            translation.compiler(wrong)


def test_the_command_fails_in_one_line(
    private_cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["translation", GAME])
    assert translation.main() == 1
    assert capsys.readouterr().err == "freeway is not translated: no C++ compiler named no-compiler-in-tests\n"


def test_entries_of_another_user_are_refused(fake_compiler: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    game().make()
    real = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: real + 1)
    assert "belongs to another user" in (game().problem() or "")
    with pytest.raises(NotTranslatedError, match="belongs to another user"):
        game().make()


def test_a_cache_folder_that_others_may_write_is_refused(fake_compiler: Path, private_cache: Path) -> None:
    private_cache.mkdir(parents=True)
    private_cache.chmod(0o777)
    with pytest.raises(NotTranslatedError, match="others may write translated"):
        game().make()


def test_of_several_processes_one_compiles(fake_compiler: Path) -> None:
    program = (
        "from rnd.envs.native import translation\ntranslation.RECORDED_FRAMES = 500\n"
        "from rnd.envs.native.roms import read_rom\n"
        f"print(translation.TranslatedGame('{GAME}', read_rom('{GAME}'), 'portable').make())"
    )
    command = [sys.executable, "-c", program]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    printed = {process.communicate()[0].strip() for process in processes}
    assert printed == {str(game().library)}
    assert fake_compiler.read_text() == "compiled\n"


# ---- in a run ----


def config(**changes: object) -> Config:
    return Config(env=EnvConfig(id=ATARI_GAMES[GAME], num_envs=1), **changes)


@pytest.mark.parametrize("code", [errno.EACCES, errno.ENAMETOOLONG, errno.EIO])
def test_with_an_unreadable_cache_the_interpreter_plays(
    code: int, fake_compiler: Path, private_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may read every folder, so that the operating system's answer is made up."""
    lstat = Path.lstat

    def fail(path: Path) -> os.stat_result:
        if private_cache in path.parents:
            raise OSError(code, os.strerror(code))
        return lstat(path)

    monkeypatch.setattr(Path, "lstat", fail)
    with closing(NativeEnvs(config(), 1)) as env:
        why = f"the cache folder {private_cache} cannot be used: {os.strerror(code)}"
        assert env.spec.backend == f"native core, 1 thread, not translated: {why}"
        env.reset()


def test_with_an_unwritable_cache_the_interpreter_plays(
    fake_compiler: Path, private_cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    batch = Rig(GAME, 1).batch
    lock = private_cache / f"{TranslatedGame(GAME, read_rom(GAME), batch.simd).folder.name}.lock"
    lock.mkdir(parents=True)  # no file can be opened there
    private_cache.chmod(0o700)
    with closing(NativeEnvs(config(), 1)) as env:
        env.finish_translation()
        env.reset()
        assert env.spec.backend == "native core, 1 thread, not translated"
    why = f"the cache folder {private_cache} cannot be used: Is a directory"
    assert capfd.readouterr().err == f"freeway is not translated: {why}; the interpreter plays\n"


def test_without_a_compiler_the_interpreter_plays(private_cache: Path) -> None:
    with closing(NativeEnvs(config(), 1)) as env:
        assert env.spec.backend == "native core, 1 thread, not translated: no C++ compiler named no-compiler-in-tests"


def test_a_compiler_that_fails_is_reported_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, private_cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "compiler"
    program.write_text("#!/bin/sh\n[ $1 = --version ] && exit 0\necho 'x.cpp: error: too hot' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("CXX", str(program))
    with closing(NativeEnvs(config(), 1)) as env:
        assert env.spec.backend == "native core, 1 thread, translating freeway, once: about 20 s"
        env.finish_translation()
        assert env.spec.backend == "native core, 1 thread, not translated"
    assert capfd.readouterr().err == (
        f"freeway is not translated: {program} failed: x.cpp: error: too hot; the interpreter plays\n"
    )


def test_a_short_run_does_not_compile(fake_compiler: Path) -> None:
    with closing(NativeEnvs(config(frames=1_000_000), 1)) as env:
        assert env.spec.backend == "native core, 1 thread" and env.translation is None
    with closing(NativeEnvs(Config(env=EnvConfig(id=ATARI_GAMES[GAME], num_envs=1, translate=False)), 1)) as env:
        assert env.spec.backend == "native core, 1 thread" and env.translation is None
    assert fake_compiler.read_text() == ""


def test_a_run_that_ends_early_stops_its_compiler(fake_compiler: Path, private_cache: Path) -> None:
    env = NativeEnvs(config(), 1)
    while not fake_compiler.read_text():
        pass
    env.close()
    assert game().find() is None
    assert not list(private_cache.glob(".new-*"))


def test_a_run_changes_to_the_translation_when_it_is_ready(
    freeway: str, fake_compiler: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ready = threading.Event()
    monkeypatch.setattr(TranslatedGame, "make", lambda *_: ready.wait() and freeway)
    with closing(NativeEnvs(config(), 1)) as env, closing(NativeEnvs(config(frames=1_000), 1)) as plain:
        assert env.spec.backend == "native core, 1 thread, translating freeway, once: about 20 s"
        assert (env.reset() == plain.reset()).all()
        for t, action in enumerate(np.random.default_rng(0).integers(3, size=(800, 1))):
            if t == 400:
                ready.set()
            one, other = env.step(action), plain.step(action)
            assert (one.obs == other.obs).all() and (one.reward == other.reward).all(), t
        env.finish_translation()
        assert env.spec.backend == "native core, 1 thread, translated"
    monkeypatch.setattr(TranslatedGame, "find", lambda _: freeway)
    with closing(NativeEnvs(config(frames=1_000), 1)) as env:
        assert env.spec.backend == "native core, 1 thread, translated"
    assert capfd.readouterr().err == ""


@needs_compiler
@pytest.mark.long
@pytest.mark.parametrize("name", native.supported_games())
def test_every_game_translated_equals_ale_py(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", str(COMPILER))
    result = compare_game(name, 40_000, seed=77, translate=True)
    assert result.exact, result.first_mismatch
