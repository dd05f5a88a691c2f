"""What a bisection found, for people."""

from __future__ import annotations

from typing import Any

import pytest

from optc.cli.bisect_tables import bisect_tables
from tests.cli.test_tables import shown

FOUND: dict[str, Any] = {
    "passes": [{"name": "canonicalize", "kl": 0.0}, {"name": "round", "kl": None}],
    "sqnr_by_layer": [34.123, None],
    "pass": "round",
    "kl_before": 0.0,
    "kl_after": None,
    "node": "n",
    "operator": "optc::QuantizedMatMul",
    "block": 3,
    "value": "v",
    "sqnr_db": 5.9876,
    "peers_db": 33.2,
    "outlier": True,
    "tensor": "w",
    "cause": "weight",
    "restored_db": 31.96,
    "kl_restored": 0.00123456,
    "suspects": [{"node": "m", "value": "u", "sqnr_db": 8.0, "peers_db": 30.0}],
}


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that are not folded."""
    monkeypatch.setenv("COLUMNS", "200")


def lines(capsys: pytest.CaptureFixture[str], **changes: Any) -> list[str]:
    return [" ".join(words) for words in shown(capsys, *bisect_tables({**FOUND, **changes}))]


def test_a_weight(capsys: pytest.CaptureFixture[str]) -> None:
    assert lines(capsys) == [
        "after each pass",
        "pass mean KL",
        "canonicalize 0",
        "round -",
        "divergence begins",
        "pass round: KL 0 before, - after",
        "node n (layer 3, optc::QuantizedMatMul): 5.99 dB, its peers 33.2",
        "tensor the weight w: in float, 32 dB and KL 0.001235",
        "also m (8 dB)",
        "SQNR by layer, dB 34.1, -",
    ]


def test_other_causes(capsys: pytest.CaptureFixture[str]) -> None:
    none = {"restored_db": None, "kl_restored": None, "suspects": []}
    text = lines(capsys, cause="activation", outlier=False, block=None, **none)
    assert "tensor rounding of the activation w" in text
    level = "5.99 dB, its peers 33.2, which is no outlier"
    assert f"node n (optc::QuantizedMatMul): {level}" in text
    assert not any(line.startswith("also") for line in text)
    assert "tensor what the node computes: w" in lines(capsys, cause="node", **none)


def test_no_pass_and_no_node(capsys: pytest.CaptureFixture[str]) -> None:
    text = lines(capsys, **{"pass": None})
    assert text[-2:] == [
        "pass none changes what is computed",
        "SQNR by layer, dB 34.1, -",
    ]
    text = lines(capsys, **{"pass": "build", "kl_after": 0.5})
    assert text[-2] == "pass none, but the engine's build: KL 0 before, 0.5 after"
    assert "node nothing in it can be compared" in lines(capsys, node=None)
    assert bisect_tables(None) == []
