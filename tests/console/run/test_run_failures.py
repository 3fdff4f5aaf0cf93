"""What fails below a run's screen is said in it: no key of any of its parts ends the console."""

import asyncio
from pathlib import Path
from typing import Any

from textual.binding import Binding

from app.profiles import RepositoryAddress
from storage.errors import DiskFailedError
from tests.console.conftest import MESSAGE, Disk, Scene, Staged
from tests.console.run.conftest import OnShow, ScriptedResults
from tests.console.test_error_boundary import bindings_of

PARTS = {"r": "2 findings", "d": "src/sign_in.py", "l": "step 3"}
"""The keys of the parts, and what each shows."""
LEAVING = ("show(", "beside_part(", "raw")
OF_A_PART = ("part(", "turn(", "beside(", *LEAVING)


class FailingResults(ScriptedResults):
    """Answers, until our own files fail below it."""

    fails = False

    def __getattribute__(self, name: str) -> Any:
        if name in {"turns", "change", "reviews", "blob", "log"} and self.fails:
            return self._fail
        return super().__getattribute__(name)

    async def _fail(self, *_: Any, **__: Any) -> Any:
        await asyncio.sleep(0)
        raise DiskFailedError(MESSAGE, path=Path("cache.sqlite3"))


def keys_of(scene: Scene) -> list[tuple[Any, Binding]]:
    """What the screen's keys and those of what has the focus do in a part, by node."""
    screen, body = scene.app.screen, scene.app.focused
    own = [(screen, binding) for binding in bindings_of(screen) if binding.action.startswith(OF_A_PART)]
    kinds = [kind for kind in type(body).__mro__ if kind.__module__.startswith("widgets.")]
    return own + [(body, each) for kind in kinds for each in Binding.make_bindings(vars(kind).get("BINDINGS", ()))]


async def test_a_part_that_cannot_be_read_says_so_and_no_key_ends_the_console(run_on_show: OnShow, disk: Disk) -> None:
    """Not that it is being read; entered again, it is read. Then whatever is read or kept fails, at every key."""
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
            await press_all(scene, results, disk, part)
            await scene.press(part)
            await scene.shows(words)


async def press_all(scene: Scene, results: FailingResults, disk: Disk, part: str) -> None:
    screen = scene.app.screen
    for node, binding in keys_of(scene):
        results.fails = disk.fails = True
        await scene.app.run_action(binding.action, node)
        await scene.pilot.pause()

        assert scene.app.is_running, f"{binding.key} of {part} ended the console"
        results.fails = disk.fails = False
        while scene.app.screen is not screen:
            scene.app.pop_screen()
        if binding.action.startswith(LEAVING):
            await scene.pilot.press(part)


async def test_a_mirror_that_cannot_be_kept_is_said(staged: Staged, tmp_path: Path) -> None:
    """As the reason why there is no change and no review."""
    (tmp_path / "repositories").write_text("a file where the mirrors' folder belongs")
    addresses = (RepositoryAddress("github:acme/*", str(tmp_path)), RepositoryAddress("gitlab:acme/*", str(tmp_path)))
    async with staged(changed={"repositories": addresses}) as scene:
        await scene.press("j", "j", "j", "enter")
        for key in ("r", "d"):
            await scene.press(key)
            await scene.shows("copy of the repository cannot be kept")
