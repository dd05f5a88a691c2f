"""`EngineSpec` from the manifest's JSON."""

from __future__ import annotations

from optc.artifact.jsonio import Fields
from optc.runtime.adapters.spec import AdapterModule, AdapterPart, AdapterSpec
from optc.runtime.executable import KV_TYPES, EngineSpec, KVGroup, LayerKV


def parse_spec(f: Fields) -> EngineSpec:
    """The spec in a manifest's JSON object.

    Raises:
        ArtifactError: A key is missing or of another type.
    """
    return EngineSpec(
        vocab_size=f.get("vocab_size", int),
        max_context=f.get("max_context", int),
        max_rows=f.get("max_rows", int),
        max_sequences=f.get("max_sequences", int),
        max_logit_rows=f.get("max_logit_rows", int),
        block_multiple=f.get("block_multiple", int),
        batch_invariant=f.get("batch_invariant", bool),
        groups=tuple(
            KVGroup(g.get("window", int), g.each("layers", int)) for g in f.children("groups")
        ),
        layers=tuple(
            LayerKV(
                layer.get("group", int),
                layer.get("kv_heads", int),
                layer.get("key_dim", int),
                layer.get("value_dim", int),
                layer.choice("dtype", KV_TYPES),
            )
            for layer in f.children("layers")
        ),
        tree=bool(f.optional("tree", bool)),
        accept_rates=_accept_rates(f),
        samples=bool(f.optional("samples", bool)),
        kv_layout="slots" if f.optional("kv_layout", str) == "slots" else "paged",
        adapters=None if f.optional("adapters", dict) is None else _adapters(f.child("adapters")),
    )


def _accept_rates(f: Fields) -> tuple[tuple[float, ...], ...]:
    rows = f.optional("accept_rates", list)
    return () if rows is None else tuple(tuple(float(rate) for rate in row) for row in rows)


def _adapters(f: Fields) -> AdapterSpec:
    modules = tuple(
        AdapterModule(
            m.get("k", int),
            m.get("n", int),
            tuple(
                AdapterPart(p.get("name", str), p.get("start", int), p.get("stop", int))
                for p in m.children("parts")
            ),
        )
        for m in f.children("modules")
    )
    return AdapterSpec(f.get("max", int), f.get("rank", int), modules)
