"""Control groups of Linux that limit this process: of version 1 and 2, its own and those above.

A container sees its group as the root of all; a service of systemd, or a process of a batch system,
lies deeper, and the limit may be that of any group on the way.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/")
#: Files of a memory limit and of what is used, by version, and how names of statistics begin that
#: count groups below, too. Version 1 has no word for "none": its limit is then near 2^63.
_MEMORY = (
    ("memory.max", "memory.current", ""),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
)
_STATISTICS, _FILES = "memory.stat", ("inactive_file", "active_file")
_NONE = 1 << 60


def group_folders(controller: str, root: Path = _ROOT) -> list[Path]:
    """Folders of the groups that limit this process, its own first; empty where there are none.

    Args:
        controller: Such as ``memory`` or ``cpu``.
        root: Of the file system.
    """
    found: list[Path] = []
    groups = dict(_groups(controller, _lines(root / "proc/self/cgroup")))
    for kind, below, mount in _mounts(controller, _lines(root / "proc/self/mountinfo")):
        group = groups.get(kind)
        if group is None:
            continue
        top = root / mount.lstrip("/")
        inside = group.removeprefix(below) if _is_below(group, below) else ""
        parts = [part for part in inside.split("/") if part and part != ".."]
        found += [top.joinpath(*parts[:count]) for count in range(len(parts), -1, -1)]
    return found


def memory_left(root: Path = _ROOT) -> int | None:
    """Bytes that the control groups let this process take beyond what is used; None is no limit.

    Pages of files count as left: a group's use grows up to its limit as its processes read files,
    and the kernel drops those pages for whoever needs the memory.
    """
    left: list[int] = []
    for folder in group_folders("memory", root):
        for limit, used, prefix in _MEMORY:
            most, now = _number(folder / limit), _number(folder / used)
            if most is not None and now is not None and most < _NONE:
                left.append(max(0, most - now + min(now, _droppable(folder, prefix))))
    return min(left, default=None)


def _droppable(folder: Path, prefix: str) -> int:
    """Bytes of pages of files that a group and those below it hold."""
    pairs = (line.split() for line in _lines(folder / _STATISTICS))
    found = {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}
    return sum(found.get(prefix + name, 0) for name in _FILES)


def _groups(controller: str, lines: list[str]) -> Iterator[tuple[str, str]]:
    """The process's group by the type of the file system that shows it."""
    for line in lines:
        _, names, group = line.split(":", 2)
        if not names:
            yield "cgroup2", group
        elif controller in names.split(","):
            yield "cgroup", group


def _mounts(controller: str, lines: list[str]) -> Iterator[tuple[str, str, str]]:
    """Type, the group that is mounted, and where (proc(5))."""
    for line in lines:
        place, _, system = line.partition(" - ")
        fields, kind = place.split(), system.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        if kind[0] == "cgroup2" or (kind[0] == "cgroup" and controller in kind[2].split(",")):
            yield kind[0], fields[3], fields[4]


def _is_below(group: str, top: str) -> bool:
    return top == "/" or group == top or group.startswith(f"{top}/")


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # not there, or "max"
        return None
