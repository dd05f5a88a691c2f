"""The document: its style and its scripts stand in it, and it loads nothing."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files

#: In their order: later ones use earlier ones.
SCRIPTS = ("figures.js", "view.js", "chat.js")


@cache
def document() -> str:
    """The whole page as HTML."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>optc serve</title>\n<style>{_style()}</style>\n</head>\n<body>\n"
        f"{_text('status.html')}<script>{_script()}</script>\n</body>\n</html>\n"
    )


@cache
def policy() -> str:
    """Its Content-Security-Policy: its own style and scripts, and requests to this server."""
    return (
        f"default-src 'none'; style-src {_hash(_style())}; script-src {_hash(_script())}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )


def _style() -> str:
    return _text("status.css")


def _script() -> str:
    scripts = "".join(_text(name) for name in SCRIPTS)
    return f'"use strict";\n{scripts}'


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


@cache
def _text(name: str) -> str:
    return files("optc.serve.page").joinpath(name).read_text(encoding="utf-8")
