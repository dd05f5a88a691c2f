"""`fold-channels` on text: [B, C, S] between two transposes becomes [B, S, C], the same numbers."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.passes.canonicalize.mixers.fold_channels import FoldChannels
from tests.passes.canonicalize.texts import after, exported, unchanged
from tests.support.ir_text import expected, f32

SIGNATURE = "(float[2,S,6] x) => (float[2,S,6] y)"
WEIGHTS = {"w": f32(6, 1, 3), "one": f32(6, 1, 1), "b": f32(6), "whole": f32(6, 6, 3)}
CONSTANTS = {
    "none": np.zeros(6, np.float32),
    "start": np.array([0]),
    "later": np.array([2]),
    "axis": np.array([2]),
    "channels": np.array([1]),
    "three": np.array([3]),
    "six": np.array([6]),
    "halves": np.array([3, 3]),
    "front": np.array([0, 0, 2, 0, 0, 0]),
    "both": np.array([2, 0]),
    "zero": np.float32(0),
    "seven": np.float32(7),
    "factor": f32(6, 1),
    "end": np.array([1 << 31]),
}
TURN, BACK = "t = Transpose <perm: ints = [0, 2, 1]> (x)", "Transpose <perm: ints = [0, 2, 1]>"
EACH = "group: int = 6"
#: The first S rows of what has S + 2.
FIRST = "n = Shape <start: int = 1, end: int = 2> (x) r = Slice (long, start, n, axis)"
#: What is taken: its nodes from t on, of which r is the last, and what becomes of them.
TAKEN = {
    "zeros on both sides": (
        f"long = Conv <{EACH}, pads: ints = [2, 2]> (t, w) {FIRST}",
        "y = optc.CausalConv <channels = 6, kernel = 3> (x, w.filters)",
    ),
    "zeros in front": (
        f"r = Conv <{EACH}, pads: ints = [2, 0]> (t, w)",
        "y = optc.CausalConv <channels = 6, kernel = 3> (x, w.filters)",
    ),
    "a pad in front": (
        f"long = Pad (t, front, zero) r = Conv <{EACH}> (long, w)",
        "y = optc.CausalConv <channels = 6, kernel = 3> (x, w.filters)",
    ),
    "a pad of one axis": (
        f"long = Pad (t, both, zero, axis) r = Conv <{EACH}> (long, w)",
        "y = optc.CausalConv <channels = 6, kernel = 3> (x, w.filters)",
    ),
    "a bias": (
        f"r = Conv <{EACH}, pads: ints = [2, 0]> (t, w, b)",
        "y = optc.CausalConv <channels = 6, kernel = 3> (x, w.filters, b)",
    ),
    "a bias of zeros": (
        f"r = Conv <{EACH}, pads: ints = [2, 0]> (t, w, none)",
        "y = optc.CausalConv <channels = 6, kernel = 3> (x, w.filters)",
    ),
    "an activation": (
        f"c = Conv <{EACH}, pads: ints = [2, 0]> (t, w) s = Sigmoid (c) r = Mul (c, s)",
        "t0 = optc.CausalConv <channels = 6, kernel = 3> (x, w.filters)\n"
        "t1 = Sigmoid (t0)\ny = Mul (t0, t1)",
    ),
    "gates of channels": (
        f"g = Mul (t, factor) c = Conv <{EACH}, pads: ints = [2, 0]> (g, w) r = Mul (c, t)",
        "t0 = Mul (x, factor.channels)\n"
        "t1 = optc.CausalConv <channels = 6, kernel = 3> (t0, w.filters)\ny = Mul (t1, x)",
    ),
}


def model(nodes: str) -> ir.Model:
    text = f"{TURN} {nodes} y = {BACK} (r)"
    words = set(text.replace("(", " ").replace(")", " ").replace(",", " ").split())
    used = {name: value for name, value in CONSTANTS.items() if name in words}
    weights = {name: value for name, value in WEIGHTS.items() if name in words}
    found = exported(SIGNATURE, text, weights, used)
    for node in found.graph:  # the exporter names the sizes that shape inference leaves open
        for value in node.outputs:
            if value.shape is not None and len(value.shape) == 3:
                first, second, _ = value.shape
                tokens = "S + 2" if str(value.name).startswith("long") else "S"
                channels_first = value.name != "y"
                value.shape = ir.Shape([first, second, tokens] if channels_first else [2, "S", 6])
    return found


@pytest.mark.parametrize("name", TAKEN)
def test_convolutions_of_each_channel(name: str) -> None:
    nodes, wanted = TAKEN[name]
    text, report = after(model(nodes), FoldChannels())
    assert text == expected(wanted)
    assert report.details == {"convolution": 1, "transpose": 1}
    assert unchanged(model(nodes), {"x": f32(2, 5, 6)}, FoldChannels()) < 1e-6


#: Convolutions that are none of each channel that reads the tokens before.
OTHERS = {
    "centred": f"r = Conv <{EACH}, pads: ints = [1, 1]> (t, w)",
    "that looks ahead": f"r = Conv <{EACH}, pads: ints = [0, 2]> (t, w)",
    "of whose rows the last are taken": f"long = Conv <{EACH}, pads: ints = [2, 2]> (t, w) "
    "r = Slice (long, later, end, axis)",
    "of one row": f"r = Conv <{EACH}> (t, one)",
    "across channels": "r = Conv <pads: ints = [2, 0]> (t, whole)",
    "with gaps": f"r = Conv <{EACH}, dilations: ints = [2], pads: ints = [4, 0]> (t, w)",
    "with more zeros": "long0 = Pad (t, front, zero) "
    f"long = Conv <{EACH}, pads: ints = [2, 0]> (long0, w) {FIRST}",
    "behind a pad of another number": f"long = Pad (t, front, seven) r = Conv <{EACH}> (long, w)",
    "behind a pad of a computed number": "m = ReduceMax <keepdims: int = 0> (x) "
    f"long = Pad (t, front, m) r = Conv <{EACH}> (long, w)",
    "behind a pad that mirrors": f'long = Pad <mode: string = "reflect"> (t, front) '
    f"r = Conv <{EACH}> (long, w)",
}


@pytest.mark.parametrize("kind", OTHERS)
def test_other_convolutions_stay(kind: str) -> None:
    before, _ = after(model(OTHERS[kind]))
    text, report = after(model(OTHERS[kind]), FoldChannels())
    assert text == before
    assert report.details == {}
    assert any("reads the tokens before" in reason for reason in report.skipped)


def test_a_weight_times_channels() -> None:
    nodes = "a = MatMul (square, t) r = Tanh (a)"
    square = {"square": f32(6, 6)}

    def product() -> ir.Model:
        found = exported(SIGNATURE, f"{TURN} {nodes} y = {BACK} (r)", square, {})
        for node in found.graph:
            for value in node.outputs:
                value.shape = ir.Shape([2, "S", 6] if value.name == "y" else [2, 6, "S"])
        return found

    text, report = after(product(), FoldChannels())
    assert text == expected("t0 = MatMul (x, square.turned)\ny = Tanh (t0)")
    assert report.details == {"transpose": 1}
    assert unchanged(product(), {"x": f32(2, 5, 6)}, FoldChannels()) < 1e-6


def test_a_part_of_the_channels() -> None:
    nodes = (
        "a, d = Split <axis: int = 1> (t, halves) e = Slice (t, three, six, channels) "
        "f = Mul (a, d) g = Add (f, e) r = Tanh (g)"
    )

    def halved() -> ir.Model:
        found = model(nodes)
        found.graph.outputs[0].shape = ir.Shape([2, "S", 3])
        return found

    text, report = after(halved(), FoldChannels())
    assert text == expected("""
        t0, t1 = Split <axis = -1> (x, halves)
        t2 = Slice (x, three, six, last_axis)
        t3 = Mul (t0, t1)
        t4 = Add (t3, t2)
        y = Tanh (t4)
        """)
    assert report.details == {"transpose": 1}
    assert unchanged(halved(), {"x": f32(2, 5, 6)}, FoldChannels()) < 1e-6


def test_what_reads_channels_first_keeps_doing_so() -> None:
    nodes = "s = ReduceSum (t, axis) u = Mul (t, s) r = Identity (u)"
    before, _ = after(model(nodes))
    text, report = after(model(nodes), FoldChannels())
    assert (text, report.details) == (before, {})
