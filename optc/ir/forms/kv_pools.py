"""KV groups and layers of a decoder, as a form states them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from optc.runtime.executable.executable import KVGroup, LayerKV, bytes_beyond_windows


@dataclass(frozen=True)
class KVPools:
    """The KV cache that a graph reads and writes.

    Attributes:
        groups: Layers that share block tables and slots: full attention first, then each window;
            last the states of an encoder, if there are any.
        layers: Shape and type of the K and V of every layer, in graph order; behind these, of the
            pools of their latest tokens (``kv-cache.recent``), and of the states of an encoder.
    """

    groups: tuple[KVGroup, ...]
    layers: tuple[LayerKV, ...]

    @property
    def bytes_per_token(self) -> int:
        """Bytes of keys and values of one token in all layers."""
        return sum(layer.bytes_per_token for layer in self.layers)

    @property
    def bytes_beyond_windows(self) -> int:
        """Those of them that a token needs for as long as its sequence runs."""
        return bytes_beyond_windows(self.groups, self.layers)

    @classmethod
    def grouped_by_window(cls, windows: tuple[int, ...], layers: tuple[LayerKV, ...]) -> Self:
        """Groups of these windows; each layer names its group."""
        members = (
            [i for i, one in enumerate(layers) if one.group == g] for g in range(len(windows))
        )
        groups = (KVGroup(w, tuple(m)) for w, m in zip(windows, members, strict=True))
        return cls(tuple(groups), layers)

    @classmethod
    def parse(cls, stated: Mapping[str, Any]) -> Self:
        """From JSON values (`stated`)."""
        groups = (
            KVGroup(g["window"], tuple(g["layers"]), g.get("state_slots", 0))
            for g in stated["groups"]
        )
        return cls(tuple(groups), tuple(LayerKV(**layer) for layer in stated["layers"]))

    def with_states(self, group: int, slots: int) -> Self:
        """The same groups and layers, where blocks of ``group`` hold states in so many slots."""
        groups = list(self.groups)
        groups[group] = replace(groups[group], state_slots=slots)
        return replace(self, groups=tuple(groups))

    def with_dtype(self, dtype: str) -> Self:
        """The same groups and layers with keys and values of another type."""
        return replace(self, layers=tuple(replace(one, dtype=dtype) for one in self.layers))

    def stated(self) -> dict[str, Any]:
        """As JSON values."""
        groups = [
            {"window": g.window, "layers": list(g.layers)}
            | ({"state_slots": g.state_slots} if g.state_slots else {})
            for g in self.groups
        ]
        return {"groups": groups, "layers": [asdict(layer) for layer in self.layers]}
