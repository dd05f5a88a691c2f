"""An engine's own form: a graph in the operators and inputs of one backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import onnx_ir as ir

from optc.ir.forms.form import Form
from optc.ir.forms.kv_pools import KVPools


@dataclass(frozen=True)
class EngineForm(Form):
    """The form of a legalized model: inputs and operators are the backend's business.

    Attributes:
        kv: KV groups and layers, with the types that the engine keeps.
    """

    name: ClassVar[str] = "engine"
    title: ClassVar[str] = "an engine's own form"
    made_by: ClassVar[str] = "a backend makes it while it builds"

    kv: KVPools

    @classmethod
    def parse(cls, model: ir.Model, stated: Mapping[str, Any]) -> Self:
        """The form from what ``model`` states of it."""
        return cls(KVPools.parse(stated["kv"]))

    def stated(self) -> dict[str, Any]:
        """The KV as JSON values."""
        return {"kv": self.kv.stated()}
