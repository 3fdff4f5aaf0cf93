"""Reading a list page by page, with a check for a list that would never end."""

from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from app.api.errors import EndlessListError
from storage.records import RunPage

FetchPage = Callable[[str | None], Awaitable[RunPage]]
"""Takes a page token, or None for the first page."""
BARREN: Final = 2
"""Pages in a row without a new run. One is normal: runs move while a list is read."""
NAMELESS: Final = 20
"""As `BARREN`, if the last page has only entries without a usable id: whether these are new is unknown."""
REMEMBERED: Final = 1_000
"""How many of the last runs the order is remembered for."""
_64_BITS: Final = 2**64 - 1


class EndCheck:
    """Follows one walk along a list, and detects that it would never end, or has no steady order."""

    def __init__(self) -> None:
        self._tokens: set[str] = set()
        self._met = IdSet()
        self._barren = 0
        self._positions: dict[str, int] = {}
        """The positions in the whole list of the runs shown last."""
        self._shown = 0

    def meet(self, page: RunPage) -> RunPage:
        """Mark the page's runs that an earlier page had."""
        ids = list(dict.fromkeys(run.run_id for run in page.runs))
        repeated = frozenset(run_id for run_id in ids if not self._met.add(run_id))
        if repeated:
            page = replace(page, repeated=repeated, is_shuffled=self._is_shuffled(ids, repeated))
        for run_id in ids:
            self._positions.setdefault(run_id, self._shown)
            self._shown += 1
        for run_id in list(islice(self._positions, max(0, len(self._positions) - REMEMBERED))):
            del self._positions[run_id]
        return page

    def _is_shuffled(self, ids: Sequence[str], repeated: Collection[str]) -> bool:
        """Whether repeated runs came elsewhere than in a list that grew: in order, at an end of the page."""
        again = [index for index, run_id in enumerate(ids) if run_id in repeated]
        before = [self._positions.get(ids[index], -1) for index in again]
        is_at_an_end = again[0] == 0 or again[-1] == len(ids) - 1
        return not (is_at_an_end and before[0] >= 0 and _are_consecutive(again) and _are_consecutive(before))

    def step(self, page: RunPage) -> None:
        """Take the next page, as returned by `meet`.

        Raises:
            EndlessListError: A token came twice, an empty page promises another, or two pages brought only known runs.
        """
        token = page.next_token
        if token is None:
            return
        if token in self._tokens:
            raise EndlessListError("The service repeated a page token; the list would never end.")
        if not page.runs and not page.dropped:
            raise EndlessListError("The service sent an empty page and promised another; the list would never end.")
        has_new = any(run.run_id not in page.repeated for run in page.runs)
        self._barren = 0 if has_new else self._barren + 1
        if self._barren >= (BARREN if page.runs else NAMELESS):
            raise EndlessListError(f"The service sent {self._barren} pages of no new run; the list would never end.")
        self._tokens.add(token)


async def pages(fetch: FetchPage) -> AsyncIterator[RunPage]:
    """Yield every page until the list ends.

    Raises:
        EndlessListError: The list would never end.
        ApiError: As `fetch` does.
    """
    check = EndCheck()
    token: str | None = None
    while True:
        page = check.meet(await fetch(token))
        yield page
        if page.next_token is None:
            return
        check.step(page)
        token = page.next_token


class IdSet:
    """Ids, at 16 to 32 bytes each: a list of a million runs is walked in little memory."""

    def __init__(self) -> None:
        self._hashes = array("Q", bytes(8 << 10))
        """Open addressing; 0 marks a free slot. Two of a million ids count as one with a chance of 1 in 10^7."""
        self._count = 0

    def add(self, run_id: str) -> bool:
        """Add an id; return whether it is new."""
        if not _put(self._hashes, hash(run_id) & _64_BITS or 1):
            return False
        self._count += 1
        if 2 * self._count > len(self._hashes):
            smaller, self._hashes = self._hashes, array("Q", bytes(16 * len(self._hashes)))
            for each in filter(None, smaller):
                _put(self._hashes, each)
        return True


def _are_consecutive(positions: Sequence[int]) -> bool:
    return list(positions) == list(range(positions[0], positions[0] + len(positions)))


def _put(hashes: "array[int]", value: int) -> bool:
    slot = value & (len(hashes) - 1)
    while hashes[slot] not in {0, value}:
        slot = (slot + 1) & (len(hashes) - 1)
    is_new = hashes[slot] == 0
    hashes[slot] = value
    return is_new
