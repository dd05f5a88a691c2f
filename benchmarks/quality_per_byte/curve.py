"""Our curve of KL against bytes, and whether a peer's point lies below it."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.quality_per_byte.points import Point

#: KL below this is rounding: two float32 engines of the same weights differ by so much.
NOISE = 1e-6
#: What is held against what: (our numbers, the peers'), and the words for it.
COMPARISONS = {
    "weights against weights": ("weights", "weights"),
    "engines against engines": ("engine", "engine"),
    "our engines against peers' weights": ("engine", "weights"),
}
#: Like is compared with like; the third comparison is told, not judged.
JUDGED = ("weights against weights", "engines against engines")


@dataclass(frozen=True)
class Curve:
    """The lower envelope of points: ever more bytes, ever less KL.

    Attributes:
        bytes: Of each corner, ascending.
        kl: Of each corner, descending.
    """

    bytes: tuple[int, ...]
    kl: tuple[float, ...]

    @classmethod
    def of(cls, points: Sequence[Point]) -> Curve:
        """The corners: points that no other beats in both bytes and KL."""
        sizes: list[int] = []
        kls: list[float] = []
        for size, kl in sorted((point.bytes, max(point.kl, NOISE)) for point in points):
            if kls and kl >= kls[-1]:
                continue
            sizes.append(size)
            kls.append(kl)
        return cls(tuple(sizes), tuple(kls))

    def at(self, size: float) -> float | None:
        """KL at a number of bytes: log(KL) is linear between corners.

        Behind the last corner the curve goes on level. Before the first there is none (None).
        """
        after = bisect_right(self.bytes, size)
        if not after:
            return None
        if after == len(self.bytes):
            return self.kl[-1]
        left, right = self.bytes[after - 1], self.bytes[after]
        share = (size - left) / (right - left)
        low, high = (math.log(k) for k in self.kl[after - 1 : after + 1])
        return math.exp(low + share * (high - low))


def compare(ours: Sequence[Point], peers: Sequence[Point]) -> dict[str, Any]:
    """Every peer's point against our curve: which lie below it, which lie before it.

    ``ratio`` is the peer's KL over the curve's at the same bytes.
    """
    curve = Curve.of(ours)
    below, before, ratios = [], [], []
    for point in peers:
        name = f"{point.who} {point.label}"
        expected = curve.at(point.bytes)
        if expected is None:
            before.append(name)
            continue
        ratio = max(point.kl, NOISE) / expected
        ratios.append(ratio)
        if ratio < 1:
            below.append({"point": name, "bits_all": round(point.bits_all, 3),
                          "kl": float(f"{point.kl:.4g}"), "curve": float(f"{expected:.4g}"),
                          "ratio": round(ratio, 3)})  # fmt: skip
    return {
        "compared": len(ratios),
        "below": sorted(below, key=lambda entry: entry["ratio"]),
        "fewer_bytes_than_our_fewest": before,
        "least_ratio": round(min(ratios), 3) if ratios else None,
    }


def engines_verdict(points: Sequence[Point]) -> dict[str, Any]:
    """Whole engines against each other, and ``held``: no peer's engine has both no more bytes and
    no more KL than one of ours; engines on a file as it came are held against ours on that file.
    None where there are no points of ours or of any peer.

    ``below`` are those that have, ``between`` those that lie below the line between two of ours
    and beat neither; ``given grid`` are the engines on the file.
    """
    ours, peers = _engines(points, "engine")
    our_given, given = _engines(points, "given grid")
    if not ours or not peers:
        return {"held": None}
    pairs = [(p, ours) for p in peers] + [(p, our_given) for p in given]
    below = [entry for p, others in pairs if (entry := _beaten(p, others))]
    names = {entry["point"] for entry in below}
    line = compare(ours, peers)
    return {
        "held": not below,
        "compared": len(peers) + (len(given) if our_given else 0),
        "below": below,
        "between": [entry for entry in line["below"] if entry["point"] not in names],
        "given grid": [
            {**_entry(p), "beats": _labels_beaten(p, [*ours, *our_given])} for p in given
        ],
    }


def _engines(points: Sequence[Point], numerics: str) -> tuple[list[Point], list[Point]]:
    """Ours and the peers' of a kind."""
    found = [p for p in points if p.numerics == numerics]
    return [p for p in found if p.who == "optc"], [p for p in found if p.who != "optc"]


def _beaten(point: Point, ours: Sequence[Point]) -> dict[str, Any] | None:
    beats = _labels_beaten(point, ours)
    return {**_entry(point), "beats": beats} if beats else None


def _labels_beaten(point: Point, ours: Sequence[Point]) -> list[str]:
    kl = max(point.kl, NOISE)
    return [o.label for o in ours if point.bytes <= o.bytes and kl <= o.kl]


def _entry(point: Point) -> dict[str, Any]:
    return {"point": f"{point.who} {point.label}", "mb": round(point.bytes / 1e6, 2),
            "kl": float(f"{point.kl:.4g}")}  # fmt: skip


def verdict(points: Sequence[Point]) -> dict[str, Any]:
    """All comparisons, and ``held``: no peer's point lies below where like meets like.

    ``held`` is None where nothing was judged: without points of ours or of any peer.
    """
    found: dict[str, Any] = {}
    for name, (our, their) in COMPARISONS.items():
        ours = [p for p in points if p.who == "optc" and p.numerics == our]
        peers = [p for p in points if p.who != "optc" and p.numerics == their]
        if ours and peers:
            found[name] = compare(ours, peers)
    judged = [found[name] for name in JUDGED if name in found]
    held = all(not one["below"] for one in judged) if judged else None
    return {"held": held, **found}
