"""Numbers as people read them."""

import pytest

from rnd.foundation.text import significant


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.6838, "0.684"),
        (-0.05, "-0.0500"),
        (1, "1.00"),
        (12.345, "12.3"),
        (4558.3, "4,558"),
        (3e-9, "3e-09"),
    ],
)
def test_three_significant_digits(value, text):
    assert significant(value) == text
