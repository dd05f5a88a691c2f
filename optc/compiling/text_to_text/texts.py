"""Texts to judge a model by that turns texts into texts: the user's, or those that ship."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from optc.compiling.parts.given import read_lines
from optc.compiling.tensors.sentences import sentences
from optc.errors import InputError

#: Sentences that judge, of those that ship.
_COUNT = 16


def read_texts(given: Sequence[Any], calibration: Path | None) -> tuple[str, ...]:
    """The user's texts, a line of a file each, or sentences that ship.

    Args:
        given: Files of the user.
        calibration: A file of texts that passes would learn from.

    Raises:
        InputError: A file cannot be read, none has a line, or there is a calibration.
    """
    if calibration is not None:
        raise InputError(
            "no pass of a model that turns texts into texts learns from texts",
            where="calibration",
            hint="leave it out; the weights of these models are rounded to the nearest value",
        )
    return read_lines(given, "texts") or tuple(sentences(_COUNT))
