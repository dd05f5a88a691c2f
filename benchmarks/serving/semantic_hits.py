"""Right and wrong hits of a semantic cache, by its threshold.

    python -m benchmarks.serving.semantic_hits ARTIFACT

ARTIFACT is of an encoder of texts.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import optc
from optc.errors import InputError
from optc.runtime.tensors.embedder import Embedder
from optc.serve.semantic.measured import MOST_WRONG, measured, similarities
from optc.serve.semantic.pairs import SHIPPED

THRESHOLDS = (0.7, 0.75, 0.8, 0.85, 0.9, 0.92, 0.94, 0.96, 0.98, 0.99, 0.995)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each threshold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("artifact")
    given = parser.parse_args(arguments)
    with optc.load(given.artifact) as embedder:
        if not isinstance(embedder, Embedder):
            raise InputError("embeds no texts", where=given.artifact)
        for line in table(embedder):
            print(line)


def table(embedder: Embedder) -> list[str]:
    """Lines: threshold, hits of pairs with the same answer, of those with others, those of
    these that are near, whatever their words, and whether `optc serve` takes it."""
    found = similarities(embedder.embed, SHIPPED)
    lines = ["threshold  right      wrong      near       allowed"]
    for threshold in THRESHOLDS:
        one = measured(found, SHIPPED, threshold)
        right, wrong = f"{one.right}/{one.same}", f"{one.wrong}/{one.other}"
        near = f"{one.near}/{one.other}"
        allowed = "yes" if one.wrong_rate <= MOST_WRONG else "no"
        lines.append(f"{threshold:<9}  {right:<9}  {wrong:<9}  {near:<9}  {allowed}")
    return lines


if __name__ == "__main__":
    main()
