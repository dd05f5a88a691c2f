"""Labels of tokens become parts of texts."""

from __future__ import annotations

import pytest

from optc.runtime.tensors.text_classifiers import _parted


@pytest.mark.parametrize(
    ("label", "parted"),
    [
        ("B-PER", ("B", "PER")),
        ("I-first-name", ("I", "first-name")),
        ("E-LOC", ("E", "LOC")),
        ("O", ("", "O")),
        ("PER", ("", "PER")),
        ("non-fiction", ("", "non-fiction")),
    ],
)
def test_a_kind_keeps_its_own_hyphens(label: str, parted: tuple[str, str]) -> None:
    assert _parted(label) == parted
