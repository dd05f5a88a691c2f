"""`Structure`: what a request's output must look like, as text. Needs no package."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from optc.errors import RequestError

#: The sampling parameters that ask for structured output.
Kind = Literal["json_schema", "regex", "grammar", "choice"]

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
    json_schema: str | Mapping[str, object] | None,
    regex: str | None,
    grammar: str | None,
    choice: Sequence[str] | None,
) -> Structure | None:
    """The structure that a request asks for; None if it asks for none.

    Raises:
        RequestError: It asks for two, or one is not of its type or no JSON.
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
    return found[0] if found else None


def _schema(schema: object) -> Structure | None:
    if schema is None:
        return None
    if not isinstance(schema, str | Mapping):
        raise _wrong("json_schema", schema, "a schema as a mapping or its JSON text")
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


def _text(kind: Literal["regex", "grammar"], text: object) -> Structure | None:
    if text is None:
        return None
    if not isinstance(text, str) or not text:
        raise _wrong(kind, text, "a non-empty text")
    return Structure(kind, text)


def _choice(choice: object) -> Structure | None:
    if choice is None:
        return None
    texts = list(choice) if isinstance(choice, Sequence) and not isinstance(choice, str) else []
    if not texts or any(not isinstance(text, str) or not text for text in texts):
        raise _wrong("choice", choice, "a list of non-empty texts")
    return Structure("choice", json.dumps(texts))


def _wrong(name: str, value: object, allowed: str) -> RequestError:
    return RequestError(
        f"{name}={value!r} is not allowed", where="sampling parameters", hint=f"must be {allowed}"
    )
