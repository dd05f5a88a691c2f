"""Finds the form that a model says it is in."""

from __future__ import annotations

import onnx_ir as ir

from optc.errors import InputError
from optc.ir.forms.batched import BatchedTensors
from optc.ir.forms.decoder import Dense, Exported
from optc.ir.forms.engine import EngineForm
from optc.ir.forms.form import Form, form_name
from optc.ir.forms.packed import PackedRows
from optc.ir.forms.ragged import RaggedStep
from optc.ir.forms.static_kv import StaticKV

#: All forms, in the order in which a compile goes through them.
FORMS: tuple[type[Form], ...] = (
    *(Exported, Dense, RaggedStep, StaticKV, EngineForm),
    *(BatchedTensors, PackedRows),
)


def form_type(model: ir.Model) -> type[Form]:
    """The type of the form that ``model`` is in.

    Raises:
        InputError: It names a form that does not exist.
    """
    name = form_name(model)
    for form in FORMS:
        if form.name == name:
            return form
    known = ", ".join(form.name for form in FORMS)
    raise InputError(f"unknown form {name!r}", where="form", hint=f"one of {known}")
