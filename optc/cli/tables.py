"""Tables that several commands print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from optc.cli.output import byte_text, figure, table

if TYPE_CHECKING:
    from rich.table import Table

_MEASURED_ON = {"lowered-onnx": "on the lowered ONNX"}
#: Characters of the text before a token that a table shows.
_CONTEXT = 40
_VERDICTS = {True: "passed", False: "FAILED", None: "-"}


def passes_table(passes: Sequence[Mapping[str, Any]]) -> Table:
    """The work of each pass: places rewritten, seconds, places by kind, or why there are none."""
    rows = table("passes", "name", "count", "seconds", "what", numbers=("count", "seconds"))
    for entry in passes:
        details = ", ".join(f"{k} {v}" for k, v in entry.get("details", {}).items())
        what = details or entry.get("warning", "")
        what += _found_again(entry.get("facts") or {})
        rows.add_row(entry["name"], str(entry["count"]), f"{entry['seconds']:.2f}", what)
    return rows


def _found_again(facts: Mapping[str, Any]) -> str:
    """The part of a pass's results that came from the cache of calibrations."""
    if facts.get("from_cache"):
        return " (from the cache)"
    blocks, parts = facts.get("resumed_after_blocks"), facts.get("resumed_parts")
    if blocks:
        return f" ({blocks} blocks from the cache)"
    return f" ({parts} parts from the cache)" if parts else ""


def formats_tables(passes: Sequence[Mapping[str, Any]]) -> list[Table]:
    """The format of each weight and what it loses, where a pass chose them."""
    facts = _chosen(passes, "formats")
    if facts is None:
        return []
    columns = ("weights", "format", "bits", "KL alone", "")
    title = f"formats within {facts['budget']}: {facts['reached']}"
    rows = table(title, *columns, numbers=("bits", "KL alone"))
    for row in facts["tensors"]:
        how = "measured" if row["measured"] else "from its error"
        cells = (row["tensors"], row["format"], f"{row['bits']:.2f}", f"{row['kl']:.6f}", how)
        rows.add_row(*cells)
    parts, whole = facts["kl_sum_of_parts"], facts["kl_measured"]
    rows.add_row("sum", "", f"{facts['bits_per_weight']:.2f}", f"{parts:.6f}", "")
    rows.add_row("together", "", "", f"{whole:.6f}", "measured")
    return [rows]


def activations_tables(passes: Sequence[Mapping[str, Any]]) -> list[Table]:
    """The loss of each layer by activations of 8 bits, where a pass chose which read 16."""
    facts = _chosen(passes, "activations")
    if facts is None:
        return []
    title = f"activations, multiply-adds within {facts['budget']:g}: {facts['reached']:.2f}"
    rows = table(title, "read by", "bits", "KL of 8 bits", "", numbers=("bits", "KL of 8 bits"))
    for row in facts["tensors"]:
        how = "measured" if row["measured"] else "of the nearest alike"
        rows.add_row(row["tensors"], str(row["bits"]), f"{row['kl']:.6f}", how)
    rows.add_row("sum, 8 bits everywhere", "", f"{facts['kl_sum_of_8_bits']:.6f}", "")
    rows.add_row("sum, as chosen", "", f"{facts['kl_sum_of_parts']:.6f}", "")
    rows.add_row("together, as chosen", "", f"{facts['kl_measured']:.6f}", "measured")
    return [rows]


def _chosen(passes: Sequence[Mapping[str, Any]], what: str) -> Mapping[str, Any] | None:
    """Facts of the first pass that chose ``what`` for each weight or layer."""
    facts = (entry.get("facts") or {} for entry in passes)
    return next((one for one in facts if one.get("chosen") == what), None)


def engines_table(engines: Sequence[Mapping[str, Any]]) -> Table:
    """Each engine of a compile: bytes of its own, and whose weights it reads."""
    rows = table("engines", "name", "bytes", "weights", "seconds", numbers=("bytes", "seconds"))
    for entry in engines:
        name, owner = entry["name"], entry["weights_of"]
        own = [byte_text(entry["weight_bytes"])] if entry["weight_bytes"] or owner == name else []
        weights = " and ".join([*own, *([] if owner == name else [f"of {owner}"])])
        rows.add_row(name, byte_text(entry["bytes"]), weights, f"{entry['seconds']:.1f}")
    return rows


def gates_tables(gates: Sequence[Mapping[str, Any]]) -> list[Table]:
    """Each gate's value, bound and verdict, a table for each engine."""
    engines = dict.fromkeys(gate.get("engine") for gate in gates)
    several = len(engines) > 1
    return [
        _gates_table(
            f"gates of {engine}" if several else "gates",
            [gate for gate in gates if gate.get("engine") == engine],
        )
        for engine in engines
    ]


def _gates_table(title: str, gates: Sequence[Mapping[str, Any]]) -> Table:
    rows = table(title, "name", "value", "bound", "verdict", "why", numbers=("value", "bound"))
    reasons: set[str] = set()
    for gate in gates:
        reason = gate.get("reason", "")
        why = (_MEASURED_ON.get(gate["measured_on"], ""), '"' if reason in reasons else reason)
        reasons.update([reason] if reason else [])
        rows.add_row(
            gate["name"],
            figure(gate["value"]),
            figure(gate["bound"]),
            _VERDICTS[gate["passed"]],
            ": ".join(filter(None, why)),
        )
    return rows


def contexts_tables(evaluation: Mapping[str, Mapping[str, Any]]) -> list[Table]:
    """Contexts where each engine's next-token distribution is farthest from the float32 model's.

    Args:
        evaluation: Figures by engine, those of a lowered model within them.
    """
    found = {
        name + (f" ({_MEASURED_ON[part]})" if part else ""): figures["worst_contexts"]
        for name, whole in evaluation.items()
        for part, figures in (("", whole), *_lowered(whole))
        if figures.get("worst_contexts")
    }
    several = len(found) > 1
    title = "largest divergence"
    return [
        _contexts_table(f"{title} of {name}" if several else title, entries)
        for name, entries in found.items()
    ]


def _lowered(figures: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    return [(part, figures[part]) for part in _MEASURED_ON if part in figures]


def _contexts_table(title: str, entries: Sequence[Mapping[str, Any]]) -> Table:
    rows = table(
        title, "KL", "text before", "next", "reference's best", "engine's best", numbers=("KL",)
    )
    for entry in entries:
        context = entry.get("context")
        before = "" if context is None else repr(context[-_CONTEXT:])
        best = (_token_text(entry[key], key) for key in ("reference", "engine"))
        rows.add_row(figure(entry["kl"]), before, _token_text(entry["next"]), *best)
    return rows


def _token_text(token: Mapping[str, Any], model: str = "") -> str:
    """A token and, of the likeliest ones, its probability by both models."""
    text = token.get("text")
    shown = f"#{token['token']}" if text is None else repr(text)
    if not model:
        return shown
    other = "engine" if model == "reference" else "reference"
    own, others = (figure(token.get(f"{one}_probability"), 2) for one in (model, other))
    return f"{shown} {own} ({other} {others})"
