"""`rnd.Novelty` beside six other detectors of what is new: one class, or one fault, is left out of the fitted data.

    python benchmarks/novelty.py --data DIR [--tasks mnist digits ...] [--seeds 0 1 2 3 4] [--minutes M]
    python benchmarks/novelty.py --splits                 # false alarms over 200 random splits, for two rates
    python benchmarks/novelty.py --data DIR --speed       # fit on 60,000 digits; score, beside k-nearest neighbours
    python benchmarks/novelty.py --data DIR --scores      # AUROC of other scores from the same networks, seed 0
    python benchmarks/novelty.py --table                  # the stored results again, and their image

A case is fitted by all detectors to the same samples: at most 5,000, because the cost of LocalOutlierFactor,
OneClassSVM and k-nearest neighbours grows with the square of their number. It is then seven lines of the file, and is
not done again. DIR has MNIST's four original files. The settings of the others are scikit-learn's defaults, or stand
here.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.decomposition import PCA
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import LocalOutlierFactor, NearestNeighbors
from sklearn.preprocessing import StandardScaler
from sklearn.svm import OneClassSVM

import rnd
from rnd.envs.spec import ObservationSpec
from rnd.models.networks import autoencoder_network
from rnd.paper.mnist import Digits, read_folder
from rnd.report.figure import new_figure

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import novelty_alarm  # the policy of the example and its faults

RESULTS = Path(__file__).parent / "results" / "novelty.csv"
IMAGE = Path(__file__).parents[1] / "docs" / "images" / "novelty.png"
RATE = 0.05
MAX_TRAIN, MAX_TEST = 5000, 1000
FAULTS = ("dead-motor", "sensor-drift", "slow-reaction")
TASKS = ("mnist", "digits", "breast cancer", "wine", "cartpole")


class Row(NamedTuple):
    """One detector in one case. `false_alarms`: share of the normal test samples, at a stated rate of 5%."""

    task: str
    novel: str
    seed: int
    detector: str
    auroc: float
    false_alarms: float
    fit_seconds: float
    score_seconds: float
    train: int
    test: int


class Case(NamedTuple):
    task: str
    novel: str
    seed: int
    train: np.ndarray
    normal: np.ndarray
    new: np.ndarray


class ByTrainingScores:
    """A threshold as scikit-learn's `contamination` sets it: the quantile of the training samples' own scores."""

    def fit(self, X: np.ndarray) -> ByTrainingScores:
        self.limit = np.quantile(self.train(X), 1 - RATE)
        return self

    def train(self, X: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def novelty(self, X: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def score_samples(self, X: np.ndarray) -> np.ndarray:
        return -self.novelty(X)

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.where(self.novelty(X) > self.limit, -1, 1)


class PCAError(ByTrainingScores):
    """Squared error of the reconstruction from the components that hold 90% of the variance."""

    def train(self, X: np.ndarray) -> np.ndarray:
        self.pca = PCA(0.9, svd_solver="full").fit(X)
        return self.novelty(X)

    def novelty(self, X: np.ndarray) -> np.ndarray:
        error: np.ndarray = np.square(X - self.pca.inverse_transform(self.pca.transform(X))).sum(1)
        return error


class Neighbours(ByTrainingScores):
    """Distance to the fifth nearest training sample."""

    def train(self, X: np.ndarray) -> np.ndarray:
        self.index = NearestNeighbors(n_neighbors=5).fit(X)
        return self.index.kneighbors()[0][:, -1]

    def novelty(self, X: np.ndarray) -> np.ndarray:
        far: np.ndarray = self.index.kneighbors(X)[0][:, -1]
        return far


class Autoencoder(ByTrainingScores):
    """Squared error of `rnd`'s autoencoder with a code of 16 values (8 below 20 inputs), 600 Adam steps."""

    def __init__(self, seed: int):
        self.seed = seed

    def train(self, X: np.ndarray) -> np.ndarray:
        torch.manual_seed(self.seed)
        data, size = torch.from_numpy(X).float(), X.shape[1]
        self.network = autoencoder_network(ObservationSpec("vector", (size,)), 16 if size >= 20 else 8, 256)
        adam = torch.optim.Adam(self.network.parameters(), lr=1e-3, fused=True)
        for _ in range(600):
            x = data[torch.randint(len(data), (128,))]
            loss = (self.network(x) - x).square().mean()
            adam.zero_grad()
            loss.backward()
            adam.step()
        return self.novelty(X)

    @torch.no_grad()
    def novelty(self, X: np.ndarray) -> np.ndarray:
        x = torch.from_numpy(X).float()
        error: np.ndarray = (self.network(x) - x).square().sum(1).numpy()
        return error


