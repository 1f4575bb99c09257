"""The experiments of Burda et al. (2018): one function per figure, which returns all its arms as configs. And two that
are not of the paper: `bonuses` and `efficiency`.

Figure 2, the noisy television and the prediction errors have no such arms; each is a module of its own. The scores that
the paper states are here too; they are drawn as reference lines.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from rnd.config import Config
from rnd.config.presets import ATARI_GAMES, atari, preset
from rnd.config.recipes import RECIPES
from rnd.envs.factories import kind_of
from rnd.report.figure import ReferenceLine

ROLLOUTS = 30_000
"""Rollouts per run: 0.5, 2 and 16 billion frames at 32, 128 and 1,024 environments."""

SIX_GAMES = {
    "gravitar": "Gravitar",
    "montezuma": "Montezuma's Revenge",
    "pitfall": "Pitfall!",
    "private-eye": "Private Eye",
    "solaris": "Solaris",
    "venture": "Venture",
}

TABLE1: dict[str, dict[str, float]] = {
    "RND": dict(zip(SIX_GAMES, (3_906, 8_152, -3, 8_666, 3_282, 1_859), strict=True)),
    "PPO": dict(zip(SIX_GAMES, (3_426, 2_497, 0, 105, 3_387, 0), strict=True)),
    "Dynamics": dict(zip(SIX_GAMES, (3_371, 400, 0, 33, 3_246, 1_712), strict=True)),
    "SOTA": dict(zip(SIX_GAMES, (2_209, 3_700, 0, 15_806, 12_380, 1_813), strict=True)),
    "Avg. Human": dict(zip(SIX_GAMES, (3_351, 4_753, 6_464, 69_571, 12_327, 1_188), strict=True)),
}
"""Table 1 of the paper: final mean returns; its own three methods have a recurrent policy, "SOTA" is the best earlier
work at that time."""

METHODS = {"RND": "rnd", "Dynamics": "dynamics", "PPO": "none"}
"""The three methods of table 1 and the names of their bonuses."""

COMPARED = {
    "rnd": "RND",
    "snd-v": "SND-V",
    "snd-vic": "SND-VIC",
    "drnd": "DRND",
    "noveld": "NovelD",
    "count": "visit counts",
    "none": "PPO without a bonus",
}
"""The bonuses of `bonuses` and their labels."""


@dataclass(frozen=True)
class Arm:
    """One curve of a figure: the config that all its seeds share."""

    name: str
    label: str
    config: Config
    panel: str = ""
    """Title of the panel, where a figure has one panel per game or policy."""


@dataclass(frozen=True)
class Experiment:
    """One figure or table."""

    name: str
    title: str
    arms: tuple[Arm, ...]
    seeds: int
    measures: tuple[str, ...] = ("return_mean",)
    x: str = "frames"
    scores: dict[str, tuple[ReferenceLine, ...]] = field(default_factory=dict)
    """Panel to its scores."""
    iqm: bool = False
    """Drawn as interquartile means with 95% bootstrap intervals, also without --iqm."""


def run_of(game: str = "montezuma", *, envs: int = 128, **changes: Any) -> Config:
    """The paper's run on a game with the changes of an arm: always 30,000 rollouts."""
    config = atari(ATARI_GAMES[game])
    config = replace(config, env=replace(config.env, num_envs=envs), **changes)
    return replace(config, frames=ROLLOUTS * config.frames_per_rollout)


def figure1() -> Experiment:
    """One episode of a trained agent: the bonus over time, with the frames at its spikes."""
    arm = Arm("rnd", "RND", run_of())
    return Experiment("figure1", "Figure 1: the bonus over one episode", (arm,), seeds=1)


def figure3() -> Experiment:
    """Section 3.1: no access to the extrinsic reward, so that its value head is not trained either."""
    blind = run_of(ext_coef=0.0, train_ext_value=False)
    arms = (
        Arm("nonepisodic-0.999", "non-episodic, γ_I = 0.999", replace(blind, gamma_int=0.999)),
        Arm("nonepisodic-0.99", "non-episodic, γ_I = 0.99", blind),
        Arm("episodic-0.99", "episodic, γ_I = 0.99", replace(blind, episodic_int=True)),
    )
    scores = (
        ReferenceLine(6_700, "paper: 6,700 in 4 of 5 runs", "non-episodic, γ_I = 0.999", "return_best"),
        ReferenceLine(21, "paper: best run 21 rooms", "non-episodic, γ_I = 0.999", "rooms"),
    )
    title = "Figure 3: pure exploration of Montezuma's Revenge"
    measures = ("return_mean", "return_best", "rooms")
    return Experiment("figure3", title, arms, seeds=5, measures=measures, scores={"": scores})


