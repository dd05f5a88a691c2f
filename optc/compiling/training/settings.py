"""The options of a training, read and checked."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from typing import Any

from optc.errors import InputError
from optc.system.options.training_options import TrainingOptions

_TOKENS = re.compile(r"(\d+(?:\.\d+)?)([km]?)", re.IGNORECASE | re.ASCII)
_UNITS = {"": 1, "k": 1000, "m": 1_000_000}
#: Evaluations of a training, its start apart.
_EVALUATIONS = 10


@dataclass(frozen=True)
class Settings:
    """A training's course. What it depends on beside the models and texts.

    Attributes:
        steps: Of the optimizer.
        batch: Windows of a step.
        window: Tokens of a window.
        rate: Largest learning rate.
        scale_rate: Rate of logarithms of scales over that.
        hidden_weight: Of the last hidden states' error.
        every: Steps between evaluations, and between checkpoints.
        patience: Evaluations no better than the one before after which it ends, once the rate has
            fallen to half.
        seed: Of the order of windows.
        minutes: What the steps may take, evaluations included; 0 is as long as they take. The steps
            are then counted when the training begins.
    """

    steps: int
    batch: int
    window: int
    rate: float
    scale_rate: float
    hidden_weight: float
    every: int
    patience: int
    seed: int
    minutes: float = 0.0

    def of_steps(self, steps: int) -> Settings:
        """The same of another number of steps."""
        return replace(self, steps=steps, every=_every(steps))

    def steps_within(self, of_step: float, of_evaluation: float, spent: float) -> int:
        """The number of steps that the minutes have room for, at least one.

        Args:
            of_step: Seconds of a step.
            of_evaluation: Seconds of an evaluation.
            spent: Seconds that are gone already.
        """
        left = 60 * self.minutes - spent - _EVALUATIONS * of_evaluation
        return max(1, int(left / of_step))

    def to_json(self) -> dict[str, Any]:
        """All of them."""
        return asdict(self)


def read_settings(
    asked: TrainingOptions, *, scale_rate: str = "1", hidden_loss: str = "0"
) -> Settings:
    """The settings that options state.

    Raises:
        InputError: A number that is none, or out of range.
    """
    tokens = read_tokens(asked.tokens)
    steps = max(1, round(tokens / (asked.batch * asked.window)))
    return Settings(
        steps=steps,
        batch=asked.batch,
        window=asked.window,
        rate=_number(asked.rate, "--rate", 1.0),
        scale_rate=_number(scale_rate, "--scale-rate", 1000.0),
        hidden_weight=_number(hidden_loss, "--hidden-loss", 1000.0, least=0.0),
        every=_every(steps),
        patience=asked.patience,
        seed=asked.seed,
        minutes=0.0 if asked.minutes is None else _number(asked.minutes, "--minutes", 1e5),
    )


def _every(steps: int) -> int:
    return max(1, -(-steps // _EVALUATIONS))


def read_tokens(text: str) -> int:
    """The number of tokens that ``text`` states, such as ``840k`` or ``1.5m``.

    Raises:
        InputError: It is no number of at least one.
    """
    found = _TOKENS.fullmatch(text.strip())
    count = int(float(found[1]) * _UNITS[found[2].lower()]) if found else 0
    if count < 1:
        raise InputError(
            f"{text!r} is no number of tokens", where="--tokens", hint="such as 840k or 1.5m"
        )
    return count


def _number(text: str, where: str, most: float, least: float | None = None) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not (value <= most and (value > 0 if least is None else value >= least)):
        bound = "above 0" if least is None else f"from {least:g}"
        raise InputError(f"{text!r} is no number {bound} to {most:g}", where=where)
    return value
