"""Draw the results of `benchmarks.steps.cost_growth`: one column an artifact, one row a series.

python -m benchmarks.steps.step_plots RESULTS.json FILE.svg
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

X_OF = {"rows": "rows", "sequences": "sequences", "context": "context"}
TITLES = {
    "rows": "rows of one sequence",
    "sequences": "sequences, one row each",
    "context": "tokens of context, one row",
}


def plot(results: list[dict[str, Any]], path: Path) -> None:
    """Write the figure; its format is that of the suffix."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise SystemExit("plots need matplotlib: pip install matplotlib") from None
    plt.rcParams.update({"font.size": 8, "svg.hashsalt": "optc"})
    figure, axes = plt.subplots(
        len(X_OF) + 1, len(results), figsize=(3.2 * len(results), 9), squeeze=False
    )
    for column, result in enumerate(results):
        for row, (name, key) in enumerate(X_OF.items()):
            panel(axes[row][column], result, name, key)
    for axis in axes[-1][1:]:
        axis.set_visible(False)
    parameters_panel(axes[-1][0], results)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def panel(axis: Any, result: dict[str, Any], name: str, key: str) -> None:
    """Measured time and roofline of one series."""
    points = result["series"][name]
    x = [point[key] for point in points]
    axis.plot(x, [1e3 * p["seconds"] for p in points], marker=".", label="measured")
    axis.plot(x, [1e3 * p["roof_s"] for p in points], linestyle="--", label="roofline")
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xlabel(TITLES[name])
    axis.set_ylabel("ms a step")
    if name == "rows":
        axis.set_title(result["artifact"])
        axis.legend()


def parameters_panel(axis: Any, results: list[dict[str, Any]]) -> None:
    """One decode step of every artifact against the bytes of its weights."""
    ordered = sorted(results, key=lambda r: r["weight_bytes"])
    x = [r["weight_bytes"] / 1e6 for r in ordered]
    first = [r["series"]["sequences"][0] for r in ordered]
    axis.plot(x, [1e3 * p["seconds"] for p in first], marker=".")
    axis.plot(x, [1e3 * p["roof_s"] for p in first], linestyle="--")
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("MB of weights, one decode step")
    axis.set_ylabel("ms a step")


if __name__ == "__main__":
    plot(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
