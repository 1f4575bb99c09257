"""Rows 34 and 40: files that are made to crash, hang, or fill the memory. All commands are run one after the other in
one child process, whose largest memory is measured."""

from __future__ import annotations

import functools
import hashlib
import json
import lzma
import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from fault_helpers import SOURCE, contents, resume, small, start

from rnd.checkpoint.checkpoint import MANIFEST, STATE, TENSORS, sha256, signature
from rnd.checkpoint.export import CARD, export_agent
from rnd.checkpoint.packing import BLOCK, pack
from rnd.checkpoint.parts import export_parts
from rnd.envs import native
from rnd.foundation.errors import RunError

LIMIT_MB, LIMIT_S = 1000, 10
NEWEST = "checkpoints/000000004"

PROGRAM = """
import contextlib, io, json, pathlib, re, signal, sys, time, traceback
from rnd.cli import main

class LateError(BaseException):
    pass

def late(*_):
    raise LateError

signal.signal(signal.SIGALRM, late)
import torch, rnd.run, rnd.checkpoint.parts, rnd.report.watch, rnd.report.page  # their time does not count
for line in sys.stdin:
    said, code = io.StringIO(), None
    begun = time.process_time()  # of this process alone: the machine may be busy
    signal.alarm(120)
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main(json.loads(line))
        except SystemExit as left:
            code = left.code
        except BaseException:
            traceback.print_exc(file=said)
    signal.alarm(0)
    status = pathlib.Path("/proc/self/status").read_text()  # ru_maxrss counts the process that started this one
    peak = int(re.search(r"VmHWM:\\s*(\\d+)", status)[1]) / 1024
    print(json.dumps([code, said.getvalue(), time.process_time() - begun, peak]), flush=True)
"""

CASES: dict[str, Callable[[Path], list[str]]] = {}
"""Name to a function that builds files in a folder with a run, an agent and parts, and returns a command."""


def case(function: Callable[[Path], list[str]]) -> None:
    CASES[function.__name__] = function


def cases(name: str, command: list[str]) -> Callable[[Callable[[Path], None]], None]:
    """The same for files that need no arguments of their own."""

    def add(function: Callable[[Path], None]) -> None:
        def build(folder: Path) -> list[str]:
            function(folder)
            return command

        CASES[name] = build

    return add


def replace(path: Path, kind: str) -> None:
    """Put a FIFO, a link to /dev/zero, a folder, or 20 GB of nothing in the place of a file."""
    if path.is_file():
        path.unlink()
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "zero":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    else:
        path.touch()
        os.truncate(path, 20 * 10**9)


for kind in ("FIFO", "zero", "sparse"):
    for name, command in {
        "parts/parts.json": "import",
        "parts/part-0001.bin": "import",
        "run/config.json": "resume",
        "run/metrics.csv": "resume",
        f"run/{NEWEST}/{TENSORS}": "resume",
        f"run/{NEWEST}/{STATE}": "watch",
        f"run/{NEWEST}/{MANIFEST}": "export",
        "run/run.json": "report",
        "run/rooms.json": "report",
    }.items():
        arguments = [command, name.split("/")[0], *(["--out", "out"] if command == "import" else [])]
        arguments += ["--frames", "192"] if command == "resume" else ["--out", "x"] if command == "watch" else []
        cases(f"{name} is {kind}", arguments)(lambda folder, name=name, kind=kind: replace(folder / name, kind))


def signed(path: Path, files: dict[str, bytes]) -> None:
    """Put other contents into a checkpoint, with hashes that fit."""
    content = json.loads((path / MANIFEST).read_bytes())
    del content["sha256"]
    for name, data in files.items():
        (path / name).write_bytes(data)
        content["files"][name] = {"bytes": len(data), "sha256": sha256(data)}
    (path / MANIFEST).write_text(json.dumps(content | {"sha256": signature(content)}))


