"""The result file: what is in it, and what a run adds."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.quality_per_byte.plot import drawn, svg, title_of
from benchmarks.quality_per_byte.points import Point, merged

Verdict = Callable[[list[Point]], dict[str, Any]]


class Result:
    """Points of one model, and what could not be made.

    Args:
        path: The JSON file; a plot is drawn beside it (.svg).
        about: What the figures are of; its ``model`` and ``text`` are the plot's title.
        verdict: What the points come to.
    """

    def __init__(self, path: Path, about: Mapping[str, Any], verdict: Verdict) -> None:
        self.path, self._about, self._verdict = path, about, verdict
        self.points: list[Point] = []
        self.missing: list[dict[str, str]] = []
        self._read()

    def _read(self) -> None:
        known: dict[str, Any] = json.loads(self.path.read_text()) if self.path.exists() else {}
        self.points = [Point(**entry) for entry in known.get("points", [])]
        self.missing = known.get("missing", [])

    def add(self, points: list[Point], missing: list[dict[str, str]] | None = None) -> None:
        """Take points, and what could not be made, in the place of older ones; write all. What
        another run has written in the meantime stays."""
        self._read()
        self.points = merged(self.points, points)
        found = {(one["who"], one["label"]): one for one in [*self.missing, *(missing or [])]}
        there = {(point.who, point.label) for point in points}
        self.missing = [one for key, one in sorted(found.items()) if key not in there]
        self.write()

    def write(self) -> None:
        """Write the file and the plot beside it."""
        content = {
            **self._about,
            "verdict": self._verdict(self.points),
            "missing": self.missing,
            "points": [point.as_json() for point in self.points],
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(content, indent=1) + "\n")
        if drawn(self.points):
            self.path.with_suffix(".svg").write_text(svg(self.points, title_of(content)))


def print_table(points: list[Point]) -> None:
    """Markdown on stdout."""
    print("| who | format | numbers | MB | bits, all | bits, body | mean KL | p99 | top-1 |")
    print("|---|---|---|---|---|---|---|---|---|")
    for p in points:
        body = "-" if p.bits_body is None else f"{p.bits_body:.2f}"
        print(f"| {p.who} | {p.label} | {p.numerics} | {p.bytes / 1e6:.2f} | {p.bits_all:.2f} "
              f"| {body} | {p.kl:.5f} | {p.figures.get('kl_p99', float('nan')):.4f} "
              f"| {p.figures['top1_agreement']:.3f} |")  # fmt: skip
