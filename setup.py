"""The packages and their places: the rest of the build is in pyproject.toml.

``optc/passes``, ``optc/backends`` and ``optc/recipes`` are symbolic links, so that imports and
tools find them. A source archive, and a checkout of a system without links, have a small text file
in the place of each. There the packages are taken from where the links lead.
"""

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


if __name__ == "__main__":
    packages, package_dir = layout()
    setup(packages=packages, package_dir=package_dir)
