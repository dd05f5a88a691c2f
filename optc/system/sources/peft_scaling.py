"""Factors of an adapter's products, by layer: ``lora_alpha`` and ``alpha_pattern`` of PEFT.

Patterns are regular expressions out of somebody's file, and Python's may take years for a short
name: those are taken that cannot.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from optc.errors import InputError

#: An adapter has no more patterns, and none is longer.
_MOST_PATTERNS, _LONGEST = 4096, 200
#: Repetitions in a pattern, beside PEFT's own in front of it: each may try all places of a name.
_REPETITIONS = 3
_REPETITION = re.compile(r"[*+?{]")
_REPEATED_GROUP = re.compile(r"\)[*+?{]")
#: Layers' names are not longer where patterns have repetitions.
_LONGEST_NAME = 200


class Scalings:
    """The factors of one adapter.

    Args:
        config: adapter_config.json.
        where: The file's name, for messages.

    Raises:
        InputError: A factor is no finite number, or a pattern cannot be followed.
    """

    def __init__(self, config: Mapping[str, Any], where: str) -> None:
        self._where = where
        self._stabilized = bool(config.get("use_rslora"))
        self._alpha = self._number("lora_alpha", config.get("lora_alpha", 8))
        stated = config.get("alpha_pattern") or {}
        if not isinstance(stated, Mapping) or len(stated) > _MOST_PATTERNS:
            raise self._wrong("alpha_pattern is no list of at most 4096 layers with a number each")
        self._patterns = [
            (self._pattern(str(text)), self._number("alpha_pattern", value))
            for text, value in stated.items()
        ]

    def of(self, name: str, rank: int) -> float:
        """The factor of B A of the layer ``name``. As in PEFT, patterns match whole names of
        layers or their ends.

        Raises:
            InputError: The rank is 0, or the name is longer than a pattern is tried with.
        """
        if rank < 1:
            raise self._wrong(f"{name[:_LONGEST]} has rank 0")
        if self._patterns and len(name) > _LONGEST_NAME:
            raise self._wrong(f"{name[:_LONGEST]}…: alpha_pattern is followed for shorter names")
        found = (value for pattern, value in self._patterns if pattern.match(name))
        return next(found, self._alpha) / (math.sqrt(rank) if self._stabilized else rank)

    def _number(self, option: str, value: object) -> float:
        try:
            number = float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not abs(number) < math.inf or isinstance(value, bool):
            raise self._wrong(f"{option} holds what is no finite number")
        return number

    def _pattern(self, text: str) -> re.Pattern[str]:
        repeated = len(_REPETITION.findall(text)) > _REPETITIONS or _REPEATED_GROUP.search(text)
        if len(text) > _LONGEST or repeated:
            raise self._wrong(
                f"alpha_pattern has {text[:_LONGEST]!r}, which may take without end: more than "
                f"{_REPETITIONS} repetitions, a repeated group, or more than {_LONGEST} characters"
            )
        try:
            return re.compile(rf"(.*\.)?({text})$")
        except (re.error, OverflowError, RecursionError) as error:
            problem = f"alpha_pattern has {text!r}, which is no regular expression: {error}"
            raise self._wrong(problem) from error

    def _wrong(self, problem: str) -> InputError:
        hint = "write layers' names as they are; or merge the adapter with PEFT before compiling"
        return InputError(problem, where=self._where, hint=hint)
