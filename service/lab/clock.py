"""The lab's clock: the present, shifted for decisions about expiry and for nothing else."""

from service.clock import SECOND_MICROS, Clock


class ShiftedClock:
    """A clock that runs as another does, some seconds ahead of it or behind."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.offset_s = 0

    def __call__(self) -> int:
        """Return the shifted present, in microseconds since 1970."""
        return self._clock() + self.offset_s * SECOND_MICROS
