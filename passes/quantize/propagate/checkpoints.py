"""Checkpoints of a propagation: a stopped one goes on after the blocks that the cache holds."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from optc.ir.pipeline.base import PassReport
from optc.passes.quantize.propagate.stages import CorrectedStages
from optc.proof.reference.calibration import CalibrationStore, Statistic, StatisticGroup
from optc.proof.reference.calibration_cache import CalibrationCache, DamagedEntryError
from optc.proof.reference.two_streams import Pair

#: Names of the two arrays of a stream.
_CHANGED, _ORIGINAL = "changed", "original"
#: Seconds of work that may be lost: streams of small models take longer to write than a block.
EVERY_S = 10.0


@dataclass
class BlockCheckpoints:
    """Entries of a cache under the calibration's key: one for some blocks, with their quantized
    rows, and one with the streams behind the last block and all else that it takes to go on.

    An entry is complete or not there (`CalibrationCache.save`), and its key is a digest of model,
    text, options and packages: a state of another compile is never found.

    Attributes:
        cache: Keeps the entries.
        key: Of the whole calibration.
        stages: Whose state is kept and restored.
    """

    cache: CalibrationCache
    key: str
    stages: CorrectedStages
    _known: set[Statistic] = field(default_factory=set)
    _saved: list[int] = field(default_factory=list)
    _time: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._known = set(self.stages.store.statistics())

    def load(self) -> tuple[int, Pair] | None:
        """Blocks that were done, and the streams behind them; None if there are none, or if a part
        is missing or damaged. Then the others are removed, and the report says so."""
        latest = max(self.cache.keys(self._streams_key("")), default=None)
        if latest is None:
            return None
        try:
            done, pair, state = _streams(self.cache, latest)
            store = CalibrationStore(0)
            for index in state["saved"]:
                if self.cache.load(self._block_key(index), store) is None:
                    raise DamagedEntryError(self._block_key(index))
        except DamagedEntryError:
            self.clear()
            self.stages.report.warnings.append(
                f"what a stopped calibration left in {self.cache.folder} was damaged: begun again"
            )
            return None
        for group in store.groups():
            self.stages.store.put(group.weights, group.statistic, group.array)
        self._known = set(self.stages.store.statistics())
        self._saved = list(state["saved"])
        _restore(self.stages, state)
        self.stages.report.facts["resumed_after_blocks"] = done
        return done, pair

    def save(self, done: int, stream: Pair) -> None:
        """Keep what is new of ``done`` blocks, then the streams; streams before are removed.

        Nothing is kept where little was done since the last time.

        Raises:
            InputError: The cache folder cannot be written.
        """
        if time.monotonic() - self._time < EVERY_S:
            return
        store = self.stages.store
        before = self.cache.keys(self._streams_key(""))
        self.cache.save(self._block_key(done - 1), store.groups(self._known), {})
        self._known = set(store.statistics())
        self._saved.append(done - 1)
        pairs = {_CHANGED: stream.changed, _ORIGINAL: stream.original}
        arrays = [StatisticGroup((name,), name, array) for name, array in pairs.items()]
        state = {"done": done, "saved": self._saved, **_state(self.stages)}
        self.cache.save(self._streams_key(f"{done:05}"), arrays, state)
        for key in before:
            self.cache.remove(key)
        self._time = time.monotonic()

    def clear(self) -> None:
        """Remove all of it: the calibration is complete, or it begins again."""
        for start in (self._streams_key(""), f"{self.key}-block-"):
            for key in self.cache.keys(start):
                self.cache.remove(key)

    def _block_key(self, index: int) -> str:
        return f"{self.key}-block-{index:05}"

    def _streams_key(self, done: str) -> str:
        return f"{self.key}-streams-{done}"


def _streams(cache: CalibrationCache, key: str) -> tuple[int, Pair, Mapping[str, Any]]:
    found = cache.read(key)
    if found is None:
        raise DamagedEntryError(key)
    state, groups = found
    arrays = {group.statistic: group.array for group in groups}
    return state["done"], Pair(arrays[_CHANGED], arrays[_ORIGINAL]), state


def _state(stages: CorrectedStages) -> dict[str, Any]:
    return {
        "report": dataclasses.asdict(stages.report),
        "noise": stages.noise,
        "adequacy": stages.adequacy.state(),
        "weights": stages.done,
    }


def _restore(stages: CorrectedStages, state: Mapping[str, Any]) -> None:
    """In place: others hold the report."""
    known = PassReport(**state["report"])
    for one in dataclasses.fields(known):
        setattr(stages.report, one.name, getattr(known, one.name))
    stages.noise[:] = state["noise"]
    stages.adequacy.restore(state["adequacy"])
    stages.done[:] = state["weights"]
