"""Texts to judge a model by that turns texts into texts: the user's, or those that ship."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optc.compiling.tensors.sentences import sentences
from optc.errors import InputError
from optc.system.options.user_text import read_user_text

#: Sentences that judge, of those that ship.
_COUNT = 16


@dataclass(frozen=True)
class Texts:
    """Texts to judge by."""

    judged: tuple[str, ...]

    @classmethod
    def of(cls, given: Sequence[Any], calibration: Path | None) -> Texts:
        """Take the user's texts, a line of a file each, or sentences that ship.

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
        found = tuple(line for one in given for line in _lines(one))
        if given and not found:
            raise InputError("no file has a line", where="inputs", hint="one text a line")
        return cls(found or tuple(sentences(_COUNT)))


def _lines(one: Any) -> list[str]:
    if not isinstance(one, str | Path):
        raise InputError(
            f"the model is judged by texts, not by {type(one).__name__}",
            where="inputs",
            hint="give files of text, one text a line",
        )
    text = read_user_text(Path(one))
    return [line.strip() for line in text.splitlines() if line.strip()]
