"""CPU quotas as both versions of control groups state them, at the root and below it."""

from __future__ import annotations

from pathlib import Path

import pytest

from optc.system.cpu_quota import cpu_quota
from optc.system.hardware.target import usable_threads

V2 = "30 24 0:26 {root} /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = (
    "31 25 0:27 {root} /sys/fs/cgroup/cpu,cpuacct rw shared:10 - cgroup cgroup rw,cpu,cpuacct\n"
    "32 25 0:28 / /sys/fs/cgroup/memory rw shared:11 - cgroup cgroup rw,memory\n"
)
OTHER = "22 28 0:21 / /a\\040place rw,relatime shared:7 - sysfs sysfs rw\n"


def quota(folder: Path, mounts: str, groups: str, limits: dict[str, str]) -> float | None:
    """The quota that is found where files under ``/sys/fs/cgroup`` hold ``limits``."""
    proc = folder / "proc/self"
    proc.mkdir(parents=True)
    (proc / "mountinfo").write_text(OTHER + mounts)
    (proc / "cgroup").write_text(groups)
    for name, text in limits.items():
        path = folder / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return cpu_quota(folder)


@pytest.mark.parametrize(
    ("root", "group", "limits", "expected"),
    [
        ("/", "/", {"cpu.max": "150000 100000\n"}, 1.5),
        ("/", "/", {"cpu.max": "max 100000\n"}, None),
        ("/", "/", {}, None),
        ("/", "/system.slice/a.service", {"system.slice/a.service/cpu.max": "200000 100000"}, 2.0),
        ("/", "/a/b", {"a/cpu.max": "50000 100000", "a/b/cpu.max": "max 100000"}, 0.5),
        ("/", "/a/b", {"cpu.max": "400000 100000", "a/b/cpu.max": "300000 100000"}, 3.0),
        ("/docker/c0ffee", "/docker/c0ffee", {"cpu.max": "100000 50000"}, 2.0),
        ("/docker/c0ffee", "/docker/c0ffee/x", {"x/cpu.max": "100000 50000"}, 2.0),
        ("/docker/c0ffee", "/", {"cpu.max": "100000 50000"}, 2.0),
        ("/", "/../other", {"cpu.max": "100000 100000"}, 1.0),
        ("/", "/", {"cpu.max": "damaged"}, None),
    ],
)
def test_version_2(
    tmp_path: Path, root: str, group: str, limits: dict[str, str], expected: float | None
) -> None:
    assert quota(tmp_path, V2.format(root=root), f"0::{group}\n", limits) == expected


@pytest.mark.parametrize(
    ("root", "group", "quotas", "expected"),
    [
        ("/", "/", {"": 100000}, 1.0),
        ("/", "/", {"": -1}, None),
        ("/", "/user/a", {"": -1, "user": 300000, "user/a": 200000}, 2.0),
        ("/docker/c0ffee", "/docker/c0ffee", {"": 150000}, 1.5),
    ],
)
def test_version_1(
    tmp_path: Path, root: str, group: str, quotas: dict[str, int], expected: float | None
) -> None:
    limits = {
        f"cpu,cpuacct/{name}/cpu.cfs_quota_us": f"{value}\n" for name, value in quotas.items()
    }
    limits |= {f"cpu,cpuacct/{name}/cpu.cfs_period_us": "100000\n" for name in quotas}
    groups = f"5:memory:/elsewhere\n4:cpu,cpuacct:{group}\n1:name=systemd:/x\n"
    assert quota(tmp_path, V1.format(root=root), groups, limits) == expected


def test_both_versions_at_once(tmp_path: Path) -> None:
    """As systems that move from one to the other: the CPU controller is in one of them."""
    limits = {"cpu,cpuacct/cpu.cfs_quota_us": "250000", "cpu,cpuacct/cpu.cfs_period_us": "100000"}
    mounts = V2.format(root="/").replace("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
    groups = "4:cpu,cpuacct:/\n0::/\n"
    assert quota(tmp_path, mounts + V1.format(root="/"), groups, limits) == 2.5


def test_without_control_groups(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path) is None
    assert quota(tmp_path, "", "", {}) is None


@pytest.mark.parametrize(("found", "threads"), [(None, 4), (0.5, 1), (2.9, 2), (9.0, 4)])
def test_threads_are_whole(
    monkeypatch: pytest.MonkeyPatch, found: float | None, threads: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1, 2, 3})
    monkeypatch.setattr("optc.system.hardware.target.cpu_quota", lambda: found)
    assert usable_threads() == threads
