"""What leaves the screen: by the chosen ways, once, and never silently not at all."""

import sys
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from app.config import NotifySettings
from app.console.follow.follow import Follow, Ways
from app.notify.notifications import Notification
from tests.console.conftest import Scene, Staged
from tests.console.follow.conftest import Mover

WRITE_TITLE = "import sys; open(sys.argv[1], 'a').write(sys.argv[2] + '\\n')"


@dataclass
class Person:
    """Whom a console tells, besides its own screen."""

    scene: Scene
    titles: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    rings: int = 0

    def follow(self, **notify: Any) -> Follow:
        """Another console of the same profile, with these settings."""
        settings = replace(self.scene.engine.settings, notify=NotifySettings(**notify))
        follow = Follow.on(replace(self.scene.engine, settings=settings), self._ways())
        self.scene.engine.subscribe(follow.rang)
        follow.look()
        return follow

    def _ways(self) -> Ways:
        def start(work: Coroutine[None, None, None]) -> object:
            return self.scene.app.run_worker(work)

        def tell(news: Notification) -> None:
            self.titles.append(news.title)

        def ring() -> None:
            self.rings += 1

        return Ways(
            start=start, show=lambda _: None, tell=tell, say=self.said.append, ring_bell=ring, write=lambda _: None,
            failed=self.said.append,
        )  # fmt: skip


def told(file: Path) -> list[str]:
    """What the command was given."""
    return file.read_text().splitlines()


async def test_a_command_is_run_once_for_all_consoles(staged: Staged, move: Mover, tmp_path: Path) -> None:
    """Three consoles show the failure; one of them runs the command, and no later one does again."""
    command = (sys.executable, "-c", WRITE_TITLE, str(tmp_path / "told"), "{title}")
    async with staged() as scene:
        people = [Person(scene), Person(scene)]
        for person in people:
            person.follow(on=("failed",), bell=False, command=command)
        # The staged console itself rings its bell, and must not win what these two are after.
        assert scene.app.follow is not None
        scene.app.follow._watch.notify = NotifySettings(on=())
        await scene.settle()
        await move(scene, "run_go3", "failed")
        await scene.settle()
        late = Person(scene)
        late.follow(on=("failed",), command=command)
        await scene.settle()

    assert [person.titles for person in people] == [["Run failed after 9m30s: acme/solo"]] * 2
    assert late.titles == []
    assert told(tmp_path / "told") == ["Run failed after 9m30s: acme/solo"]


async def test_a_command_that_fails_is_said_once(staged: Staged, move: Mover) -> None:
    """With what went wrong and where to correct it; the second failure says nothing new."""
    async with staged() as scene:
        assert scene.app.follow is not None
        scene.app.follow._watch.notify = NotifySettings(on=())
        person = Person(scene)
        person.follow(on=("failed",), command=("/nowhere/tell", "{title}"))
        await scene.settle()
        for run_id in ("run_go2", "run_go3"):
            await move(scene, run_id, "failed")
            await scene.settle()

    assert person.rings == 2
    (said,) = person.said
    assert said.startswith("A notification was not delivered. /nowhere/tell cannot be run")
    assert "Correct notify.command" in said


async def test_a_cache_that_cannot_be_read_is_said(staged: Staged) -> None:
    """As every failure of our own files is."""
    async with staged() as scene:
        person = Person(scene)
        await scene.engine.cache.close()
        person.follow()
        await scene.settle()

    assert len(person.said) == 1
    assert "was closed" in person.said[0]


async def test_sync_flags_what_is_stuck_and_rings(staged: Staged) -> None:
    """Nobody has to ask: the poll that shows it still active flags it, and the table says so."""
    async with staged() as scene:
        scene.clock.move(minutes=40)
        await scene.sync()

        assert "run_go0" in await scene.engine.cache.stuck()
        assert "working !" in scene.rows[0]
