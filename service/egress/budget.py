"""The budget of a run and of a day, checked before each request; requests under way count."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol

from service.agents.options import SpendingLimits
from service.agents.prices import Price
from service.egress.usage import BYTES_PER_TOKEN, Usage
from service.errors import ServiceError

_MICROS: Final = 1_000_000
_ANSWER_TOKENS: Final = 4096
"""The assumed length of an answer under way."""


@dataclass(frozen=True, slots=True)
class OrganizationDay:
    """An organization's usage of today, and its limits; None: no limit."""

    micro_usd: int = 0
    tokens: int = 0
    most_usd: float | None = None
    most_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Spending:
    """The usage so far, this turn included."""

    run_micro_usd: int = 0
    day_micro_usd: int = 0
    run_tokens: int = 0
    organization: OrganizationDay = OrganizationDay()
    """The organization's day; zero if it has no limit."""


class UsageMeter(Protocol):
    """Stores an agent's usage of its model."""

    def spent(self) -> Spending:
        """Return the use of the run and of the agent's day."""

    def add(self, model: str, usage: Usage, price: Price | None, asked_at: float = 0) -> None:
        """Store the use of one request, made at a time (seconds since 1970; 0: not known): the provider answers."""

    def away_s(self) -> float | None:
        """Store that the provider gave no answer; return for how long it has answered nobody, None if it did."""


@dataclass
class MemoryMeter:
    """Keeps usage in memory."""

    used: list[tuple[str, Usage, int | None]] = field(default_factory=list)

    def spent(self) -> Spending:
        """Return the sums; run and day are the same here."""
        cost = sum(micro_usd or 0 for _, _, micro_usd in self.used)
        return Spending(cost, cost, sum(usage.tokens for _, usage, _ in self.used))

    def add(self, model: str, usage: Usage, price: Price | None, asked_at: float = 0) -> None:  # noqa: ARG002 — a meter in memory has no days
        self.used.append((model, usage, usage.micro_usd(price)))

    def away_s(self) -> None:
        """Return None: there is no other agent here to compare with, and no turn that could wait."""


class BudgetSpentError(ServiceError):
    """No further request is allowed; the text names the limit."""


@dataclass
class SpendingWatch:
    """Enforces an agent's budget."""

    budget: SpendingLimits
    meter: UsageMeter
    _settled: threading.Condition = field(default_factory=threading.Condition)
    """Notified when a request is no longer under way."""
    _micro_usd: int = 0
    """The expected usage of the requests under way."""
    _tokens: int = 0

    @contextmanager
    def request(self, body_bytes: int, price: Price | None, *, is_free: bool = False) -> Iterator[None]:
        """Count a request as under way; a free one costs nothing and needs no price.

        If only the estimates of other requests exceed the budget, this one waits until those are settled: an agent may
        have read an answer, and ask again, before the usage of that answer is recorded.

        Raises:
            BudgetSpentError: The budget does not allow it.
        """
        expected = Usage() if is_free else Usage(input=body_bytes // BYTES_PER_TOKEN, output=_ANSWER_TOKENS)
        cost = expected.micro_usd(price) or 0
        has_price = is_free or price is not None
        with self._settled:
            while True:
                if (spent := self._budget_spent(has_price=has_price)) is not None:
                    raise BudgetSpentError(spent)
                if is_free or self._budget_spent(self._micro_usd, self._tokens, has_price=has_price) is None:
                    break
                self._settled.wait()
            self._micro_usd += cost
            self._tokens += expected.tokens
        try:
            yield
        finally:
            with self._settled:
                self._micro_usd -= cost
                self._tokens -= expected.tokens
                self._settled.notify_all()

    def add(self, model: str, usage: Usage, price: Price | None, asked_at: float = 0) -> str | None:
        """Store one request's usage, and return the budget that is spent now, or None."""
        with self._settled:
            self.meter.add(model, usage, price, asked_at)
            return self._budget_spent(has_price=True)

    def _budget_spent(self, micro_usd: int = 0, tokens: int = 0, *, has_price: bool) -> str | None:
        """Return the budget that is spent, given more that may be spent soon, or None."""
        spent, budget = self.meter.spent(), self.budget
        # Requests of other turns count for the organization's day once they are answered.
        day = spent.organization
        if day.most_usd is not None and not has_price:
            text = f"the organization has a budget of {day.most_usd:g} USD a day, and the model has no price"
            return f"{text}: add it to prices of the agent"
        for whose, key, most, used in (
            ("run's", "budget.run_usd", budget.run_usd, spent.run_micro_usd + micro_usd),
            ("agent's", "budget.day_usd", budget.day_usd, spent.day_micro_usd + micro_usd),
            ("organization's", "day_usd", day.most_usd, day.micro_usd + micro_usd),
            ("run's", "budget.run_tokens", budget.run_tokens, spent.run_tokens + tokens),
            ("organization's", "day_tokens", day.most_tokens, day.tokens + tokens),
        ):
            is_usd = key.endswith("usd")
            if most is not None and used >= (most * _MICROS if is_usd else most):
                amount = f"{most:g} USD" if is_usd else f"{most} tokens"
                when = " a day" if "day" in key else ""
                return f"the {whose} budget of {amount}{when} is spent ({key})"
        return None
