"""`describe`: a pass on one page, as its docstring and its class variables say."""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from optc.ir.pipeline.base import Pass
from optc.ir.pipeline.option_values import value_text
from optc.ir.pipeline.phase import Effect

#: An entry of a docstring's section: its name and the first line of its text.
_ENTRY = re.compile(r"(\w+): (.*)")
#: The heading above the options of a pass.
_SECTION = re.compile(r"\n(?:Attributes|Options|Args|Raises):\n")
#: What readers of code need, and others do not.
_MARKUP = re.compile(r"``(.+?)``|`(.+?)`", re.S)


@dataclass(frozen=True)
class OptionPage:
    """An option of a pass.

    Attributes:
        name: In recipes.
        default: As a recipe writes it.
        text: What it is; empty where the pass does not say.
    """

    name: str
    default: str
    text: str


@dataclass(frozen=True)
class PassPage:
    """The description of a pass for users.

    Attributes:
        name: In recipes.
        does: Paragraphs.
        pays: When it pays, as measured; empty where nothing of its own was measured.
        options: Those that recipes set.
        costs: What it takes, and needs.
        order: Where it may stand.
        idle: What happens if it finds nothing to rewrite.
    """

    name: str
    does: tuple[str, ...]
    pays: str
    options: tuple[OptionPage, ...]
    costs: str
    order: tuple[str, ...]
    idle: str


def describe(kind: type[Pass]) -> PassPage:
    """The page of a pass."""
    text, _ = _sections(inspect.getdoc(kind) or "")
    known: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        known |= _sections(inspect.cleandoc(one.__doc__ or ""))[1] if issubclass(one, Pass) else {}
    options = tuple(
        OptionPage(one.name, value_text(one.default), known.get(one.name, ""))
        for one in dataclasses.fields(kind)
        if one.name not in kind.local_options()
    )
    return PassPage(kind.name, text, kind.pays, options, _costs(kind), _order(kind), _idle(kind))


def _sections(doc: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """Paragraphs before the first section, and the entries of the options."""
    head, *rest_of_it = _SECTION.split(doc, maxsplit=1)
    rest = rest_of_it[0] if rest_of_it else ""
    entries: dict[str, list[str]] = {}
    name = ""
    for line in rest.splitlines():
        found = _ENTRY.fullmatch(line[4:]) if re.match(r"    \w", line) else None
        if found:
            name = found[1]
            entries[name] = [found[2]]
        elif name and line.startswith("        "):
            entries[name].append(line.strip())
        elif line.strip():
            break
    parts = re.split(r"\n\n|\n(?=\d+\. )", head)
    paragraphs = tuple(_plain(one) for one in parts if one.strip())
    return paragraphs, {name: _plain(" ".join(lines)) for name, lines in entries.items()}


def _plain(text: str) -> str:
    """Text whose names are marked as Markdown marks them."""
    return " ".join(_MARKUP.sub(lambda found: f"`{found[1] or found[2]}`", text).split())


def _costs(kind: type[Pass]) -> str:
    doc = inspect.getdoc(kind.costs) or ""
    own = kind.costs is not Pass.costs
    memory = f"Memory: {_plain(doc)}" if own else "Little memory."
    reads = " It reads a text (`--calibration`)." if kind.has(Effect.READS_TEXT) else ""
    return memory + reads


def _order(kind: type[Pass]) -> tuple[str, ...]:
    found = []
    if kind.takes:
        found.append(f"takes {' or '.join(one.title for one in kind.takes)}")
    if kind.gives is not None:
        found.append(f"gives {kind.gives.title}")
    if kind.after:
        found.append(f"behind {', '.join(f'`{one}`' for one in kind.after)}")
    if kind.before:
        found.append(f"before {', '.join(f'`{one}`' for one in kind.before)}")
    return tuple(found)


def _idle(kind: type[Pass]) -> str:
    if kind.required:
        return "a compile fails"
    return "a compile warns" if kind.expected else "nothing is said"


def markdown(page: PassPage) -> str:
    """The page as Markdown."""
    lines = [f"### {page.name}", *_joined(page.does)]
    if page.pays:
        lines += ["", _wrapped(f"**When it pays:** {page.pays}")]
    lines += ["", _wrapped(f"**What it costs:** {page.costs}"), ""]
    if page.order:
        lines += [_wrapped(f"**Where it stands:** {'; '.join(page.order)}."), ""]
    lines += [f"**If it finds nothing:** {page.idle}."]
    if page.options:
        lines += ["", "| option | default | is |", "|---|---|---|"]
        cells = ((one.name, one.default, one.text.replace("|", "\\|")) for one in page.options)
        lines += [f"| `{name}` | {_code(default)} | {text} |" for name, default, text in cells]
    return "\n".join(lines) + "\n"


def _code(text: str) -> str:
    return f"`{text}`" if text else "none"


def _joined(paragraphs: tuple[str, ...]) -> list[str]:
    """Wrapped paragraphs with an empty line between."""
    return "\n\n".join(_wrapped(one) for one in paragraphs).split("\n")


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False)


def markdown_pages(groups: Mapping[str, Sequence[type[Pass]]]) -> str:
    """docs/passes.md: the pages of all passes, by group."""
    parts = [_HEAD]
    for group, kinds in groups.items():
        parts.append(f"## The group {group}\n")
        parts += [markdown(describe(one)) for one in kinds]
    return "\n".join(parts)


_HEAD = """# Passes

A recipe is a row of passes ([recipes.md](recipes.md)). This page is what they say of themselves:
`optc passes --markdown` writes it, and `optc passes NAME` shows one of them. A KL is the mean, in
nats a token, against the float32 model; an ADR is one of the [decisions](adr/README.md).
"""
