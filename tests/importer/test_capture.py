"""The captured attention function: what it hands on and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import masking_utils

from optc.errors import UnsupportedError
from optc.importer.capture import Visible, attention, visible_tokens

Q, K, V = torch.zeros(1, 4, 3, 8), torch.zeros(1, 2, 3, 8), torch.zeros(1, 2, 3, 6)


class Causal(torch.nn.Module):
    is_causal = True


class Bidirectional(torch.nn.Module):
    is_causal = False


def test_the_mask_is_its_window() -> None:
    assert visible_tokens(batch_size=1, local_size=8) == Visible(8)
    assert visible_tokens(batch_size=1) == Visible(0)


def test_a_mask_is_cut_nowhere() -> None:
    mask = Visible(8)
    for whole in (slice(None), slice(-0, None), ...):
        assert mask[:, :, whole] is mask
    for part in (slice(1, None), slice(None, 4), slice(None, None, 2), 0, None):
        with pytest.raises(UnsupportedError, match="attention to a part of the mask"):
            mask[:, :, part]


def test_a_mask_of_chunks_is_told_from_a_window() -> None:
    none = torch.zeros(1, dtype=torch.int64)
    window = masking_utils.sliding_window_causal_mask_function(8)
    chunk = masking_utils.chunked_causal_mask_function(8, none)
    wrapped = masking_utils.and_masks(chunk, masking_utils.padding_mask_function(none))
    assert visible_tokens(local_size=8, mask_function=window) == Visible(8)
    for function in (chunk, wrapped):
        assert visible_tokens(local_size=8, mask_function=function) == Visible(0, 8)


@pytest.mark.parametrize("sinks", [None, 4])
def test_shape_of_the_result(sinks: int | None) -> None:
    with torch.device("meta"):
        operands = [torch.empty(x.shape) for x in (Q, K, V)]
        given = None if sinks is None else torch.empty(sinks)
        out, scores = attention(Causal(), *operands, Visible(0), s_aux=given)
    assert (tuple(out.shape), scores) == ((1, 3, 4, 6), None)


def test_the_operator_is_never_run() -> None:
    with pytest.raises(NotImplementedError, match="only traced"):
        attention(Causal(), Q, K, V, None)


@pytest.mark.parametrize(
    ("module", "mask", "options", "message"),
    [
        (Bidirectional(), None, {}, "not causal"),
        (Causal(), None, {"is_causal": False}, "not causal"),
        (Causal(), None, {"position_bias": Q}, "attention with position_bias"),
        (Causal(), torch.zeros(1, 1, 3, 3), {}, "attention with a mask of its own"),
        (Causal(), Visible(8), {"sliding_window": 4}, "window is 4 but its mask shows 8"),
        (Causal(), Visible(0), {"sliding_window": 4}, "window is 4 but its mask shows 0"),
    ],
)
def test_what_is_refused(
    module: torch.nn.Module, mask: Visible | None, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UnsupportedError, match=message) as caught:
        attention(module, Q, K, V, mask, **options)
    assert caught.value.where == type(module).__name__
