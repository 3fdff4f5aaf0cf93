"""Errors below a run's screen are shown in it."""

import asyncio
from pathlib import Path
from typing import Any

from app.profiles import RepositoryAddress
from storage.errors import DiskFailedError
from tests.console.conftest import MESSAGE, Staged
from tests.console.run.conftest import OnShow, ScriptedResults

PARTS = {"r": "2 findings", "d": "src/sign_in.py", "l": "step 3"}
"""The keys of the parts, and what each shows."""


class FailingResults(ScriptedResults):
    """Answers until our own files fail below it."""

    fails = False

    def __getattribute__(self, name: str) -> Any:
        if name in {"turns", "change", "reviews", "blob", "log"} and self.fails:
            return self._fail
        return super().__getattribute__(name)

    async def _fail(self, *_: Any, **__: Any) -> Any:
        await asyncio.sleep(0)
        raise DiskFailedError(MESSAGE, path=Path("cache.sqlite3"))


async def test_an_unreadable_part_shows_its_error(run_on_show: OnShow) -> None:
    """The part shows the error instead of loading forever; reopened, it is read again."""
    results = FailingResults()
    async with run_on_show(results) as scene:
        for part, words in PARTS.items():
            results.fails = True
            await scene.press(part)
            await scene.shows("It could not be read.")
            assert "Reading the" not in scene.text
            results.fails = False
            await scene.press("C", part)
            await scene.shows(words)


async def test_an_unusable_mirror_is_reported(staged: Staged, tmp_path: Path) -> None:
    """The error is shown as the reason why there is no change and no review."""
    (tmp_path / "repositories").write_text("a file where the mirrors' folder belongs")
    addresses = (RepositoryAddress("github:acme/*", str(tmp_path)), RepositoryAddress("gitlab:acme/*", str(tmp_path)))
    async with staged(changed={"repositories": addresses}) as scene:
        await scene.press("j", "j", "j", "enter")
        for key in ("r", "d"):
            await scene.press(key)
            await scene.shows("copy of the repository cannot be kept")
