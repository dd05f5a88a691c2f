"""Dumps of the graph after each pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from optc.errors import InputError
from optc.ir.pipeline.base import PassReport
from optc.ir.pipeline.instruments import dump_to, model_text
from optc.ir.pipeline.record import PassRecord
from tests.support.ir_text import f32, model_of

RECORD = PassRecord(3, "rename", "rename", 0.5, PassReport())


def test_weights_are_named_but_not_written() -> None:
    model = model_of("g (float[S,8] x) => (float[S,8] y)", "y = MatMul (x, w)", {"w": f32(8, 8)})
    text = model_text(model)
    assert "MatMul (x, w)" in text
    assert len(text) < 400


def test_a_dump_is_named_by_place_and_pass(tmp_path: Path) -> None:
    model = model_of("g (float[S,8] x) => (float[S,8] y)", "y = Tanh (x)")
    dump_to(tmp_path / "new" / "ir")(RECORD, model)
    (path,) = (tmp_path / "new" / "ir").iterdir()
    assert path.name == "03-rename.onnx.txt"
    assert "y = Tanh (x)" in path.read_text()


def test_a_folder_that_cannot_be_made_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write the IR dump: ") as caught:
        dump_to(tmp_path / "file")(
            RECORD, model_of("g (float[S] x) => (float[S] y)", "y = Tanh (x)")
        )
    assert caught.value.where == str(tmp_path / "file" / "03-rename.onnx.txt")
