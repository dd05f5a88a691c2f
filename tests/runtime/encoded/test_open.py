from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from optc.errors import InputError, UnsupportedError
from optc.runtime.encoded.open import _drafting, as_tensors, check_no_drafts
from optc.runtime.settings import ServeSettings
from optc.runtime.speculative.kinds import parse_kinds


@pytest.mark.parametrize("given", [{"speculate": "ngram"}, {"draft": Path("draft")}])
def test_drafts_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="speculate: nothing drafts tokens for transcripts"):
        check_no_drafts(ServeSettings(**given), "transcripts")


@pytest.mark.parametrize("speculate", [None, "off"])
def test_without_drafts_all_is_well(speculate: str | None) -> None:
    check_no_drafts(ServeSettings(speculate=speculate), "transcripts")


class _Tensors:
    """An engine that takes and gives named tensors."""

    batch_invariant = True

    def run(self, inputs: Mapping[str, object]) -> dict[str, object]:
        """What it is given."""
        return dict(inputs)

    def close(self) -> None:
        """Nothing to release."""


def test_engines_of_named_tensors_are_given_back_as_they_are() -> None:
    engine = _Tensors()
    assert as_tensors(engine) is engine
    for other in (object(), None, {}):
        with pytest.raises(UnsupportedError, match="runs steps of a decoder, not named tensors"):
            as_tensors(other)


@pytest.mark.parametrize("speculate", ["off", "ngram", "lookahead", "ngram+lookahead"])
@pytest.mark.parametrize("cached", [False, True])
def test_drafts_of_decoders_of_steps(speculate: str, cached: bool) -> None:
    settings = ServeSettings(
        speculate=speculate,
        num_speculative_tokens=None if speculate == "off" else 3,
        max_drafted=7,
        cost_cache=cached,
    )
    found = _drafting(settings, 2, "")
    assert found.kinds == parse_kinds(speculate)
    assert (found.count, found.limit) == (settings.num_speculative_tokens, 7)
    assert (found.costs.cache is not None) == cached


@pytest.mark.parametrize("speculate", ["draft", "ngram+medusa", "eagle"])
def test_drafts_by_another_engine_are_refused(speculate: str) -> None:
    with pytest.raises(InputError, match="nothing drafts by"):
        _drafting(ServeSettings(speculate=speculate), 2, "")
