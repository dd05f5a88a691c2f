"""Package URLs (https://github.com/package-url/purl-spec) of Python packages."""

from __future__ import annotations


def python_purl(name: str, version: str) -> str:
    """The purl of a package of the Python Package Index, names as it normalizes them."""
    return f"pkg:pypi/{name.lower().replace('_', '-')}@{version.replace('+', '%2B')}"
