"""Which engine a command has run."""

from __future__ import annotations

from pathlib import Path

from optc.artifact.choose import Rejected
from optc.cli.chosen import chosen_json, chosen_text
from optc.runtime.engine_info import EngineInfo

REJECTED = (Rejected("b", "no GPU"), Rejected("c", "slower"))
INFO = EngineInfo(Path("artifact"), "a", "tvm", "native", REJECTED)


def test_as_text() -> None:
    assert chosen_text(INFO) == "engine a (tvm for native); not b: no GPU; not c: slower"


def test_as_json() -> None:
    assert chosen_json(INFO) == {
        "engine": {
            "name": "a",
            "backend": "tvm",
            "target": "native",
            "rejected": [{"name": "b", "reason": "no GPU"}, {"name": "c", "reason": "slower"}],
        },
        "target": "native",
    }
    assert chosen_json(None) == {"engine": None, "target": None}
