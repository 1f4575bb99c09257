"""Sharing: an agent in one small file, and a whole checkpoint in parts of a limited size.

An agent file is safetensors: the policy, and unless they were left out the bonus (predictor, target, normaliser) and
the intrinsic scale, with a JSON card in its header that describes it. Loading one runs no code from it. A name that
ends in .xz is compressed.
"""

from __future__ import annotations

import hashlib
import json
import lzma
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from rnd.bonus import make_bonus
from rnd.bonus.base import BonusModule
from rnd.checkpoint import checkpoint, trust
from rnd.checkpoint.checkpoint import Checkpoint, largest
from rnd.checkpoint.folder import nearest_run
from rnd.checkpoint.metadata import check_types, shape_mismatch, spec_from_dict
from rnd.checkpoint.packing import decompress
from rnd.checkpoint.tensors import tensor_bytes
from rnd.checkpoint.zoo import NO_BONUS
from rnd.config import Config
from rnd.config.components import resolve
from rnd.data.normalize import ReturnScaler
from rnd.foundation.console import warn
from rnd.foundation.errors import UserError
from rnd.foundation.files import make_folder, read_errors, read_file, write_atomically, write_json
from rnd.foundation.text import significant
from rnd.models.policy import make_policy
from rnd.models.policy.base import Policy

CARD = "rnd.card"
"""Key of the card in the file's metadata."""
AGENT_FORMAT = 1
PACKED = ".xz"
HASH, HASHED = "sha256", "hashed"
"""Keys in the card of a file: its hash, and that it has one, so that a hash that is lost is missed."""
BLANK = b"0" * 64
"""Stands for the hash in the file that is hashed."""
MODULES = ("policy", "bonus", "scaler")


class SavedAgent(NamedTuple):
    """A trained agent, ready to play."""

    config: Config
    policy: Policy
    bonus: BonusModule | None
    """None where it was left out of the file."""
    card: dict[str, Any]
    """iteration, frames, score, row (the last metrics), config, spec, versions."""


def load_agent(
    path: str | Path, device: str | torch.device = "cpu", trusted: bool = False, best: bool = False
) -> SavedAgent:
    """The agent of a run folder (its newest whole checkpoint, or the best one), of a checkpoint folder, or of an
    exported file.

    `trusted`: code that it names (`module:attribute`) may be imported; see `rnd.checkpoint.trust`.
    """
    path = Path(path)
    if not path.exists():
        what = nearest_run(path) or "; name a run folder, a checkpoint or an exported .safetensors file"
        raise UserError(f"{path} does not exist{what}")
    with read_errors(path, "an agent exported by rnd"):
        card, tensors = card_and_tensors(path, best)
        config = Config.from_dict(card["config"])
        trust.check(config, path, trusted)
        config = resolve(config)
        config.validate()
        spec = spec_from_dict(config.env.id, card["spec"])
        states: dict[str, dict[str, Tensor]] = {name: {} for name in MODULES}
        for key, tensor in tensors.items():
            part, _, name = key.partition("/")
            states.setdefault(part, {})[name] = tensor
        parts = ("policy",) if card.get(NO_BONUS) is True else ("policy", "bonus")
        if problem := shape_mismatch(config, spec, states, parts):
            raise UserError(f"{path} {problem}")
        policy, bonus = make_policy(config, spec), make_bonus(config, spec) if "bonus" in parts else None
        policy.load_state_dict(states["policy"])
        if bonus is not None:
            bonus.load_state_dict(states["bonus"])
            bonus.to(device).eval()
        return SavedAgent(config, policy.to(device).eval(), bonus, card)


def card_and_tensors(path: Path, best: bool = False) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What describes an agent and its weights, from a file, a checkpoint or a run folder."""
    if not path.is_file():
        return from_checkpoint(find_checkpoint(path, best))
    if best:
        raise one_checkpoint(path, "an exported agent")
    return read_tensors(path, CARD, "an agent exported by rnd", AGENT_FORMAT)


def one_checkpoint(path: Path, what: str) -> UserError:
    return UserError(f"--best chooses among the checkpoints of a run folder, and {path} is {what}; leave it out")


def find_checkpoint(path: Path, best: bool = False) -> Checkpoint:
    """A checkpoint folder itself, or of a run folder the newest whole checkpoint, or the one with the highest mean
    return; says which are damaged."""
    if (path / checkpoint.MANIFEST).is_file():
        if best:
            raise one_checkpoint(path, "one of them")
        return checkpoint.read(path)
    saved, problems = (checkpoint.highest if best else checkpoint.newest)(path / "checkpoints")
    for line in checkpoint.fallback(saved, problems):
        warn(line)
    if saved is None and best and checkpoint.found(path / "checkpoints"):
        raise UserError(f"{path} has no checkpoint with a mean return yet: no episode had ended; leave out --best")
    if saved is None and not (path / "config.json").is_file():
        raise UserError(f"{path} is not a run folder: it has no config.json{nearest_run(path)}")
    if saved is None:
        raise UserError(f"{path} has no checkpoint yet; if it was stopped at its start: rnd resume {path}")
    return saved


def checkpoint_text(card: dict[str, Any], best: bool = False) -> str:
    """Which checkpoint an agent comes from, in one line."""
    score, chosen = card["score"], "best checkpoint" if best else "checkpoint"
    text = "no episode has ended" if score is None else f"mean return {significant(score)} of 100 episodes"
    return f"{chosen}: iteration {card['iteration']:,}, {card['frames']:,} frames, {text}"


def from_checkpoint(saved: Checkpoint) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The card and the tensors that an agent needs."""
    metadata = saved.metadata
    with read_errors(saved.path, "a checkpoint of a run"):
        check_types(metadata)
        card = {name: metadata[name] for name in ("iteration", "frames", "score", "row", "config", "spec", "versions")}
        state = saved.state | {"scaler": ReturnScaler.shared_state(saved.state["scaler"])}
        tensors = {f"{part}/{key}": value for part in MODULES for key, value in state[part].items()}
    card["config"] = card["config"] | {"out": Config.out, "name": None}  # not the paths of the machine that trained it
    return {"format": AGENT_FORMAT, **card}, tensors


