"""`EngineSpec` from the manifest's JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from optc.artifact.jsonio import Fields
from optc.executable.adapter_spec import AdapterModule, AdapterPart, AdapterSpec
from optc.executable.block_hadamard import BLOCKS
from optc.executable.executable import KV_TYPES, EngineSpec, HiddenRows, KVGroup, LayerKV
from optc.executable.kv_layout import KVLayout
from optc.executable.row_ranges import Range

#: Most KV heads of a layer, and most elements of a head: far above any model's, and low enough that
#: the bytes of a token in a layer (at most 2 * 4 * 2**32) stay far within int64.
_MAX_HEADS = _MAX_DIM = 1 << 16


def parse_spec(f: Fields) -> EngineSpec:
    """The spec in a manifest's JSON object.

    Raises:
        ArtifactError: A key is missing, of another type or out of range, or groups and layers do
            not name each other.
    """
    layers = tuple(_layer(layer) for layer in f.children("layers"))
    groups = tuple(
        KVGroup(g.count("window"), g.counts("layers", 0, len(layers) - 1))
        for g in f.children("groups")
    )
    _check_groups(f, groups, layers)
    return EngineSpec(
        vocab_size=f.count("vocab_size", 1),
        max_context=f.count("max_context", 1),
        max_rows=f.count("max_rows", 1),
        max_sequences=f.count("max_sequences", 1),
        max_logit_rows=f.count("max_logit_rows", 1),
        block_multiple=f.count("block_multiple", 1),
        batch_invariant=f.get("batch_invariant", bool),
        groups=groups,
        layers=layers,
        tree=bool(f.optional("tree", bool)),
        accept_rates=_accept_rates(f),
        hidden_size=_hidden_size(f),
        hidden_rows=_hidden_rows(f),
        features=bool(f.optional("features", bool)),
        samples=bool(f.optional("samples", bool)),
        shared_kv=_shared_kv(f),
        kv_layout=_kv_layout(f),
        adapters=None if f.optional("adapters", dict) is None else _adapters(f.child("adapters")),
    )


def _layer(f: Fields) -> LayerKV:
    return LayerKV(
        f.count("group"),
        f.count("kv_heads", 1, _MAX_HEADS),
        f.count("key_dim", 1, _MAX_DIM),
        f.count("value_dim", 1, _MAX_DIM),
        f.choice("dtype", KV_TYPES),
    )


def _check_groups(f: Fields, groups: Sequence[KVGroup], layers: Sequence[LayerKV]) -> None:
    listed = sorted((index, g) for g, group in enumerate(groups) for index in group.layers)
    if listed != [(index, layer.group) for index, layer in enumerate(layers)]:
        raise f.error("the layers that 'groups' lists are not those that 'layers' puts there")


def _kv_layout(f: Fields) -> KVLayout:
    if f.optional("kv_layout", str) is None:  # as before there were slots
        return "paged"
    return "slots" if f.choice("kv_layout", ("paged", "slots")) == "slots" else "paged"


def _accept_rates(f: Fields) -> tuple[tuple[float, ...], ...]:
    if f.optional("accept_rates", list) is None:
        return ()
    rows = f.each("accept_rates", list)
    for rate in chain.from_iterable(rows):
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= 1:
            raise f.error(f"the key 'accept_rates' holds {rate!r:.80}, which is no rate")
    return tuple(tuple(map(float, row)) for row in rows)


def _hidden_size(f: Fields) -> int:
    return 0 if f.optional("hidden_size", int) is None else f.count("hidden_size", 0, _MAX_DIM)


def _shared_kv(f: Fields) -> tuple[int, ...]:
    return () if f.optional("shared_kv", list) is None else f.counts("shared_kv")


def _hidden_rows(f: Fields) -> HiddenRows:
    if f.optional("hidden_rows", str) is None:
        return "all"
    return "logits" if f.choice("hidden_rows", ("all", "logits")) == "logits" else "all"


def _adapters(f: Fields) -> AdapterSpec:
    modules = tuple(_module(module) for module in f.children("modules"))
    return AdapterSpec(f.count("max", 1), f.count("rank", 1), modules)


def _module(f: Fields) -> AdapterModule:
    k, n = f.count("k", 1), f.count("n", 1)
    parts = tuple(_part(part, n) for part in f.children("parts"))
    if not f.optional("hadamard", int):  # as before inputs were rotated
        return AdapterModule(k, n, parts)
    block = f.count("hadamard", BLOCKS[0], k)
    if block not in BLOCKS:
        raise f.error(f"the key 'hadamard' is {block}, none of {BLOCKS}")
    return AdapterModule(k, n, parts, block)


def _part(f: Fields, n: int) -> AdapterPart:
    start = f.count("start", 0, n - 1)
    whole = AdapterPart(f.get("name", str), start, f.count("stop", start + 1, n))
    if not f.optional("of", int):  # as before weights had rows in another order
        return whole
    of = f.count("of", 1)
    ranges = tuple(_range(f, of, one) for one in f.each("ranges", list))
    if sum(count for _, _, count in ranges) != whole.stop - start:
        raise f.error("'ranges' are not as many rows as 'start' and 'stop' state")
    return replace(whole, of=of, ranges=ranges)


def _range(f: Fields, of: int, stated: Sequence[object]) -> Range:
    """Rows of a tensor that has ``of``."""
    if len(stated) == 3 and all(type(number) is int for number in stated):
        first, step, count = (number for number in stated if isinstance(number, int))
        if count > 0 and 0 <= first < of and 0 <= first + (count - 1) * step < of:
            return first, step, count
    raise f.error(f"the key 'ranges' holds {stated!r:.80}, which are no rows of {of}")
