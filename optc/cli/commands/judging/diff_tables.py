"""The tables of ``optc diff``, for the terminal and for summaries, from its JSON object."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from optc.cli.output import byte_text, figure
from optc.proof.conditions.summary import Figures

#: Most rows of a table of tensors; the JSON object has all.
_TENSORS = 12
_DIGITS = 5
_BYTES = ("bytes", "engine_bytes", "weight_bytes", "kv_bytes_per_token", "peak_anon_bytes")


def diff_figures(values: Mapping[str, Any]) -> list[Figures]:
    """A table of every part that differs, and of gates, sizes and speed whether or not they do."""
    parts = (
        _identities(values["a"], values["b"]),
        _keys("recipe", values["recipe"]),
        _passes(values["passes"] or ()),
        _keys("versions", values["versions"]),
        *map(_tensors, values["weights"] or ()),
        _numbers("gates", values["gates"]),
        _numbers("sizes and compile", values["sizes"]),
        _outputs(values["outputs"] or {}),
        _speed(values["speed"] or ()),
    )
    return [part for part in parts if part.rows]


def same_line(values: Mapping[str, Any]) -> str:
    """A line that names what is equal."""
    if values["same"]:
        return "the same artifact: every file, the recipe and the verdicts are equal"
    equal = [name for name in ("recipe", "passes", "versions") if values[name] == []]
    equal += [
        f"all {one['same']} tensors of {one['engine']}"
        for one in values["weights"] or ()
        if one["changed"] == 0
    ]
    return f"equal: {', '.join(equal)}" if equal else ""


def _identities(a: Mapping[str, Any], b: Mapping[str, Any]) -> Figures:
    rows = [(key, _text(a[key]), _text(b[key])) for key in a if a[key] != b[key]]
    return Figures("compared", ("", "A", "B"), rows)


def _keys(title: str, changes: Iterable[Mapping[str, Any]] | None) -> Figures:
    rows = [(one["key"], _text(one["a"]), _text(one["b"])) for one in changes or ()]
    return Figures(title, ("", "A", "B"), rows)


def _passes(changes: Iterable[Mapping[str, Any]]) -> Figures:
    rows = [(one["name"], _ran(one["a"]), _ran(one["b"])) for one in changes]
    return Figures("passes", ("pass", "A", "B"), rows)


def _ran(one: Mapping[str, Any] | None) -> str:
    return "-" if one is None else f"{one['spec']}: {one['count']} places"


def _tensors(one: Mapping[str, Any]) -> Figures:
    tensors: Sequence[Mapping[str, Any]] = one["tensors"]
    shown = sorted(tensors, key=_size, reverse=True)[:_TENSORS]
    rows = [(t["name"], _stored(t["a"]), _stored(t["b"])) for t in shown]
    if len(tensors) > len(shown):
        rows.append((f"and {len(tensors) - len(shown)} smaller ones", "", ""))
    total = one["same"] + len(tensors)
    title = f"weights of {one['engine']}: {len(tensors)} of {total} tensors differ"
    return Figures(title, ("tensor", "A", "B"), rows)


def _size(change: Mapping[str, Any]) -> int:
    return max(one["bytes"] for one in (change["a"], change["b"]) if one is not None)


def _stored(one: Mapping[str, Any] | None) -> str:
    if one is None:
        return "-"
    shape = "x".join(map(str, one["shape"]))
    return f"{one['dtype']} {shape} {one['sha256'][:12]}"


def _numbers(title: str, rows: Iterable[Mapping[str, Any]]) -> Figures:
    cells = [
        (
            row["name"],
            row["case"],
            _number(row["name"], row["a"]),
            _number(row["name"], row["b"]),
            figure(row["ratio"], 4),
        )
        for row in rows
        if row["a"] is not None or row["b"] is not None
    ]
    return Figures(title, ("figure", "engine", "A", "B", "B / A"), cells)


def _outputs(values: Mapping[str, float | None]) -> Figures:
    rows = [(name, figure(value, _DIGITS)) for name, value in values.items()]
    return Figures("B's outputs", ("measure", "beside A's"), rows)


def _speed(results: Iterable[Mapping[str, Any]]) -> Figures:
    rows = [
        (
            one["metric"],
            str(one["concurrency"]),
            figure(one["a"]),
            figure(one["b"]),
            f"{figure(one['ratio'], 4)} ({figure(one['low'], 3)} to {figure(one['high'], 3)})",
        )
        for one in results
    ]
    title = "speed, measured in turns: medians, and the rounds' ratios"
    return Figures(title, ("figure", "at once", "A", "B", "B / A"), rows)


def _number(name: str, value: float | None) -> str:
    if value is not None and name in _BYTES:
        return byte_text(int(value))
    return figure(value, _DIGITS)


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else json.dumps(value)
