"""`Structure`: what a request's output must look like, as text. Needs no package."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Literal, NamedTuple, Protocol

from optc.errors import RequestError
from optc.runtime.checks import encodes, invalid


class HasSchema(Protocol):
    """A class of pydantic's models."""

    def model_json_schema(self) -> dict[str, Any]:
        """Its JSON schema."""
        ...


#: A JSON schema as a mapping or as its text, or a class of pydantic's models, which has one.
Schema = str | Mapping[str, object] | HasSchema

#: The sampling parameters that ask for structured output.
Kind = Literal["json_schema", "regex", "grammar", "choice"]

#: Most characters of a structure's text, and most texts of a choice: llguidance takes seconds for
#: much larger ones, and follows no more than 2,000 alternatives at once.
MAX_CHARACTERS, MAX_CHOICES = 1 << 16, 1024
#: Most characters of a regular expression or of one text of a choice. All that they force is cut
#: into tokens at once, between two steps.
MAX_FORCED = 1 << 13
_SCHEMAS = "a schema as a mapping or its JSON text, or a class of pydantic's models"
_NAMES = "json_schema, regex, grammar, choice"


class Structure(NamedTuple):
    """A description of the only texts that a request may produce; equal ones compile once.

    Attributes:
        kind: Which sampling parameter it came from.
        text: A JSON schema, a regular expression, a Lark grammar, or a JSON list of strings.
    """

    kind: Kind
    text: str


def structure_of(
    json_schema: Schema | None,
    regex: str | None,
    grammar: str | None,
    choice: Sequence[str] | None,
) -> Structure | None:
    """The structure that a request asks for; None if it asks for none.

    Raises:
        RequestError: It asks for two, or one is not of its type, no JSON, or too large.
    """
    found = [
        structure
        for structure in (
            _schema(json_schema),
            _text("regex", regex),
            _text("grammar", grammar),
            _choice(choice),
        )
        if structure is not None
    ]
    if len(found) > 1:
        raise RequestError(
            " and ".join(structure.kind for structure in found) + " exclude each other",
            where="sampling parameters",
            hint=f"give one of {_NAMES}",
        )
    return _bounded(found[0]) if found else None


def _bounded(structure: Structure) -> Structure:
    if len(structure.text) > MAX_CHARACTERS:
        raise RequestError(
            f"{len(structure.text)} characters",
            where=structure.kind,
            hint=f"at most {MAX_CHARACTERS}: simplify it",
        )
    return structure


def _schema(given: object) -> Structure | None:
    if given is None:
        return None
    schema = _schema_of_class(given) if isinstance(given, type) else given
    if not isinstance(schema, str | Mapping):
        raise invalid("json_schema", schema, _SCHEMAS)
    try:
        text = schema if isinstance(schema, str) else json.dumps(schema, allow_nan=False)
        parsed = json.loads(text)
    except json.JSONDecodeError as error:
        where = f"json_schema, line {error.lineno}, column {error.colno}"
        raise RequestError(f"not JSON: {error.msg}", where=where) from error
    except RecursionError as error:
        raise RequestError("nested too deeply", where="json_schema") from error
    except (TypeError, ValueError) as error:
        raise RequestError(f"not JSON: {error}", where="json_schema") from error
    if not isinstance(parsed, dict):
        raise RequestError("not a JSON object", where="json_schema")
    return Structure("json_schema", text)


def _schema_of_class(given: type) -> object:
    """The schema of a class of pydantic's models. Keys that the class does not say what to do with
    are not allowed: a small model may write one after the other."""
    schema_of = getattr(given, "model_json_schema", None)
    if schema_of is None:
        raise invalid("json_schema", given, f"{_SCHEMAS}; pydantic.TypeAdapter has one of any type")
    try:
        return _closed(schema_of())
    except RuntimeError as error:  # as pydantic's errors about types without a schema are
        raise RequestError(
            f"{given.__name__} has no schema: {error}", where="json_schema"
        ) from error


def _closed(schema: object) -> object:
    """A copy of a schema whose objects have no keys but their properties, unless they say so."""
    if isinstance(schema, list):
        return [_closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(one) for key, one in schema.items()}
    if schema.get("type") == "object" and "properties" in schema:
        closed.setdefault("additionalProperties", False)
    return closed


def _text(kind: Literal["regex", "grammar"], text: object) -> Structure | None:
    if text is None:
        return None
    if not isinstance(text, str) or not text:
        raise invalid(kind, text, "a non-empty text")
    if not encodes(text):
        raise invalid(kind, text, "valid Unicode, without surrogates")
    if kind == "regex" and len(text) > MAX_FORCED:
        raise invalid(kind, text, f"of {MAX_FORCED} characters at most")
    return Structure(kind, text)


def _choice(choice: object) -> Structure | None:
    if choice is None:
        return None
    listed = isinstance(choice, Sequence) and not isinstance(choice, str)
    given = list(islice(choice, MAX_CHOICES + 1)) if isinstance(choice, Sequence) else []
    texts = [text for text in given if isinstance(text, str) and text]
    if not listed or not texts or len(texts) < len(given):
        raise invalid("choice", choice, "a list of non-empty texts")
    if not all(map(encodes, texts)):
        raise invalid("choice", choice, "valid Unicode, without surrogates")
    if len(texts) > MAX_CHOICES or max(map(len, texts)) > MAX_FORCED:
        allowed = f"a list of {MAX_CHOICES} texts at most, each of {MAX_FORCED} characters at most"
        raise invalid("choice", choice, allowed)
    return Structure("choice", json.dumps(texts))
