"""`rnd.Novelty`: figure 2 of the paper as a detector of samples that are unlike those it was fitted to.

The networks and the whitening are those of `rnd.Bonus` (`rnd.bonus.rnd`). Its methods are those of scikit-learn's
outlier detectors; scikit-learn itself is not needed. Legend: B samples, X the shape of one sample, k features.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import importlib
import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rnd.bonus.prediction import squared_error
from rnd.bonus.rnd import RND
from rnd.checkpoint.checkpoint import pack, unpack
from rnd.checkpoint.export import read_tensors, write_tensors
from rnd.config import BonusOptions
from rnd.data.normalize import RunningMoments
from rnd.device.devices import find_device
from rnd.device.generators import draw_seed
from rnd.envs.spaces import like
from rnd.envs.spec import ActionSpec
from rnd.foundation.errors import nearest
from rnd.foundation.files import read_errors
from rnd.plugins.alarms import EpisodeMonitor, EpisodeThreshold, conformal_limit
from rnd.plugins.samples import NoveltyError, checked, encoder
from rnd.training.adam import Adam, Group

FORMAT, CARD, WHAT = 1, "rnd.novelty", "a detector saved by rnd"
CHUNK = 4096
"""Samples scored at a time: bounds the memory."""
MAX_CALIBRATION = 10_000
"""Samples that are kept for the threshold. More would make it no better, and later updates slower."""
COUNTS = ("features", "hidden", "batch", "max_steps", "patience")
SHARES = ("false_alarms", "validation", "calibration")
TINY = 1e-30
"""Added to errors and sizes: an error of 0 has a logarithm too."""


@dataclasses.dataclass(kw_only=True, eq=False)
class Novelty:
    """Detects samples unlike those it was fitted to, by the error in predicting a random network.

    Samples are arrays or tensors of a leading axis and any shape. Images (`rnd.Bonus` reads them in the same way)
    become grey, 84x84; everything else is one vector. Arrays return arrays, tensors return tensors where they are.
    """

    false_alarms: float = 0.05
    """Share of samples of the fitted kind for which `predict` may answer -1. It holds on average over data and draws
    where samples are exchangeable (split conformal), whatever their distribution is."""
    size_power: float = 1.0
    """p of the novelty e / q^p: e is the prediction error, q the size (mean square) of what was to be predicted, but no
    more than a usual size. 0 is the plain error, 1 the relative one (docs/novelty.md)."""
    features: int = 256
    hidden: int = 256
    clip: float = 5.0
    """Options of the networks and of the whitening, as in `rnd.Bonus`."""
    lr: float = 1e-3
    batch: int = 64
    max_steps: int = 1000
    """Adam's learning rate, samples per step, and the most steps of `fit`."""
    patience: int = 5
    validation: float = 0.1
    """`fit` stops once the error on this share of the samples has not fallen by 1% for so many epochs, and keeps the
    best predictor: one that is trained for ever knows everything."""
    calibration: float = 0.2
    """Share of the samples that set the threshold; nothing is trained on them."""
    device: str = "auto"
    random_state: int | None = 0

    # --- fitting -------------------------------------------------------------------------------

    @torch.inference_mode(False)  # whose tensors no later step could train
    def fit(self, X: Any, y: Any = None) -> Novelty:
        """Forget everything, and learn what these samples look like. `y` is not read."""
        samples = self._start(X)
        draws = self._generator()
        order = torch.randperm(len(samples), generator=draws)
        validating, calibrating = (max(round(s * len(samples)), 1) for s in (self.validation, self.calibration))
        held_out, calibration, train = order.tensor_split([validating, validating + calibrating])
        if not len(train):
            raise NoveltyError(f"n_samples={len(samples)} is too few: none are left to train on")
        self._update_statistics(samples[train])
        self._distil(samples, train, samples[held_out], draws)
        self._calibrate(samples[calibration], draws)
        return self

    @torch.inference_mode(False)
    def partial_fit(self, X: Any, y: Any = None) -> Novelty:
        """One epoch over these samples, which become familiar; some of them set the threshold instead. Nothing stops it
        early, so give it each sample once. A threshold for episodes is dropped: it was for other scores."""
        samples = self._encoded(X) if hasattr(self, "offset_") else self._start(X)
        draws = self._generator()
        chosen = torch.rand(len(samples), generator=draws).to(samples.device) < self.calibration
        train = (~chosen).nonzero().flatten().cpu()
        if len(train):
            self._update_statistics(samples[train])
            self._epoch(samples, train[torch.randperm(len(train), generator=draws)])
        self._calibrate(torch.cat([self._calibration, samples[chosen].cpu()]), draws)
        return self

    def _start(self, X: Any) -> Tensor:
        """New networks for samples of the shape of X; returns X encoded."""
        self._check_params()
        values = checked(X)
        self._shape, self._bytes = tuple(values.shape[1:]), values.dtype == torch.uint8 and values.dim() > 2
        self.n_features_in_, self.n_steps_, self._calls = math.prod(self._shape), 0, 0
        with torch.random.fork_rng(devices=[]):  # the caller's random numbers stay as they are
            torch.manual_seed(self._seed())
            self._place(self._network())
        samples = self._encoded(values)
        self._calibration = samples[:0].cpu()
        return samples

    def _network(self) -> RND:
        options = BonusOptions(self.features, self.hidden, clip=self.clip)
        return RND(encoder(self._shape, self._bytes).spec, ActionSpec("discrete", (1,)), options)

    def _place(self, module: RND) -> None:
        self._device = torch.device(find_device(self.device))
        self._module, self._sizes = module.to(self._device), RunningMoments().to(self._device)
        self._optimizer = Adam([Group([*module.predictor.parameters()], self.lr)])

    def _seed(self) -> int:
        return int(torch.randint(2**31, ())) if self.random_state is None else int(self.random_state)

    def _generator(self) -> torch.Generator:
        """Random numbers of one call: no state of theirs has to be saved."""
        self._calls += 1
        return torch.Generator().manual_seed(draw_seed(self._seed(), 1, 0, self._calls) % 2**63)

    @torch.no_grad()
    def _update_statistics(self, samples: Tensor) -> None:
        """Those of the samples, and those of the sizes of the target's outputs."""
        self._module.whiten.update(samples.to(self._device))
        for part in samples.split(CHUNK):
            self._sizes.update(self._module.target(self._read(part)).square().mean(1))

    def _distil(self, samples: Tensor, train: Tensor, held_out: Tensor, draws: torch.Generator) -> None:
        """Train until the error on `held_out` no longer falls; leaves the best predictor."""
        best, waited, weights = math.inf, 0, copy.deepcopy(self._module.predictor.state_dict())
        while waited < self.patience and self.n_steps_ < self.max_steps:
            self._epoch(samples, train[torch.randperm(len(train), generator=draws)], self.max_steps)
            error = self._mean_error(held_out)
            waited = 0 if error < 0.99 * best else waited + 1
            if error < best:
                best, weights = error, copy.deepcopy(self._module.predictor.state_dict())
        self._module.predictor.load_state_dict(weights)

    @torch.no_grad()
    def _mean_error(self, samples: Tensor) -> float:
        inputs, (predictor, target) = (
            map(self._read, samples.split(CHUNK)),
            (self._module.predictor, self._module.target),
        )
        return float(torch.cat([squared_error(predictor(x), target(x)) for x in inputs]).mean())

    @torch.enable_grad()
    def _epoch(self, samples: Tensor, order: Tensor, last_step: float = math.inf) -> None:
        """Train on the samples in this order, at most until `last_step`."""
        for rows in order.split(self.batch):
            if self.n_steps_ >= last_step:
                break
            x = self._read(samples[rows])
            loss = squared_error(self._module.predictor(x), self._module.target(x)).mean()
            self._optimizer.zero_grad()
            loss.backward()
            self._optimizer.step()
            self.n_steps_ += 1

    def _calibrate(self, calibration: Tensor, draws: torch.Generator) -> None:
        """Set the threshold by samples on which nothing was trained."""
        self._calibration = calibration[torch.randperm(len(calibration), generator=draws)[:MAX_CALIBRATION]].cpu()
        self.episodes_: EpisodeThreshold | None = None
        self._freeze()
        count, rate = len(self._calibration), self.false_alarms
        self.offset_ = -conformal_limit(-self._scores(self._calibration).cpu().numpy(), rate)
        if math.isinf(self.offset_):
            need = f"false_alarms={rate} needs {math.ceil(1 / rate) - 1} calibration samples, there are {count}"
            warnings.warn(f"{need}: predict raises no alarm. Fit more samples", stacklevel=4)

    # --- scoring -------------------------------------------------------------------------------

    def score_samples(self, X: Any) -> Any:
        """Minus the logarithm of the novelty, [B]: the lower, the more unlike the fitted samples."""
        self._check_fitted()
        return like(X, self._scores(self._encoded(X)))

    def decision_function(self, X: Any) -> Any:
        """`score_samples` less the threshold `offset_`: negative for an alarm."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> Any:
        """-1 for an alarm, 1 for none."""
        alarm = self.decision_function(X) < 0
        return torch.where(alarm, -1, 1) if isinstance(alarm, Tensor) else np.where(alarm, -1, 1)

    def fit_predict(self, X: Any, y: Any = None) -> Any:
        """`fit` and `predict` of the same samples."""
        return self.fit(X).predict(X)

    def _freeze(self) -> None:
        """Prepare what scores. On a CPU vectors are scored in float64: a score does not depend on the other samples of
        its batch, whose number changes the order of float32 sums."""
        exact = self._device.type == "cpu" and not self._module.image
        self._dtype = torch.float64 if exact else torch.float32
        self.max_size_ = float(self._sizes.mean + self._sizes.std)
        networks = copy.deepcopy((self._module.predictor, self._module.target))
        self._frozen = tuple(network.requires_grad_(False).to(self._dtype) for network in networks)

    def _read(self, samples: Tensor) -> Tensor:
        """What the networks read."""
        return self._module.whitened(samples[None].to(self._device))

    @torch.no_grad()
    def _scores(self, samples: Tensor) -> Tensor:
        (predictor, target), parts = self._frozen, [torch.zeros(0, dtype=torch.float64, device=self._device)]
        for x in (self._read(part).to(self._dtype) for part in samples.split(CHUNK)):
            target_Bk = target(x)
            error_B = (predictor(x) - target_Bk).square().mean(1)
            size_B = target_Bk.square().mean(1).clamp_max(self.max_size_)
            parts.append(self.size_power * (size_B + TINY).log() - (error_B + TINY).log())
        return torch.cat(parts)

    # --- episodes ------------------------------------------------------------------------------

    def calibrate_episodes(
        self, episodes: Sequence[Any], *, window: int = 1, varying: bool = True, false_alarms: float | None = None
    ) -> Novelty:
        """Set a threshold that a whole normal episode crosses, at any of its steps, with the probability `false_alarms`
        at most. `episodes`: normal ones, [T, X] each, of which none was fitted (docs/novelty.md)."""
        rate = self.false_alarms if false_alarms is None else false_alarms
        scores = [self.score_samples(torch.as_tensor(one)).cpu().numpy() for one in episodes]
        self.episodes_ = EpisodeThreshold.fit([-one for one in scores], rate, window, varying)
        return self

    def monitor(self) -> EpisodeMonitor:
        """What raises the alarm while an episode runs: `step(x)` at every step, `reset()` at its start."""
        threshold = getattr(self, "episodes_", None)
        if threshold is None:
            raise NoveltyError("there is no threshold for episodes yet: call calibrate_episodes(episodes) first")
        return EpisodeMonitor(threshold, lambda x: -float(self.score_samples(torch.as_tensor(x)[None])[0]))

    # --- state ---------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write everything to one safetensors file, atomically: what is loaded scores and continues exactly."""
        self._check_fitted()
        tensors: dict[str, Tensor] = {}
        state = {
            "module": dict(self._module.state_dict()),
            "sizes": dict(self._sizes.state_dict()),
            "optimizer": self._optimizer.state_dict(),
            "calibration": self._calibration,
            "offset": torch.tensor(self.offset_, dtype=torch.float64),
            "episodes": self.episodes_.state_dict() if self.episodes_ else None,
        }
        counts = {"n_steps": self.n_steps_, "calls": self._calls, "shape": list(self._shape), "bytes": self._bytes}
        card = {"format": FORMAT, "params": self.get_params(), **counts, "state": pack(state, "state", tensors)}
        write_tensors(Path(path), tensors, CARD, card)

    @classmethod
    def load(cls, path: str | Path, device: str = "auto") -> Novelty:
        """The detector that `save` wrote. Runs no code from the file."""
        path = Path(path)
        with read_errors(path, WHAT):
            card, tensors = read_tensors(path, CARD, WHAT, FORMAT)
            made = cls().set_params(**card["params"] | {"device": device})
            made._check_params()
            made._restore(card, unpack(card["state"], tensors))
        return made

    def _restore(self, card: dict[str, Any], state: dict[str, Any]) -> None:
        self._shape, self._bytes = tuple(card["shape"]), bool(card["bytes"])
        self.n_features_in_, self.n_steps_ = math.prod(self._shape), int(card["n_steps"])
        self._calls = int(card["calls"])
        with torch.device("meta"):  # a small file can describe networks larger than any machine
            module = self._network()
        module.load_state_dict(state["module"], assign=True)
        module.target.requires_grad_(False)
        module.predictor.requires_grad_(True)
        self._place(module)
        self._sizes.load_state_dict(state["sizes"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._calibration, self.offset_ = state["calibration"], float(state["offset"])
        self.episodes_ = EpisodeThreshold(**state["episodes"]) if state["episodes"] else None
        self._freeze()

    # --- parameters and samples ----------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name, as scikit-learn's `clone` and pipelines read them."""
        return {name: getattr(self, name) for name in PARAMETERS}

    def set_params(self, **params: Any) -> Novelty:
        """Set parameters by name; the next fit uses them."""
        for name, value in params.items():
            if name not in PARAMETERS:
                raise NoveltyError(f"Novelty has no parameter {name!r}; {nearest(name, PARAMETERS)}")
            setattr(self, name, value)
        return self

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags

        inputs = InputTags(three_d_array=True)
        return Tags("outlier_detector", TargetTags(required=False), None, None, None, input_tags=inputs)

    def _check_params(self) -> None:
        for names, highest, what in ((COUNTS, math.inf, "1 or more"), (SHARES, 1, "between 0 and 1")):
            for name in names:
                if not (0 < getattr(self, name) < highest):
                    raise NoveltyError(f"{name} must be {what}, not {getattr(self, name)!r}")
        if not self.validation + self.calibration < 1:
            raise NoveltyError("validation + calibration must be below 1: the rest is trained on")

    def _check_fitted(self) -> None:
        if hasattr(self, "offset_"):
            return
        error: type[Exception] = NoveltyError
        with contextlib.suppress(ImportError):
            error = importlib.import_module("sklearn.exceptions").NotFittedError
        raise error("this Novelty is not fitted yet: call fit(X) first")

    def _encoded(self, X: Any) -> Tensor:
        """Samples of the fitted shape as the bonus reads them: float32 vectors or uint8 frames."""
        values = checked(X)
        if (count := math.prod(values.shape[1:])) != self.n_features_in_:
            expected = f"Novelty is expecting {self.n_features_in_} features as input"
            raise NoveltyError(f"X has {count} features, but {expected}")
        if tuple(values.shape[1:]) != self._shape:
            raise NoveltyError(f"a sample has the shape {tuple(values.shape[1:])} instead of {self._shape}")
        if values.dim() > 2 and self._bytes != (values.dtype == torch.uint8):
            raise NoveltyError("images of bytes and images of floats are mixed: fit and score the same type")
        return encoder(self._shape, self._bytes)(values)


PARAMETERS = [field.name for field in dataclasses.fields(Novelty)]
