"""docs/how-to/add-a-backend.md: a backend is a module with an object, and an entry point."""

from __future__ import annotations

from pathlib import Path

import optc as package
from tests.cli.conftest import Optc
from tests.how_to import installed

SOURCE = """
from optc.backend import NATIVE, Support
from tests.support.stub import StubBackend


class Dummy(StubBackend):
    def supports(self, node, target):
        gathers = node.op_type == "Gather"
        return Support("unsupported", "dummies gather nothing") if gathers else NATIVE


BACKEND = Dummy("dummy", 5)
"""


def test_it_takes_a_graph_is_loaded_and_leaves_nothing(
    optc: Optc, quick_import: None, tiny_model: Path, tmp_path: Path
) -> None:
    folder, artifact = tmp_path / "package", tmp_path / "a"
    folder.mkdir()
    call = ("compile", tiny_model, "--recipe", "fp32", "--no-gates", "--backend", "dummy")
    before = optc("backends", "--json").json
    with installed(
        folder, "dummy_backend", SOURCE, "optc.backends", "dummy = dummy_backend:BACKEND"
    ):
        listed = optc("backends", "--json").json["backends"]
        assert {"name": "dummy", "available": True, "reason": ""} in listed
        (plan,) = optc(
            "plan", tiny_model, "--recipe", "fp32", "--backends", "dummy", "--json"
        ).json["engines"]
        nodes = {n["operator"]: (n["how"], n["reason"]) for n in plan["nodes"]}
        assert nodes["Gather"] == ("unsupported", "dummies gather nothing")
        assert nodes["optc::RotaryPagedAttention"] == ("native", "")
        assert optc(*call, "-o", artifact).code == 0
        with package.load(artifact) as engine:
            assert engine.generate(["ab"])[0].token_ids
        loads = optc("inspect", artifact, "--json").json["engines"]
        assert loads == [{"name": "target", "loads_here": True, "reason": ""}]
    assert optc("backends", "--json").json == before
    refused = optc(*call, "-o", tmp_path / "b")
    assert (refused.code, (tmp_path / "b").exists()) == (2, False)
    assert "unknown backend 'dummy'" in refused.err
    left = optc("run", artifact, "--prompt", "ab")
    assert (left.code, "the backend dummy is not installed" in left.err) == (3, True)
