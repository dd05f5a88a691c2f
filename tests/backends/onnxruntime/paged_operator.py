"""``com.microsoft::PagedAttention`` in NumPy, and models that have it run without a GPU."""

from __future__ import annotations

import ctypes
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper
from onnx.inliner import inline_local_functions
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from tests.support.ir_text import Array

_PAGED = ("com.microsoft", "PagedAttention")


def _rms(x: Array, weight: Array | None, epsilon: float) -> Array:
    if weight is None:
        return x
    return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + epsilon) * weight


def _rotated(x: Array, cos: Array, sin: Array, interleaved: int) -> Array:
    """x [T, n, D] by the rows' angles [T, D/2]."""
    cos, sin = cos[:, None], sin[:, None]
    first, second = (x[..., ::2], x[..., 1::2]) if interleaved else np.split(x, 2, axis=-1)
    parts = first * cos - second * sin, second * cos + first * sin
    return np.stack(parts, -1).reshape(x.shape) if interleaved else np.concatenate(parts, -1)


class PagedAttention(OpRun):
    """The operator as its schema describes it (ONNX Runtime 1.31), in float64. Pools are updated in
    place, as its outputs alias its inputs."""

    op_domain = "com.microsoft"

    def _run(  # type: ignore[no-untyped-def]
        self,
        query,
        key,
        value,
        key_cache,
        value_cache,
        starts,
        past,
        table,
        cos=None,
        sin=None,
        slots=None,
        sink=None,
        q_norm=None,
        k_norm=None,
        k_scale=None,
        v_scale=None,
        bounds=None,
        num_heads=0,
        kv_num_heads=0,
        scale=None,
        softcap=0.0,
        local_window_size=-1,
        do_rotary=0,
        rotary_interleaved=0,
        qk_norm_epsilon=1e-6,
    ):
        # the evaluator gives what another node left under the empty name
        optional = (key, value, cos, sin, sink, q_norm, k_norm, k_scale, v_scale)
        given = [None if a is None or not a.size else a for a in optional]
        key, value, cos, sin, *_, q_norm, k_norm = given[:7]
        assert [given[4], *given[7:]] == [None] * 3
        _, block_size, _, dim = key_cache.shape
        if key is None:
            cuts = np.cumsum([num_heads * dim, kv_num_heads * dim])
            query, key, value = np.split(query, cuts, axis=1)
        q = query.reshape(len(query), num_heads, dim).astype(np.float64)
        k, v = (a.reshape(len(a), kv_num_heads, dim).astype(np.float64) for a in (key, value))
        q, k = _rms(q, q_norm, qk_norm_epsilon), _rms(k, k_norm, qk_norm_epsilon)
        fresh = np.diff(starts)
        assert bounds is not None
        assert bounds[0] >= fresh.max()
        assert bounds[1] >= (past + fresh).max()
        positions = np.concatenate([p + np.arange(n) for p, n in zip(past, fresh, strict=True)])
        if do_rotary:
            angles = [a.astype(np.float64)[positions] for a in (cos, sin)]
            q, k = (_rotated(a, *angles, rotary_interleaved) for a in (q, k))
        for cache, new in ((key_cache, k), (value_cache, v)):
            flat = cache.reshape(-1, kv_num_heads, dim)
            flat[slots[slots >= 0]] = new.astype(cache.dtype)[slots[: len(new)] >= 0]
        out = np.zeros((len(query), num_heads, dim))
        for b, (first, stop) in enumerate(pairwise(starts)):
            for row in range(first, stop):
                end = past[b] + row - first + 1
                low = max(0, end - local_window_size) if local_window_size > 0 else 0
                tokens = np.arange(low, end)
                places = table[b, tokens // block_size] * block_size + tokens % block_size
                keys, values = (
                    np.repeat(
                        c.reshape(-1, kv_num_heads, dim)[places].astype(np.float64),
                        num_heads // kv_num_heads,
                        axis=1,
                    )
                    for c in (key_cache, value_cache)
                )
                scores = np.einsum("hd,thd->ht", q[row], keys) * scale
                scores = softcap * np.tanh(scores / softcap) if softcap else scores
                weights = np.exp(scores - scores.max(axis=1, keepdims=True))
                weights /= weights.sum(axis=1, keepdims=True)
                out[row] = np.einsum("ht,thd->hd", weights, values)
        return out.reshape(len(query), -1).astype(query.dtype), key_cache, value_cache


def on_onnxruntime(domain: str, name: str, opset: int) -> type[OpRun]:
    """An operator that ONNX Runtime computes on the CPU, node by node."""

    def run(self: Any, *inputs: Array | None, **_: Any) -> tuple[Array, ...]:
        node = self.onnx_node
        given = {n: a for n, a in zip(node.input, inputs, strict=False) if n and a is not None}
        graph = helper.make_graph(
            [node],
            "one",
            [_info(n, a) for n, a in given.items()],
            [onnx.ValueInfoProto(name=n) for n in node.output if n],
        )
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        providers = ["CPUExecutionProvider"]
        session = ort.InferenceSession(model.SerializeToString(), providers=providers)
        found = iter(session.run(None, given))
        return tuple(next(found) if n else np.zeros(0) for n in node.output)

    return type(name, (OpRun,), {"op_domain": domain, "_run": run})


def _info(name: str, array: Array) -> onnx.ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, kind, list(array.shape))


class ReferenceSession:
    """Stands in for an ``onnxruntime.InferenceSession`` with memory bound by address."""

    def __init__(self, path: str) -> None:
        model = inline_local_functions(onnx.load(path))
        opset = next(one.version for one in model.opset_import if not one.domain)
        names = {(n.domain, n.op_type) for n in model.graph.node} - {_PAGED}
        others = [on_onnxruntime(domain, name, opset) for domain, name in sorted(names)]
        self._evaluator = ReferenceEvaluator(model, new_ops=[PagedAttention, *others])
        self._inputs = [value.name for value in model.graph.input]
        self._outputs = [value.name for value in model.graph.output]

    def get_inputs(self) -> list[Any]:
        return [type("Input", (), {"name": name}) for name in self._inputs]

    def io_binding(self) -> _Binding:
        return _Binding()

    def run_with_iobinding(self, binding: _Binding) -> None:
        assert set(binding.inputs) == set(self._inputs)
        assert set(binding.outputs) == set(self._outputs)
        results = self._evaluator.run(None, binding.inputs)
        for name, result in zip(self._outputs, results, strict=True):
            assert result.shape == binding.outputs[name].shape, name
            assert result.dtype == binding.outputs[name].dtype, name
            binding.outputs[name][...] = result


class _Binding:
    def __init__(self) -> None:
        self.inputs: dict[str, Array] = {}
        self.outputs: dict[str, Array] = {}

    def bind_input(self, name: str, *where: Any) -> None:
        self.inputs[name] = _memory(*where)

    def bind_output(self, name: str, *where: Any) -> None:
        self.outputs[name] = _memory(*where)


def _memory(device: str, _: int, dtype: Any, shape: tuple[int, ...], address: int) -> Array:
    assert device == "cpu"
    dtype = np.dtype(dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(address), dtype).reshape(shape)
