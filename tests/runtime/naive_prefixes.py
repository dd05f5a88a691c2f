"""The prefix cache as a plain statement of what it means: the oracle of its tests.

No tree and no reference counts: a full block is its salt, and the tokens from the start to its
end; everything is found by looking at everything.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from optc.runtime.eviction import Eviction

Key = tuple[str, tuple[int, ...]]


@dataclass(eq=False)
class NaiveHolder:
    """A request; ``held`` are by group the indices of the blocks that it holds."""

    salt: str
    tokens: tuple[int, ...]
    computed: int
    held: list[set[int]]
    counted: set[tuple[int, Key]] = field(default_factory=set)


@dataclass
class NaivePrefixes:
    """Blocks of all groups. ``spilled`` are by group and key, the least recently used first, at
    most ``spill``. ``used`` is by group when each cached block was used last, ``uses`` by
    how many requests, and ``weights`` that and the group's ``ages`` at its last use."""

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
        keys = [(salt, tokens[: (j + 1) * self.size]) for j in range(count)]
        seen = [keys[self.first_seen(g, count) :] for g in range(len(self.windows))]
        kept = [
            {key for key in keys if key in used} for keys, used in zip(seen, self.used, strict=True)
        ]
        for group, key in [(g, k) for k in keys for g in range(len(seen)) if k in seen[g]]:
            if key not in self.used[group] and not self.take_back(group, key, kept):
                break
        for group, mine in enumerate(seen):
            for key in reversed(mine):
                if key in self.used[group]:
                    self.clock += 1
                    self.used[group][key] = self.clock

    def take_back(self, group: int, key: Key, kept: list[set[Key]]) -> bool:
        if not self.free(group):
            if not set(self.used[group]) - self.held_keys(group) - kept[group]:
                return False
            self.evict(group, kept[group])
        if (group, key) not in self.spilled:
            return False
        self.put((group, key))
        self.clock += 1
        self.used[group][key] = self.clock
        self.weights[group][key] = 0
        kept[group].add(key)
        return True

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
        holder.computed = count * self.size
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
                    self.clock += 1
                    self.used[group][key] = self.clock
                    if (group, key) not in holder.counted:
                        holder.counted.add((group, key))
                        self.uses[group][key] = self.uses[group].get(key, 0) + 1
                        self.weights[group][key] = self.uses[group][key] + self.ages[group]

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

    def grow(self, holder: NaiveHolder, length: int) -> bool:
        """Compute up to ``length`` tokens in one step."""
        before, after = -(-holder.computed // self.size), -(-length // self.size)
        groups = range(len(self.windows))
        if any(after - before > self.free(g) + self.cached(g) for g in groups):
            return False
        for group in groups:
            while self.free(group) < after - before:
                self.evict(group)
            holder.held[group] |= set(range(before, after))
        crossed = holder.computed // self.size != length // self.size
        holder.computed = length
        if crossed:
            self.touch(holder)
        for group, window in enumerate(self.windows):
            if window:
                first = max(0, length - window + 1) // self.size
                holder.held[group] = {j for j in holder.held[group] if j >= first}
        return True

    def evict(self, group: int, kept: Collection[Key] = ()) -> None:
        loose = set(self.used[group]) - self.held_keys(group) - set(kept)
        lfu = self.eviction == "lfu"
        key = min(loose, key=lambda k: (lfu * self.weights[group][k], self.used[group][k]))
        self.ages[group] = max(self.ages[group], self.weights[group][key])
        for other in [group] if self.windows[group] else range(len(self.windows)):
            if key in self.used[other]:
                self.put((other, key))
            for figures in (self.used[other], self.uses[other], self.weights[other]):
                figures.pop(key, None)
