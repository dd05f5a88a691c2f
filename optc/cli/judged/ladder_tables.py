"""The ladder of ``--recipe auto`` as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from optc.cli.output import byte_text, figure, table

if TYPE_CHECKING:
    from rich.table import Table

#: What is predicted or measured, by objective: the column, the key, and whether it is bytes.
_PREDICTED = {
    "decode": ("decode/s at most", "decode_tokens_per_s", False),
    "prefill": ("prefill/s at most", "prefill_tokens_per_s", False),
    "size": ("artifact", "artifact_bytes", True),
    "memory": ("memory", "memory_bytes", True),
    "speed": ("times float32", "speed", False),
}


def ladder_tables(ladder: Mapping[str, Any] | None) -> list[Table]:
    """Every rung: what is predicted or measured of it, its gates, and what became of it.

    Args:
        ladder: As reports have it (`optc.compiling.ladder.record.ladder_json`); None is none.
    """
    if ladder is None:
        return []
    gates = list(ladder["gates"])
    wanted = ", ".join(f"{name}={bound:g}" for name, bound in ladder["gates"].items())
    shown = _columns(ladder)
    predicted = list(shown)
    numbers = [*predicted, *gates]
    columns = ("recipe", *numbers, "outcome", "why")
    title = f"ladder for {ladder['objective']}, {wanted}"
    rows = table(title, *columns, numbers=numbers, prose=("why",))
    for rung in ladder["rungs"]:
        rows.add_row(
            rung["recipe"],
            *(_predicted(rung, *one) for one in shown.values()),
            *_values(rung, gates),
            rung["outcome"],
            rung["why"],
        )
    return [rows]


def _columns(ladder: Mapping[str, Any]) -> dict[str, tuple[str, bool]]:
    """Key and kind of each column: the objective's own, and the artifact's size; also the speed
    where it was measured."""
    measured = ["speed"] if any("measured" in rung for rung in ladder["rungs"]) else []
    chosen = dict.fromkeys((ladder["objective"], *measured, "size"))
    return {_PREDICTED[one][0]: _PREDICTED[one][1:] for one in chosen}


def _predicted(rung: Mapping[str, Any], key: str, is_bytes: bool) -> str:
    value = rung.get("predicted", rung.get("measured", {})).get(key)
    if value is None:
        return "-"
    return byte_text(value) if is_bytes else figure(value)


def _values(rung: Mapping[str, Any], gates: Sequence[str]) -> list[str]:
    found = rung.get("values", {})
    return [figure(found[gate]) if gate in found else "" for gate in gates]
