"""Which process polls when the current poller cannot, and how soon others notice a write."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.engine.engine import Engine
from app.engine.events import Event, LinkChanged, StorageFailed
from app.profiles import load
from storage.errors import StorageError
from storage.state import State
from tests.lab import Drop, Received, Respond, Server
from tests.waiting import until


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes without the lease check often whether they may poll."""
    monkeypatch.setattr("app.sync.polling.STANDBY_S", 0.2)
    monkeypatch.setattr("app.sync.polling.STAND_ASIDE_S", 0.5)


@contextmanager
def told_apart(otherwise: Respond | Drop) -> Iterator[Server]:
    """A service that knows the token `good`, and gives every other one this answer."""

    def answer(request: Received) -> Respond | Drop:
        if request.headers["authorization"] != "Bearer good":
            return otherwise
        if "health" in request.path:
            return Respond(200, {"code_hosting": {}})
        return Respond(200, {"runs": [], "page_size": 10, "next_token": None, "total_count": 0})

    with Server() as server:
        server.otherwise = answer
        yield server


def count(events: list[Event], kind: type[Event]) -> int:
    return sum(isinstance(event, kind) for event in events)


async def opened(server: Server, folder: Path, token: str, events: list[Event], config: Path | None = None) -> Engine:
    env = {"RUNWARDEN_BASE_URL": server.base_url, "RUNWARDEN_TOKEN": token, "RUNWARDEN_DATA_DIR": str(folder)}
    settings = load(config, env)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RUNWARDEN_TOKEN", token)
        engine = await Engine.open(settings, settings.profile(), actor="test")
        engine.events.subscribe(events.append)
        return engine


def often(folder: Path, seconds: int = 1) -> Path:
    """A configuration that polls this often."""
    (folder / "config.toml").write_text(f"[poll]\nruns_s = {seconds}\nhealth_s = {seconds}\n")
    return folder / "config.toml"


@pytest.mark.parametrize("otherwise", [Respond(401), Drop()], ids=["401", "no link"])
async def test_a_poller_that_cannot_poll_yields_to_another(
    otherwise: Respond | Drop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process with a good token polls after a few seconds, and keeps the lease.

    When it exits, the first one tries again.
    """
    refused: list[Event] = []
    acquire, in_vain = State.acquire_lease, list[str]()

    async def counted(state: State, name: str, owner: str, ttl_s: float) -> bool:
        if not (is_taken := await acquire(state, name, owner, ttl_s)):
            in_vain.append(name)
        return is_taken

    monkeypatch.setattr(State, "acquire_lease", counted)
    with told_apart(otherwise) as server:
        async with await opened(server, tmp_path, "expired", refused, often(tmp_path)) as bad:
            bad.start_polling()
            await until(lambda: count(refused, LinkChanged), "the first poll is refused")
            async with await opened(server, tmp_path, "good", []) as good:
                good.start_polling()
                await until(lambda: good.polling.is_poller, "the other one polls")
                bad.polling.poll_soon("runs")
                in_vain.clear()
                await until(lambda: len(in_vain) >= 2, "the refused one stands aside no longer, and asks for the lease")

                assert (good.polling.is_poller, bad.polling.is_poller) == (True, False)
            asked = len(server.requests)
            await until(lambda: bad.polling.is_poller and len(server.requests) > asked, "it polls again")


async def test_without_a_lease_file_each_process_polls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network file system has no lease: that is reported, and everything else works."""
    mounts = tmp_path / "mounts"
    mounts.write_text(f"1 0 0:1 / {tmp_path} rw - nfs4 server:/home rw\n")
    monkeypatch.setattr("storage.private_file.MOUNTS", mounts)
    told: list[Event] = []
    with told_apart(Drop()) as server:
        async with (
            await opened(server, tmp_path, "good", told) as one,
            await opened(server, tmp_path, "good", []) as two,
        ):
            one.start_polling()
            two.start_polling()
            await until(lambda: one.polling.is_poller and two.polling.is_poller, "both poll")
            with pytest.raises(StorageError, match=r"network file system \(nfs4\).* Set data_dir"):
                one.usable_state()

    assert count(told, StorageFailed)
