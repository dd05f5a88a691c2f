"""Engines for AVX-VNNI beside those of other x86 processors in one artifact: chosen where there is
AVX-VNNI and no AVX-512, with equal tokens."""

from __future__ import annotations

from pathlib import Path

import pytest

import optc
from optc.artifact.artifact import Artifact
from optc.artifact.choose import choose_engine
from optc.backends.tvm.isa import Isa, isa_of
from optc.compiling.resolving.engines import kinds_of, name_engines
from optc.errors import UnavailableError
from optc.system.hardware.machine import Machine
from optc.system.hardware.target import Target, known_targets
from tests.support.shared import made_once
from tests.support.stub import write_tiny_model
from tests.vnni.model import has_vnni, model

TARGETS = AVX2, VNNI = ("x86-64-v3", "x86-64-v3-vnni")
AVX512 = "x86-64-v4-vnni"
PROMPTS = ["abc", "b", "cab and more"]
LONG = pytest.mark.long
GREEDY = optc.SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)


@pytest.fixture(scope="module", params=["int4-fused", pytest.param("int8-fused", marks=LONG)])
def artifact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    recipe = request.param

    def compile(folder: Path) -> Path:
        source, output = write_tiny_model(folder / "tiny"), folder / "artifact"
        targets = ",".join(TARGETS)
        return optc.compile(source, recipe, output, target=targets, no_gates=True).path

    return Artifact.open(made_once(tmp_path_factory, f"avx-vnni-{recipe}", compile))


def test_a_processor_gets_the_best_engine_that_it_runs(artifact: Artifact) -> None:
    for name in TARGETS:
        machine = Machine(frozenset(known_targets()[name].features))
        entry = choose_engine(artifact.manifest.engines, "a", machine=machine).entry
        assert entry.name == f"tvm-{name}"


def test_all_engines_read_one_file_of_weights(artifact: Artifact) -> None:
    assert len(list(artifact.path.rglob("weights.bin"))) == 1


def test_tokens_are_those_of_avx2(artifact: Artifact, vnni: Isa) -> None:
    found = []
    for target in TARGETS:
        if not has_vnni():
            model().count()
        with optc.load(artifact.path, engine=f"tvm-{target}") as engine:
            found.append([list(one.token_ids) for one in engine.generate(PROMPTS, GREEDY)])
        if not has_vnni():
            assert bool(model().count()) == (target == VNNI)
    assert found[0] == found[1]


def test_a_processor_without_it_says_so(artifact: Artifact) -> None:
    if has_vnni():
        pytest.skip("this machine has AVX-VNNI")
    with pytest.raises(UnavailableError, match=r"needs avx_vnni, which this CPU lacks"):
        optc.load(artifact.path, engine=f"tvm-{VNNI}")


def test_native_has_it_only_where_there_is_no_avx512() -> None:
    both = tuple({*known_targets()[VNNI].features, *known_targets()[AVX512].features})
    assert isa_of(Target("native", "cpu", both)).name == "avx512_vnni"
    assert isa_of(known_targets()[VNNI]).name == "avx_vnni"


@pytest.mark.parametrize(("target", "saturates"), [(AVX2, True), (VNNI, False)])
def test_recipes_give_seven_bits_only_to_processors_that_saturate(
    target: str, saturates: bool
) -> None:
    engines = name_engines("onnxruntime", target, "onnxruntime")
    assert ("avx2" in kinds_of(engines)) is saturates
