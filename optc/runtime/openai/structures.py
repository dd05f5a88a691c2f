"""The sampling parameters of ``response_format`` and ``structured_outputs``.

https://platform.openai.com/docs/guides/structured-outputs; the second one is vLLM's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optc.errors import InputError

#: What ``structured_outputs`` may hold, and the parameters that follow it.
_OUTPUTS = {"json": "json_schema", "regex": "regex", "choice": "choice", "grammar": "grammar"}
_ANY_OBJECT = {"type": "object"}
_FORMATS = "text, json_object, json_schema"


def take_structure(fields: dict[str, Any]) -> dict[str, Any]:
    """The form that the output must have, as sampling parameters; it is taken out of ``fields``.

    Raises:
        InputError: It is described in a form that is not known, or twice.
    """
    found = _format(fields.pop("response_format", {"type": "text"}))
    more = _outputs(fields.pop("structured_outputs", None))
    if found and more:
        raise InputError(
            "response_format and structured_outputs exclude each other",
            where="structured_outputs",
            hint="leave one of them out",
        )
    return found | more


def has_structure(fields: Mapping[str, Any]) -> bool:
    """True if the output must have some form.

    Raises:
        InputError: As of `take_structure`.
    """
    return bool(pop_structure(dict(fields)))


def pop_structure(fields: dict[str, Any]) -> dict[str, Any]:
    """As `take_structure`, and those that ``fields`` state by their own names.

    Raises:
        InputError: As of `take_structure`.
    """
    found = take_structure(fields)
    return found | {name: fields.pop(name) for name in _OUTPUTS.values() if name in fields}


def _format(form: object) -> dict[str, Any]:
    kind = form.get("type") if isinstance(form, Mapping) else None
    if kind == "text":
        return {}
    if kind == "json_object":
        return {"json_schema": _ANY_OBJECT}
    inner = form.get("json_schema") if isinstance(form, Mapping) else None
    if kind == "json_schema" and isinstance(inner, Mapping) and "schema" in inner:
        return {"json_schema": inner["schema"]}
    raise InputError("not a format of responses", where="response_format", hint=_FORMATS)


def _outputs(given: object) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InputError("not an object", where="structured_outputs", hint='{"regex": "a|b"}')
    stated = {name: value for name, value in given.items() if value not in (None, False)}
    if stated == {"json_object": True}:
        return {"json_schema": _ANY_OBJECT}
    if not stated:
        return {}
    if len(stated) > 1 or (name := next(iter(stated))) not in _OUTPUTS:
        raise InputError(
            f"{', '.join(map(str, stated))} cannot be followed",
            where="structured_outputs",
            hint=f"one of {', '.join(_OUTPUTS)}, json_object",
        )
    return {_OUTPUTS[name]: stated[name]}
