"""The packages, their places, and the description: the rest of the build is in pyproject.toml.

``optc/passes``, ``optc/backends`` and ``optc/recipes`` are symbolic links, so that imports and
tools find them. A source archive, and a checkout of a system without links, have a small text file
in the place of each. There the packages are taken from where the links lead.
"""

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).resolve().parent
LINKED = ("passes", "backends", "recipes")


def layout() -> tuple[list[str], dict[str, str]]:
    """All packages, and the folders of those that lie elsewhere than their names say."""
    if all((ROOT / "optc" / name).is_dir() for name in LINKED):
        # A root that is stated makes editable installs a path, which type checkers follow.
        return find_packages(str(ROOT), include=["optc", "optc.*"]), {"": "."}
    own = find_packages(str(ROOT), include=["optc", "optc.*"])
    moved = [
        f"optc.{package}"
        for name in LINKED
        for package in find_packages(str(ROOT), include=[name, f"{name}.*"])
    ]
    return own + moved, {f"optc.{name}": name for name in LINKED}


def description() -> str:
    """README.md as an index page shows it: names stand in the place of links to other files."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.sub(r"\[([^\]]+)\]\((?!https?://|#)[^)]+\)", r"\1", text)


if __name__ == "__main__":
    packages, package_dir = layout()
    setup(
        packages=packages,
        package_dir=package_dir,
        long_description=description(),
        long_description_content_type="text/markdown",
    )
