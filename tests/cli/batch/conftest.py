from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Optc, Outcome

Answer = Callable[..., Outcome]


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def answer(optc: Optc, talker: Path, tmp_path: Path) -> Answer:
    """Runs ``optc run`` from in.jsonl to out.jsonl; texts are lines, other values are JSON."""

    def call(*lines: object, options: tuple[object, ...] = ()) -> Outcome:
        if lines:
            texts = [one if isinstance(one, str) else json.dumps(one) for one in lines]
            (tmp_path / "in.jsonl").write_text("".join(f"{text}\n" for text in texts), "utf-8")
        files = ("--input", tmp_path / "in.jsonl", "--output", tmp_path / "out.jsonl")
        return optc("run", talker, *files, "--max-tokens", "4", "--ignore-eos", *options)

    return call
