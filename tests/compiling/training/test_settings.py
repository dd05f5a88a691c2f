"""Numbers of options: read, and refused by name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from optc.compiling.training.settings import read_settings, read_tokens
from optc.errors import InputError
from optc.system.options.training_options import DistillOptions, QatOptions


@pytest.mark.parametrize(("text", "count"), [("840k", 840_000), ("1.5M", 1_500_000), ("99", 99)])
def test_tokens(text: str, count: int) -> None:
    assert read_tokens(text) == count


@pytest.mark.parametrize("text", ["", "0", "-3", "many", "1g"])
def test_what_is_no_number_of_tokens(text: str) -> None:
    with pytest.raises(InputError, match=r"--tokens: .* is no number of tokens \(such as 840k"):
        read_tokens(text)


def test_steps_are_the_tokens_over_those_of_a_step() -> None:
    settings = read_settings(DistillOptions(tokens="8192", window=128, batch=4))
    assert (settings.steps, settings.every) == (16, 2)
    assert settings.rate == 2e-4


def test_distillation_has_shorter_windows_than_rounding() -> None:
    ours, rounded = read_settings(DistillOptions()), read_settings(QatOptions())
    assert (ours.window, ours.batch) == (128, 8)
    assert (rounded.window, rounded.batch) == (512, 4)


def test_rates_out_of_range() -> None:
    with pytest.raises(InputError, match="--rate: '-1' is no number above 0 to 1"):
        read_settings(DistillOptions(rate="-1"))
    with pytest.raises(InputError, match="--rate: 'nan' is no number"):
        read_settings(DistillOptions(rate="nan"))
    with pytest.raises(InputError, match=r"--hidden-loss: '-0\.1' is no number from 0"):
        read_settings(DistillOptions(), hidden_loss="-0.1")
    with pytest.raises(InputError, match="--minutes: '0' is no number above 0"):
        read_settings(DistillOptions(minutes="0"))


def test_minutes_have_room_for_steps_beside_the_evaluations() -> None:
    settings = read_settings(DistillOptions(minutes="2"))
    assert settings.steps_within(of_step=2.0, of_evaluation=1.0, spent=10.0) == 50
    assert settings.steps_within(of_step=2.0, of_evaluation=20.0, spent=10.0) == 1
    assert settings.of_steps(50) == replace(settings, steps=50, every=5)