# --- the small file ----------------------------------------------------------------------------------


def export_agent(
    run: Path, out: Path | None = None, half: bool = False, bonus: bool = True, best: bool = False
) -> Path:
    """Write the agent of a run (or of a file) to NAME.safetensors, and its card beside it; `half` stores weights in 16
    bits, without `bonus` the policy alone is stored; `best` takes the best checkpoint instead of the newest."""
    card, tensors = card_and_tensors(run, best)
    if not bonus and any(key.startswith("bonus/") for key in tensors):  # the bonus `none` has nothing to leave out
        tensors = {key: tensor for key, tensor in tensors.items() if key.startswith("policy/")}
        card = card | {NO_BONUS: True}
    if half:
        tensors = {k: v.half() if v.dtype == torch.float32 else v for k, v in tensors.items()}
    out = out or run / "export" / f"{run.resolve().name}.safetensors"
    if unpacked_name(out).suffix != ".safetensors":
        raise UserError(
            f"--out {out}: an agent's file ends in .safetensors or .safetensors.xz; nearest: "
            f"{out.with_suffix('.safetensors')}"
        )
    make_folder(out.parent, run)
    write_tensors(out, tensors, CARD, card)
    write_json(unpacked_name(out).with_suffix(".json"), card)
    return out


def unpacked_name(path: Path) -> Path:
    return path.with_suffix("") if path.suffix == PACKED else path


def agent_name(path: Path) -> str:
    """Name of an exported file, of its folder in the zoo, or number of a checkpoint."""
    named = unpacked_name(path).stem if path.is_file() else path.resolve().name
    return path.resolve().parent.name if named == "agent" else named


def write_tensors(path: Path, tensors: dict[str, Tensor], key: str, card: dict[str, Any]) -> None:
    """One safetensors file, with a card in its header under `key`, and the SHA-256 of the whole file."""
    card = {HASH: BLANK.decode(), HASHED: True, **card}
    data = tensor_bytes({k: v.cpu() for k, v in tensors.items()}, {key: json.dumps(card)})
    at = data.index(BLANK)  # the card is the first thing in the file
    data = data[:at] + file_hash(data, at).encode() + data[at + len(BLANK) :]
    write_atomically(path, lzma.compress(data) if path.suffix == PACKED else data)


def file_hash(data: bytes, at: int) -> str:
    """SHA-256 of a file in which the hash at `at` is blank."""
    hashed, view = hashlib.sha256(), memoryview(data)
    for part in (view[:at], BLANK, view[at + len(BLANK) :]):
        hashed.update(part)
    return hashed.hexdigest()


def read_tensors(path: Path, key: str, what: str, version: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The card and the tensors of a file of `write_tensors`. Refuses a file that is not `what` of format `version`."""
    try:
        data = read_file(path.resolve(), largest())
        if path.suffix == PACKED:
            data = decompress(data)
        tensors = safetensors.torch.load(data)
    except (SafetensorError, lzma.LZMAError) as error:
        raise UserError(f"{path} is not {what} ({error})") from error
    # A whole file has a header of JSON, and its length before it; safetensors gives the tensors alone.
    header: dict[str, Any] = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    text = header.get("__metadata__", {}).get(key)
    if text is None:
        raise UserError(f"{path} is not {what}: it has no card")
    card: dict[str, Any] = json.loads(text)
    expected, hashed = card.pop(HASH, None), card.pop(HASHED, None)  # rnd 0.1 wrote none
    if (hashed or expected) and file_hash(data, data.find(str(expected).encode())) != expected:
        raise UserError(f"{path} is {what}, but was altered: its hash differs; copy or export it again")
    if card.get("format") != version:
        raise UserError(f"{path} is {what}, of format {card.get('format')}; this rnd reads format {version}")
    return card, tensors
