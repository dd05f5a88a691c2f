"""Weights of an engine seen as rows again, whatever layout its files have.

An engine's files pad rows and columns, and do not say by how many: who knows the model's class
gives the shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from optc.artifact.files import EngineFiles
    from optc.artifact.manifest import EngineEntry
    from optc.ir.quantized_rows import QuantizedRows
    from optc.ir.weights import LazyWeight


class EngineWeight(Protocol):
    """One weight of an engine."""

    def rows(self, shape: tuple[int, ...], experts: int = 1) -> QuantizedRows | LazyWeight:
        """The weight by rows; nothing is read before rows are.

        Args:
            shape: [N] of a vector or [N, K], N being the rows of all experts.
            experts: How many matrices lie below each other.

        Raises:
            optc.errors.ArtifactError: The files hold a weight of another shape.
            optc.errors.UnsupportedError: It is stored in a form that has no rows.
        """
        ...


@runtime_checkable
class WeightsBackend(Protocol):
    """A backend that can give back the weights of its engines."""

    def engine_weights(self, engine: EngineEntry, files: EngineFiles) -> Mapping[str, EngineWeight]:
        """The weights by their names in the graph that the engine was built from.

        Raises:
            optc.errors.UnavailableError: A package is missing that reads the engine's files.
            optc.errors.ArtifactError: The files are not as the manifest says.
        """
        ...
