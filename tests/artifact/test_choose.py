"""Which engine of an artifact is loaded, and what is said of the others."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from optc import registry
from optc.artifact.choose import choose_engine
from optc.artifact.manifest import EngineEntry
from optc.errors import InputError, UnavailableError
from optc.runtime.executable.adapter_spec import AdapterSpec
from optc.system.hardware.machine import Machine
from optc.system.hardware.target import Target, parse_target
from tests.artifact.toy import toy_engine
from tests.support.stub import StubBackend

V3 = Target("x86-64-v3", "cpu", parse_target("x86-64-v3").features)
V4 = parse_target("x86-64-v4-vnni")
GPU = parse_target("cuda:sm_80+sm_90")
ROOM = AdapterSpec(1, 4, ())
LAPTOP = Machine(frozenset(V3.features), (), "no driver")
SERVER = Machine(frozenset(V4.features), (90,), "")


@pytest.fixture(autouse=True)
def backends(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {
        name: StubBackend(name, rank) for name, rank in (("tvm", 20), ("ort", 10), ("trt", 30))
    }

    def backend(name: str) -> StubBackend:
        if name not in found:
            raise InputError(f"unknown backend {name!r}")
        return found[name]

    monkeypatch.setattr(registry, "backend", backend)


def engine(backend: str, target: Target, role: str = "target", **spec: Any) -> EngineEntry:
    """``ort`` has slots and code for every CPU, ``tvm`` uses what the target has."""
    name = f"{backend}-{target.arch or target.name}"
    made = toy_engine(name if role == "target" else f"{role}-{name}", target)
    if backend == "ort":
        spec = {"kv_layout": "slots", "batch_invariant": False, **spec}
    data = {"features": [] if backend == "ort" else list(target.features)}
    return replace(
        made, backend=backend, role=role, data=data, interface=replace(made.spec, **spec)
    )


EVERY = [engine("ort", V4), engine("tvm", V3), engine("tvm", V4), engine("trt", GPU)]


@pytest.mark.parametrize(
    ("machine", "engines", "chosen"),
    [
        (SERVER, EVERY, "trt-sm_80+sm_90"),
        (SERVER, [engine("tvm", GPU), engine("trt", GPU)], "trt-sm_80+sm_90"),
        (SERVER, EVERY[:3], "tvm-x86-64-v4-vnni"),
        (SERVER, EVERY[:2], "tvm-x86-64-v3"),
        (
            SERVER,
            [engine("ort", V4, kv_layout="paged", batch_invariant=True), EVERY[1]],
            "tvm-x86-64-v3",
        ),
        (LAPTOP, EVERY, "tvm-x86-64-v3"),
        (LAPTOP, [engine("ort", V3), engine("tvm", V3)], "tvm-x86-64-v3"),
    ],
)
def test_accelerator_then_abilities_then_instructions_then_backend(
    machine: Machine, engines: list[EngineEntry], chosen: str
) -> None:
    assert choose_engine(engines, "a", machine=machine).entry.name == chosen
    assert choose_engine(engines[::-1], "a", machine=machine).entry.name == chosen


def test_the_first_of_equals_is_taken() -> None:
    twins = [replace(engine("tvm", V3), name=name) for name in ("first", "second")]
    choice = choose_engine(twins, "a", machine=LAPTOP)
    assert choice.entry.name == "first"
    assert choice.rejected[0].reason == "it fits, but first is preferred: it was compiled first"


def test_the_reason_against_each_other_engine_is_given() -> None:
    choice = choose_engine([*EVERY, engine("new", V3)], "a", machine=LAPTOP)
    reasons = {other.name: other.reason for other in choice.rejected}
    lacking = "it needs avx512_vnni, avx512bw, avx512dq, avx512f, avx512vl, which this CPU lacks"
    assert reasons == {
        "ort-x86-64-v4-vnni": lacking,
        "tvm-x86-64-v4-vnni": lacking,
        "trt-sm_80+sm_90": "it needs a CUDA device: no driver",
        "new-x86-64-v3": "the backend new is not installed",
    }
    on_server = choose_engine(EVERY, "a", machine=SERVER).rejected
    assert {other.reason for other in on_server} == {
        "it fits, but trt-sm_80+sm_90 is preferred: it runs on a CUDA device"
    }
    on_cpu = choose_engine(EVERY[:3], "a", machine=SERVER).rejected
    assert [other.reason.rpartition(": ")[2] for other in on_cpu] == [
        "it keeps keys and values in pages",
        "it uses more of this CPU",
    ]


@pytest.mark.parametrize(
    ("better", "worse", "reason"),
    [
        ({"kv_layout": "paged"}, {"kv_layout": "slots", "tree": True}, "keys and values in pages"),
        ({"batch_invariant": True}, {"batch_invariant": False, "tree": True}, "shares a step"),
        ({"tree": True}, {"accept_rates": ((0.5,),)}, "it takes trees of drafts"),
        ({"accept_rates": ((0.5,),)}, {"adapters": ROOM}, "it has Medusa heads"),
        ({"adapters": ROOM}, {"samples": True}, "it takes adapters"),
        ({"samples": True}, {}, "it samples on its device"),
    ],
)
def test_what_an_engine_can_do_goes_before_the_features_it_uses(
    better: dict[str, Any], worse: dict[str, Any], reason: str
) -> None:
    pair = [engine("tvm", V4, **worse), engine("trt", V3, **better)]
    choice = choose_engine(pair, "a", machine=SERVER)
    assert choice.entry.name == "trt-x86-64-v3"
    assert choice.rejected[0].reason.startswith("it fits, but trt-x86-64-v3 is preferred: ")
    assert choice.rejected[0].reason.endswith(reason)


def test_the_name_of_a_target_is_no_feature() -> None:
    native = Target("native", "cpu", (*V4.features, "avx512_bf16"))
    engines = [engine("ort", native), engine("tvm", V3), engine("tvm", V4)]
    machine = Machine(frozenset(native.features))
    assert choose_engine(engines, "a", machine=machine).entry.name == "tvm-x86-64-v4-vnni"


def test_what_was_measured_decides_before_anything_else() -> None:
    engines = [engine("ort", V4), engine("tvm", V3), engine("tvm", V4)]
    speeds = {"ort-x86-64-v4-vnni": 6.2, "tvm-x86-64-v3": 3.1, "tvm-x86-64-v4-vnni": 2.0}
    choice = choose_engine(engines, "a", machine=SERVER, speeds=speeds)
    assert choice.entry.name == "ort-x86-64-v4-vnni"
    assert [other.reason for other in choice.rejected] == [
        f"it fits, but the gates measured ort-x86-64-v4-vnni to be {times} times as fast on such a "
        "machine"
        for times in ("2", "3.1")
    ]


def test_speeds_that_are_nearly_equal_leave_it_to_what_engines_can_do() -> None:
    engines = [engine("ort", V4), engine("tvm", V3)]
    names = [one.name for one in engines]
    for tvm, chosen in ((0.91, names[1]), (0.9, names[1]), (0.89, names[0])):
        speeds = dict(zip(names, (1.0, tvm), strict=True))
        assert choose_engine(engines, "a", machine=SERVER, speeds=speeds).entry.name == chosen


def test_an_engine_that_was_not_measured_is_compared_with_the_fastest_that_was() -> None:
    engines = [engine("ort", V4), engine("tvm", V3), engine("tvm", V4)]
    speeds = {"ort-x86-64-v4-vnni": 1.0, "tvm-x86-64-v3": 3.0}
    choice = choose_engine(engines, "a", machine=SERVER, speeds=speeds)
    assert choice.entry.name == "tvm-x86-64-v4-vnni"
    assert [other.reason for other in choice.rejected] == [
        "it fits, but the gates measured tvm-x86-64-v3 to be 3 times as fast on such a machine",
        "it fits, but tvm-x86-64-v4-vnni is preferred: it uses more of this CPU",
    ]
    speeds = {"tvm-x86-64-v3": 0.5, "trt-sm_80+sm_90": 0.1}
    assert choose_engine(EVERY, "a", machine=SERVER, speeds=speeds).entry.name == "trt-sm_80+sm_90"


def test_only_engines_that_fit_are_compared_by_speed() -> None:
    speeds = {"tvm-x86-64-v4-vnni": 9.0, "tvm-x86-64-v3": 1.0}
    assert choose_engine(EVERY, "a", machine=LAPTOP, speeds=speeds).entry.name == "tvm-x86-64-v3"


@pytest.mark.parametrize("target", [V3, GPU])
def test_engines_on_cpu_and_on_devices_are_compared_among_themselves(target: Target) -> None:
    """Of either alone there may be measurements."""
    engines = [engine(name, each) for each in (V3, GPU) for name in ("tvm", "trt")]
    fast, slow = (one.name for one in engines if one.target is target)
    choice = choose_engine(engines, "a", machine=SERVER, speeds={fast: 2.0, slow: 1.0})
    told = [other.name for other in choice.rejected if "the gates measured" in other.reason]
    assert told == [slow]


def test_a_role_that_no_engine_has() -> None:
    for engines, roles in (([], "none"), ([engine("tvm", V3, "draft"), *EVERY], "draft, target")):
        with pytest.raises(InputError) as caught:
            choose_engine(engines, "a", role="self", machine=LAPTOP)
        assert str(caught.value) == f"a: has no engine of role 'self' (roles: {roles})"


def test_where_none_fits_one_error_lists_every_reason() -> None:
    with pytest.raises(UnavailableError) as caught:
        choose_engine(EVERY[2:], "a", machine=LAPTOP)
    assert str(caught.value) == (
        "a: engine 'tvm-x86-64-v4-vnni' (tvm for x86-64-v4-vnni): it needs avx512_vnni, avx512bw, "
        "avx512dq, avx512f, avx512vl, which this CPU lacks; engine 'trt-sm_80+sm_90' (trt for "
        "cuda:sm_80+sm_90): it needs a CUDA device: no driver "
        "(compile it for this machine (--target native), or install what is missing)"
    )
    assert caught.value.exit_code == 3


def test_an_engine_by_its_name() -> None:
    choice = choose_engine(EVERY, "a", name="tvm-x86-64-v3", machine=SERVER)
    assert choice.entry.name == "tvm-x86-64-v3"
    assert {other.reason for other in choice.rejected} == {"tvm-x86-64-v3 was asked for"}
    assert [other.name for other in choice.rejected] == [
        one.name for one in EVERY if one is not choice.entry
    ]
    with pytest.raises(UnavailableError, match="it needs a CUDA device: no driver"):
        choose_engine(EVERY, "a", name="trt-sm_80+sm_90", machine=LAPTOP)
    with pytest.raises(InputError) as caught:
        choose_engine(EVERY, "a", name="tvm-x86-64-v5", machine=LAPTOP)
    assert str(caught.value) == ("a: has no engine 'tvm-x86-64-v5' (did you mean 'tvm-x86-64-v3'?)")


def test_a_draft_is_taken_from_beside_its_target() -> None:
    drafts = [engine("tvm", target, "draft") for target in (V3, V4)]
    for target in (V3, V4):
        beside = engine("tvm", target)
        found = choose_engine([beside, *drafts], "a", role="draft", beside=beside, machine=SERVER)
        assert found.entry.target == target
    other = engine("ort", V4)
    found = choose_engine([other, *drafts], "a", role="draft", beside=other, machine=SERVER)
    assert found.entry.target == V4, "the best where none is of its kind"
