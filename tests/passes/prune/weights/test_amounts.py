"""How much is pruned: what is written, and what is refused."""

from __future__ import annotations

import pytest

from optc.errors import InputError
from optc.passes.prune.weights.amounts import Amount, LayerAmounts, amount_of

HALF = Amount(0.5)


def test_a_share_or_a_pattern() -> None:
    assert amount_of(0.6, "", "here") == Amount(0.6)
    assert amount_of(0.5, "2:4", "here") == Amount(0.5, 2, 4)
    assert amount_of(0.5, "4:8", "here") == Amount(0.5, 4, 8)
    assert [amount_of(0.5, p, "here").label for p in ("", "2:4")] == ["50 %", "2:4"]
    assert Amount(0.655).label == "65.5 %"


def test_a_pattern_needs_whole_groups() -> None:
    assert [Amount(0.5, 4, 8).fits(k) for k in (64, 68)] == [True, False]
    assert Amount(0.5).fits(7)


def test_the_last_glob_that_matches_holds() -> None:
    texts = ("*.mlp.*=0.6", "*.down_proj.weight=2:4", "layers.0.*=0")
    amounts = LayerAmounts.read(HALF, texts, "here")
    assert amounts.of("layers.1.self_attn.q_proj.weight") == HALF
    assert amounts.of("layers.1.mlp.up_proj.weight") == Amount(0.6)
    assert amounts.of("layers.1.mlp.down_proj.weight") == Amount(0.5, 2, 4)
    assert amounts.of("layers.0.mlp.down_proj.weight") == Amount(0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0.5", "here: '0.5' is not tensor=sparsity"),
        ("=0.5", "here: '=0.5' is not tensor=sparsity"),
        ("a=half", "here: 'half' is no sparsity (0.5, or 2:4)"),
        ("a=1", "here: sparsity=1 is not 0 to less than 1"),
        ("a=-0.5", "here: '-0.5' is no sparsity (0.5, or 2:4)"),
        ("a=3:4", "here: '3:4' is no pattern (one of 2:4, 4:8)"),
    ],
)
def test_what_is_no_amount_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        LayerAmounts.read(HALF, [text], "here")
    assert str(caught.value) == message


def test_globs_that_match_nothing_are_named() -> None:
    amounts = LayerAmounts.read(HALF, ["l0.*=0", "l9.*=0.6"], "pass prune-weights")
    assert amounts.strange(["l0.q", "l0.k"]) == ["l9.*"]
    amounts.check_names(["l0.q", "l9.q"])
    with pytest.raises(InputError) as caught:
        amounts.check_names(["l0.q", "l0.k"])
    assert str(caught.value) == (
        "pass prune-weights: no linear layer has a weight 'l9.*' (there are l0.k, l0.q, …)"
    )
