"""The time of CPUs that the control groups let this process take."""

from __future__ import annotations

from pathlib import Path

from optc.system.control_groups import group_folders

#: Files of a quota and its period, by version.
_QUOTAS = (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us"))


def cpu_quota(root: Path = Path("/")) -> float | None:
    """CPUs' worth of time that all groups leave the process; None where none limits it.

    Args:
        root: Of the file system.
    """
    folders = group_folders("cpu", root)
    found = [_quota(folder, names) for folder in folders for names in _QUOTAS]
    return min((quota for quota in found if quota is not None), default=None)


def _quota(folder: Path, names: tuple[str, ...]) -> float | None:
    try:
        words = " ".join((folder / name).read_text() for name in names).split()
        quota, period = (int(word) for word in words[:2])
    except (OSError, ValueError):  # a group without this controller, or "max"
        return None
    return quota / period if quota > 0 and period > 0 else None
