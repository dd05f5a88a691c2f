"""What a dead child said."""

from __future__ import annotations

import pytest

from benchmarks.families.child import last_error


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("Traceback\n  file\nValueError: no such size\n", "ValueError: no such size"),
        (
            "ImportError: \nA needs the library b. Install it:\n`pip`\n",
            "ImportError: A needs the library b. Install it:",
        ),
        ("killed\n", ""),
        ("", ""),
    ],
)
def test_the_last_error_of_an_output(output: str, said: str) -> None:
    assert last_error(output) == said
