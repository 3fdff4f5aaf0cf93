"""`python -m app.demo.live FOLDER [AGENT]`: simulates the demo's team until standard input closes.

The first line on standard input is the lab's token; AGENT is the user's own agent, which gets one run.
"""

import asyncio
import random
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from app.api.requests import StartAgent, StartRun
from app.demo import ask_lab, execute
from app.demo.world import PROFILE, REPOSITORIES, tasks
from app.profiles import load
from storage.records import Repository

if TYPE_CHECKING:
    from app.engine.engine import Engine

HEAD_START_S: Final = 1.5
"""How long to leave the processor to the console before importing modules."""
PAUSE_S: Final = (5.0, 20.0)
MAX_ACTIVE_RUNS: Final = 6
"""The team starts no more runs while more than this number are active."""
OUTAGE_S: Final = (40.0, 70.0)
BETWEEN_OUTAGES_S: Final = (200.0, 400.0)
FIRST_OUTAGE_S: Final = 75.0
PROBED_REPOSITORY: Final = "platform/tools"
"""The repository that the health probe of the demo's GitLab reads: hiding it makes the host unreachable."""
TASKS: Final = {
    "reviewer": ("Review this branch.", "Is this ready to merge?", "Which tests are missing?"),
    "security-review": ("Look for secrets and injection.", "Can anything here leak data?"),
    "housekeeping": ("Review the style of the whole repository.", "What can be simplified?"),
}
BRANCHES: Final = {
    "acme/api": (None, "fix/login-timeout"),
    "acme/web": (None, "agent/dark-mode"),
    "acme/pipeline": (None, "feature/retries"),
}


async def _work(folder: Path, lab_token: str, own_agent: str) -> None:
    from app.automations.bot import Bot, reload_on_hangup
    from app.engine.engine import Engine

    settings = load(folder / "config.toml", {})
    team = load(folder / "team.toml", {})
    bots = list[Bot]()
    reload_on_hangup(lambda: load(folder / "config.toml", {}), bots, lambda *_, **__: None)
    async with (
        await Engine.open(settings, settings.profile(PROFILE), actor="demo") as own,
        await Engine.open(team, team.profile(), actor="team") as others,
    ):
        bots.append(bot := await Bot.open(settings, settings.profile(PROFILE), lambda *_, **__: None))
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(bot.run())
                tasks.create_task(_break_host(folder))
                if lab_token:
                    # A write whose answer is lost, for the user to resolve.
                    fault = {"operation": "start_run", "kind": "lose_answer"}
                    await asyncio.to_thread(ask_lab, own.profile.base_url, lab_token, "/faults", fault)
                    await own.actions.submit(StartRun("Bring the changelog up to date.", Repository.parse("acme/web")))
                    await execute(own, own_agent)
                tasks.create_task(_keep_starting(others))
        finally:
            await bot.close()


async def _keep_starting(engine: "Engine") -> None:
    rng, fixes = random.Random(), tasks()
    samples = {repository.name: repository.sample for repository in REPOSITORIES}
    while True:
        await engine.refresh()
        if len(await engine.cache.active_runs()) > MAX_ACTIVE_RUNS:
            await asyncio.sleep(PAUSE_S[0])
            continue
        name = rng.choices(("acme/api", "acme/web", "acme/pipeline", "gitlab:platform/tools"), (5, 3, 4, 2))[0]
        agent = rng.choices(("reviewer", "fixer", "security-review", "housekeeping"), (3, 5, 1, 1))[0]
        path = name.removeprefix("gitlab:")
        task = rng.choice(TASKS.get(agent) or fixes[samples[path]])
        if agent == "reviewer":
            await engine.actions.submit(StartRun(task, Repository.parse(name), rng.choice(BRANCHES.get(name, (None,)))))
        else:
            await engine.actions.submit(StartAgent(agent, path, inputs={"instructions": task}))
        await asyncio.sleep(rng.uniform(*PAUSE_S))


async def _break_host(folder: Path) -> None:
    """Repeatedly hide and restore the repository that a code host's health probe reads."""
    rng = random.Random()
    repository = folder / "repositories" / "gitlab" / f"{PROBED_REPOSITORY}.git"
    hidden = repository.with_suffix(".away")
    if hidden.exists():  # The demo was killed.
        hidden.rename(repository)
    await asyncio.sleep(FIRST_OUTAGE_S)
    while True:
        repository.rename(hidden)
        try:
            await asyncio.sleep(rng.uniform(*OUTAGE_S))
        finally:
            with suppress(OSError):  # The demo and its folder are gone.
                hidden.rename(repository)
        await asyncio.sleep(rng.uniform(*BETWEEN_OUTAGES_S))


async def main(folder: Path, lab_token: str, own_agent: str = "") -> None:
    """Work until standard input closes; without a lab token, the first runs were executed before."""
    loop = asyncio.get_running_loop()
    work = asyncio.create_task(_work(folder, lab_token, own_agent))

    def wait_for_end() -> None:
        sys.stdin.read()
        with suppress(RuntimeError):  # The loop is closed already.
            loop.call_soon_threadsafe(work.cancel)

    threading.Thread(target=wait_for_end, name="stdin", daemon=True).start()
    with suppress(asyncio.CancelledError):
        await work


if __name__ == "__main__":
    token = sys.stdin.readline().strip()
    time.sleep(HEAD_START_S)
    asyncio.run(main(Path(sys.argv[1]), token, *sys.argv[2:]))
