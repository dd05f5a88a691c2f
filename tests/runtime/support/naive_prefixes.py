"""The prefix cache as a plain statement of what it means: the oracle of its tests.

No tree and no reference counts: a full block is its salt, and the tokens from the start to its
end; everything is found by looking at everything.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from optc.runtime.kv.eviction import Eviction

Key = tuple[str, tuple[int, ...]]


@dataclass(eq=False)
class NaiveHolder:
    """A request; ``held`` are by group the indices of the blocks that it holds, all below
    ``end``."""

    salt: str
    tokens: tuple[int, ...]
    computed: int
    held: list[set[int]]
    end: int = 0
    counted: set[tuple[int, Key]] = field(default_factory=set)


@dataclass
class NaivePrefixes:
    """Blocks of all groups. ``spilled`` are by group and key, the least recently used first, at
    most ``spill``. ``used`` is by group when each cached block was used last, ``uses`` by
    how many requests since it is there, and ``weights`` that and the group's ``ages`` at its last
    use."""

    windows: tuple[int, ...]
    totals: tuple[int, ...]
    size: int
    eviction: Eviction = "lru"
    spill: int = 0
    holders: list[NaiveHolder] = field(default_factory=list)
    clock: int = 0

    def __post_init__(self) -> None:
        self.used: list[dict[Key, int]] = [{} for _ in self.windows]
        self.uses: list[dict[Key, int]] = [{} for _ in self.windows]
        self.weights: list[dict[Key, int]] = [{} for _ in self.windows]
        self.spilled: list[tuple[int, Key]] = []
        self.ages = [0] * len(self.windows)

    def first_seen(self, group: int, count: int) -> int:
        window = self.windows[group]
        return max(0, count * self.size - window + 1) // self.size if window else 0

    def hit(self, salt: str, tokens: tuple[int, ...]) -> int:
        """Blocks that a request of ``tokens`` can go on from."""
        return next(
            count
            for count in range((len(tokens) - 1) // self.size, -1, -1)
            if all(
                (salt, tokens[: (j + 1) * self.size]) in used
                for group, used in enumerate(self.used)
                for j in range(self.first_seen(group, count), count)
            )
        )

    def admit(self, salt: str, tokens: tuple[int, ...]) -> NaiveHolder:
        holder = NaiveHolder(salt, tokens, 0, [set() for _ in self.windows])
        self.restore(salt, tokens)
        self.holders.append(holder)
        self.catch_up(holder)
        return holder

    def restore(self, salt: str, tokens: tuple[int, ...]) -> None:
        """Take back what makes for a longer hit, as far as there is room."""
        gone = [dict(used) for used in self.used]
        for group, key in self.spilled:
            gone[group].setdefault(key, 0)
        present, self.used = self.used, gone
        count = self.hit(salt, tokens)
        self.used = present
        if count <= self.hit(salt, tokens):
            return
        groups = range(len(self.windows))
        keys = [(salt, tokens[: (j + 1) * self.size]) for j in range(count)]
        seen = [keys[self.first_seen(group, count) :] for group in groups]
        kept = [{key for key in seen[g] if key in self.used[g]} for g in groups]
        self.take_back(
            [(g, k) for k in keys for g in groups if k in seen[g] and k not in kept[g]], kept
        )
        for key in keys:  # without a full-attention block the others are of no use
            if any(not w and key not in u for w, u in zip(self.windows, self.used, strict=True)):
                for group in groups:
                    self.drop(group, key)
        for group in groups:
            for key in reversed(seen[group]):
                if key in self.used[group]:
                    self.weigh(group, key, 0)

    def take_back(self, wanted: list[tuple[int, Key]], kept: list[set[Key]]) -> None:
        """Restore ``wanted`` in order, as far as there is room beside what is held and ``kept``."""
        groups = range(len(self.windows))
        room = [self.free(g) + len(set(self.used[g]) - self.held_keys(g) - kept[g]) for g in groups]
        fits = 0
        for group, _ in wanted:
            room[group] -= 1
            if room[group] < 0:
                break
            fits += 1
        for entry in reversed(wanted[:fits]):
            self.put(entry)
        for group in groups:
            while self.free(group) < sum(group == other for other, _ in wanted[:fits]):
                self.evict(group, kept[group])
        for entry in wanted[:fits]:
            if entry not in self.spilled:
                break
            self.put(entry)
            self.weigh(*entry, 0)

    def weigh(self, group: int, key: Key, uses: int) -> None:
        """A block is used now, by so many more requests."""
        self.clock += 1
        self.used[group][key] = self.clock
        self.uses[group][key] = self.uses[group].get(key, 0) + uses
        self.weights[group][key] = self.uses[group][key] + self.ages[group]

    def put(self, entry: tuple[int, Key]) -> None:
        if entry in self.spilled:
            self.spilled.remove(entry)
        self.spilled = [*self.spilled, entry][-self.spill :] if self.spill else []

    def catch_up(self, holder: NaiveHolder) -> bool:
        count = self.hit(holder.salt, holder.tokens)
        if count * self.size <= holder.computed:
            return False
        groups = range(len(self.windows))
        holder.held = [set(range(self.first_seen(g, count), count)) for g in groups]
        holder.computed, holder.end = count * self.size, count
        holder.counted.clear()
        self.touch(holder)
        return True

    def key(self, holder: NaiveHolder, index: int) -> Key | NaiveHolder:
        """A full block is its prefix; others are nobody else's."""
        end = (index + 1) * self.size
        return (holder.salt, holder.tokens[:end]) if end <= holder.computed else holder

    def touch(self, holder: NaiveHolder) -> None:
        for group, indices in enumerate(holder.held):
            for index in sorted(indices, reverse=True):
                key = self.key(holder, index)
                if not isinstance(key, NaiveHolder):
                    self.weigh(group, key, (group, key) not in holder.counted)
                    holder.counted.add((group, key))

    def held_keys(self, group: int) -> set[Key]:
        keys = (self.key(h, index) for h in self.holders for index in h.held[group])
        return {key for key in keys if not isinstance(key, NaiveHolder)}

    def free(self, group: int) -> int:
        private = sum(
            isinstance(self.key(h, index), NaiveHolder)
            for h in self.holders
            for index in h.held[group]
        )
        return self.totals[group] - private - len(self.held_keys(group) | set(self.used[group]))

    def cached(self, group: int) -> int:
        return len(set(self.used[group]) - self.held_keys(group))

    def take(self, holder: NaiveHolder, length: int) -> bool:
        """Blocks for ``length`` tokens."""
        end, groups = max(holder.end, -(-length // self.size)), range(len(self.windows))
        new = set(range(holder.end, end))
        if any(len(new) > self.free(group) + self.cached(group) for group in groups):
            return False
        for group in groups:
            while self.free(group) < len(new):
                self.evict(group)
            holder.held[group] |= new
        holder.end = end
        return True

    def compute(self, holder: NaiveHolder, length: int) -> None:
        """Compute up to ``length`` tokens in one step, for which it has the blocks."""
        crossed = holder.computed // self.size != length // self.size
        holder.computed = length
        if crossed:
            self.touch(holder)
        for group, window in enumerate(self.windows):
            if window:
                first = max(0, length - window + 1) // self.size
                holder.held[group] = {j for j in holder.held[group] if j >= first}

    def fork(self, source: NaiveHolder) -> NaiveHolder | None:
        """Another request for the same tokens, all of them computed."""
        full = source.computed // self.size
        held = [{index for index in indices if index < full} for indices in source.held]
        forked = NaiveHolder(source.salt, source.tokens, source.computed, held, full)
        forked.counted = set(source.counted)
        self.holders.append(forked)
        if self.take(forked, source.computed):
            return forked
        self.holders.remove(forked)
        return None

    def evict(self, group: int, kept: Collection[Key] = ()) -> None:
        used, lfu = self.used[group], self.eviction == "lfu"
        loose = set(used) - self.held_keys(group) - set(kept)
        if not self.windows[group]:  # what others go on from goes after them
            loose -= {(salt, tokens[: -self.size]) for salt, tokens in used}
        key = min(loose, key=lambda k: (lfu * self.weights[group][k], used[k]))
        self.ages[group] = max(self.ages[group], self.weights[group][key])
        for other in [group] if self.windows[group] else range(len(self.windows)):
            if key in self.used[other]:
                self.put((other, key))
            self.drop(other, key)

    def drop(self, group: int, key: Key) -> None:
        for figures in (self.used[group], self.uses[group], self.weights[group]):
            figures.pop(key, None)
