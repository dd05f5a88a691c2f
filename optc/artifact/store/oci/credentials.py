"""Names and passwords of registries, as ``docker login`` and ``oras login`` keep them."""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path
from typing import Any

from optc.errors import InputError
from optc.system.foreign.file import read_file
from optc.system.safe_json import JSONError, parse_json


def basic_credentials(host: str) -> str:
    """The value of the header ``Authorization`` for a registry; empty where there is none.

    It is looked up in ``config.json`` of ``$DOCKER_CONFIG``, else of ``~/.docker``.

    Raises:
        InputError: The file is no JSON, or keeps passwords in another program.
    """
    folder = os.environ.get("DOCKER_CONFIG")
    path = (Path(folder) if folder else Path.home() / ".docker") / "config.json"
    if not path.is_file():
        return ""
    try:
        value: Any = parse_json(read_file(path))
        entries, helpers = value.get("auths", {}), value.get("credHelpers", {})
        text: str = entries.get(host, {}).get("auth", "")
        elsewhere = host in helpers or (host in entries and "credsStore" in value)
        base64.b64decode(text, validate=True)
    except (OSError, JSONError, AttributeError, TypeError, binascii.Error) as error:
        raise InputError("cannot be used", where=str(path), hint="docker login") from error
    if elsewhere and not text:
        raise InputError(
            f"keeps the password of {host} in another program",
            where=str(path),
            hint="log in with a DOCKER_CONFIG whose config.json has no credsStore and credHelpers",
        )
    return f"Basic {text}" if text else ""
