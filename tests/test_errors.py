"""Messages of one line: where a long one ends."""

import pytest

from bayesify.errors import first_line


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("short, of two lines\nand more", "short, of two lines"),
        ("", "ValueError"),
        ("x" * 120, "x" * 120),
        ("x" * 121, "x" * 117 + "..."),
        ("word " * 23 + "fives", "word " * 23 + "fives"),  # 120 characters
        ("word " * 25, "word " * 22 + "word..."),
        ("a" * 117 + " " + "b" * 30, "a" * 117 + "..."),
        ("a" * 100 + ", " + "b" * 30, "a" * 100 + "..."),
    ],
)
def test_a_long_line_ends_after_a_word(message, expected):
    assert first_line(ValueError(message)) == expected
    assert len(first_line(ValueError(message))) <= 120
