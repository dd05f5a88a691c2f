"""Names of merged weights are taken apart into those of the class."""

from __future__ import annotations

from optc.export.names import biases_of, parameters_of

QKV = [f"layers.0.attn.{part}.weight" for part in ("q", "k", "v")]


def test_parameters() -> None:
    known = {*QKV, "embed.weight", "a.gate", "a.up"}
    assert parameters_of("embed.weight.transposed.quantized", known) == ["embed.weight"]
    assert parameters_of("layers.0.attn.q+k+v.weight.quantized", known) == QKV
    assert parameters_of("a.gate+up", known) == ["a.gate", "a.up"]
    assert parameters_of("layers.1.attn.q+k+v.weight", known) == []
    assert parameters_of("other.weight", known) == []


def test_biases_of_merged_weights() -> None:
    biases = [f"layers.0.attn.{part}.bias" for part in ("q", "k", "v")]
    assert biases_of("layers.0.attn.q+k+v.weight.bias", set(QKV)) == biases
    assert biases_of("layers.0.attn.q+k+v.weight", set(QKV)) == []
