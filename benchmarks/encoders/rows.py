"""Engines that are measured in turns: each is opened, compared, and kept with its figures."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from benchmarks.peers.measuring import Worker
from benchmarks.peers.tools import FailedError
from optc.errors import OptcError

#: By label, an engine and its figures.
Rows = dict[str, tuple[Worker, dict[str, Any]]]


def open_rows(
    stack: ExitStack,
    makers: Mapping[str, Callable[[], tuple[str, ...]]],
    only: Sequence[str] | None,
    figures: Callable[[Worker], dict[str, Any]],
) -> tuple[dict[str, dict[str, Any]], Rows]:
    """The results by label, of which some are reasons, and the engines that are there.

    Args:
        stack: Closes the engines.
        makers: By label, what gives the command of a worker.
        only: Parts of labels; None are all.
        figures: What is told of an engine before it is timed.
    """
    results: dict[str, dict[str, Any]] = {}
    rows: Rows = {}
    for label, make in makers.items():
        if only and not any(text in label for text in only):
            continue
        try:
            worker = Worker(make())
            stack.callback(worker.close)
            found = figures(worker)
        except (FailedError, OptcError, OSError, ValueError) as error:
            results[label] = {"reason": " ".join(str(error).split())[:200]}
            continue
        results[label] = found
        rows[label] = (worker, found)
        print(f"· {label}", file=sys.stderr)
    return results, rows


def table(
    head: Sequence[str],
    results: Mapping[str, Mapping[str, Any]],
    medians: Mapping[str, str],
    near: Mapping[str, str],
) -> str:
    """The results as Markdown.

    Args:
        head: Of all columns.
        results: By label, figures or a reason.
        medians: The format of each figure that is a list.
        near: The same of those that are numbers.
    """
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for label, found in results.items():
        if "reason" in found:
            cells = [str(found["reason"]), *[""] * (len(head) - 2)]
        else:
            cells = [format(statistics.median(found[n]), form) for n, form in medians.items()]
            cells += [format(found[n], form) for n, form in near.items()]
        lines.append("| " + " | ".join([label, *cells]) + " |")
    return "\n".join(lines)
