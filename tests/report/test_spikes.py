"""Spikes of curves with a known result."""

import numpy as np

from rnd.report.events import inventory_events
from rnd.report.strip import find_spikes


def test_the_highest_peaks_in_order_of_time():
    bonus = np.zeros(200)
    bonus[[20, 60, 100, 140]] = [3, 9, 5, 7]
    assert find_spikes(bonus, 3) == [60, 100, 140]
    assert find_spikes(bonus, 10) == [20, 60, 100, 140]


def test_one_event_is_shown_once():
    bonus = np.zeros(200)
    bonus[[50, 52, 120]] = [5, 6, 4]
    assert find_spikes(bonus, 5) == [52, 120]


def test_a_plateau_is_one_spike_at_its_start():
    bonus = np.array([0.0] * 20 + [2.0] * 3 + [0.0] * 20)
    assert find_spikes(bonus) == [20]


def test_ends_can_be_spikes_and_nothing_has_none():
    assert find_spikes(np.array([5.0, 0, 0, 0, 0, 0, 0, 0, 0, 4.0])) == [0, 9]
    assert find_spikes(np.zeros(0)) == find_spikes(np.ones(9)) == []


def test_items_of_montezuma():
    """Seen in the emulator: byte 65 before and after, and the points that came with it."""
    assert inventory_events(0x00, 0x02, 100) == ["key taken"]
    assert inventory_events(0x02, 0x00, 300) == ["door opened"]
    assert inventory_events(0x00, 0x20, 100) == ["sword taken"]
    assert inventory_events(0x20, 0x00, 2000) == ["monster killed"]
    assert inventory_events(0x02, 0x02, 1000) == ["gem taken (+1000)"]
    assert inventory_events(0x02, 0x00, 0) == []  # the key is lost with a life: no event
    assert inventory_events(0x02, 0x02, 0) == []