def figure3_release() -> Experiment:
    """Figure 3 as the authors' release trains it: the extrinsic value head still shapes the shared torso."""
    paper = figure3()
    arms = tuple(replace(arm, config=replace(arm.config, train_ext_value=True)) for arm in paper.arms)
    return replace(paper, name="figure3-release", title=f"{paper.title}, extrinsic value head trained", arms=arms)


def figure4() -> Experiment:
    """Section 3.2: combining episodic and non-episodic returns, one or two value heads."""
    arms = []
    for policy, panel in (("gru", "RNN policies"), ("cnn", "CNN policies")):
        two = run_of(policy=policy, gamma_ext=0.99, gamma_int=0.99)
        episodic = replace(two, episodic_int=True)
        one = replace(episodic, value_heads=1)
        arms += [
            Arm(f"{policy}-nonepisodic-two", "non-episodic intrinsic, two heads", two, panel),
            Arm(f"{policy}-episodic-two", "episodic intrinsic, two heads", episodic, panel),
            Arm(f"{policy}-episodic-one", "episodic intrinsic, one head", one, panel),
        ]
    title = "Figure 4: combining intrinsic and extrinsic returns"
    return Experiment("figure4", title, tuple(arms), seeds=5, measures=("return_mean", "rooms"))


def figure5() -> Experiment:
    """Section 3.3: discount factors, CNN."""
    pairs = ((0.99, 0.99), (0.99, 0.999), (0.999, 0.999))
    arms = tuple(
        Arm(f"int-{i:g}-ext-{e:g}", f"γ_I = {i:g}, γ_E = {e:g}", run_of(gamma_int=i, gamma_ext=e)) for i, e in pairs
    )
    return Experiment("figure5", "Figure 5: discount factors", arms, seeds=10)


def figure6() -> Experiment:
    """Section 3.4: more environments at a constant batch size of the predictor, drawn over updates."""
    arms = tuple(
        Arm(f"{policy}-{n}", f"{n:,} environments", run_of(policy=policy, envs=n), panel)
        for policy, panel in (("cnn", "CNN policy"), ("gru", "RNN policy"))
        for n in (32, 128, 1024)
    )
    scores = (
        ReferenceLine(7_570, "paper: 7,570 after 1.6 G frames", "32 environments"),
        ReferenceLine(10_070, "paper: 10,070 at the end", "1,024 environments"),
        ReferenceLine(14_415, "paper: mean of the best run 14,415", "1,024 environments"),
    )
    title = "Figure 6: scaling up training"
    return Experiment("figure6", title, arms, seeds=5, x="updates", scores={"RNN policy": scores})


def figure7() -> Experiment:
    """Section 3.6: six games, three methods, RNN."""
    title = "Figure 7: six hard exploration games, RNN policies"
    return Experiment("figure7", title, six_games("gru"), seeds=3, scores=table1_scores())


def figure8() -> Experiment:
    """Appendix: the reconstruction error of an autoencoder as the bonus."""
    arms = (Arm("rnd", "RND", run_of()), Arm("autoencoder", "autoencoder", run_of(bonus="autoencoder")))
    return Experiment("figure8", "Figure 8: RND and an autoencoder's error", arms, seeds=5)


def figure9() -> Experiment:
    """Appendix: figure 7 with CNN policies."""
    return Experiment("figure9", "Figure 9: six hard exploration games, CNN policies", six_games("cnn"), seeds=5)


def table1() -> Experiment:
    """Final mean returns of the runs of figure 7, beside the paper's."""
    return Experiment("table1", "Table 1: final mean returns", six_games("gru"), seeds=3, scores=table1_scores())


def bonuses(game: str = "montezuma", frames: int | None = None) -> Experiment:
    """Not of the paper: RND, the bonuses that came after it, counts and none, on a game or task. Without `frames`: 200
    million for Atari, and those of its preset for a small task."""
    config = preset(game, kind_of(game))
    atari_game = config.env.id.startswith("ALE/")
    config = replace(config, frames=frames or (200_000_000 if atari_game else config.frames))
    arms = tuple(Arm(name, label, replace(config, bonus=name)) for name, label in COMPARED.items())
    measures = ("return_mean", "rooms") if game == "montezuma" else ("return_mean",)
    title = f"Not of the paper: bonuses that came after it, {SIX_GAMES.get(game, config.env.id)}"
    return Experiment("bonuses", title, arms, seeds=5, measures=measures, iqm=True)


