"""A month of runs in the cache, of repositories with any name."""

from datetime import timedelta

from storage.records import Repository, Run
from tests.console.conftest import Scene

STATUSES = ("completed",) * 8 + ("failed",)


NAMES = (
    "acme/api",
    "acme/web",
    "gitlab:acme/tools",
    "acme/a-repository-with-a-very-long-name-indeed",
    "[/b]\x1b[2J/\u202eevil",
)


async def a_month(scene: Scene) -> None:
    """Runs of 40 days, three a day and more on some."""
    runs = []
    for number in range(240):
        created = scene.clock() - timedelta(hours=4.03 * number)
        took = timedelta(minutes=1 + number * 37 % 50)
        name = NAMES[number * 7 % 5]
        platform, _, path = name.rpartition(":")
        owner, _, repo = path.partition("/")
        data: dict[str, object] = {"project_path": path} if platform else {"owner": owner, "repo": repo}
        repository = Repository.of(platform or "github", data)
        status = STATUSES[number % 9]
        runs.append(Run(f"run_{number:05}", status, "main", repository, created, created + took, "{}"))
    await scene.engine.cache.store_runs(runs, seen_at=scene.clock())
    await scene.engine.cache.extend_coverage(runs[-1].created_at, scene.clock())


async def show(scene: Scene, *keys: str) -> None:
    """The room with a month in it."""
    await a_month(scene)
    for key in ("4", *keys):
        # One by one: what a key may do depends on figures that are read in the background.
        await scene.press(key)
