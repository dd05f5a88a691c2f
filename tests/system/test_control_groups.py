"""Groups of version 1 and 2, the process's own and those above, in containers and without."""

from __future__ import annotations

from pathlib import Path

import pytest

from optc.system.control_groups import group_folders, memory_left

V1 = "35 31 0:32 {root} /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"
V2 = "30 23 0:26 {root} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
OTHER = (
    "24 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n21 1 0:4 / / rw - ext4 d\n"
)
GIB = 1 << 30


def system(
    root: Path, group: str, mounts: str, limits: dict[str, tuple[str, int]], *, version: int
) -> Path:
    """A file system with these limits and uses by folder below the mount."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(group)
    (root / "proc/self/mountinfo").write_text(OTHER + mounts)
    top = root / ("sys/fs/cgroup" if version == 2 else "sys/fs/cgroup/memory")
    names = {
        1: ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        2: ("memory.max", "memory.current"),
    }[version]
    for folder, values in limits.items():
        (top / folder).mkdir(parents=True, exist_ok=True)
        for name, value in zip(names, values, strict=True):
            (top / folder / name).write_text(f"{value}\n")
    return root


NONE_1 = str((1 << 63) - 4096)
CASES = {
    "a container of version 2": (
        "0::/\n",
        V2.format(root="/"),
        {"": (str(4 * GIB), GIB)},
        2,
        3 * GIB,
    ),
    "a service": (
        "0::/system.slice/a.service\n",
        V2.format(root="/"),
        {
            "system.slice/a.service": (str(2 * GIB), GIB),
            "system.slice": ("max", 8 * GIB),
        },
        2,
        GIB,
    ),
    "a limit above": (
        "0::/user.slice/job/step\n",
        V2.format(root="/"),
        {"user.slice/job/step": ("max", 1), "user.slice/job": ("max", 1), "user.slice": ("5", 2)},
        2,
        3,
    ),
    "a container of version 1": (
        "4:memory:/docker/ab\n2:cpu,cpuacct:/docker/ab\n0::/\n",
        V1.format(root="/docker/ab"),
        {"": (str(GIB), GIB // 2)},
        1,
        GIB // 2,
    ),
    "a group of version 1": (
        "4:memory:/jobs/seven\n",
        V1.format(root="/"),
        {"jobs/seven": (NONE_1, 9), "jobs": ("100", 40), "": (NONE_1, 900)},
        1,
        60,
    ),
    "more is used than may be": ("0::/\n", V2.format(root="/"), {"": ("5", 9)}, 2, 0),
    "no limit": ("0::/a\n", V2.format(root="/"), {"a": ("max", 9)}, 2, None),
    "a group outside of its namespace": (
        "0::/../other\n",
        V2.format(root="/"),
        {"": ("7", 2)},
        2,
        5,
    ),
    "nothing mounted": ("0::/a\n", "", {}, 2, None),
}


@pytest.mark.parametrize("name", CASES)
def test_the_tightest_limit_counts(name: str, tmp_path: Path) -> None:
    group, mounts, limits, version, left = CASES[name]
    assert memory_left(system(tmp_path, group, mounts, limits, version=version)) == left


@pytest.mark.parametrize(("version", "prefix"), [(1, "total_"), (2, "")])
def test_pages_of_files_are_left(tmp_path: Path, version: int, prefix: str) -> None:
    """Weights that were read fill a group up to its limit; that memory is there to have."""
    group = "4:memory:/\n" if version == 1 else "0::/\n"
    mounts = (V1 if version == 1 else V2).format(root="/")
    root = system(tmp_path, group, mounts, {"": ("1000", 990)}, version=version)
    top = root / ("sys/fs/cgroup" if version == 2 else "sys/fs/cgroup/memory")
    lines = {"anon": 300, f"{prefix}inactive_file": 400, f"{prefix}active_file": 250, "file": 650}
    (top / "memory.stat").write_text("".join(f"{key} {n}\n" for key, n in lines.items()))
    assert memory_left(root) == 1000 - 990 + 650


def test_no_more_is_left_than_the_limit(tmp_path: Path) -> None:
    """Statistics of a group lag behind what it uses."""
    root = system(tmp_path, "0::/\n", V2.format(root="/"), {"": ("1000", 100)}, version=2)
    (root / "sys/fs/cgroup/memory.stat").write_text("inactive_file 500\n")
    assert memory_left(root) == 1000


def test_a_system_without_groups(tmp_path: Path) -> None:
    assert memory_left(tmp_path) is None
    assert group_folders("memory", tmp_path) == []


def test_other_controllers(tmp_path: Path) -> None:
    root = system(tmp_path, "2:cpu,cpuacct:/a/b\n4:memory:/\n", "", {}, version=1)
    top = root / "sys/fs/cgroup/cpu"
    assert group_folders("cpu", root) == [top / "a/b", top / "a", top]