SND = RECIPES["snd"]
PUBLIC = SND | {"bonus": "rnd", "bonus_scale": 1.0}
"""What a public program does otherwise, as far as there are flags (docs/recipe.md)."""
EFFICIENCY_ARMS: dict[str, dict[str, Any]] = {
    "paper": {},
    "minibatches-8": {"minibatches": 8},
    "minibatches-16": {"minibatches": 16},
    "minibatches-32": {"minibatches": 32},
    "minibatches-64": {"minibatches": 64},
    "16-lr-2e-4": {"minibatches": 16, "lr": 2e-4},
    "32-two-epochs": {"minibatches": 32, "epochs": 2},
    "16-overlap": {"minibatches": 16, "overlap": True},
    "16-overlap-refresh": {"minibatches": 16, "overlap": True, "overlap_refresh": "epoch"},
    "16-half-life": {"minibatches": 16, "bonus_half_life": 2.0**20},
    "16-half-life-int-0.3": {"minibatches": 16, "bonus_half_life": 2.0**20, "int_coef": 0.3},
    "16-int-coef-2": {"minibatches": 16, "int_coef": 2.0},
    "16-int-coef-4": {"minibatches": 16, "int_coef": 4.0},
    "16-min-bonus-share": {"minibatches": 16, "min_bonus_share": 0.15},
    "16-raw-clipped": {"minibatches": 16, "bonus_scale": 1.0, "max_bonus": 1.0},
    "16-snd-v-raw-clipped": {"minibatches": 16, "bonus": "snd-v", "bonus_scale": 1.0, "max_bonus": 1.0},
    "16-max-grad-norm": {"minibatches": 16, "max_grad_norm": 0.5},
    "16-target-kl": {"minibatches": 16, "target_kl": 0.03},
    "16-normalize-adv": {"minibatches": 16, "normalize_adv": True},
    "16-gru": {"minibatches": 16, "policy": "gru"},
    "1024-envs-32": {"minibatches": 32, "envs": 1024},
    "1024-envs-128": {"minibatches": 128, "envs": 1024},
    "public": PUBLIC,
    "public-episodic-int": PUBLIC | {"episodic_int": True},
    "public-scale-4": PUBLIC | {"bonus_scale": 4.0},
    "snd": SND,
    "snd-scale-1": SND | {"bonus_scale": 1.0},
    "snd-scale-2": SND | {"bonus_scale": 2.0},
    "snd-16": SND | {"minibatches": 16},
    "snd-half-life-int-0.3": SND
    | {"bonus_scale": None, "max_bonus": None, "bonus_half_life": 2.0**20, "int_coef": 0.3},
}
"""Arms of `efficiency`: each differs in one thing from `minibatches-16`, from `public` or from `snd`."""


def efficiency(frames: int | None = None) -> Experiment:
    """Not of the paper: which changes of its settings earn more per frame, Montezuma's Revenge. Without `frames`: 200
    million."""
    arms = tuple(
        Arm(name, name.replace("-", " "), replace(run_of(**changes), frames=frames or 200_000_000))
        for name, changes in EFFICIENCY_ARMS.items()
    )
    title = "Not of the paper: score per frame, Montezuma's Revenge"
    return Experiment("efficiency", title, arms, seeds=3, measures=("return_mean", "rooms"))


def six_games(policy: str) -> tuple[Arm, ...]:
    return tuple(
        Arm(f"{game}-{bonus}", method, run_of(game, policy=policy, bonus=bonus), title)
        for game, title in SIX_GAMES.items()
        for method, bonus in METHODS.items()
    )


def table1_scores() -> dict[str, tuple[ReferenceLine, ...]]:
    return {
        title: tuple(
            ReferenceLine(TABLE1[method][game], f"paper: {method} {TABLE1[method][game]:,}", method)
            for method in METHODS
        )
        for game, title in SIX_GAMES.items()
    }


_FUNCTIONS = (
    figure1,
    figure3,
    figure3_release,
    figure4,
    figure5,
    figure6,
    figure7,
    figure8,
    figure9,
    table1,
    bonuses,
    efficiency,
)
EXPERIMENTS: dict[str, Callable[[], Experiment]] = {
    function.__name__.replace("_", "-"): function for function in _FUNCTIONS
}
