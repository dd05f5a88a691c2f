"""The command line in this process: what another one would import is here already."""

from __future__ import annotations

import json
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any

from optc.cli.main import run


def optc(*arguments: object, code: int = 0) -> dict[str, Any]:
    """Run a command, which ends with ``code``; its JSON object."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        found = run([*map(str, arguments), "--json"])
    assert found == code, err.getvalue() + out.getvalue()
    assert "Traceback" not in err.getvalue()
    value: dict[str, Any] = json.loads(out.getvalue())
    return value
