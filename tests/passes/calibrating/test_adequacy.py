"""Adequacy of a calibration text, on inputs whose second moments are known."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from optc.passes.calibrating.adequacy import Adequacy, HalfSums
from optc.passes.numerics.gptq.factor import factor_of


def inputs(windows: int, tokens: int, width: int, seed: int = 0) -> np.ndarray:
    """Correlated inputs [windows, tokens, width]."""
    rng = np.random.default_rng(seed)
    mix = np.random.default_rng(1).standard_normal((width, width)) / np.sqrt(width)
    return (rng.standard_normal((windows, tokens, width)) @ mix).astype(np.float32)


def sums_of(values: np.ndarray, chunk: int = 0) -> HalfSums:
    sums = HalfSums()
    for start in range(0, len(values), chunk or len(values)):
        sums.add(values[start : start + (chunk or len(values))], start)
    return sums


def moments(values: np.ndarray) -> np.ndarray:
    rows = values.reshape(-1, values.shape[-1]).astype(np.float64)
    return rows.T @ rows


def simulated(fitted: np.ndarray, seen: np.ndarray) -> float:
    """Mean loss by ``seen`` of weights whose columns were rounded one after the other, with random
    errors that were handed on by ``fitted``."""
    factor = factor_of(fitted, 0)
    errors = np.random.default_rng(2).uniform(-1, 1, (4000, len(fitted)))
    off = np.zeros_like(errors)
    for i in range(len(fitted)):
        off[:, i] += errors[:, i]
        off[:, i + 1 :] += errors[:, i, None] * factor.shares[i, i + 1 :]
    back = np.empty_like(off)
    back[:, factor.order] = off
    return float(np.einsum("ni,ij,nj->n", back, seen, back).mean())


def test_the_loss_on_unseen_windows_is_that_of_rounding_with_random_errors() -> None:
    values = inputs(4, 40, 24)
    even, odd = moments(values[::2]), moments(values[1::2])
    ratios = [
        simulated(one, other) / simulated(one, one) for one, other in ((even, odd), (odd, even))
    ]
    expected = np.sqrt(ratios[0] * ratios[1])
    assert expected > 1.2
    assert sums_of(values).unseen() == pytest.approx(expected, rel=0.05)
    assert sums_of(values, chunk=3).unseen() == pytest.approx(expected, rel=0.05)


def test_more_windows_lose_less_on_unseen_ones() -> None:
    found = [sums_of(inputs(windows, 32, 24)).unseen() or 0 for windows in (4, 16, 128)]
    assert found[0] > found[1] > found[2]
    assert 1 < found[2] < 1.05


def test_equal_halves_lose_nothing() -> None:
    values = np.repeat(inputs(1, 50, 16), 2, axis=0)
    assert sums_of(values).unseen() == pytest.approx(1, abs=1e-5)
    assert sums_of(np.zeros((2, 8, 16), np.float32)).unseen() == 1.0


def test_values_in_bfloat16_are_summed_in_float32() -> None:
    values = inputs(4, 40, 24).astype(ml_dtypes.bfloat16)
    assert sums_of(values).unseen() == sums_of(values.astype(np.float32)).unseen()


def test_one_window_has_no_other_half() -> None:
    assert sums_of(inputs(1, 8, 8)).unseen() is None


def test_of_many_inputs_a_sample_is_seen_over_as_large_a_share_of_the_tokens() -> None:
    values = inputs(2, 40, 1026)
    sums = sums_of(values)
    assert (sums.tokens, sums.width) == (80, 1026)
    sample = values[:, ::3, ::3]
    expected = sums_of(np.ascontiguousarray(sample)).unseen()
    assert sums.unseen() == pytest.approx(expected, rel=1e-6)


def test_the_layers_with_the_least_are_named() -> None:
    adequacy = Adequacy(moments=True)
    adequacy.add("wide", sums_of(inputs(4, 15, 40)))
    adequacy.add("narrow", sums_of(inputs(4, 15, 8)))
    adequacy.add("fair", sums_of(inputs(4, 15, 10)))
    facts = adequacy.facts()
    assert facts["least_tokens_per_input"] == {
        "weight": "wide",
        "tokens": 60,
        "inputs": 40,
        "tokens_per_input": 1.5,
    }
    assert facts["unseen_loss"]["weight"] == "wide"
    assert facts["unseen_loss"]["largest"] > facts["unseen_loss"]["median"] > 1
    assert adequacy.warnings()[0] == (
        "the calibration text is short: 60 tokens for the 40 inputs of wide; give more windows"
    )


def test_a_median_layer_that_loses_much_on_unseen_windows_is_a_warning() -> None:
    adequacy = Adequacy(moments=True)
    adequacy.add("a", sums_of(inputs(4, 20, 24)))
    adequacy.add("b", sums_of(inputs(4, 20, 24, seed=3)))
    (found,) = adequacy.warnings()
    usual = adequacy.facts()["unseen_loss"]["median"]
    assert found == (
        "the calibration text is short: rounding by half of its windows loses "
        f"{usual:.2f} times as much on the other half, in the median layer; "
        "more windows would help"
    )
    enough = Adequacy(moments=True)
    enough.add("a", sums_of(inputs(64, 20, 24)))
    assert enough.warnings() == []


def test_ranges_alone_need_no_second_moments() -> None:
    adequacy = Adequacy(moments=False)
    adequacy.add("a", sums_of(inputs(2, 4, 40)))
    assert adequacy.warnings() == []
    assert "unseen_loss" not in adequacy.facts()
