"""Checkpoints: everything that has state, as plain data that is safe to load.

    checkpoints/000000120/
        tensors.safetensors   all tensors and arrays, by their path in the state
        state.json            the rest of the state, and what the run is
        manifest.json         format version, and size and SHA-256 of the two files

A checkpoint is written to a temporary folder, flushed to the disk and renamed: a folder whose name is a number is
complete. Nothing is ever unpickled. docs/reliability.md describes the format.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from rnd import __version__
from rnd.checkpoint.format1 import from_format1
from rnd.checkpoint.tensors import tensor_bytes
from rnd.device import memory
from rnd.foundation.errors import RunError, UserError
from rnd.foundation.files import DENSE, SMALL, make_folder, read_file, read_json, sync_folder, write_new

FORMAT = 2
"""Raised whenever an older program could not read what this one writes."""
READABLE = (1, FORMAT)
TENSORS, STATE, MANIFEST = "tensors.safetensors", "state.json", "manifest.json"
TEMPORARY = "writing-"
"""Folders that begin so are half-written."""
FAILED = "failed-"
"""Folders that begin so hold the state of a failed run, for inspection: a run never continues from them."""
DAMAGED = "damaged-"
"""Folders that begin so could not be read when the run was resumed."""


class DamagedCheckpointError(RunError):
    """Files are missing, cut off or altered."""


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint in memory."""

    path: Path
    metadata: dict[str, Any]
    """Config, specs, counters and file sizes of the run."""
    state: dict[str, Any]


# --- writing ---------------------------------------------------------------------------------------


def write(root: Path, name: str, metadata: dict[str, Any], state: dict[str, Any]) -> Path:
    """Write a checkpoint under `root`. If it fails, the ones before it stay as they are."""
    make_folder(root, root.parent)
    temporary = root / f"{TEMPORARY}{name}"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        files = serialise(metadata, state)
        for file, data in files.items():
            write_new(temporary / file, data)
        write_new(temporary / MANIFEST, manifest(files, metadata))
        sync_folder(temporary)
        final = root / name
        if final.exists():  # the same iteration again, after a resume: the new one takes its place
            discard(final)
        temporary.rename(final)
        sync_folder(root)
        return final
    finally:
        shutil.rmtree(temporary, ignore_errors=True)  # where something failed


def serialise(metadata: dict[str, Any], state: dict[str, Any]) -> dict[str, bytes]:
    tensors: dict[str, Tensor] = {}
    text = json.dumps({"metadata": metadata, "state": pack(state, "", tensors)})  # fills `tensors`
    return {TENSORS: tensor_bytes(tensors), STATE: text.encode()}


def manifest(files: dict[str, bytes], metadata: dict[str, Any]) -> bytes:
    """The manifest holds its own hash, so that a flipped bit in the version number is reported as damage."""
    content = {
        "format": FORMAT,
        "rnd": __version__,
        "iteration": metadata["iteration"],
        "score": metadata["score"],
        "files": {name: {"bytes": len(data), "sha256": sha256(data)} for name, data in files.items()},
    }
    return json.dumps(content | {"sha256": signature(content)}, indent=2).encode()


