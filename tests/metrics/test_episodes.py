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


def test_places_per_episode_are_those_of_the_last_hundred():
    stats = EpisodeStats(cells=True)
    assert stats.summary()["places_mean"] is None
    stats.update([Episode(0, 0.0, 5, frozenset(range(n))) for n in (9, *[2] * 50, *[4] * 50)], [], frames=8)
    assert stats.summary()["places_mean"] == 3.0
    other = EpisodeStats(cells=True)
    other.load_state_dict(stats.state_dict())
    assert other.summary() == stats.summary()
    del (old := stats.state_dict())["place_counts"]  # a checkpoint of rnd 0.1
    other.load_state_dict(old)
    assert other.summary()["places_mean"] is None
