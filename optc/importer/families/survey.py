"""The survey's results: the file that ``python -m benchmarks.families`` writes, as objects."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

FILE: Final = Path(__file__).with_name("survey.json")
#: What is proved of a type, in order; each needs the one before.
STAGES: Final = (
    *("built", "imported", "canonical", "reference equal", "planned", "tokens equal"),
    "int8 gated",
)
ENCODER_HALF: Final = "encoder half"


@dataclass(frozen=True)
class Family:
    """The findings about one type.

    Attributes:
        type: The ``model_type`` of its config.json.
        class_name: Of its tiny model; empty where none was built.
        group: ``decoder``, or ``encoder half``: not measured.
        stages: Those of `STAGES` that hold.
        reason: Why the next one does not; empty where all that were measured do.
        engines: Backends with code for every node of fp32.
        layers: Kinds of layers that the tiny model mixes; empty where it has one.
        error: Of the logits in float32, relative to the largest; None where not measured.
        int8_kl: Mean KL of ``int8-fused`` to transformers' float32 on random weights, in nats; None
            likewise.
        int8_ratio: That, divided by the KL of a fake quantization in transformers; None likewise.
    """

    type: str
    class_name: str
    group: str
    stages: tuple[str, ...]
    reason: str
    engines: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()
    error: float | None = None
    int8_kl: float | None = None
    int8_ratio: float | None = None

    @property
    def proved(self) -> str:
        """The last stage that holds; empty if none does."""
        return self.stages[-1] if self.stages else ""

    def to_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "type": self.type,
            "class": self.class_name,
            "group": self.group,
            "proved": list(self.stages),
            "reason": self.reason,
            "engines": list(self.engines),
            "layers": list(self.layers),
            "error": self.error,
            "int8_kl": self.int8_kl,
            "int8_ratio": self.int8_ratio,
        }


@dataclass(frozen=True)
class Survey:
    """All types.

    Attributes:
        transformers: The version whose types they are.
        families: By what was proved, most first, then by name.
    """

    transformers: str
    families: tuple[Family, ...]

    def count(self, stage: str) -> int:
        """The number of types for which a stage holds."""
        return sum(stage in family.stages for family in self.families)


def survey_of(content: Mapping[str, Any]) -> Survey:
    """The content of the file, sorted."""
    families = [_family(kind, entry) for kind, entry in content["types"].items()]
    families.sort(key=lambda f: (f.group == ENCODER_HALF, -len(f.stages), f.type))
    return Survey(content["transformers"], tuple(families))


def _family(kind: str, entry: Mapping[str, Any]) -> Family:
    return Family(
        kind,
        entry.get("class", ""),
        entry["group"],
        tuple(entry["stages"]),
        entry["reason"],
        tuple(entry.get("engines", ())),
        tuple(entry.get("layers", ())),
        entry.get("error"),
        entry.get("int8_kl"),
        entry.get("int8_ratio"),
    )


@cache
def read_survey() -> Survey:
    """The survey that is shipped."""
    return survey_of(json.loads(FILE.read_text(encoding="utf-8")))
