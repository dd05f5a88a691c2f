"""Python files as documents: which are trained on and which are held out."""

from __future__ import annotations

import hashlib
import json
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

SKIP_DIRS = {"test", "tests", "idle_test", "site-packages", "__pycache__", "_bundled", "_distutils"}
#: Characters of a document: shorter ones say nothing; longer ones of packages are tables.
SHORTEST, LONGEST = 200, 200_000


def write_corpus(options: Namespace) -> None:
    """List the files of ``options.src`` and of packages in ``corpus.json``, by part."""
    source, work = Path(options.src), Path(options.work)
    parts: dict[str, list[str]] = {"train": [], "eval": []}
    sizes = {"train": 0, "eval": 0}
    for relative, text in _own_files(source):
        part = "eval" if _held_out(relative, options.eval_share) else "train"
        parts[part].append(str(relative))
        sizes[part] += len(text.encode())
    counts = {part: len(names) for part, names in parts.items()}
    for name in options.package:  # more training text: installed packages, tests left out
        for relative, text in _package_files(Path(options.packages), name):
            parts.setdefault("packages", []).append(str(relative))
            counts["train"] += 1
            sizes["train"] += len(text.encode())
    work.mkdir(parents=True, exist_ok=True)
    listing = {"src": str(source), "packages_dir": str(options.packages), **parts}
    (work / "corpus.json").write_text(json.dumps(listing, indent=1))
    print({part: f"{counts[part]} files, {size} bytes" for part, size in sizes.items()})


def documents(work: Path, part: str) -> Iterator[str]:
    """Texts of a part; of ``train`` the sources twice if there are packages, then those."""
    listing = json.loads((work / "corpus.json").read_text())
    source = Path(listing["src"])
    for _ in range(2 if part == "train" and "packages" in listing else 1):
        for relative in listing[part]:
            yield (source / relative).read_text("utf-8")
    if part == "train":
        for relative in listing.get("packages", []):
            yield (Path(listing["packages_dir"]) / relative).read_text("utf-8", errors="ignore")


def _own_files(source: Path) -> Iterator[tuple[Path, str]]:
    for path in sorted(source.rglob("*.py")):
        relative = path.relative_to(source)
        if SKIP_DIRS & set(relative.parts) or _is_table(relative):
            continue
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue
        if len(text) >= SHORTEST:
            yield relative, text


def _package_files(folder: Path, name: str) -> Iterator[tuple[Path, str]]:
    for path in sorted((folder / name).rglob("*.py")):
        relative = path.relative_to(folder)
        text = path.read_text("utf-8", errors="ignore")
        skipped = (SKIP_DIRS | {"_vendor"}) & set(relative.parts)
        if not skipped and SHORTEST <= len(text) < LONGEST:
            yield relative, text


def _held_out(relative: Path, share: float) -> bool:
    digest = hashlib.sha256(str(relative).encode()).digest()
    return digest[0] < 256 * share and relative.parts[0] != "pydoc_data"


def _is_table(relative: Path) -> bool:
    """Machine-made tables: no use as text."""
    if relative.parts[0] == "encodings" and relative.name.startswith(
        ("cp", "mac_", "iso8859", "koi8", "hp_", "kz1", "ptcp", "tis_", "palmos")
    ):
        return True
    return relative.name.startswith("_sysconfigdata") or str(relative) in (
        "html/entities.py",
        "lib2to3/pgen2/grammar.py",
    )
