"""Pipeline specs as text: ``canonicalize,fuse-qkv,quantize-weights{bits=4,group_size=32}``."""

from __future__ import annotations

from dataclasses import dataclass

from optc.errors import InputError

#: Options of every pass in a spec: firing zero times is then no error and no warning, or an error.
OPTIONAL = "optional"
REQUIRED = "required"
MARKS = (OPTIONAL, REQUIRED)


@dataclass(frozen=True)
class SpecEntry:
    """One pass of a spec: its name and its options as texts."""

    name: str
    options: dict[str, str]

    def marked(self, mark: str) -> bool:
        """Whether one of `MARKS` is set.

        Raises:
            InputError: It is neither true nor false.
        """
        text = self.options.get(mark, "false").lower()
        if text not in ("true", "false"):
            raise InputError(
                f"option {mark}={self.options[mark]!r} is neither true nor false",
                where=f"pass {self.name}",
            )
        return text == "true"


def parse_spec(text: str) -> list[SpecEntry]:
    """The entries of ``text``.

    Raises:
        InputError: Unbalanced braces, an empty entry, or an option without a value.
    """
    return [_entry(part) for part in _split(text)]


def _split(text: str) -> list[str]:
    """Split at the commas that stand outside braces."""
    parts, depth, start = [], 0, 0
    for index, char in enumerate(text):
        depth += {"{": 1, "}": -1}.get(char, 0)
        if depth not in (0, 1):
            raise InputError(f"unbalanced braces at {text[index:]!r}", where="pipeline")
        if char == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    if depth:
        raise InputError("a brace is never closed", where="pipeline", hint=f"in {text[start:]!r}")
    return [*parts, text[start:]]


def _entry(text: str) -> SpecEntry:
    head, brace, rest = text.strip().partition("{")
    name = head.strip()
    if not name or (brace and not rest.endswith("}")):
        raise InputError(
            f"{text.strip()!r} is no pass",
            where="pipeline",
            hint="write name or name{option=value,…}, separated by commas",
        )
    options = {}
    for item in filter(None, (part.strip() for part in rest.removesuffix("}").split(","))):
        key, equals, value = item.partition("=")
        if not (key and equals and value):
            raise InputError(f"{item!r} is not option=value", where=f"pass {name}")
        options[key] = value
    return SpecEntry(name, options)
