"""Decoders of whole batches write greedily, and say so where more is asked for."""

from __future__ import annotations

from typing import Any

import pytest

from optc.errors import RequestError
from optc.runtime.text_to_text.conventions import TextConventions
from optc.runtime.text_to_text.params import TextToTextParams
from optc.runtime.text_to_text.rules import Rules
from optc.runtime.text_to_text.writer import TensorWriter, by_length


@pytest.mark.parametrize(
    ("how", "named"),
    [
        ({"beam_width": 2}, "beam_width"),
        ({"length_penalty": 0.5}, "length_penalty"),
        ({"choice": ["a"]}, "choice"),
        ({"regex": "a+"}, "regex"),
    ],
)
def test_what_steps_have_is_refused_by_name(how: dict[str, Any], named: str) -> None:
    writer = TensorWriter(None)  # type: ignore[arg-type]
    rules = Rules(TextConventions(start=0), 0, None, 5)
    with pytest.raises(RequestError, match=f"{named}: this decoder writes whole batches"):
        writer.write([[1]], lambda rows: {}, rules, TextToTextParams(**how))


def test_settings_are_checked_before_anything_is_read() -> None:
    with pytest.raises(RequestError, match="beam_width does not go together with structured"):
        TextToTextParams(beam_width=2, regex="a")
    with pytest.raises(RequestError, match="beam_width"):
        TextToTextParams(beam_width=0)


def test_rows_by_length() -> None:
    assert by_length([[1, 2], [1], [1, 2, 3], [2]], 3) == [[1, 3, 0], [2]]
