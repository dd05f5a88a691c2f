"""Engines for AMX beside one for VNNI in one artifact: chosen where there is AMX, equal tokens."""

from __future__ import annotations

from pathlib import Path

import pytest

import optc
from optc.artifact.artifact import Artifact
from optc.artifact.choose import choose_engine
from optc.backends.tvm.isa import Isa
from optc.errors import UnavailableError
from optc.system.hardware.machine import Machine
from optc.system.hardware.target import known_targets
from tests.amx.model import has_amx, model
from tests.support.shared import made_once
from tests.support.stub import write_tiny_model

VNNI, AMX = "x86-64-v4-vnni", "x86-64-amx"
PYCODE = Path(__file__).parents[2] / "examples/models/pycode"
PROMPTS = [
    "def fib(n):\n    if n < 2:\n        return n\n",
    "import os",
    "class Stack:\n    def __init__(self):",
    "for x",
    "return",
    "if a ==",
    "try:",
    "with open(",
]
GREEDY = optc.SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)


@pytest.fixture(scope="module", params=["tiny", pytest.param("pycode", marks=pytest.mark.long)])
def artifact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    name = request.param

    def compile(folder: Path) -> Path:
        source = write_tiny_model(folder / "tiny") if name == "tiny" else PYCODE
        output = folder / "artifact"
        targets = f"{VNNI},{AMX}"
        return optc.compile(source, "int8-fused", output, target=targets, no_gates=True).path

    return Artifact.open(made_once(tmp_path_factory, f"amx-{name}", compile))


def test_both_engines_read_one_file_of_weights(artifact: Artifact) -> None:
    entry = {entry.name: entry for entry in artifact.manifest.engines}[f"tvm-{AMX}"]
    assert entry.data["shared"] == f"../tvm-{VNNI}"
    assert [p.parent.name for p in artifact.path.rglob("weights.bin")] == [f"tvm-{VNNI}"]


def test_a_machine_with_tiles_that_are_granted_loads_it(artifact: Artifact) -> None:
    engines, features = artifact.manifest.engines, frozenset(known_targets()[AMX].features)
    assert choose_engine(engines, "a", machine=Machine(features)).entry.name == f"tvm-{AMX}"
    tiles = {name for name in features if name.startswith("amx")}
    withheld = Machine(features - tiles, withheld="Operation not permitted")
    assert choose_engine(engines, "a", machine=withheld).entry.name == f"tvm-{VNNI}"


def test_a_machine_without_tiles_says_so(artifact: Artifact) -> None:
    if has_amx():
        pytest.skip("this machine has AMX")
    with pytest.raises(UnavailableError, match=r"needs amx_bf16, .*, which this CPU lacks"):
        optc.load(artifact.path, engine=f"tvm-{AMX}")


def test_prompts_and_batches_give_the_tokens_of_vnni(artifact: Artifact, amx: Isa) -> None:
    """Prompts of many rows go through tiles, and so do eight sequences at once."""
    found = []
    for target in (VNNI, AMX):
        if not has_amx():
            model().counts()
        with optc.load(artifact.path, engine=f"tvm-{target}") as engine:
            found.append([list(one.token_ids) for one in engine.generate(PROMPTS, GREEDY)])
        if not has_amx():
            assert bool(model().counts().dots) == (target == AMX)
    assert found[0] == found[1]


def test_bfloat16_gives_a_prompt_the_same_tokens_alone_and_in_a_batch(
    tmp_path_factory: pytest.TempPathFactory, amx: Isa
) -> None:
    """One row and many are both multiplied by tiles."""

    def compile(folder: Path) -> Path:
        source = write_tiny_model(folder / "tiny")
        output = folder / "artifact"
        return optc.compile(source, "bf16-fused", output, target=AMX, no_gates=True).path

    if not has_amx():
        model().counts()
    with optc.load(made_once(tmp_path_factory, "amx-bf16", compile)) as engine:
        together = [list(one.token_ids) for one in engine.generate(PROMPTS, GREEDY)]
        alone = [list(engine.generate([one], GREEDY)[0].token_ids) for one in PROMPTS]
    if not has_amx():
        assert model().counts().bf16_dots
    assert together == alone
