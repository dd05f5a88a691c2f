"""`benchmarks.inputs.build_edit_pool`: functions, each followed by its head under another name."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.inputs.build_edit_pool import write_edits
from benchmarks.serving import speculation

BODY = "".join(f"    value_{number} = {number}\n" for number in range(20))
MODULE = f"import os\n\n\ndef work(a, b):\n{BODY}\n\ndef short():\n    pass\n\n\nLAST = 1\n"


def test_an_edit_is_a_function_and_its_head_under_another_name(tmp_path: Path) -> None:
    pool, edits = tmp_path / "pool", tmp_path / "edits"
    rows = [{"name": f"m{number}.py", "text": MODULE} for number in range(30)]
    pool.write_text("\n".join(map(json.dumps, rows)) + "\n")
    assert write_edits(pool, edits) == 30, "the short function makes none"
    found = speculation.documents(edits)
    function = f"def work(a, b):\n{BODY}".rstrip()
    heads = {text.removeprefix(f"{function}\n\n\n") for text in found}
    assert all(text.startswith(function) for text in found)
    assert "def work_new(a, b):\n" in heads
    assert len(heads) > 3
    assert "def work(a, b):\n" not in heads
    assert set(speculation.edits(pool)) <= set(found), "of the shape that the benchmark has"
    write_edits(pool, tmp_path / "again")
    assert edits.read_text() == (tmp_path / "again").read_text()
