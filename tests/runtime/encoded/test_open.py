from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from optc.errors import InputError
from optc.runtime.encoded.open import check_no_drafts
from optc.runtime.settings import ServeSettings


@pytest.mark.parametrize("given", [{"speculate": "ngram"}, {"draft": Path("draft")}])
def test_drafts_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="speculate: nothing drafts tokens for transcripts"):
        check_no_drafts(ServeSettings(**given), "transcripts")


@pytest.mark.parametrize("speculate", [None, "off"])
def test_without_drafts_all_is_well(speculate: str | None) -> None:
    check_no_drafts(ServeSettings(speculate=speculate), "transcripts")
