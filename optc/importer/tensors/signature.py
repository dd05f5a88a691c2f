"""Hints that show what a module's forward takes, and which dimensions."""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import traceback
from pathlib import Path

import torch

#: The words before PyTorch's own bounds, each as ``batch = Dim('batch', min=2, max=63)``.
_SUGGESTED = "Suggested fixes:"
_BOUNDS = re.compile(r"(\w+) = Dim\('\w+'(?:, ((?:min|max)=\d+(?:, (?:min|max)=\d+)?))?\)")
_SIZE = re.compile(r"^\s*(\w+) = (\d+)$", re.MULTILINE)
_SAME = re.compile(r"^\s*(\w+) = ([A-Za-z_]\w*)$", re.MULTILINE)
#: What contradicts the stated dimensions: PyTorch's lines below its first.
_VIOLATED = re.compile(r"Constraints violated.*?$(.*?)(?:Suggested fixes:|\n\n|\Z)", re.S | re.M)
#: What PyTorch says of a branch by values.
_BRANCH = re.compile(r"[Cc]ould not (?:guard on|extract specialized integer from) data-dependent")
#: Folders whose code is no model's: PyTorch's, Python's, and optc's own.
_OTHERS = tuple(
    f"{folder}{os.sep}"
    for folder in (
        *(Path(module.__file__ or "").parent for module in (torch, contextlib)),
        Path(__file__).parents[2],
    )
)
_MOST_LETTERS = 300


def signature_hint(module: torch.nn.Module) -> str:
    """Forward's signature, and an example of how inputs are given."""
    signature = inspect.signature(module.forward)
    names = [
        one.name
        for one in signature.parameters.values()
        if one.default is one.empty and one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
    ]
    shown = ", ".join(names) or "…"
    stated = str(signature).replace("'", "")
    return f"forward{stated} of {type(module).__name__} is called with args=({shown},)"


def told(error: BaseException) -> str:
    """A branch of forward by values of a tensor, with its place, or the contradiction of the stated
    dimensions; empty if neither is what failed."""
    if not _BRANCH.search(str(error)):
        return violated(error)
    frames = traceback.extract_tb(error.__traceback__)
    own = [one for one in frames if not _is_others(one.filename)]
    place = f" ({Path(own[-1].filename).name}:{own[-1].lineno}, in {own[-1].name})" if own else ""
    return f"forward chooses its way, or a size, by the values of a tensor{place}"


def _is_others(file: str) -> bool:
    """True for code of PyTorch, Python or optc; packages lie in a folder of Python's."""
    return any(file.startswith(one) and "site-packages" not in file[len(one) :] for one in _OTHERS)


def violated(error: BaseException) -> str:
    """The contradiction of the stated dimensions; empty where they are not what failed."""
    if not (found := _VIOLATED.search(str(error))):
        return ""
    sizes, same = _SIZE.findall(str(error)), _SAME.findall(str(error))
    if sizes:
        return "; ".join(f"the dimension {name} can only be {size}" for name, size in sizes)
    if same:
        return "; ".join(f"the dimensions {a} and {b} have one size in it" for a, b in same)
    lines = " ".join(line.strip().removeprefix("- ") for line in found[1].splitlines())
    return f"dimensions do not suit it: {' '.join(lines.split())[:_MOST_LETTERS]}"


def suggested(error: BaseException) -> str:
    """Dimensions that PyTorch suggests in place of those that were stated, as ours; empty where it
    suggests none."""
    if _BRANCH.search(str(error)):
        return "torch.where and torch.cond choose by values, and are exported"
    text = str(error).partition(_SUGGESTED)[2]
    bounds = [f"{name} of {b.replace('=', ' ')}" for name, b in _BOUNDS.findall(text) if b]
    if bounds:
        return f"dimensions that the module takes: {'; '.join(bounds)}"
    said = [f"give {a} the name {b}, too" for a, b in _SAME.findall(text)]
    for name, size in _SIZE.findall(text):
        more = ", or give an example where it is 2 or more" if int(size) < 2 else ""
        said.append(f"leave {name} out of dynamic{more}")
    return "; ".join(said)
