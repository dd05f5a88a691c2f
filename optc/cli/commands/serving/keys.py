"""Keys of ``optc serve``."""

from __future__ import annotations

import os
from pathlib import Path

from optc.errors import InputError
from optc.system.options.user_text import read_user_text

#: Holds keys, separated by blanks: unlike an option, other users of the machine do not see it.
KEYS = "OPTC_API_KEY"
#: The same for those of admin routes.
ADMIN_KEYS = "OPTC_ADMIN_KEY"


def read_keys(
    path: Path | None, variable: str = KEYS, option: str = "--api-key-file"
) -> tuple[str, ...]:
    """The keys of a file and of the environment.

    Args:
        path: The file; None is none.
        variable: Of the environment.
        option: That names the file, for messages.

    Raises:
        InputError: The file cannot be read, or holds none.
    """
    found = os.environ.get(variable, "").split()
    if path is not None:
        lines = [line.strip() for line in read_user_text(path, option).splitlines()]
        listed = [line for line in lines if line and not line.startswith("#")]
        if not listed:
            raise InputError("it holds no key", where=str(path), hint="one a line")
        found += listed
    if not all(key.isascii() and key.isprintable() and " " not in key for key in found):
        raise InputError("a key is ASCII text without blanks", where=str(path or variable))
    return tuple(dict.fromkeys(found))
