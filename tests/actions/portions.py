"""A campaign in portions, each with a seed of its own: interrupted, it goes on later and tells how far it has come."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest


@dataclass(frozen=True, slots=True)
class Campaign:
    """How much is tried, and the file that knows what has been tried so far."""

    name: str
    size: int
    """Of a portion."""
    portions: int = 1
    seed: int | None = 1
    """None: another one for each campaign."""
    cache: pytest.Cache | None = None

    def __iter__(self) -> Iterator["Portion"]:
        """The portions that are left; all of them where none is."""
        held = self._held()
        if held is None or len(held["done"]) == self.portions:
            seed = self.seed if self.seed is not None else random.SystemRandom().randrange(10**6)
            held = {"seed": seed, "done": {}}
        for number in range(self.portions):
            if str(number) not in held["done"]:
                yield Portion(
                    f"{self.name}-{number}", self.size, random.Random(f"{held['seed']}-{number}"), figures := Counter()
                )
                held["done"][str(number)] = figures
                if self.cache is not None:
                    self.cache.set(self._key, held)
                print(f"{self.name}, seed {held['seed']}-{number}: {self._told(figures)}")
        total = sum((Counter(figures) for figures in held["done"].values()), Counter[str]())
        print(f"{self.name}, {len(held['done'])} of {self.portions} portions: {self._told(total)}")

    @property
    def _key(self) -> str:
        return f"campaign/{self.name}"

    def _held(self) -> dict[str, Any] | None:
        return None if self.cache is None else self.cache.get(self._key, None)

    def _told(self, figures: Counter[str]) -> str:
        return ", ".join(f"{count:,} {what}" for what, count in figures.items())


@dataclass(frozen=True, slots=True)
class Portion:
    """One part of a campaign."""

    name: str
    size: int
    rng: random.Random
    figures: Counter[str]
    """Filled in by who tries it; kept once the next portion is asked for."""