def agent(folder: Path, change: Callable[[dict], None], name: str = "agent.safetensors") -> list[str]:
    """An exported agent whose card is changed."""
    card = json.loads((folder / "agent.json").read_text())
    change(card)
    tensors = safetensors.torch.load_file(folder / "agent.safetensors")
    data = safetensors.torch.save(tensors, {CARD: json.dumps(card)})
    (folder / name).write_bytes(lzma.compress(data) if name.endswith(".xz") else data)
    return ["watch", name]


@case
def a_compressed_agent_of_two_gigabytes(folder):
    stream = lzma.LZMACompressor(preset=0)
    zeros = bytes(2**24)
    data = b"".join(stream.compress(zeros) for _ in range(128)) + stream.flush()
    (folder / "bomb.safetensors.xz").write_bytes(data)
    assert len(data) < 10**6
    return ["watch", "bomb.safetensors.xz"]


@case
def a_compressed_agent_of_many_streams(folder):
    (folder / "bomb.safetensors.xz").write_bytes(lzma.compress(bytes(2**25)) * 100)
    return ["watch", "bomb.safetensors.xz"]


@case
def a_compressed_agent_of_45_megabytes_and_zeros(folder):
    """The zeros are more than is allowed for its size."""
    noise = np.random.default_rng(0).bytes(45 * 10**6)
    stream = lzma.LZMACompressor(preset=0)
    zeros = (stream.compress(bytes(2**24)) for _ in range(128))
    (folder / "bomb.safetensors.xz").write_bytes(stream.compress(noise) + b"".join(zeros) + stream.flush())
    return ["watch", "bomb.safetensors.xz"]


