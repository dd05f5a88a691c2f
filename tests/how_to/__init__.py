"""The claims of docs/how-to: each page's steps, done to a dummy and undone.

`installed` is an installed package as far as `optc.registry` sees: a module and its entry points.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from optc import registry
from optc.ir.pipeline import registry as pass_registry

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs/how-to"
#: Taken at import: a test may have put something else in their place.
_LOOKUPS = (
    pass_registry.pass_groups,
    pass_registry.passes,
    registry._installed,
    registry.backend_names,
    registry.backend,
)


@contextmanager
def installed(folder: Path, name: str, source: str, group: str, point: str) -> Iterator[None]:
    """A package of one module while the block runs.

    Args:
        folder: Empty; where it is written.
        name: Of the module and of the distribution.
        source: Of the module.
        group: Of the entry point, such as ``optc.passes``.
        point: The entry point, ``name = module:object``.
    """
    (folder / f"{name}.py").write_text(source, encoding="utf-8")
    metadata = folder / f"{name}-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(f"[{group}]\n{point}\n")
    sys.path.insert(0, str(folder))
    _look_again()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop(name, None)
        _look_again()


def _look_again() -> None:
    importlib.invalidate_caches()
    for lookup in _LOOKUPS:
        lookup.cache_clear()
