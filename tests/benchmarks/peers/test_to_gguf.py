"""gpt-oss's shape as GGUF: names that llama.cpp asks for, experts turned, gates apart from ups."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gguf
import numpy as np
import pytest

from benchmarks.inputs.build_random_llama import build
from benchmarks.inputs.build_random_moe import SHAPES
from benchmarks.peers.to_gguf import tensors, widen, write

TINY = {"hidden": 64, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 16, "mlp": 32}
LAYER = "model.layers.1."


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], gguf.GGUFReader]:
    folder = tmp_path_factory.mktemp("gpt-oss")
    build(replace(SHAPES["gpt-oss-20b"], **TINY, experts=8, chosen=2, vocab=256), folder)
    write(folder, folder / "model.gguf")
    return tensors(folder), gguf.GGUFReader(folder / "model.gguf")


def values(reader: gguf.GGUFReader, name: str) -> Any:
    """float32, of bfloat16 too."""
    (found,) = [one for one in reader.tensors if one.name == name]
    return gguf.quants.dequantize(found.data, found.tensor_type)


def test_every_tensor_of_the_architecture_is_there(written: tuple[Any, gguf.GGUFReader]) -> None:
    kinds = gguf.MODEL_TENSORS[gguf.MODEL_ARCH.GPT_OSS]
    wanted = {gguf.TENSOR_NAMES[kind].format(bid=bid) for kind in kinds for bid in range(2)}
    names = {one.name for one in written[1].tensors}
    assert {name.rsplit(".", 1)[0] for name in names} == wanted
    experts = ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps", "ffn_gate_inp", "attn_q")
    assert {f"blk.1.{name}.bias" for name in experts} <= names
    assert "blk.0.attn_sinks.weight" in names


@pytest.mark.parametrize(("name", "first"), [("gate", 0), ("up", 1)])
def test_gates_and_ups_lie_apart(
    name: str, first: int, written: tuple[dict[str, Any], gguf.GGUFReader]
) -> None:
    source, reader = written
    both = widen(source[f"{LAYER}mlp.experts.gate_up_proj"])
    found = values(reader, f"blk.1.ffn_{name}_exps.weight")
    np.testing.assert_array_equal(found, both[:, :, first::2].swapaxes(1, 2))
    bias = widen(source[f"{LAYER}mlp.experts.gate_up_proj_bias"])
    found = values(reader, f"blk.1.ffn_{name}_exps.bias")
    np.testing.assert_array_equal(found, bias[:, first::2])


def test_others_lie_as_they_did(written: tuple[dict[str, Any], gguf.GGUFReader]) -> None:
    source, reader = written
    for name, own in (
        ("attn_q.weight", "self_attn.q_proj.weight"),
        ("attn_sinks.weight", "self_attn.sinks"),
        ("ffn_gate_inp.weight", "mlp.router.weight"),
        ("post_attention_norm.weight", "post_attention_layernorm.weight"),
    ):
        np.testing.assert_array_equal(
            values(reader, f"blk.1.{name}"), widen(source[f"{LAYER}{own}"])
        )
    down = widen(source[f"{LAYER}mlp.experts.down_proj"])
    np.testing.assert_array_equal(values(reader, "blk.1.ffn_down_exps.weight"), down.swapaxes(1, 2))


def test_what_the_header_says(written: tuple[Any, gguf.GGUFReader]) -> None:
    fields = written[1].fields

    def stated(key: str) -> Any:
        return fields[f"gpt-oss.{key}"].contents()

    assert stated("expert_count") == 8
    assert stated("expert_used_count") == 2
    assert stated("attention.sliding_window") == 128
    assert stated("rope.scaling.type") == "yarn"
    assert stated("rope.scaling.original_context_length") == 4096