def pack(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """Nested dicts and lists as JSON; tensors and arrays go to `tensors`, and references replace them."""
    if isinstance(value, Tensor):
        tensors[path] = value.detach().cpu().contiguous()
        return {"$tensor": path}
    if isinstance(value, np.ndarray):
        tensors[path] = torch.from_numpy(np.array(value, order="C"))
        return {"$array": path}
    if isinstance(value, dict):
        assert all(isinstance(key, str) for key in value), f"{path}: keys of a state are strings"
        return {key: pack(item, f"{path}/{key}" if path else key, tensors) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [pack(item, f"{path}/{i}", tensors) for i, item in enumerate(value)]
    return value


def discard(path: Path) -> None:
    """Remove a checkpoint. It is renamed first, so that a half-removed one is never read."""
    removed = path.with_name(f"{TEMPORARY}{path.name}-old")
    shutil.rmtree(removed, ignore_errors=True)
    path.rename(removed)
    shutil.rmtree(removed, ignore_errors=True)


# --- reading ---------------------------------------------------------------------------------------


def read(path: Path) -> Checkpoint:
    """Check a checkpoint from its version to its last byte, then load it."""
    content = read_manifest(path)
    extra = {entry.name for entry in path.iterdir()} - {TENSORS, STATE, MANIFEST}
    if extra:
        raise DamagedCheckpointError(f"{path} holds files that are not a checkpoint's: {', '.join(sorted(extra))}")
    files = {name: read_checked(path / name, content["files"].get(name)) for name in (TENSORS, STATE)}
    try:
        tensors = safetensors.torch.load(files[TENSORS])
        document = json.loads(files[STATE])
        if content["format"] == 1:
            document = from_format1(document)
        return Checkpoint(path, document["metadata"], unpack(document["state"], tensors))
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedCheckpointError(f"{path} is no checkpoint inside ({type(error).__name__}: {error})") from error


def read_manifest(path: Path) -> dict[str, Any]:
    if path.is_symlink():
        raise DamagedCheckpointError(f"{path} is a symbolic link and is not followed")
    try:
        content: dict[str, Any] = read_json(path / MANIFEST)
        signed, version = content.pop("sha256"), content["format"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedCheckpointError(f"{path / MANIFEST} cannot be read ({error})") from error
    if signed != signature(content):
        raise DamagedCheckpointError(f"{path / MANIFEST} was altered: its hash differs")
    if version not in READABLE:
        raise UserError(
            f"{path} has checkpoint format {version} (written by rnd {content.get('rnd')}); this is rnd {__version__}, "
            f"which reads formats up to {FORMAT}: use the rnd that wrote it"
        )
    if not {"files", "iteration", "score"} <= content.keys() or not isinstance(content["files"], dict):
        raise DamagedCheckpointError(f"{path / MANIFEST} is not complete")
    return content


def read_checked(path: Path, expected: Any) -> bytes:
    """The contents of a file whose size and hash the manifest gives. Its size is compared before it is read."""
    size = expected.get("bytes") if isinstance(expected, dict) else None
    try:
        data = read_file(path, largest() if path.name == TENSORS else SMALL)
    except OSError as error:
        raise DamagedCheckpointError(f"{path} cannot be read ({error.strerror})") from error
    if len(data) != size:
        raise DamagedCheckpointError(f"{path} is cut off or too long: {len(data)} bytes instead of {size}")
    if sha256(data) != expected.get("sha256"):
        raise DamagedCheckpointError(f"{path} was altered: its hash differs")
    return data


def largest() -> int:
    """Bytes that a file of tensors may have: they are in memory twice while they are loaded."""
    return (memory.available(torch.device("cpu")) or 4 * DENSE) // 2


def unpack(value: Any, tensors: dict[str, Tensor]) -> Any:
    """The inverse of `pack`. Dicts and lists are filled in place."""
    if isinstance(value, dict):
        if "$tensor" in value:
            return tensors[value["$tensor"]]
        if "$array" in value:
            return tensors[value["$array"]].numpy()
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            value[key] = unpack(item, tensors)
    return value


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def signature(content: dict[str, Any]) -> str:
    return sha256(json.dumps(content, sort_keys=True).encode())


# --- all checkpoints of a run ----------------------------------------------------------------------


def found(root: Path) -> list[Path]:
    """The whole checkpoints of a run, oldest first."""
    if not root.is_dir():
        return []
    return sorted((path for path in root.iterdir() if path.name.isdecimal()), key=lambda path: int(path.name))


def newest(root: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest checkpoint that is whole, and what is wrong with the ones after it."""
    return first_whole(root, lambda paths: paths[-1:])


def highest(root: Path) -> tuple[Checkpoint | None, list[str]]:
    """The whole checkpoint with the highest mean return, and what is wrong with better ones. None where no checkpoint
    has a mean return: no episode had ended."""
    return first_whole(root, best)


def first_whole(root: Path, choose: Callable[[list[Path]], list[Path]]) -> tuple[Checkpoint | None, list[str]]:
    """The checkpoint that `choose` returns, or, while that one is damaged, its choice among the others."""
    if root.is_symlink():
        raise UserError(f"{root} is a symbolic link, to {root.readlink()}, and is not followed; move the folder itself")
    problems: list[str] = []
    paths = found(root)
    while chosen := choose(paths):
        path = chosen[0]
        try:
            return read(path), problems
        except DamagedCheckpointError as error:
            if os.path.lexists(path):
                problems.append(str(error))
                paths.remove(path)
            else:  # a training run has removed it, and has written newer ones
                problems, paths = [], found(root)
    if problems:
        raise RunError(f"no checkpoint in {root} is whole: {'; '.join(problems)}")
    return None, problems


def fallback(saved: Checkpoint | None, problems: list[str]) -> list[str]:
    """The lines that say what `newest` has passed over, and which checkpoint is used."""
    lines = [f"damaged checkpoint: {problem}" for problem in problems]
    return [*lines, f"falling back to {saved.path}"] if saved and lines else lines


def set_aside(root: Path, after: Path) -> None:
    """Give the damaged checkpoints newer than `after` another name, so that new ones can take their numbers."""
    for path in found(root):
        if int(path.name) > int(after.name):
            renamed = root / f"{DAMAGED}{path.name}"
            shutil.rmtree(renamed, ignore_errors=True)
            path.rename(renamed)


def prune(root: Path, keep_last: int) -> None:
    """Keep the newest ones and the best one; remove what a killed run left half-written."""
    for path in root.glob(f"{TEMPORARY}*"):
        shutil.rmtree(path, ignore_errors=True)
    paths = found(root)
    keep = {*paths[-keep_last:], *best(paths)}
    for path in paths:
        if path not in keep:
            discard(path)


def best(paths: list[Path]) -> list[Path]:
    """The checkpoint with the highest mean return, the newest of equals."""
    scores = []
    for path in paths:
        try:
            score = read_manifest(path)["score"]
        except (DamagedCheckpointError, UserError):
            continue
        if isinstance(score, int | float):
            scores.append((score, path))
    return [max(scores, key=lambda pair: (pair[0], int(pair[1].name)))[1]] if scores else []
