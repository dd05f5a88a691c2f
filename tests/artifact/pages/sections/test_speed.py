"""Where the time of a step goes, and how near it is to the roof."""

from __future__ import annotations

from typing import Any

from optc.artifact.pages.measured import Measured, read_measured
from optc.artifact.pages.sections.speed import roof, roof_of, step_times, step_times_of
from tests.artifact.pages.charts.drawing import hints, read_drawing, shapes, texts
from tests.artifact.pages.sample import BENCH, step, subject
from tests.artifact.pages.sections.reading import listed, read_section, tables


def kernel(name: str, ms: float, **more: Any) -> dict[str, Any]:
    given = {"shape": "", "calls": 2, "bytes": 0, "ops": 0, "roof_ms": 0.0}
    return {"name": name, "ms": ms, **given, **more}


def measured(*kernels: dict[str, Any], **more: Any) -> Measured:
    """A profile of one step of some kernels."""
    one = step() | {"kernels": list(kernels), **more}
    return read_measured(BENCH | {"profile": [one]}, "bench.json")


def test_steps_and_the_kernels_that_move_and_compute_are_under_the_roof() -> None:
    section = roof_of(read_measured(BENCH, "bench.json"))
    assert section.chart is not None
    root = read_drawing(section.chart)
    assert len(shapes(root, "circle", "point")) == 3, "steps"
    assert len(shapes(root, "circle", "faint")) == 3 * 3, "all kernels but norms, which do neither"
    assert "decode\u202f\u00d7\u202f1: int_matmul_0 384x96: 2.00 op/B, 26.7 Gop/s" in hints(root)
    (rows,) = tables(read_section(section))
    assert rows[1] == ["decode\u202f\u00d7\u202f8", "1.00", "8.00", "15.0", "38\u202f%"]
    only_moves = kernel("copy_0", 0.5, bytes=4e6)
    only_computes = kernel("count_0", 0.5, ops=4e6)
    chart = roof_of(measured(only_moves, only_computes)).chart
    assert chart is not None
    root = read_drawing(chart)
    assert (len(shapes(root, "circle", "point")), shapes(root, "circle", "faint")) == (1, [])


def test_without_work_there_is_no_roof() -> None:
    for section in (
        roof_of(measured(kernel("norm_0", 0.5))),
        roof_of(read_measured({**BENCH, "ceilings": None}, "bench.json")),
    ):
        assert section.chart is None
        assert listed(read_section(section), "p") == [
            "Nothing that moves or computes was measured."
        ]
    assert listed(read_section(roof(subject(measured=False))), "p") == [
        "Not measured: no engine runs here."
    ]


def test_without_steps_there_are_no_times() -> None:
    assert step_times(subject(measured=False)) is None
    section = step_times(subject())
    assert section is not None
    assert len(listed(read_section(section), "figure")) == 3


def test_kinds_and_kernels_stand_by_their_time() -> None:
    short, long = (
        kernel(f"mm_{n}", ms, shape="8x8", roof_ms=0.1) for n, ms in ((0, 0.1), (1, 0.4))
    )
    section = step_times_of(measured(kernel("rope_2", 0.2), short, long, kernel("idle_3", 0.0)))
    assert section.chart is not None
    root = read_drawing(section.chart)
    assert texts(root) == [
        "decode, 1 sequence, 1.00\u202fms",
        *("matmuls", "mm_1 8x8", "mm_0 8x8", "rope", "rope_2"),
        "around the kernels",
    ]
    said = hints(root)
    assert "matmuls: 0.500\u202fms" in said
    assert "around the kernels: 0.200\u202fms" in said
    assert "mm_1 8x8: 0.400\u202fms, 2 calls" in said
    assert not any(hint.startswith("idle_3") for hint in said), "it took no time"
    page = read_section(section)
    assert listed(page, "h3") == ["decode, 1 sequence: 1.00\u202fms"]
    assert listed(page, "figcaption") == [
        "512 tokens of context; 38\u202f% of the step is needed at best, 20\u202f% is spent "
        "around the kernels."
    ]


def test_a_step_that_its_kernels_fill_has_nothing_around_them() -> None:
    section = step_times_of(measured(kernel("a_0", 1.0), kernel_ms=1.0))
    assert section.chart is not None
    assert texts(read_drawing(section.chart)) == ["decode, 1 sequence, 1.00\u202fms", "a", "a_0"]


def test_a_line_for_each_of_the_slowest_kernels() -> None:
    fast = [kernel(f"fast_{n}", 0.01 - n * 1e-4, calls=3) for n in range(14)]
    slow = kernel("mm_0", 0.4, shape="8x8", calls=1200, bytes=4e6, ops=8e6, roof_ms=0.1)
    (rows,) = tables(read_section(step_times_of(measured(*fast, slow))))
    assert rows[0] == [
        *("mm_0 8x8", "1,200", "0.400", "40\u202f%", "10.0", "20.0", "25\u202f%"),
    ]
    assert rows[1] == ["fast_0", "3", "0.0100", "1.0\u202f%", "", "", ""]
    assert len(rows) == 12 + 1
    assert rows[-1][:2] == ["3 others", "9"]
    (rows,) = tables(read_section(step_times_of(measured(*fast[:11], slow))))
    assert (len(rows), rows[-1][0]) == (12, "fast_10")


def test_rates_of_a_kernel_that_took_no_time_are_left_out() -> None:
    none = kernel("a_0", 0.0, bytes=1e6, ops=1e6, roof_ms=0.1)
    (rows,) = tables(read_section(step_times_of(measured(none))))
    assert rows[0][:2] == ["a_0", "2"]
    assert rows[0][4:] == ["", "", ""]
