"""The plot: mean KL against bytes of all weights, both logarithmic, as SVG without a library.

    python -m benchmarks.quality_per_byte.plot RESULT.json FILE.svg

Lines are optc's curves, marks are points; a mark's format and figures are its title. Labelled are
optc's points and those of each peer that no other point of that peer beats.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from benchmarks.quality_per_byte.curve import NOISE, Curve
from benchmarks.quality_per_byte.points import Point

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 980, 660, 70, 200, 30, 50
#: Models of more bits are float ones: they would squeeze the others together.
LARGEST_BITS = 10.5
#: Megabytes that have a line, times powers of ten.
TICKS = (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9)
COLOURS = {
    "optc": "#c1121f",
    "llama.cpp": "#1d6fb8",
    "ik_llama.cpp": "#0b9aa8",
    "openvino": "#6a4c93",
    "onnxruntime": "#2a7f3f",
    "llm-compressor": "#c77700",
    "openvino-genai": "#6a4c93",
    "onnxruntime-genai": "#2a7f3f",
    "vllm": "#c77700",
    "ctranslate2": "#7a5230",
    "torch.compile": "#555555",
}
MARKS = {
    "optc": "M-5,0a5,5 0 1,0 10,0a5,5 0 1,0 -10,0",
    "llama.cpp": "M-4,-4h8v8h-8z",
    "ik_llama.cpp": "M-5,0L0,-3L5,0L0,3z",
    "openvino": "M0,-5L5,4H-5z",
    "onnxruntime": "M0,-6L5,0L0,6L-5,0z",
    "llm-compressor": "M0,5L5,-4H-5z",
    "openvino-genai": "M0,-5L5,4H-5z",
    "onnxruntime-genai": "M0,-6L5,0L0,6L-5,0z",
    "vllm": "M0,5L5,-4H-5z",
    "ctranslate2": "M-5,-2h10v4h-10z",
    "torch.compile": "M-2,-5h4v10h-4z",
}
#: What marks and lines mean.
LEGEND = {
    "weights": ("filled: weights alone,", "activations and KV in float"),
    "engine": ("hollow: the engine's own", "numbers"),
    "given grid": ("small: a quantized file as it", "came, not rounded again"),
}


class Axes:
    """The positions of points on the page.

    Args:
        points: All that are drawn; at least one.
    """

    def __init__(self, points: Sequence[Point]) -> None:
        sizes = [p.bytes / 1e6 for p in points]
        kls = [max(p.kl, NOISE) for p in points]
        self.x_range = (min(sizes) * 0.94, max(sizes) * 1.06)
        self.y_range = (min(kls) * 0.7, max(kls) * 1.4)

    def x(self, megabytes: float) -> float:
        """Pixels from the left."""
        low, high = (math.log(value) for value in self.x_range)
        return LEFT + (WIDTH - LEFT - RIGHT) * (math.log(megabytes) - low) / (high - low)

    def y(self, kl: float) -> float:
        """Pixels from the top."""
        low, high = (math.log(value) for value in self.y_range)
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - math.log(max(kl, NOISE))) / (high - low)


def svg(points: Sequence[Point], title: str) -> str:
    """The whole file.

    Raises:
        ValueError: There is no point to draw.
    """
    shown = drawn(points)
    if not shown:
        raise ValueError("there is no point to draw")
    axes = Axes(shown)
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(LEFT, 18, title, "font-size=\"13\" font-weight=\"bold\""),
        *_grid(axes),
        *(line for numerics in ("weights", "engine") for line in _curve(axes, shown, numerics)),
        *(_mark(axes, point) for point in shown),
        *_labels(axes, shown),
        *_legend(shown),
        "</svg>",
    ]  # fmt: skip
    return "\n".join(body) + "\n"


def drawn(points: Sequence[Point]) -> list[Point]:
    """Those that the plot shows."""
    return [p for p in points if p.bits_all <= LARGEST_BITS]


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<path d="M{x1:.1f},{y1:.1f}L{x2:.1f},{y2:.1f}" stroke="{colour}" fill="none"/>'


def _grid(axes: Axes) -> Iterator[str]:
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    for megabytes in (tick * 10**power for power in range(5) for tick in TICKS):
        if axes.x_range[0] <= megabytes <= axes.x_range[1]:
            x = axes.x(megabytes)
            yield _line(x, TOP, x, bottom, "#e4e4e4")
            yield _text(x, bottom + 16, f"{megabytes:g}", 'text-anchor="middle"')
    for exponent in range(-6, 2):
        for step in (1, 2, 5):
            kl = step * 10.0**exponent
            if axes.y_range[0] <= kl <= axes.y_range[1]:
                y = axes.y(kl)
                yield _line(LEFT, y, right, y, "#cccccc" if step == 1 else "#eeeeee")
                yield _text(LEFT - 6, y + 4, f"{kl:g}", 'text-anchor="end"')
    yield _text((LEFT + right) / 2, HEIGHT - 12, "MB of all weights", 'text-anchor="middle"')
    yield _text(0, 0, "mean KL, nats a token",
                f'text-anchor="middle" transform="translate(14,{(TOP + bottom) / 2}) '
                'rotate(-90)"')  # fmt: skip


def _curve(axes: Axes, points: Sequence[Point], numerics: str) -> Iterator[str]:
    ours = [p for p in points if p.who == "optc" and p.numerics == numerics]
    corners = Curve.of(ours)
    if len(corners.bytes) > 1:
        places = (
            f"{axes.x(size / 1e6):.1f},{axes.y(kl):.1f}"
            for size, kl in zip(corners.bytes, corners.kl, strict=True)
        )
        dashes = ' stroke-dasharray="6 4"' if numerics == "engine" else ""
        yield (f'<path d="M{"L".join(places)}" stroke="{COLOURS["optc"]}" stroke-width="1.6"'
               f'{dashes} fill="none"/>')  # fmt: skip


def _mark(axes: Axes, point: Point) -> str:
    colour = COLOURS.get(point.who, "#555555")
    fill = colour if point.numerics == "weights" else "white"
    small = " scale(0.6)" if point.numerics == "given grid" else ""
    title = (f"{point.who} {point.label} ({point.numerics}): KL {point.kl:.4g}, "
             f"{point.bytes / 1e6:.2f} MB, {point.bits_all:.2f} bits")  # fmt: skip
    return (
        f'<path d="{MARKS.get(point.who, MARKS["optc"])}" fill="{fill}" stroke="{colour}" '
        f'fill-opacity="0.8" transform="translate({axes.x(point.bytes / 1e6):.1f},'
        f'{axes.y(point.kl):.1f}){small}"><title>{escape(title)}</title></path>'
    )


def _labels(axes: Axes, points: Sequence[Point]) -> Iterator[str]:
    taken: list[tuple[float, float]] = []
    # engines have labels where there are no weights alone
    kind = "weights" if any(p.numerics == "weights" for p in points) else "engine"
    for who in COLOURS:
        own = [p for p in points if p.who == who and p.numerics == kind]
        front = Curve.of(own)
        corners = set(zip(front.bytes, front.kl, strict=True))
        for point in own:
            if who != "optc" and (point.bytes, max(point.kl, NOISE)) not in corners:
                continue
            x, y = axes.x(point.bytes / 1e6) + 8, axes.y(point.kl) + 4
            while any(abs(y - b) < 10 and abs(x - a) < 120 for a, b in taken):
                y += 10
            taken.append((x, y))
            yield _text(x, y, point.label, f'fill="{COLOURS[who]}" font-size="9"')


def _legend(points: Sequence[Point]) -> Iterator[str]:
    x, y = WIDTH - RIGHT + 16, TOP + 12
    for who, colour in COLOURS.items():
        if any(p.who == who for p in points):
            yield (f'<path d="{MARKS[who]}" fill="{colour}" stroke="{colour}" '
                   f'transform="translate({x},{y})"/>')  # fmt: skip
            yield _text(x + 12, y + 4, who)
            y += 20
    kinds = {p.numerics for p in points}
    texts = [text for kind, lines in LEGEND.items() if kind in kinds for text in lines]
    for text in (*texts, "lines: optc's lower envelopes"):
        yield _text(x - 6, y + 6, text, 'fill="#555555" font-size="10"')
        y += 15


def main() -> None:
    """Draw a result file."""
    result = json.loads(Path(sys.argv[1]).read_text())
    points = [Point(**entry) for entry in result["points"]]
    Path(sys.argv[2]).write_text(svg(points, title_of(result)))


def title_of(result: Mapping[str, Any]) -> str:
    """The title above the plot."""
    return f"{result['model']} on {result['text']}: what quantization loses against its bytes"


if __name__ == "__main__":
    main()
