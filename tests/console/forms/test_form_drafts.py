"""Typed text survives escape, another form and a killed program."""

import asyncio
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from app.actions.drafts import Draft, DraftsError, read_drafts, save_draft
from app.actions.screen_writes import NewRunForm
from app.engine.engine import Engine
from tests.console.forms.conftest import FILLED, Opened, draft_of
from tests.waiting import until

NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of drafts, in a folder that does not exist yet."""
    return tmp_path / "acme-prod" / "drafts.json"


def test_a_draft_is_private_and_restored_unchanged(path: Path) -> None:
    """Lone surrogates and control characters are kept; the file is private, since instructions may hold secrets."""
    draft = Draft({"instructions": "a\n\x1b[2J\ud800例"}, NOON, sent_at=NOON)
    save_draft(path, "run.start", draft)

    assert read_drafts(path) == {"run.start": draft}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [file.name for file in path.parent.iterdir()] == ["drafts.json"]


async def test_two_consoles_do_not_lose_each_others_drafts(path: Path) -> None:
    """Each change locks the file, reads it, and replaces it."""
    names = [f"run.continue:{number}" for number in range(20)]
    drafts = {name: Draft({"a": name}, NOON) for name in names}
    await asyncio.gather(*(asyncio.to_thread(save_draft, path, name, draft) for name, draft in drafts.items()))

    assert read_drafts(path) == drafts


@pytest.mark.parametrize("text", ["", "[]", '{"version": 1, "drafts": {"a": {"values": 3}}}'])
def test_a_damaged_file_is_moved_aside_once(path: Path, text: str) -> None:
    """Forms work without the damaged file, and the next draft is saved."""
    path.parent.mkdir()
    path.write_text(text)

    with pytest.raises(DraftsError, match=r"drafts\.damaged"):
        read_drafts(path)
    assert path.with_suffix(".damaged").read_text() == text
    save_draft(path, "run.start", Draft({"a": "b"}, NOON))
    assert read_drafts(path) == {"run.start": Draft({"a": "b"}, NOON)}


async def test_a_draft_can_be_put_aside_and_brought_back(opened: Opened, clock: Any, engine: Engine) -> None:
    """The draft shows its age; ctrl+n puts it aside and brings it back."""
    async with opened(NewRunForm, FILLED) as form:
        # The form is still open, since the program may be killed then.
        draft = await until(lambda: draft_of(engine, "run.start"), "the draft is on the disk")
    assert draft.values["repository"] == "acme/web"
    clock.move(minutes=7)
    async with opened(NewRunForm) as form:
        restored = form.screen.values
        assert "Your draft from 7m ago" in form.text
        assert restored["instructions"] == "Fix the flaky test.\nThen run it."
        assert restored["metadata"] == "depth=3"
        await form.press("ctrl+n")
        assert set(form.screen.values.values()) == {""}
        await form.press("ctrl+n")
        assert form.screen.values == restored
