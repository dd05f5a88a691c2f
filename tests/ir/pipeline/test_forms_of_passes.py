"""Orders that make no sense are refused by the forms that passes take and give."""

from __future__ import annotations

import pytest

from optc.errors import InputError
from optc.ir.forms.decoder import Dense, Exported
from optc.ir.forms.ragged import RaggedStep
from optc.ir.pipeline import registry as pass_registry
from tests.support.pipelines import pipeline_of


def problems(spec: str, start: type | None = None) -> str:
    with pytest.raises(InputError) as caught:
        pipeline_of(spec).validate(start)
    return caught.value.message


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("kv-cache,calibrate", "calibrate takes the dense form, and is given the ragged step"),
        ("kv-cache,kv-cache", "kv-cache takes the dense form, and is given the ragged step"),
        ("kv-slots,kv-slots", "kv-slots takes the ragged step, and is given the static-KV form"),
        ("canonicalize,fuse-rotary", "fuse-rotary takes the ragged step or an encoder over packed"),
        ("calibrate,adapters", "adapters takes the ragged step, and is given the dense form"),
        ("canonicalize,canonicalize", "canonicalize takes an exported decoder, and is given the"),
        ("kv-cache,kv-slots,medusa-heads", "medusa-heads takes the ragged step, and is given the"),
    ],
)
def test_an_illegal_order_is_refused_before_anything_runs(spec: str, message: str) -> None:
    assert message in problems(spec)


def test_all_violations_are_in_one_message() -> None:
    said = problems("kv-cache,canonicalize,calibrate,kv-cache")
    assert said.split("; ") == [
        "canonicalize takes an exported decoder, and is given the ragged step"
    ]
    said = problems("quantize-weights,kv-cache,kv-cache")
    assert "kv-cache takes the dense form" in said
    assert "kv-cache must come before quantize-weights" in said


def test_the_form_that_the_first_pass_is_given_counts() -> None:
    pipeline = pipeline_of("calibrate,kv-cache")
    pipeline.validate()
    pipeline.validate(Dense)
    assert "calibrate takes the dense form" in problems("calibrate,kv-cache", Exported)
    assert "calibrate takes the dense form" in problems("calibrate,kv-cache", RaggedStep)


def test_what_every_pass_gives_is_a_form_that_it_can_have_been_given() -> None:
    for name, one in pass_registry.passes().items():
        assert one.gives is None or one.takes, f"{name} gives a form but takes any"
