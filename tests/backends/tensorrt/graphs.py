"""Small ONNX graphs in TensorRT's dialect, and profiles for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from optc.backends.tensorrt.build_job import BuildJob, Profile
from optc.backends.tensorrt.dialect import check_model
from optc.errors import UnsupportedError

LENGTH = 128

_LAYER = """
<ir_version: 11, opset_import: ["" : 24]>
step (float16[B,S,256] x, int64[B] write_indices, float16[B,1,S,128] mask,
      float16[B,2,128,64] past_k, float16[B,2,128,64] past_v)
 => (float16[B,S,256] y, float16[B,2,128,64] present_k, float16[B,2,128,64] present_v)
{
 q_shape = Constant<value_ints: ints = [0, 0, 4, 64]>()
 kv_shape = Constant<value_ints: ints = [0, 0, 2, 64]>()
 flat = Constant<value_ints: ints = [0, 0, 256]>()
 q_flat = MatMul(x, wq)
 k_flat = MatMul(x, wk)
 v_flat = MatMul(x, wv)
 q_heads = Reshape(q_flat, q_shape)
 k_heads = Reshape(k_flat, kv_shape)
 v_heads = Reshape(v_flat, kv_shape)
 q = Transpose<perm: ints = [0, 2, 1, 3]>(q_heads)
 k = Transpose<perm: ints = [0, 2, 1, 3]>(k_heads)
 v = Transpose<perm: ints = [0, 2, 1, 3]>(v_heads)
 present_k = TensorScatter<axis: int = -2>(past_k, k, write_indices)
 present_v = TensorScatter<axis: int = -2>(past_v, v, write_indices)
 attended = Attention<scale: float = 0.125>(q, present_k, present_v, mask)
 by_token = Transpose<perm: ints = [0, 2, 1, 3]>(attended)
 merged = Reshape(by_token, flat)
 y = MatMul(merged, wo)
}
"""


def parse(text: str, **weights: np.ndarray) -> ir.Model:
    """The model that ``text`` spells, with ``weights``, every node named and shapes inferred."""
    proto = onnx.parser.parse_model(text)
    for name, array in weights.items():
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    for index, node in enumerate(proto.graph.node):
        node.name = f"{node.op_type}.{index}"
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto))


def attention_layer() -> ir.Model:
    """A layer of attention over slots: 4 heads of 64, 2 KV heads, slots of 128 tokens."""
    rng = np.random.default_rng(0)
    shapes = {"wq": (256, 256), "wk": (256, 128), "wv": (256, 128), "wo": (256, 256)}
    weights = {
        name: (rng.standard_normal(shape) * 0.05).astype(np.float16)
        for name, shape in shapes.items()
    }
    return parse(_LAYER, **weights)


def layer_profile(name: str, rows: int) -> Profile:
    """A profile of `attention_layer` for up to 8 sequences of up to ``rows`` new tokens."""

    def shapes(*shape: int) -> tuple[tuple[int, ...], ...]:
        return tuple((batch, *shape) for batch in (1, 4, 8))

    few = max(1, rows // 2)
    return Profile(
        name,
        {
            "x": ((1, 1, 256), (4, few, 256), (8, rows, 256)),
            "write_indices": shapes(),
            "mask": ((1, 1, 1, LENGTH), (4, 1, few, LENGTH), (8, 1, rows, LENGTH)),
            "past_k": shapes(2, LENGTH, 64),
            "past_v": shapes(2, LENGTH, 64),
        },
    )


def request(
    model: ir.Model,
    folder: Path,
    architectures: tuple[str, ...] = ("sm_89",),
    profiles: tuple[Profile, ...] | None = None,
) -> BuildJob:
    """A request to build ``model`` in ``folder``."""
    path = folder / "model.onnx"
    ir.save(model, path)
    if profiles is None:
        profiles = (layer_profile("decode", 1), layer_profile("prefill", 64))
    return BuildJob(
        str(path),
        str(folder / "engine.trt"),
        str(folder / "layers.txt"),
        architectures,
        profiles,
        "tensorrt_rtx",
    )


def refusal(model: ir.Model, architectures: tuple[str, ...] = ("sm_89",)) -> str:
    """What the check of the dialect says against a model."""
    with pytest.raises(UnsupportedError) as caught:
        check_model(model, architectures)
    return caught.value.message
