"""Episode statistics against numbers counted by hand."""

from rnd.envs.interface import Episode
from rnd.metrics.episodes import WINDOW, EpisodeStats


def episode(score: float, length: int = 5) -> Episode:
    return Episode(0, score, length, frozenset({1}))


def test_success_is_a_return_above_the_threshold_not_at_it():
    stats = EpisodeStats(success_return=0.0)
    stats.update([episode(0.0), episode(0.1), episode(-1.0), episode(2.0)], [], frames=8)
    row = stats.summary()
    assert row["success"] == 0.5
    assert row["return_mean"] == (0.1 - 1.0 + 2.0) / 4 and row["return_best"] == 2.0
    assert EpisodeStats().summary()["success"] is None


def test_means_are_over_the_last_hundred_episodes_and_the_best_over_all():
    stats = EpisodeStats()
    stats.update([episode(1000.0, 99)] + [episode(1.0, 3)] * WINDOW, [7, 7, 256 + 7], frames=16)
    row = stats.summary()
    assert (row["return_mean"], row["length_mean"], row["return_best"], row["episodes"]) == (1.0, 3.0, 1000.0, 101)
    assert (row["rooms"], row["places"]) == (1, 2)
    assert stats.rooms[7] == [16, 2]
