"""docs/how-to/add-a-pass.md: a pass is a class, a line in its group's list and one in a recipe."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from optc.ir.pipeline import registry as pass_registry
from optc.ir.pipeline.base import Pass
from tests.cli.conftest import Optc
from tests.how_to import installed
from tests.support.ir_text import expected, f32, model_of, nodes_text
from tests.support.ragged import run
from tests.support.stub import StubBackend

SOURCE = '''
from dataclasses import dataclass
from typing import ClassVar

from optc.ir.functions import is_op
from optc.ir.pipeline.base import Pass, PassReport


@dataclass(frozen=True)
class SwapAdds(Pass):
    """The operands of an Add change places."""

    name: ClassVar[str] = "swap-adds"
    expected: ClassVar[bool] = True
    most: int = 8

    def run(self, model, context=None):
        report = PassReport()
        for node in list(model.graph):
            if not is_op(node, "Add"):
                continue
            if report.count == self.most:
                report.skip(node, "enough are swapped")
                continue
            first, second = node.inputs
            node.replace_input_with(0, second)
            node.replace_input_with(1, first)
            report.add("adds")
        return report


PASSES = (SwapAdds,)
'''
RECIPE = """
name: with-dummy
backend: tvm
pipeline: [canonicalize, fuse-qkv, fuse-gate-up, kv-cache, swap-adds: {most: 1}]
gates: {}
"""
POINT = ("dummy_passes", SOURCE, "optc.passes", "dummy = dummy_passes")


def test_it_is_listed_runs_from_a_recipe_and_leaves_nothing(
    optc: Optc, stub: StubBackend, quick_import: None, tiny_model: Path, tmp_path: Path
) -> None:
    folder, recipe = tmp_path / "package", tmp_path / "recipe.yaml"
    folder.mkdir()
    recipe.write_text(RECIPE)
    call = ("compile", tiny_model, "--recipe", recipe, "--no-gates", "-o")
    before = optc("passes", "--json").json
    with installed(folder, *POINT):
        (entry,) = [p for p in optc("passes", "--json").json["passes"] if p["group"] == "dummy"]
        assert (entry["name"], entry["options"]) == ("swap-adds", {"most": 8})
        assert entry["description"] == "The operands of an Add change places."
        dumps = tmp_path / "dumps"
        found = optc(*call, tmp_path / "a", "--json", "--dump-dir", dumps).json["passes"]
        assert (found[-1]["name"], found[-1]["details"]) == ("swap-adds", {"adds": 1})
        assert found[-1]["skipped"][0].endswith("enough are swapped")
        last = dumps / f"{len(found) - 1:02}-swap-adds.onnx.txt"
        assert sorted(dumps.iterdir())[-1] == last
        more = ("--set", "swap-adds.most=2", "--json")
        assert optc(*call, tmp_path / "b", *more).json["passes"][-1]["count"] == 2
    assert optc("passes", "--json").json == before
    refused = optc(*call, tmp_path / "c")
    assert (refused.code, (tmp_path / "c").exists()) == (2, False)
    assert "unknown pass 'swap-adds'" in refused.err


def swap_adds(folder: Path) -> Pass:
    with installed(folder, *POINT):
        return pass_registry.passes()["swap-adds"].from_options({"most": "1"})


def test_its_text_before_and_after_and_its_numbers(tmp_path: Path) -> None:
    nodes = "a = Tanh (x)\nb = Add (a, x)\ny = Add (b, a)"
    model = model_of("g (float[S,8] x) => (float[S,8] y)", nodes)
    x = f32(3, 8)
    one = swap_adds(tmp_path)
    assert one.spec() == "swap-adds{most=1}"
    report = one.run(model)
    assert (report.details, report.skipped) == ({"adds": 1}, ["Add: enough are swapped"])
    assert nodes_text(model) == expected(
        """
        a = Tanh (x)
        b = Add (x, a)
        y = Add (b, a)"""
    )
    np.testing.assert_allclose(run(model, {"x": x})[0], 2 * np.tanh(x) + x, rtol=1e-5)
