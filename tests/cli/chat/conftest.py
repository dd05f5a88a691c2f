from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Optc, Outcome

Talk = Callable[..., Outcome]


@pytest.fixture
def talk(optc: Optc, talker: Path, monkeypatch: pytest.MonkeyPatch) -> Talk:
    """Runs ``optc chat`` with lines on stdin; answers have five tokens."""

    def call(*lines: str, options: tuple[object, ...] = ()) -> Outcome:
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        return optc("chat", talker, "--max-tokens", "5", "--ignore-eos", *options)

    return call
