"""The rooms of the program: who may import whom, by a file's room and by its name."""

import ast
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
KIT = {"forms", "frame", "kit"}
EVERYWHERE = {"api", "engine", "profiles", "start", "version"}
MEETS = {
    "actions": {"results", "sync"},
    "automations": {"actions", "health", "notify", "runs"},
    "demo": {"automations"},
    "engine": {"actions", "results", "runs", "sync"},
    "inbox": {"actions", "automations", "health", "notify", "runs"},
    "notify": {"health"},
    "organizations": {"actions"},
    "profiles": {"automations", "runs"},
    "runs": {"results"},
    "__main__": {"cli", "console"},
}
"""The rooms that another room may import. All others meet through the engine or through messages."""
OPENS = {"app.cli.command_console", "app.cli.main", "app.profiles.command"}
"""The commands that may import the console, since they open it or check its keys and themes."""
HTTP = {"app.api.client", "app.api.transport", "app.api.wire"}
BREACHES = {
    ("app/runs/query.py", "import textual"): "only screens and widgets import Textual",
    ("app/runs/query.py", "import click"): "only commands import click",
    ("app/profiles/screen_onboarding.py", "from app.api.client import Client"): "screens make no HTTP calls",
    ("app/organizations/screen.py", "from app.api.wire import organization"): "screens make no HTTP calls",
    ("app/console/session.py", "import httpx"): "screens make no HTTP calls",
    ("app/actions/screen_start.py", "names = lambda engine: engine.client.agents()"): "screens make no HTTP calls",
    ("app/runs/query.py", "import widgets.runs.table"): "only screens show widgets",
    ("widgets/kit/cells.py", "import widgets.runs.table"): "the kit knows no room",
    ("app/sync/walk.py", "import app.runs.screen"): "only screens know screens",
    ("app/runs/screen.py", "import app.runs.command"): "only commands know commands",
    ("app/sync/walk.py", "import app.notify.plan"): "sync does not meet notify",
}
"""A file and a line that it must not have, and the rule that the line breaks."""


def kind_of(module: str) -> str:
    """A file's kind by its name: `screen`, `command`, `facts` or `work`; everything in `widgets` is `widget`."""
    package, _, rest = module.partition(".")
    room, _, name = rest.partition(".")
    if package == "widgets":
        return "widget"
    if room in {"console", "cli", "mcp"}:
        return "screen" if room == "console" else "command"
    return next((kind for kind in ("screen", "command", "facts") if name.startswith(kind)), "work")


def breaches(module: str, imported: str) -> str | None:
    package, room, *_ = [*imported.split("."), ""]
    kind, own = kind_of(module), module.split(".")[1] if "." in module else ""
    if package == "textual" and kind not in {"screen", "widget"}:
        return "only screens and widgets import Textual"
    if package == "click" and kind != "command":
        return "only commands import click"
    if kind == "screen" and (package == "httpx" or imported in HTTP):
        return "screens make no HTTP calls"
    if package == "widgets":
        if kind not in {"screen", "widget"}:
            return "only screens show widgets"
        if kind == "widget" and own in KIT and room not in KIT:
            return "the kit knows no room"
    if package != "app" or own == "__main__":
        return None
    other = kind_of(imported)
    if other == "screen" and kind != "screen" and module not in OPENS:
        return "only screens know screens"
    if other == "command" and kind != "command":
        return "only commands know commands"
    if kind in {"work", "facts"} and room not in MEETS.get(own, set()) | EVERYWHERE | {own}:
        return f"{own} does not meet {room}"
    return None


def test_every_import_stays_within_its_room() -> None:
    """A file's name says what it may import, and its room says which rooms it meets."""
    assert len(imports_of(ROOT)) > 200
    assert broken_rules(ROOT) == set()


def test_each_planted_breach_is_reported(tmp_path: Path) -> None:
    """Each rule finds what breaks it, also a screen that uses an engine's own client without importing it."""
    for number, ((file, line), rule) in enumerate(BREACHES.items()):
        root = tmp_path / str(number)
        (root / file).parent.mkdir(parents=True)
        (root / file).write_text(line)
        module = file.removesuffix(".py").replace("/", ".")

        assert broken_rules(root) == {f"{module}: {rule}"}, line


def test_no_two_files_import_each_other() -> None:
    """No chain of imports leads back to its file; imports inside functions and for type checks count as well."""
    TopologicalSorter(imports_of(ROOT)).prepare()


def broken_rules(root: Path) -> set[str]:
    pairs = [(module, name) for module, names in imports_of(root).items() for name in names]
    return {f"{module}: {rule}" for module, name in pairs if (rule := breaches(module, name))}


@cache
def imports_of(root: Path) -> dict[str, set[str]]:
    """The modules that each file of `app` and `widgets` imports, anywhere in it; using an engine's client counts."""
    files = [file.relative_to(root) for name in ("app", "widgets") for file in (root / name).rglob("*.py")]
    files = [file for file in files if "samples" not in file.parts]
    names = {".".join(file.with_suffix("").parts).removesuffix(".__init__"): file for file in files}
    graph: dict[str, set[str]] = {}
    for module, file in names.items():
        tree = ast.parse((root / file).read_text(encoding="utf-8"))
        found = graph.setdefault(module, set())
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                whole = {f"{node.module}.{each.name}" for each in node.names}
                found |= (whole & names.keys()) or {node.module}
            elif isinstance(node, ast.Import):
                found |= {each.name for each in node.names}
            elif isinstance(node, ast.Attribute) and node.attr == "client" and kind_of(module) == "screen":
                found.add("app.api.client")
    return graph
