"""The budget: what a run and a day may still cost, asked before each request, with those under way counted in."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from service.agents.options import Budget, ModelAccess, Price
from service.egress.usage import BYTES_PER_TOKEN, Usage

_MICROS: Final = 1_000_000
_ANSWER_TOKENS: Final = 4096
"""What an answer that is under way is taken for."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What was used so far, this turn's part included."""

    run_micro_usd: int = 0
    day_micro_usd: int = 0
    run_tokens: int = 0


class Ledger(Protocol):
    """Where usage is kept."""

    def spent(self) -> Spent:
        """Return what the run and the agent's day have used."""
        ...

    def add(self, model: str, usage: Usage, micro_usd: int) -> None:
        """Keep what one request used."""
        ...


class BudgetSpentError(Exception):
    """No request is allowed any more; the text says which limit was reached."""


class SpendingWatch:
    """Holds an agent to its budget."""

    def __init__(self, access: ModelAccess, ledger: Ledger) -> None:
        self._budget: Budget = access.budget
        self._ledger = ledger
        self._lock = threading.Lock()
        self._under_way = Spent()

    @contextmanager
    def request(self, body_bytes: int, price: Price | None) -> Iterator[None]:
        """Count a request as under way.

        Raises:
            BudgetSpentError: The budget does not allow it.
        """
        expected = Usage(input=body_bytes // BYTES_PER_TOKEN, output=_ANSWER_TOKENS)
        with self._lock:
            self._check()
            self._move(expected, price, 1)
        try:
            yield
        finally:
            with self._lock:
                self._move(expected, price, -1)

    def add(self, model: str, usage: Usage, price: Price | None) -> None:
        """Keep what a request used."""
        with self._lock:
            self._ledger.add(model, usage, usage.micro_usd(price))

    def _move(self, expected: Usage, price: Price | None, sign: int) -> None:
        cost = sign * expected.micro_usd(price)
        held = self._under_way
        self._under_way = Spent(
            held.run_micro_usd + cost, held.day_micro_usd + cost, held.run_tokens + sign * expected.tokens
        )

    def _check(self) -> None:
        spent, held, budget = self._ledger.spent(), self._under_way, self._budget
        run, day = spent.run_micro_usd + held.run_micro_usd, spent.day_micro_usd + held.day_micro_usd
        if budget.run_usd is not None and run >= budget.run_usd * _MICROS:
            raise BudgetSpentError(f"the run's budget of {budget.run_usd:g} USD is spent (budget.run_usd)")
        if budget.day_usd is not None and day >= budget.day_usd * _MICROS:
            raise BudgetSpentError(f"the agent's budget of {budget.day_usd:g} USD a day is spent (budget.day_usd)")
        tokens = spent.run_tokens + held.run_tokens
        if budget.run_tokens is not None and tokens >= budget.run_tokens:
            raise BudgetSpentError(f"the run's budget of {budget.run_tokens} tokens is spent (budget.run_tokens)")
