"""Reading PEFT folders: layouts, scalings, and every refusal with its message."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from optc.errors import InputError
from optc.runtime.adapters.peft import read_peft
from optc.runtime.executable.adapter_spec import AdapterModule, AdapterPart, AdapterSpec
from tests.support.hadamard import rotation

SPEC = AdapterSpec(
    max=2,
    rank=16,
    modules=(
        AdapterModule(6, 5, (AdapterPart("l.q.weight", 0, 3), AdapterPart("l.k.weight", 3, 5))),
        AdapterModule(3, 6, (AdapterPart("l.o.weight", 0, 6),)),
    ),
)
RNG = np.random.default_rng(0)
A = RNG.standard_normal((2, 6)).astype(np.float32)
B = RNG.standard_normal((2, 2)).astype(np.float32)
PREFIX = "base_model.model.l.k.lora_"


def saved(folder: Path, tensors: dict[str, Any] | None = None, **options: Any) -> Path:
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 8, **options}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    tensors = {f"{PREFIX}A.weight": A, f"{PREFIX}B.weight": B} if tensors is None else tensors
    safetensors.numpy.save_file(tensors, folder / "adapter_model.safetensors")
    return folder


def test_parts_and_padding(tmp_path: Path) -> None:
    merged, other = read_peft(saved(tmp_path), SPEC)
    assert other is None
    assert merged is not None
    want_a = np.zeros((6, 32), np.float32)
    want_a[:, 16:18] = A.T
    want_b = np.zeros((16, 5), np.float32)
    want_b[:2, 3:] = B.T * np.float32(4)
    np.testing.assert_array_equal(merged.a, want_a)
    np.testing.assert_array_equal(merged.b, want_b)


@pytest.mark.parametrize(
    ("options", "scaling"),
    [
        ({}, 4.0),
        ({"use_rslora": True}, 8 / np.sqrt(2)),
        ({"alpha_pattern": {"k": 6}}, 3.0),
        ({"alpha_pattern": {"l.k": 6}}, 3.0),
        ({"alpha_pattern": {"other": 6}}, 4.0),
        ({"alpha_pattern": {"k": 6, "l.k": 2}}, 3.0),
    ],
)
def test_scaling(tmp_path: Path, options: dict[str, Any], scaling: float) -> None:
    merged = read_peft(saved(tmp_path, **options), SPEC)[0]
    assert merged is not None
    np.testing.assert_array_equal(merged.b[:2, 3:], B.T * np.float32(scaling))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lora_alpha": "nan"}, "lora_alpha holds what is no finite number"),
        ({"lora_alpha": 1e39}, "l.k is beyond what float32 holds"),
        ({"alpha_pattern": {"(a*)*b": 2}}, "alpha_pattern has '.*', which may take without end"),
    ],
)
def test_scales_that_are_none(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_peft(saved(tmp_path, **options), SPEC)


def test_a_rank_of_zero_is_refused(tmp_path: Path) -> None:
    empty = {f"{PREFIX}A.weight": A[:0], f"{PREFIX}B.weight": B[:, :0]}
    with pytest.raises(InputError, match=r"l\.k has rank 0"):
        read_peft(saved(tmp_path, empty), SPEC)


def test_alpha_is_eight_if_nothing_is_said_as_in_peft(tmp_path: Path) -> None:
    saved(tmp_path)
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    merged = read_peft(tmp_path, SPEC)[0]
    assert merged is not None
    np.testing.assert_array_equal(merged.b[:2, 3:], B.T * np.float32(4))


def test_layers_by_input_channel_are_taken(tmp_path: Path) -> None:
    """Where the base's weight lies the other way round, PEFT's own two matrices do not."""
    plain = read_peft(saved(tmp_path), SPEC)[0]
    turned = read_peft(saved(tmp_path, fan_in_fan_out=True), SPEC)[0]
    assert plain is not None
    assert turned is not None
    np.testing.assert_array_equal(plain.b, turned.b)


def test_rows_of_a_tensor_in_another_order(tmp_path: Path) -> None:
    """Two parts of one tensor of four rows, with the columns that each takes."""
    parts = (
        AdapterPart("l.k.weight", 0, 2, of=4, ranges=((3, -2, 2),)),
        AdapterPart("l.k.weight", 2, 3, of=4, ranges=((0, 1, 1),)),
    )
    up = RNG.standard_normal((4, 2)).astype(np.float32)
    tensors = {f"{PREFIX}A.weight": A, f"{PREFIX}B.weight": up}
    spec = AdapterSpec(1, 16, (AdapterModule(6, 3, parts),))
    (module,) = read_peft(saved(tmp_path, tensors), spec)
    assert module is not None
    np.testing.assert_array_equal(module.a[:, :2], A.T)
    np.testing.assert_array_equal(module.a[:, 16:18], A.T)
    np.testing.assert_array_equal(module.b[:2], up[[3, 1, 0]].T * np.float32(4))
    tensors[f"{PREFIX}B.weight"] = up[:3]
    with pytest.raises(InputError, match=r"do not fit a layer \[4, 6\]"):
        read_peft(saved(tmp_path, tensors), spec)


def test_the_largest_rank_is_taken(tmp_path: Path) -> None:
    down, up = np.ones((16, 6), np.float32), np.ones((2, 16), np.float32)
    merged = read_peft(saved(tmp_path, {f"{PREFIX}A.weight": down, f"{PREFIX}B.weight": up}), SPEC)
    assert merged[0] is not None
    assert merged[0].a[:, 16:].all()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_are_finite(tmp_path: Path, value: float) -> None:
    down = A.copy()
    down[1, 2] = value
    tensors = {f"{PREFIX}A.weight": down, f"{PREFIX}B.weight": B}
    with pytest.raises(InputError) as caught:
        read_peft(saved(tmp_path, tensors), SPEC)
    assert caught.value.message == f"the tensor {PREFIX}A.weight holds NaN or infinities"


def test_a_configuration_has_a_mebibyte_at_most(tmp_path: Path) -> None:
    saved(tmp_path)
    file = tmp_path / "adapter_config.json"
    file.write_text(file.read_text().ljust(1 << 20))
    read_peft(tmp_path, SPEC)
    file.write_text(file.read_text() + " ")
    with pytest.raises(InputError, match="cannot be read"):
        read_peft(tmp_path, SPEC)


def test_half_precision(tmp_path: Path) -> None:
    halves = {f"{PREFIX}A.weight": A.astype(np.float16), f"{PREFIX}B.weight": B}
    merged = read_peft(saved(tmp_path, halves), SPEC)[0]
    assert merged is not None
    np.testing.assert_array_equal(merged.a[:, 16:18], A.astype(np.float16).T)


def test_bfloat16(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    saved(tmp_path)
    tensors = {f"{PREFIX}A.weight": torch.tensor(A), f"{PREFIX}B.weight": torch.tensor(B)}
    rounded = {name: t.bfloat16() for name, t in tensors.items()}
    save_file(rounded, tmp_path / "adapter_model.safetensors")
    merged = read_peft(tmp_path, SPEC)[0]
    assert merged is not None
    want = rounded[f"{PREFIX}A.weight"].float().numpy().T
    np.testing.assert_array_equal(merged.a[:, 16:18], want)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"peft_type": "LOHA"}, "peft_type is 'LOHA'"),
        ({"use_dora": True}, "use_dora=True is not served"),
        ({"lora_bias": True}, "lora_bias=True is not served"),
        ({"use_qalora": True}, "use_qalora=True is not served"),
        ({"alora_invocation_tokens": [1]}, "alora_invocation_tokens=[1] is not served"),
        ({"bias": "all"}, "bias='all' is not served"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save=['lm_head'] is not served"),
    ],
)
def test_refused_options(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_peft(saved(tmp_path, **options), SPEC)
    assert caught.value.message == message
    assert caught.value.where == str(tmp_path / "adapter_config.json")


def test_refused_tensors(tmp_path: Path) -> None:
    zeros = np.zeros((2, 6), np.float32)
    cases = {
        "it adapts lm_head": {"lm_head.lora_A.weight": zeros, "lm_head.lora_B.weight": zeros},
        "l.k lacks lora_A or lora_B": {f"{PREFIX}A.weight": A},
        "the tensor l.k.weight is none of a linear layer's": {"l.k.weight": A},
        "l.k: lora_A [2, 6] and lora_B [3, 2] do not fit a layer [2, 6]": {
            f"{PREFIX}A.weight": A,
            f"{PREFIX}B.weight": np.zeros((3, 2), np.float32),
        },
        "l.k has rank 17, and the engine has room for 16": {
            f"{PREFIX}A.weight": np.zeros((17, 6), np.float32),
            f"{PREFIX}B.weight": np.zeros((2, 17), np.float32),
        },
        "the tensor base_model.model.l.k.lora_A.weight is I32": {
            f"{PREFIX}A.weight": A.astype(np.int32)
        },
    }
    for message, tensors in cases.items():
        with pytest.raises(InputError) as caught:
            read_peft(saved(tmp_path, tensors), SPEC)
        assert caught.value.message == message


def test_missing_and_damaged_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no adapter_config\.json"):
        read_peft(tmp_path, SPEC)
    saved(tmp_path)
    (tmp_path / "adapter_model.safetensors").write_bytes(b"damaged")
    with pytest.raises(InputError, match="not a safetensors file"):
        read_peft(tmp_path, SPEC)
    (tmp_path / "adapter_model.safetensors").unlink()
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_peft(tmp_path, SPEC)
    (tmp_path / "adapter_config.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        read_peft(tmp_path, SPEC)


def test_a_is_rotated_as_the_layers_input_is(tmp_path: Path) -> None:
    a, x = RNG.standard_normal((2, 20)).astype(np.float32), RNG.standard_normal(20)
    parts = (AdapterPart("l.k.weight", 0, 2),)
    spec = AdapterSpec(1, 16, (AdapterModule(20, 2, parts, hadamard=16),))
    tensors = {f"{PREFIX}A.weight": a, f"{PREFIX}B.weight": B}
    (module,) = read_peft(saved(tmp_path, tensors), spec)
    assert module is not None
    np.testing.assert_allclose(x @ rotation(20, 16) @ module.a[:, :2], a @ x, rtol=1e-4, atol=1e-5)
