"""Orders of passes that make no sense are refused before anything runs, and by name."""

from __future__ import annotations

import pytest

from optc.errors import InputError
from optc.ir.pipeline import registry
from tests.support.pipelines import pipeline_of

STRUCTURES = ("prune-depth", "prune-heads", "prune-width")
PRUNE = (*STRUCTURES, "prune-weights")
REBASE = ("rotate", "smooth")
MEASURE = ("calibrate", "allocate-bits", "propagate-errors")
ROUND = ("quantize-weights", "quantize-static", "cast-weights")
FUSE = ("fuse-qkv", "fuse-gate-up")
#: (what, what may not have run before it).
REFUSED = (
    *((late, early) for late in PRUNE for early in ("trained-weights", *MEASURE[1:], *ROUND)),
    *((late, early) for late in STRUCTURES for early in ("prune-weights", *REBASE, "balance-keys")),
    *((late, early) for late in PRUNE for early in FUSE),
    *((late, early) for late in (*REBASE, *MEASURE) for early in ROUND),
    *((late, early) for late in REBASE for early in ("prune-weights", *MEASURE[1:], *FUSE)),
    *((late, early) for late in FUSE for early in ROUND[:2]),
    *(("vocab-trim", early) for early in (*REBASE, *MEASURE, *ROUND)),
    ("allocate-bits", "propagate-errors"),
    ("trained-weights", "propagate-errors"),
    ("quantize-weights", "cast-weights"),
    ("kv-cache", "quantize-weights"),
    ("balance-keys", "fuse-qkv"),
    ("prune-depth", "prune-width"),
    *((early, "prune-to-budget") for early in STRUCTURES),
    *(("prune-to-budget", early) for early in ("prune-weights", "allocate-bits", *REBASE, *FUSE)),
)
#: Passes whose second run would count, round or measure what the first one did.
ONCE = ("prune-depth", "prune-width", "prune-to-budget", *MEASURE[1:], "quantize-weights")


@pytest.mark.parametrize(("late", "early"), REFUSED)
def test_what_would_undo_or_mistake_an_earlier_pass_is_refused(late: str, early: str) -> None:
    assert {late, early} <= registry.passes().keys()
    with pytest.raises(InputError) as caught:
        pipeline_of(f"canonicalize,{early},{late}")
    assert caught.value.where == "pipeline"
    assert f"{late} must come before {early}" in caught.value.message


@pytest.mark.parametrize("name", ONCE)
def test_a_second_run_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} must come before {name}"):
        pipeline_of(f"canonicalize,{name},{name}")


@pytest.mark.parametrize("name", sorted({*PRUNE, *REBASE, *MEASURE} - {"quantize-static"}))
def test_the_cached_form_is_refused_by_type(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} takes .*, and is given "):
        pipeline_of(f"canonicalize,kv-cache,{name}")


def test_all_of_them_have_one_order() -> None:
    pipeline_of(
        "canonicalize,vocab-trim,prune-depth,prune-heads,prune-width,prune-to-budget,"
        "trained-weights,rotate,calibrate,smooth,balance-keys,allocate-bits,propagate-errors,"
        "fuse-qkv,fuse-gate-up,kv-cache,quantize-weights,fuse-norm-quantize"
    )


def test_every_pass_of_the_table_is_known() -> None:
    named = {name for pair in REFUSED for name in pair} | set(ONCE)
    assert named <= registry.passes().keys()
