"""Quiet hours: a part of the day, by this machine's clock, in which nobody is to be disturbed."""

import re
from dataclasses import dataclass
from datetime import time
from typing import Final, Self

_SHAPE: Final = re.compile(r"\s*(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2})\s*")


@dataclass(frozen=True, slots=True)
class QuietHours:
    """From a time of the day to another, over midnight where the end comes first."""

    start: time
    """Inclusive."""
    end: time
    """Exclusive."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Hours as people write them: `22:00-07:00`.

        Raises:
            ValueError: They are none; the message shows what would be.
        """
        found = _SHAPE.fullmatch(text)
        try:
            start, end = (time(int(found[n]), int(found[n + 1])) for n in (1, 3)) if found else (None, None)
        except ValueError:
            start = end = None
        if start is None or end is None or start == end:
            raise ValueError(f"{text!r} are no hours of the day: write them as in 22:00-07:00")
        return cls(start, end)

    def cover(self, local: time) -> bool:
        """Whether this time of the day is a quiet one."""
        if self.start < self.end:
            return self.start <= local < self.end
        return local >= self.start or local < self.end
