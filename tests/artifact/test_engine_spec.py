from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from optc.artifact.engine_spec import parse_spec
from optc.artifact.jsonio import Fields
from optc.errors import ArtifactError
from optc.executable.adapter_spec import AdapterModule, AdapterPart, AdapterSpec
from optc.executable.executable import EngineSpec, KVGroup, LayerKV
from tests.artifact.toy import toy_spec

#: The least that an engine can have.
LEAST = EngineSpec(
    *(1, 1, 1, 1, 1, 1),
    batch_invariant=False,
    groups=(KVGroup(0, (0,)),),
    layers=(LayerKV(0, 1, 1, 1, "float32"),),
    adapters=AdapterSpec(1, 1, (AdapterModule(1, 1, (AdapterPart("w", 0, 1),)),)),
)
PART = AdapterPart("w", 0, 8)
TURNED = AdapterPart("v", 8, 16, 12, ((11, -1, 8),))
FULL = replace(
    toy_spec(),
    tree=True,
    samples=True,
    kv_layout="slots",
    accept_rates=((0.5, 1.0), (0.0,)),
    hidden_size=8,
    hidden_rows="logits",
    shared_kv=(1, 0),
    features=True,
    adapters=AdapterSpec(2, 8, (AdapterModule(8, 16, (PART, TURNED)),)),
)


def parsed(spec: object, **changes: Any) -> Any:
    return parse_spec(Fields({**json.loads(json.dumps(spec)), **changes}, "spec"))


def test_specs_are_read_back() -> None:
    for spec in (toy_spec(), FULL, LEAST):
        assert parsed(asdict(spec)) == spec


def test_adapters_of_older_artifacts_have_whole_tensors() -> None:
    spec = replace(toy_spec(), adapters=AdapterSpec(2, 8, (AdapterModule(8, 8, (PART,)),)))
    older = asdict(spec)
    for key in ("of", "ranges"):
        del older["adapters"]["modules"][0]["parts"][0][key]
    assert parsed(older) == spec


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ([[0, 1, 7]], "'ranges' are not as many rows as 'start' and 'stop' state"),
        ([[5, 1, 8]], r"'ranges' holds \[5, 1, 8\], which are no rows of 12"),
        ([[0, -1, 8]], "which are no rows of 12"),
        ([[0, 1]], "which are no rows of 12"),
        ([[0, True, 8]], "which are no rows of 12"),
        ([[0, 1, 0]], "which are no rows of 12"),
    ],
)
def test_rows_that_a_tensor_lacks_are_refused(ranges: Any, message: str) -> None:
    part = {"name": "w", "start": 0, "stop": 8, "of": 12, "ranges": ranges}
    adapters = {"max": 1, "rank": 1, "modules": [{"k": 1, "n": 8, "parts": [part]}]}
    with pytest.raises(ArtifactError, match=message):
        parsed(asdict(toy_spec()), adapters=adapters)


def test_specs_of_older_artifacts_lack_keys() -> None:
    older = asdict(toy_spec())
    newer = ("tree", "adapters", "accept_rates", "samples", "kv_layout", "hidden_size", "features")
    for key in (*newer, "hidden_rows", "shared_kv"):
        del older[key]
    assert parsed(older) == toy_spec()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_sequences": 0}, "'max_sequences' is 0, not within 1"),
        ({"max_logit_rows": 2**31}, "'max_logit_rows' is 2147483648, not within 1"),
        ({"groups": [{"window": -1, "layers": [0, 1]}]}, "'window' is -1"),
        ({"groups": [{"window": 0, "layers": [0, 2]}]}, "'layers' holds 2, not within 0 to 1"),
        ({"groups": [{"window": 0, "layers": [0, 1]}]}, "the layers that 'groups' lists"),
        ({"groups": [{"window": 0, "layers": [0, 0]}]}, "the layers that 'groups' lists"),
        ({"groups": []}, "the layers that 'groups' lists"),
        ({"accept_rates": [[1.5]]}, "holds 1.5, which is no rate"),
        ({"accept_rates": [[-0.5]]}, "holds -0.5, which is no rate"),
        ({"accept_rates": [[True]]}, "holds True, which is no rate"),
        ({"hidden_size": -1}, "'hidden_size' is -1, not within 0"),
        ({"shared_kv": [0, -1]}, "'shared_kv' holds -1"),
        ({"hidden_rows": "some"}, "'hidden_rows' is 'some'"),
        ({"hidden_size": 2**17}, "'hidden_size' is 131072, not within 0 to 65536"),
        ({"accept_rates": [0.5]}, "'accept_rates' holds float, not list"),
        ({"adapters": {"max": 0, "rank": 1, "modules": []}}, "'max' is 0"),
        (
            {"adapters": {"max": 1, "rank": 1, "modules": [{"k": 1, "n": 8, "parts": [
                {"name": "w", "start": 0, "stop": 9}]}]}},
            "'stop' is 9, not within 1 to 8",
        ),
    ],
)  # fmt: skip
def test_what_no_build_writes_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        parsed(asdict(toy_spec()), **changes)


@pytest.mark.parametrize(
    "place",
    [
        *("vocab_size", "max_context", "max_rows", "max_sequences", "max_logit_rows"),
        "block_multiple",
        *("layers.0.kv_heads", "layers.0.key_dim", "layers.0.value_dim"),
        *("adapters.max", "adapters.rank", "adapters.modules.0.k", "adapters.modules.0.n"),
    ],
)
def test_no_size_is_zero(place: str) -> None:
    value = json.loads(json.dumps(asdict(LEAST)))
    *parents, key = place.split(".")
    parent = value
    for name in parents:
        parent = parent[int(name) if isinstance(parent, list) else name]
    parent[key] = 0
    with pytest.raises(ArtifactError, match=f"'{key}' is 0, not within 1 to"):
        parsed(value)


@pytest.mark.parametrize("start", [-1, 8])
def test_parts_of_adapters_lie_in_their_module(start: int) -> None:
    part = {"name": "w", "start": start, "stop": start + 1}
    adapters = {"max": 1, "rank": 1, "modules": [{"k": 1, "n": 8, "parts": [part]}]}
    with pytest.raises(ArtifactError, match=f"'start' is {start}, not within 0 to 7"):
        parsed(asdict(toy_spec()), adapters=adapters)


def test_heads_and_their_sizes_have_a_limit() -> None:
    most = {"group": 0, "kv_heads": 65536, "key_dim": 65536, "value_dim": 65536, "dtype": "int8"}
    groups = [{"window": 0, "layers": [0]}]
    assert parsed(asdict(toy_spec()), groups=groups, layers=[most]).layers[0] == LayerKV(**most)
    for key in ("kv_heads", "key_dim", "value_dim"):
        with pytest.raises(ArtifactError, match=f"'{key}' is 65537, not within 1 to 65536"):
            parsed(asdict(toy_spec()), groups=groups, layers=[{**most, key: 65537}])
