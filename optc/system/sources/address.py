"""Addresses in the place of a model's name: pages, buckets, schemes of other tools."""

from __future__ import annotations

import re
from pathlib import Path

from optc.errors import InputError

#: A page of the Hub, or its name with the scheme of another tool. A `Path` has lost a slash.
_HUB = re.compile(
    r"(?:(?:https?:/+)?(?:www\.)?(?:huggingface\.co|hf\.co)/+(?:models/)?|(?:hf|huggingface):/*)"
    r"(?P<repo>[\w.-]+/[\w.-]+)"
    r"(?:(?:@|/(?:tree|blob|resolve)/)(?P<revision>[^/?#]+))?(?:[/?#].*)?",
    re.ASCII,
)
#: At least two letters: one is a drive.
_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?P<rest>.*)", re.ASCII | re.DOTALL)
_WAYS = {
    "file": "give the path alone: {rest}",
    "oci": "'optc pull' takes an image layout or a registry's name, and gives an artifact",
    "ollama": "download the model itself, and give its folder or its GGUF file",
}


def check_address(given: str | Path) -> None:
    """Check that ``given`` is no address, but a path or the name of a model.

    Raises:
        InputError: It is one; says how the model is named.
    """
    text = str(given)
    page = _HUB.fullmatch(text)
    scheme = _scheme(text)
    if (page is None and scheme is None) or _exists(Path(given)):
        return
    if page is not None:
        name = page["repo"] + (f"@{page['revision']}" if page["revision"] else "")
        problem, hint = (
            "a model is named, not its page's address",
            f"of the Hugging Face Hub: {name}",
        )
    else:
        way = _WAYS.get(scheme["scheme"].lower(), "") if scheme else ""
        problem = "an address, from which optc downloads nothing"
        hint = way.format(rest=re.sub(r"^/+", "/", scheme["rest"]) if scheme else "")
        hint = hint or "download the model and give its folder, or org/name of the Hugging Face Hub"
    raise InputError(problem, where=_whole(text), hint=hint)


def _scheme(text: str) -> re.Match[str] | None:
    """The scheme and what follows: of an address with slashes, or a scheme that is known."""
    found = _SCHEME.fullmatch(text)
    known = found and (found["rest"].startswith("/") or found["scheme"].lower() in _WAYS)
    return found if known else None


def _whole(text: str) -> str:
    """The address with the slashes that a `Path` has taken from it."""
    return re.sub(r"^(https?|s3|gs|hf|ftp):/(?!/)", r"\1://", text)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False