DETECTORS: dict[str, Callable[[int], Any]] = {
    "rnd": lambda seed: rnd.Novelty(false_alarms=RATE, random_state=seed),
    "isolation forest": lambda seed: IsolationForest(contamination=RATE, random_state=seed),
    "local outlier factor": lambda seed: LocalOutlierFactor(novelty=True, contamination=RATE),
    "one-class svm": lambda seed: OneClassSVM(nu=RATE),
    "pca error": lambda seed: PCAError(),
    "autoencoder": Autoencoder,
    "nearest neighbours": lambda seed: Neighbours(),
}


# --- cases -----------------------------------------------------------------------------------------------------------


def cases(task: str, seed: int, data: Path | None) -> Iterator[Case]:
    random = np.random.default_rng(seed)
    if task == "mnist":
        digits = mnist(data)
        for digit in range(10):
            left = [digits.train_labels != digit, digits.test_labels != digit, digits.test_labels == digit]
            rows = [random.permutation(np.flatnonzero(mask)) for mask in left]
            train, normal, new = digits.train_images[rows[0]], digits.test_images[rows[1]], digits.test_images[rows[2]]
            yield Case(task, str(digit), seed, train[:MAX_TRAIN], normal[:MAX_TEST], new[:MAX_TEST])
    elif task == "cartpole":
        train, normal = cartpole(seed, 1000)[:MAX_TRAIN], cartpole(seed, 2000)[:MAX_TEST]
        scaler = StandardScaler().fit(train)
        for fault in FAULTS:
            sets = train, normal, cartpole(seed, 3000, fault)[:MAX_TEST]
            yield Case(task, fault, seed, *(scaler.transform(x) for x in sets))
    else:
        read = {"digits": load_digits, "breast cancer": load_breast_cancer, "wine": load_wine}[task]
        X, y = read(return_X_y=True)
        for label in [0] if task == "breast cancer" else np.unique(y):  # 0: malignant
            rows = random.permutation(np.flatnonzero(y != label))
            train, normal = np.split(X[rows], [len(rows) * 7 // 10])
            scaler = StandardScaler().fit(train)
            sets = train, normal, X[y == label]
            yield Case(task, str(label), seed, *(scaler.transform(x) if task != "digits" else x / 16 for x in sets))


@cache
def policy(seed: int) -> np.ndarray:
    return novelty_alarm.train(seed)


def cartpole(seed: int, first: int, fault: str = "none") -> np.ndarray:
    """Transitions of 20 episodes of the example's policy, in random order; of faulty ones those after the fault."""
    episodes = [novelty_alarm.episode(policy(seed), first + i, fault)[0] for i in range(20)]
    steps = np.concatenate([rows if fault == "none" else rows[100:] for rows in episodes])
    return np.random.default_rng(seed).permutation(steps)


@cache
def mnist(data: Path | None) -> Digits:
    if data is None:
        sys.exit("mnist needs --data DIR, a folder with its four original files")
    return read_folder(data)


def measure(case: Case, name: str) -> Row:
    detector = DETECTORS[name](case.seed)
    start = time.perf_counter()
    detector.fit(case.train)
    fitted = time.perf_counter()
    scores = detector.score_samples(np.concatenate([case.normal, case.new]))
    scored = time.perf_counter()
    auroc = roc_auc_score(np.arange(len(scores)) >= len(case.normal), -scores)
    alarms = float(np.mean(detector.predict(case.normal) < 0))
    times = round(fitted - start, 3), round(scored - fitted, 3)
    return Row(*case[:3], name, round(float(auroc), 4), round(alarms, 4), *times, len(case.train), len(scores))


# --- the other two measurements ---------------------------------------------------------------------------------------


def splits(count: int = 200) -> None:
    """Share of false alarms on held-out samples: one half of scikit-learn's digits is fitted, the other is not."""
    X = load_digits(return_X_y=True)[0] / 16
    for rate in (0.05, 0.2):
        shares = []
        for seed in range(count):
            fitted, held_out = np.split(np.random.default_rng(seed).permutation(X), [len(X) // 2])
            small = rnd.Novelty(false_alarms=rate, features=64, hidden=64, max_steps=50, random_state=seed)
            shares.append(np.mean(small.fit(fitted).predict(held_out) < 0))
        error = np.std(shares) / count**0.5
        print(f"stated {rate:.0%}: {np.mean(shares):.2%} (standard error {error:.2%}) over {count} splits", flush=True)


def speed(data: Path | None) -> None:
    digits = mnist(data)
    start = time.perf_counter()
    detector = rnd.Novelty().fit(digits.train_images)
    print(f"fit on {len(digits.train_images):,} digits: {time.perf_counter() - start:.1f} s, {detector.n_steps_} steps")
    test = digits.test_images[:2000]
    index = NearestNeighbors(n_neighbors=5).fit(digits.train_images)
    start = time.perf_counter()
    detector.score_samples(test)
    ours = time.perf_counter() - start
    index.kneighbors(test)
    others = time.perf_counter() - start - ours
    print(f"score {len(test):,} digits: rnd {ours:.2f} s, nearest neighbours {others:.2f} s: {others / ours:.0f} x")


def scores(data: Path | None) -> None:
    """Powers p of the size, with the bound on it and without: what the default was chosen by."""
    chosen = {"mnist": ("0", "1", "4", "8"), "digits": ("1", "8"), "breast cancer": ("0",), "wine": ("2",)}
    variants = [(0.0, False), (0.7, False), (1.0, False), (0.7, True), (1.0, True)]
    print("p, bound on q:", variants)
    for case in (case for task in chosen for case in cases(task, 0, data) if case.novel in chosen[task]):
        detector = rnd.Novelty().fit(case.train)
        bound, found = detector.max_size_, []
        for detector.size_power, bounded in variants:
            detector.max_size_ = bound if bounded else float("inf")
            novelty = -detector.score_samples(np.concatenate([case.normal, case.new]))
            found.append(roc_auc_score(np.arange(len(novelty)) >= len(case.normal), novelty))
        print(case.task, case.novel, *(f"{auroc:.3f}" for auroc in found), sep=" | ", flush=True)


# --- table and image --------------------------------------------------------------------------------------------------


def read(path: Path) -> list[Row]:
    if not path.exists():
        return []
    kinds = [str, str, int, str, float, float, float, float, int, int]
    with path.open() as file:
        rows = list(csv.DictReader(file))
    return [Row(*(kind(row[name]) for kind, name in zip(kinds, Row._fields, strict=True))) for row in rows]


def mean(rows: list[Row], field: str, **where: str) -> float:
    found = [getattr(row, field) for row in rows if all(getattr(row, k) == v for k, v in where.items())]
    return float(np.mean(found)) if found else float("nan")


def table(rows: list[Row]) -> str:
    tasks = [task for task in TASKS if any(row.task == task for row in rows)]
    seeds = {task: len({row.seed for row in rows if row.task == task}) for task in tasks}
    lines = [
        f"| detector | {' | '.join(tasks)} | fit, mnist | score, mnist |",
        "| --- |" + " ---: |" * (len(tasks) + 2),
    ]
    for name in DETECTORS:
        cells = [
            f"{mean(rows, 'auroc', task=t, detector=name):.3f}, {mean(rows, 'false_alarms', task=t, detector=name):.1%}"
            for t in tasks
        ]
        times = [f"{mean(rows, f, task='mnist', detector=name):.2f} s" for f in ("fit_seconds", "score_seconds")]
        lines.append(f"| {name} | {' | '.join(cells + times)} |")
    return "\n".join([*lines, "", "Seeds: " + ", ".join(f"{task} {count}" for task, count in seeds.items()) + "."])


def draw(rows: list[Row]) -> None:
    """AUROC per digit of MNIST and detector, and the means of all tasks."""
    figure = new_figure(9.0, 3.6)
    left, right = figure.subplots(1, 2)
    digits = [str(d) for d in range(10)]
    tasks = [task for task in TASKS if any(row.task == task for row in rows)]
    for name in DETECTORS:
        style = {"linewidth": 2.5, "color": "black"} if name == "rnd" else {"linewidth": 1.0}
        for axes, places, values in (
            (left, digits, [mean(rows, "auroc", task="mnist", novel=d, detector=name) for d in digits]),
            (right, tasks, [mean(rows, "auroc", task=t, detector=name) for t in tasks]),
        ):
            axes.plot(places, values, marker="o", markersize=3, label=name, **style)
    left.set(xlabel="MNIST digit that was left out", ylabel="AUROC")
    right.set(xlabel="data (mean over what was left out)")
    right.tick_params(axis="x", labelsize=7)
    left.legend(fontsize=7)
    figure.savefig(IMAGE, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=[*TASKS])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--minutes", type=float, default=1e6)
    parser.add_argument("--out", type=Path, default=RESULTS)
    for flag in ("--splits", "--speed", "--scores", "--table"):
        parser.add_argument(flag, action="store_true")
    options = parser.parse_args()
    if options.splits:
        return splits()
    if options.speed:
        return speed(options.data)
    if options.scores:
        return scores(options.data)
    deadline = time.monotonic() + 60 * options.minutes
    done = {row[:3] for row in read(options.out)}
    todo = [] if options.table else [(seed, task) for seed in options.seeds for task in options.tasks]
    for seed, task in todo:
        if time.monotonic() > deadline:
            break
        for case in cases(task, seed, options.data):
            if time.monotonic() > deadline:
                break
            if case[:3] in done:
                continue
            rows = [measure(case, name) for name in DETECTORS]
            new = not options.out.exists()
            with options.out.open("a", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerows([Row._fields] * new + rows)
            print(*case[:3], *(f"{row.detector} {row.auroc:.3f}" for row in rows), sep=", ", flush=True)
    rows = read(options.out)
    print(table(rows))
    draw(rows)


if __name__ == "__main__":
    main()