@case
def a_compressed_agent_that_is_all_that_is_allowed(folder):
    """A whole safetensors file: incompressible bytes, then zeros."""
    size = 2**27
    header = json.dumps({"x": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    data = len(header).to_bytes(8, "little") + header + np.random.default_rng(0).bytes(2**25) + bytes(size - 2**25)
    (folder / "bomb.safetensors.xz").write_bytes(lzma.compress(data, preset=0))
    return ["watch", "bomb.safetensors.xz"]


@case
def a_compressed_agent_that_wants_a_dictionary_of_four_gigabytes(folder):
    data = bytearray(lzma.compress(bytes(1000)))
    at = data.index(b"\x21\x01", 12)
    data[at + 2] = 40  # 4 GiB - 1
    end = 12 + 4 * (data[12] + 1) - 4
    data[end : end + 4] = zlib.crc32(data[12:end]).to_bytes(4, "little")
    (folder / "bomb.safetensors.xz").write_bytes(data)
    return ["watch", "bomb.safetensors.xz"]


for text, path, value in (
    ("a_wide_policy", ("config", "policy_options", "width"), 30_000),
    ("a_wider_policy", ("config", "policy_options", "width"), 10**9),
    ("a_policy_of_a_huge_width", ("config", "policy_options", "width"), 10**30),
    ("a_wide_bonus", ("config", "bonus_options", "hidden"), 40_000),
    ("many_features", ("config", "bonus_options", "features"), 10**10),
    ("a_long_observation", ("spec", "observation", "shape"), [10**9]),
    ("a_large_image", ("spec", "observation", "shape"), [2**30, 2**30]),
    ("many_axes", ("spec", "observation", "shape"), [2] * 40),
    ("many_actions", ("spec", "action", "sizes"), [10**9]),
    ("a_negative_size", ("spec", "action", "sizes"), [-5]),
    ("a_size_of_a_fraction", ("spec", "action", "sizes"), [1.5]),
):

    def card_of(folder: Path, path: tuple[str, ...] = path, value: object = value) -> list[str]:
        def change(card: dict) -> None:
            *way, last = path
            functools.reduce(lambda part, key: part[key], way, card)[last] = value

        return agent(folder, change)

    CASES[f"an_agent_with_{text}"] = card_of


@case
def an_agent_with_a_card_of_a_million_lists(folder):
    return agent(folder, lambda card: card.update(config=[[]] * 10**6))


@case
def an_agent_whose_header_is_longer_than_the_file(folder):
    (folder / "agent.safetensors").write_bytes((2**60).to_bytes(8, "little") + b"{}")
    return ["watch", "agent.safetensors"]


@case
def an_agent_with_a_header_of_deep_lists(folder):
    header = b'{"__metadata__":' + b"[" * 10**6
    (folder / "agent.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    return ["watch", "agent.safetensors"]


@cases("a config of deep lists", ["resume", "run"])
def _(folder):
    (folder / "run/config.json").write_bytes(b"[" * 10**6)


@cases("a config of a long number", ["resume", "run"])
def _(folder):
    (folder / "run/config.json").write_bytes(b'{"frames": ' + b"9" * 10**6 + b"}")


def with_config(**changes: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        config = json.loads((folder / "run/config.json").read_text())
        for name, value in changes.items():
            group, _, field = name.rpartition("__")
            (config[group] if group else config)[field] = value
        (folder / "run/config.json").write_text(json.dumps(config))
        document = json.loads((folder / "run" / NEWEST / STATE).read_text())
        document["metadata"]["config"] = config
        signed(folder / "run" / NEWEST, {STATE: json.dumps(document).encode()})

    return change


cases("a run of very many environments", ["resume", "run"])(with_config(env__num_envs=4 * 10**11, frames=10**13))
cases("a run of too many environments", ["resume", "run", "--frames", str(10**9)])(with_config(env__num_envs=10**6))
cases("a run of many steps", ["resume", "run"])(with_config(rollout_steps=10**14, frames=10**15))
cases("a run of a wide policy", ["resume", "run", "--frames", "192"])(with_config(policy_options={"width": 30_000}))
cases("a run of many features", ["resume", "run", "--frames", "192"])(with_config(bonus_options__features=10**9))


@cases("a checkpoint of five million empty objects", ["resume", "run", "--frames", "192"])
def _(folder):
    signed(folder / "run" / NEWEST, {STATE: b'{"about": [' + b"{}," * 5_000_000 + b"{}]}"})


@cases("a checkpoint that holds itself a thousand times", ["resume", "run", "--frames", "192"])
def _(folder):
    path = folder / "run" / NEWEST
    document = json.loads((path / STATE).read_text())
    document["state"]["extra"] = [{"$tensor": "policy/torso.0.weight"}] * 200_000
    signed(path, {STATE: json.dumps(document).encode()})


@cases("a sparse checkpoint whose manifest fits", ["resume", "run", "--frames", "192"])
def _(folder):
    path = folder / "run" / NEWEST
    replace(path / TENSORS, "sparse")
    content = json.loads((path / MANIFEST).read_bytes())
    del content["sha256"]
    content["files"][TENSORS] = {"bytes": 20 * 10**9, "sha256": "0" * 64}
    (path / MANIFEST).write_text(json.dumps(content | {"sha256": signature(content)}))


def with_index(change: Callable[[dict], None]) -> Callable[[Path], None]:
    def build(folder: Path) -> None:
        index = json.loads((folder / "parts/parts.json").read_text())
        change(index)
        (folder / "parts/parts.json").write_text(json.dumps(index))

    return build


def sparse_index(index: dict) -> None:
    index["parts"][0]["bytes"] = 20 * 10**9
    largest = next(entry for entry in index["files"] if entry["name"].endswith(TENSORS))
    largest["packed"] += 20 * 10**9 - sum(entry["packed"] for entry in index["files"])


@cases("a sparse part whose index fits", ["import", "parts", "--out", "out"])
def _(folder):
    replace(folder / "parts/part-0001.bin", "sparse")
    with_index(sparse_index)(folder)


IMPORT = ["import", "parts", "--out", "out"]
cases("an index of a huge size", IMPORT)(with_index(lambda index: index["parts"][0].update(bytes=10**30)))
cases("an index of a negative size", IMPORT)(with_index(lambda index: index["files"][0].update(bytes=-1)))
cases("an index of a size of text", IMPORT)(with_index(lambda index: index["files"][0].update(bytes="1")))
cases("an index of a file twice", IMPORT)(with_index(lambda index: index["files"].append(index["files"][0])))
cases("an index whose name is a list", IMPORT)(with_index(lambda index: index.update(name=["run"])))
cases("an index without parts", IMPORT)(with_index(lambda index: index.update(parts=[])))
cases("an index whose parts are text", IMPORT)(with_index(lambda index: index.update(parts="part")))
cases("an index whose files are a number", IMPORT)(with_index(lambda index: index.update(files=3)))
cases("an index of a million parts", IMPORT)(
    with_index(lambda index: index.update(parts=index["parts"] + [{"bytes": 0, "sha256": ""}] * 300_000))
)


def inflated(name: str, block: bytes, times: int) -> Callable[[Path], None]:
    """Put a file of `times` equal blocks into the parts, with sizes and hashes that fit."""

    def build(folder: Path) -> None:
        index = json.loads((folder / "parts/parts.json").read_text())
        joined, at, data = (folder / "parts/part-0001.bin").read_bytes(), 0, b""
        hashed = hashlib.sha256()
        for _ in range(times):
            hashed.update(block)
        for entry in index["files"]:
            packed = joined[at : at + entry["packed"]]
            at += entry["packed"]
            if entry["name"].endswith(name):
                packed = pack(block, planes=False) * times
                entry |= {"bytes": times * len(block), "packed": len(packed), "sha256": hashed.hexdigest()}
            data += packed
        assert len(data) < 10**6
        index["parts"] = [{"name": "part-0001.bin", "bytes": len(data), "sha256": sha256(data)}]
        (folder / "parts/part-0001.bin").write_bytes(data)
        (folder / "parts/parts.json").write_text(json.dumps(index))

    return build


cases("parts whose tensors are two gigabytes", IMPORT)(inflated(TENSORS, bytes(BLOCK), 230))
cases("parts whose tensors are all that is allowed", IMPORT)(inflated(TENSORS, bytes(BLOCK), 24))
cases("parts whose metrics are two gigabytes", IMPORT)(inflated("metrics.csv", b"1,0\n" * (BLOCK // 4), 230))


def table(data: bytes, times: int) -> Callable[[Path], None]:
    def build(folder: Path) -> None:
        with (folder / "run/metrics.csv").open("wb") as file:
            for _ in range(times):
                file.write(data)

    return build


REPORT = ["report", "run"]
cases("metrics of one long line", REPORT)(table(b"1," * 2**23, 16))
cases("metrics of very many rows", REPORT)(table(b"1\n" * 2**23, 10))
cases("metrics of as many cells as are read", REPORT)(table(b"0," * 31 + b"0\n", 2**19 - 2))
cases("metrics of an open quote", REPORT)(table(b'"' + b"x\n" * 2**22, 8))
cases("metrics of zeros", REPORT)(table(bytes(2**24), 8))
cases("metrics of a long number", REPORT)(table(b"iteration,frames\n" + b"9" * 60_000 + b",1\n", 1))
cases("metrics of infinities", REPORT)(table(b"iteration,frames,return_mean\ninf,inf,inf\n-inf,1e308,nan\n", 100))


@cases("a map of many places", REPORT)
def _(folder):
    rooms = {str(i * 2**40): [0, 1] for i in range(200_000)}
    (folder / "run/rooms.json").write_text(json.dumps(rooms))


@cases("a map of huge places", REPORT)
def _(folder):
    (folder / "run/rooms.json").write_text(json.dumps({"9" * 4000: [10**4000, -(10**4000)], "-7": [1e308, 1]}))


for kind in ("FIFO", "zero", "sparse"):

    @cases(f"a video that is {kind}", REPORT)
    def _(folder, kind=kind):
        (folder / "run/watch").mkdir()
        replace(folder / "run/watch/episode.mp4", kind)


@case
def a_device_as_an_agent(folder):
    return ["watch", "/dev/zero"]


@case
def a_device_as_a_run(folder):
    return ["report", "/dev/zero"]


QUICK = [
    "a_compressed_agent_of_many_streams",
    "an_agent_with_a_wide_policy",
    "parts/parts.json is FIFO",
    "an_agent_with_a_long_observation",
    "run/metrics.csv is zero",
    "parts/part-0001.bin is sparse",
    "a sparse checkpoint whose manifest fits",
    "a checkpoint of five million empty objects",
    "a run of a wide policy",
    "parts whose tensors are two gigabytes",
    "parts whose metrics are two gigabytes",
]


@pytest.fixture(scope="module")
def template(finished, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("template")
    shutil.copytree(finished, folder / "run")
    export_agent(finished, folder / "agent.safetensors")
    export_parts(finished, folder / "parts", None)
    return folder


class Child:
    """The command line in a process of its own, in the current folder of each command."""

    def __init__(self) -> None:
        env = os.environ | {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([sys.executable, "-c", PROGRAM], env=env, **pipes)

    def run(self, arguments: list[str]) -> tuple[int | None, str, float, float]:
        self.process.stdin.write(json.dumps(arguments) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, f"the process died with code {self.process.wait()}"
        return tuple(json.loads(answer))


def absolute(folder: Path, arguments: list[str]) -> list[str]:
    """Names of files in the folder, by their whole path."""
    return [str(folder / word) if (folder / word).exists() or word in ("out", "x") else word for word in arguments]


def attack(names: list[str], template: Path, tmp_path: Path) -> Iterator[tuple[str, int, str, float, float]]:
    child = Child()
    for number, name in enumerate(names):
        around = tmp_path / str(number)
        folder = around / "inside"
        shutil.copytree(template, folder)
        arguments = absolute(folder, CASES[name](folder))
        before = set(around.iterdir())
        code, said, seconds, peak = child.run(arguments)
        assert set(around.iterdir()) == before
        shutil.rmtree(around)
        yield name, code, said, seconds, peak
    child.process.stdin.close()
    child.process.wait(10)


def check(names: list[str], template: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("left alone")
    before, wrong, highest, slowest = contents(outside), [], 0.0, 0.0
    for name, code, said, seconds, peak in attack(names, template, tmp_path):
        highest, slowest = max(highest, peak), max(slowest, seconds)
        lines = said.strip().splitlines()
        if code not in (0, 1, 2) or "Traceback" in said or (code and len(lines) > 6) or seconds > LIMIT_S:
            wrong.append(f"{name}: code {code} after {seconds:.1f} s of computing: {said[-400:]}")
        if peak > LIMIT_MB:
            wrong.append(f"{name}: {peak:.0f} MB")
            break
    assert not wrong, "\n".join(wrong)
    assert contents(outside) == before
    print(f"{len(names)} hostile files: {highest:.0f} MB at most, the slowest took {slowest:.1f} s")


def test_hostile_files_are_refused_quickly_and_cheaply(template, tmp_path):
    check(QUICK, template, tmp_path)


@pytest.mark.long
def test_all_hostile_files(template, tmp_path):
    assert len(CASES) >= 60
    check([*CASES], template, tmp_path)


@pytest.mark.skipif(not native.available(), reason="the native core is not built here")
def test_a_state_of_the_emulator_with_fields_out_of_range_is_refused(tmp_path):
    """The hashes of the checkpoint and of the state fit. Before it was checked, `newest` = 255 crashed the process."""
    path = start(small("montezuma", 1, env={"backend": "native"}), tmp_path)
    where = path / "checkpoints" / "000000001"
    tensors = safetensors.torch.load_file(where / TENSORS)
    packed = bytearray(tensors["env/env.native"].numpy().tobytes())
    count = int.from_bytes(packed[:8], "little")
    begin, end = 8 * (count + 1), 8 * (count + 1) + int.from_bytes(packed[8:16], "little")
    newest = end - 2 * 210 * 160 - 31  # the last byte before the screens; padding follows them
    packed[newest] = 255
    checksum = 0xCBF29CE484222325
    for byte in packed[begin + 56 : end]:
        checksum = (checksum ^ byte) * 0x100000001B3 % 2**64
    packed[begin + 48 : begin + 56] = checksum.to_bytes(8, "little")
    tensors["env/env.native"] = torch.from_numpy(np.frombuffer(bytes(packed), np.uint8).copy())
    signed(where, {TENSORS: safetensors.torch.save(tensors)})
    with pytest.raises(RunError, match="newest is out of range"):
        resume(path, 2)
