"""Engines that give hidden states, and that of a layer which drafts by them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from msgspec import structs

from optc.artifact.spec_digest import spec_digest
from optc.backend import EngineBuild, SharedWeights
from optc.backends.tvm import BACKEND
from optc.backends.tvm.compiling.build import pack_weights
from optc.backends.tvm.lowering.lower_model import lower_model
from optc.backends.tvm.replay import replay as replay_module
from optc.backends.tvm.replay.replay import Replays
from optc.compiling.drafts.eagle_layer import make_draft_layer
from optc.errors import ArtifactError, InputError, UnsupportedError
from optc.runtime.executable.executable import Executable, Float32, HiddenExecutable
from optc.system.hardware.target import parse_target
from tests.backends.tvm.engine_driver import INT8, OPTIONS, SHAPE, Engine, EngineDriver, build
from tests.support.drafts.heads import write_layer
from tests.support.families import model_after
from tests.support.models import dense_model
from tests.support.pipelines import pipeline_of
from tests.support.ragged import RaggedDriver
from tests.support.shared import made_once

PIPELINE = INT8.replace("kv-cache", "kv-cache{dtype=int8},hidden-states")
LAYER = PIPELINE.replace("hidden-states", "hidden-states{rows=logits}")
ROWS = ({0: [5, 6, 7, 8, 9], 1: [1, 2]}, {0: [4], 1: [7, 7]}, {1: [3]})


def layer_model(folder: Path) -> ir.Model:
    model = dense_model(SHAPE)
    write_layer(folder / "layer", model)
    make_draft_layer(model, folder / "layer")
    pipeline_of(LAYER).run(model)
    return model


def build_both(folder: Path) -> tuple[Path, Engine, EngineBuild]:
    target = build(folder / "target", SHAPE, PIPELINE, "native")
    own = folder / "eagle"
    own.mkdir()
    shared = SharedWeights("../target", target.build.backend_data, partial=True)
    options = replace(OPTIONS, shared=shared)
    made = BACKEND.build(layer_model(folder), parse_target("native"), own, options)
    return own, target, made


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, EngineBuild, EngineBuild]:
    def make(folder: Path) -> tuple[Path, EngineBuild, EngineBuild]:
        own, target, made = build_both(folder)
        return own, target.build, made

    return made_once(tmp_path_factory, "eagle-engines", make)


def load(folder: Path, made: EngineBuild) -> Executable:
    return BACKEND.load(folder, made.spec, made.backend_data, 2)


def features_of(rows: dict[int, list[int]], seed: int) -> Float32:
    count = sum(map(len, rows.values()))
    random = np.random.default_rng(seed)
    return random.standard_normal((count, SHAPE.hidden)).astype(np.float32)


def test_hidden_states_of_all_rows(both: tuple[Path, EngineBuild, EngineBuild]) -> None:
    own, target, _ = both
    engine = load(own.parent / "target", target)
    assert isinstance(engine, HiddenExecutable)
    assert (target.spec.hidden_size, target.spec.features) == (SHAPE.hidden, False)
    assert target.spec.hidden_rows == "all"
    driver = EngineDriver(engine)
    with pytest.raises(InputError, match="no hidden states: no step was run"):
        engine.hidden_states()
    oracle = RaggedDriver(model_after(PIPELINE, SHAPE), extra=("hidden",))
    for rows in ROWS:
        last = [sum(map(len, rows.values())) - 1]
        logits = driver.step(rows, last)
        assert logits.shape == (1, SHAPE.vocab)
        np.testing.assert_allclose(logits, oracle.step(rows, last), atol=0.05)
        states = engine.hidden_states()
        np.testing.assert_allclose(states, oracle.more_results[0], atol=0.05)
    engine.close()


def test_the_layer_equals_the_function_bodies(
    both: tuple[Path, EngineBuild, EngineBuild], tmp_path: Path
) -> None:
    own, _, made = both
    assert (made.spec.hidden_size, made.spec.features) == (SHAPE.hidden, True)
    assert made.spec.hidden_rows == "logits"
    assert len(made.spec.layers) == 1
    engine = load(own, made)
    assert isinstance(engine, HiddenExecutable)
    driver = EngineDriver(engine)
    oracle = RaggedDriver(layer_model(tmp_path), extra=("hidden",))
    for seed, rows in enumerate(ROWS):
        batch = driver.sequences.batch(rows)
        features = oracle.more_feeds["features"] = features_of(rows, seed)
        logits = engine.step(replace(batch, features=features))
        np.testing.assert_allclose(logits, oracle.step(rows), atol=0.1)
        assert np.abs(logits).max() > 0.5
        states = engine.hidden_states()
        assert len(states) == len(batch.logit_rows)
        np.testing.assert_allclose(states, oracle.more_results[0], atol=0.1)
    zeros = driver.sequences.batch({5: [1, 2, 3]})
    oracle.more_feeds["features"] = np.zeros((3, SHAPE.hidden), np.float32)
    np.testing.assert_allclose(engine.step(zeros), oracle.step({5: [1, 2, 3]}), atol=0.1)
    short = replace(driver.sequences.batch({6: [1]}), features=features)
    with pytest.raises(InputError, match=r"expected int32 \[1, 64\], got int32 \[2, 64\]"):
        engine.step(replace(short, features=np.zeros((2, SHAPE.hidden), np.float32)))
    engine.close()


def test_replayed_steps_have_the_bits_of_the_virtual_machine(
    both: tuple[Path, EngineBuild, EngineBuild], monkeypatch: pytest.MonkeyPatch
) -> None:
    own, _, made = both

    def run() -> list[Float32]:
        engine = load(own, made)
        driver, found = EngineDriver(engine), []
        assert isinstance(engine, HiddenExecutable)
        for step in range(5):
            batch = driver.sequences.batch({0: [step], 1: [step + 1]})
            features = features_of({0: [1], 1: [1]}, step)
            found.append(engine.step(replace(batch, features=features)).copy())
            found.append(engine.hidden_states().copy())
        engine.close()
        return found

    plain = run()
    monkeypatch.setattr(replay_module, "PATIENCE", 2)
    replayed: list[bool] = []
    step = Replays.step

    def watched(self: Replays, *arguments: object) -> object:
        result = step(self, *arguments)  # type: ignore[arg-type]
        replayed.append(result is not None)
        return result

    monkeypatch.setattr(Replays, "step", watched)
    for one, other in zip(plain, run(), strict=True):
        assert np.array_equal(one, other)
    assert replayed == [False, True, True, True, True]


def test_only_the_layers_own_weights_lie_beside_it(
    both: tuple[Path, EngineBuild, EngineBuild],
) -> None:
    own, target, made = both
    assert made.files == ("engine.so", "weights.bin")
    entries = made.backend_data["weights"]
    mine = {entry["name"] for entry in entries if entry.get("own")}
    assert all("eagle." in name for name in mine)
    others = [entry for entry in entries if not entry.get("own")]
    assert others
    assert all(entry in target.backend_data["weights"] for entry in others)
    ends = [entry["offset"] for entry in entries if entry.get("own")]
    assert max(ends) < made.weight_bytes <= (own / "weights.bin").stat().st_size
    assert made.weight_bytes < target.weight_bytes


def test_without_leave_a_lacking_weight_is_refused(
    both: tuple[Path, EngineBuild, EngineBuild], tmp_path: Path
) -> None:
    lowered = lower_model(layer_model(tmp_path), parse_target("native"), OPTIONS)
    with pytest.raises(
        UnsupportedError, match=r"the other engine lacks \d+ weights, such as eagle"
    ):
        pack_weights(lowered, tmp_path, SharedWeights("../target", both[1].backend_data))


@pytest.mark.parametrize("change", [lambda f: f.unlink(), lambda f: f.write_bytes(b"")])
def test_a_damaged_file_of_its_own_is_named(
    both: tuple[Path, EngineBuild, EngineBuild], tmp_path: Path, change: Callable[[Path], None]
) -> None:
    own, _, made = both
    (tmp_path / "target").symlink_to(own.parent / "target")
    copy = tmp_path / "eagle"
    copy.mkdir()
    for name in made.files:
        (copy / name).write_bytes((own / name).read_bytes())
    change(copy / "weights.bin")
    with pytest.raises(ArtifactError) as caught:
        load(copy, made)
    assert caught.value.where == "weights.bin"


def test_a_new_field_of_the_spec_changes_no_digest(
    both: tuple[Path, EngineBuild, EngineBuild],
) -> None:
    _, target, made = both
    assert spec_digest(target.spec) != spec_digest(structs.replace(target.spec, hidden_size=0))
    assert spec_digest(made.spec) != spec_digest(structs.replace(made.spec, features=False))
