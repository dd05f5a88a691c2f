"""``report.json``: what a compile measured. It is not part of an artifact's digest.

A load takes nothing from it but speeds, a hint for choosing among engines, so a damaged one does
not make the artifact unusable; who asks for it is told. Checked are the parts that commands show.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from optc.artifact.jsonio import Fields, read_json
from optc.foreign.typed_json import MAX_INT

#: Far more than there are bins (`optc.gates.kl_distribution`).
_MOST_BINS = 1000


class Report(dict[str, Any]):
    """A report as it was written; a notebook shows its gates and passes."""

    def __repr__(self) -> str:
        gates, passes = (len(self.get(key, ())) for key in ("gates", "passes"))
        return f"<optc.Report {gates} gates, {passes} passes: {', '.join(sorted(self)) or 'empty'}>"

    def _repr_html_(self) -> str:
        from optc.notebook.tables import report_html  # only notebooks need it

        return report_html(self)


def read_report(path: Path) -> Report:
    """The report in a file.

    Raises:
        ArtifactError: It is not JSON, or what commands show of it (passes, gates, the contexts of
            worst divergence) is not as a compile writes it.
    """
    return check_report(read_json(path), str(path))


def check_report(value: Mapping[str, Any], where: str) -> Report:
    """A report that was read from the file ``where``; raises as `read_report`."""
    report = Report(value)
    fields = Fields(report, where)
    if "passes" in report:
        for entry in fields.children("passes"):
            _check_pass(entry)
    if "gates" in report:
        for entry in fields.children("gates"):
            _check_gate(entry)
    if "evaluation" in report:
        evaluation = fields.child("evaluation")
        for name in evaluation.values:
            _check_evaluation(evaluation.child(name))
    if "tensors" in report:
        for entry in fields.children("tensors"):
            entry.get("kind", str)
            for key in ("tensors", "bytes", "scale_bytes"):
                entry.count(key, 0, MAX_INT)
    if "verified" in report:
        fields.each("verified", dict)
    return report


def _check_pass(f: Fields) -> None:
    f.get("name", str)
    f.count("count")
    if f.number("seconds") is None:
        raise f.error("the key 'seconds' is null or missing")
    f.optional("details", dict)
    f.optional("facts", dict)


def _check_gate(f: Fields) -> None:
    f.get("name", str)
    f.require("value", "bound", "passed")
    f.number("value")
    f.number("bound")
    f.optional("passed", bool)
    f.get("measured_on", str)
    for key in ("reason", "engine"):
        f.optional(key, str)


def _check_evaluation(f: Fields) -> None:
    """Figures of an engine, and of the model that it was lowered to."""
    if "lowered-onnx" in f.values:
        _check_evaluation(f.child("lowered-onnx"))
    if f.values.get("kl_distribution") is not None:
        _check_distribution(f.child("kl_distribution"))
    if "worst_contexts" not in f.values:
        return
    for entry in f.children("worst_contexts"):
        entry.number("kl")
        entry.optional("context", str)
        for key in ("next", "reference", "engine"):
            token = entry.child(key)
            token.count("token")
            token.optional("text", str)
            token.number("reference_probability")
            token.number("engine_probability")


def _check_distribution(f: Fields) -> None:
    """How the KL of single tokens is distributed (`optc.gates.kl_distribution`)."""
    first = f.number("first")
    f.count("bins_per_decade", 1)
    if len(f.counts("counts")) > _MOST_BINS:
        raise f.error(f"the key 'counts' has more than {_MOST_BINS} bins")
    if first is None or first <= 0:
        raise f.error(f"the key 'first' is {first}, where the bins begin")
    for key in ("p50", "p90", "p99", "p99_9"):
        f.number(key)
