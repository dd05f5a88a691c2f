"""The processor's caches: how much memory must be read in turn for reads to come from memory."""

from __future__ import annotations

from pathlib import Path

_PROCESSORS = Path("/sys/devices/system/cpu")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
#: Several times the caches of a processor that does not say how large they are.
_LEAST_BYTES = 256 << 20
#: What a measurement may take at most, whatever the caches.
_MOST_BYTES = 1 << 30


def last_level_bytes(processors: Path = _PROCESSORS) -> int:
    """Bytes of all last-level caches together; 0 if the system does not describe them.

    Args:
        processors: Folder of the kernel's descriptions (Linux, ``sysfs``).
    """
    sizes: dict[int, dict[str, int]] = {}
    for cache in processors.glob("cpu[0-9]*/cache/index[0-9]*"):
        level = int((cache / "level").read_text())
        shared = (cache / "shared_cpu_list").read_text()  # every processor describes it anew
        sizes.setdefault(level, {})[shared] = _bytes((cache / "size").read_text().strip())
    return sum(sizes[max(sizes)].values()) if sizes else 0


def beyond_caches(processors: Path = _PROCESSORS) -> int:
    """Bytes that, read in turn, come from memory: twice the last-level caches, within reason."""
    return min(max(_LEAST_BYTES, 2 * last_level_bytes(processors)), _MOST_BYTES)


def _bytes(size: str) -> int:
    """Of a size such as ``32768K``."""
    return int(size[:-1]) * _UNITS[size[-1]] if size[-1:] in _UNITS else int(size)
