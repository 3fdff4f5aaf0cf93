"""One turn's budget, key and outages: what a request may cost, which key it uses, and how long it waits."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest

from service.agents.options import ModelAccess, SpendingLimits
from service.agents.prices import Price
from service.egress.budget import BudgetSpentError, MemoryMeter, OrganizationDay, Spending, SpendingWatch
from service.egress.model import ModelKey, NoKeyError
from service.egress.usage import Usage
from tests.waiting import eventually


def test_an_organizations_daily_limit_applies_to_its_agents() -> None:
    """The limit applies whatever the agent's own budget is; without a price, a dollar limit refuses the model."""
    meter, free = MemoryMeter(), Price(input=0, output=0)
    watch = SpendingWatch(SpendingLimits(), meter)
    for day, price, end in (
        (OrganizationDay(999_999, 0, 1.0), free, None),
        (OrganizationDay(1_000_000, 0, 1.0), free, "organization's budget of 1 USD a day is spent"),
        (OrganizationDay(0, 9, 1.0), None, "the model has no price"),
        (OrganizationDay(5, 100, None, 100), None, "organization's budget of 100 tokens a day is spent"),
        (OrganizationDay(5, 99, None, 100), None, None),
    ):
        spending = Spending(organization=day)
        meter.spent = lambda spending=spending: spending  # type: ignore[misc]  # as the database would have it
        with pytest.raises(BudgetSpentError, match=end) if end else nullcontext(), watch.request(0, price):
            pass
        with watch.request(0, price, is_free=True) if end is None else nullcontext():
            pass


@pytest.mark.parametrize(("used_tokens", "is_allowed"), [(99, True), (100, False)])
def test_a_request_waits_for_the_usage_of_earlier_ones(used_tokens: int, is_allowed: bool) -> None:
    """An agent may send the next request before the last one's usage is recorded; an estimate never stops it."""
    meter = MemoryMeter()
    watch = SpendingWatch(SpendingLimits(run_tokens=100), meter)
    has_begun = threading.Event()

    def ask_again() -> bool:
        has_begun.set()
        try:
            with watch.request(0, None):
                return True
        except BudgetSpentError:
            return False

    with ThreadPoolExecutor(1) as pool:
        with watch.request(0, None):
            second = pool.submit(ask_again)
            has_begun.wait()
            with watch.request(0, None, is_free=True):
                pass
            watch.add("gpt-x", Usage(input=used_tokens), None)
        assert second.result() is is_allowed


def key_of(**source: object) -> ModelKey:
    return ModelKey(ModelAccess.model_validate({"provider": "openai", **source}))


def test_a_key_command_runs_again_only_after_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several requests with a refused key, the first one gets a new key for all; without a key, the reason is given.

    A process that it leaves behind is killed, since it may keep the command's output open.
    """
    calls = tmp_path / "calls"
    key = key_of(key_command=["sh", "-c", f"echo >> '{calls}'; echo key-$(wc -l < '{calls}')"])

    assert [key.get(refused) for refused in (None, None, "key-1", "key-1", "key-2")] == [
        *("key-1", "key-1", "key-2", "key-2", "key-3")
    ]

    key = key_of(key_command=["sh", "-c", f"sleep 300 & echo $! > '{tmp_path}/pid'; echo sk-1"])

    assert key.get() == "sk-1"
    left = Path(f"/proc/{int((tmp_path / 'pid').read_text())}/stat")
    eventually(lambda: not left.exists() or "Z" in left.read_text(), "it has ended")

    with pytest.raises(NoKeyError, match="its output is not one word"):
        key_of(key_command=["true"]).get()
    monkeypatch.setenv("K", "sk-1\nsk-2")
    with pytest.raises(NoKeyError, match=r"the key in K .* set K to a valid key"):
        key_of(key_env="K").get()
