"""`Form`: the base of all forms, and where a model says which one it is in."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import onnx_ir as ir

from optc.errors import InputError

#: Metadata key of a model: its form and what belongs to that, as JSON. Nobody else reads it.
_KEY = "optc.form"


@dataclass(frozen=True)
class Form:
    """The form of a graph: its inputs and outputs, and what is known of them.

    Attributes:
        title: The form's name in messages, with its article.
        made_by: How a model gets into it.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    made_by: ClassVar[str]

    @classmethod
    def of(cls, model: ir.Model) -> Self:
        """The form of ``model``, which must be this one; the graph is checked.

        Raises:
            InputError: The model is in another form, or its graph is not what that form says.
        """
        form = cls.read(model)
        form.check(model)
        return form

    @classmethod
    def read(cls, model: ir.Model) -> Self:
        """The form that ``model`` states, which must be this one. Passes use it while they run: the
        pipeline has checked the graph before, and checks it again after a pass that gives a form.

        Raises:
            InputError: The model is in another form.
        """
        stated = _read(model)
        if stated["name"] != cls.name:
            raise InputError(f"the model is not {cls.title}", where="form", hint=cls.made_by)
        return cls.parse(model, stated)

    @classmethod
    def parse(cls, model: ir.Model, stated: Mapping[str, Any]) -> Self:
        """The form from what ``model`` states of it."""
        return cls()

    def check(self, model: ir.Model) -> None:
        """Check the graph's inputs and outputs.

        Raises:
            InputError: They are not this form's.
        """

    def stated(self) -> dict[str, Any]:
        """The JSON values that the model shall state of the form beside its name."""
        return {}

    def attach(self, model: ir.Model) -> None:
        """State that ``model`` is in this form; the graph is not checked (`of` does that)."""
        stated = {"name": self.name, **self.stated()}
        model.metadata_props[_KEY] = json.dumps(stated, sort_keys=True)

    def require_values(self, kind: str, values: Iterable[ir.Value], wanted: Iterable[str]) -> None:
        """Check the names of a graph's inputs or outputs.

        Args:
            kind: ``inputs`` or ``outputs``, for the message.
            values: The graph's.
            wanted: Names, in order.

        Raises:
            InputError: They differ.
        """
        found, names = [str(value.name) for value in values], list(wanted)
        if found != names:
            raise InputError(
                f"the {kind} {', '.join(found) or 'none'} are not those of {self.title}",
                where="form",
                hint=f"they must be {', '.join(names)}",
            )


def form_name(model: ir.Model) -> str:
    """Name of the form that ``model`` says it is in; a model that says nothing is exported."""
    return str(_read(model)["name"])


def _read(model: ir.Model) -> dict[str, Any]:
    stated: dict[str, Any] = json.loads(model.metadata_props.get(_KEY, '{"name": "exported"}'))
    return stated
