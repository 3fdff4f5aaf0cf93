"""Installed programs: finds one with the files that it reads (npm and Python trees, too), and checks what agents need.

An agent is checked before it has a turn, so that no turn fails because this machine lacks something.
"""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from service.agents import inputs, invocation
from service.agents.options import Agent
from service.agents.presets import PRESETS, preset_for
from service.errors import ServiceError

_NODE_MODULES: Final = "node_modules"
_MAX_SHEBANG: Final = 512
_MAX_WRAPPERS: Final = 4
"""The longest chain of interpreters that are scripts themselves."""


class NoProgramError(ServiceError):
    """A program is missing; the text says how to install it."""


@dataclass(frozen=True, slots=True)
class Program:
    """An installed program with the files that it reads."""

    path: Path
    """The file to execute, with links resolved."""
    trees: tuple[Path, ...]
    """The paths that it reads, itself included."""
    search: tuple[Path, ...]
    """The folders of the interpreters that it finds by name."""


def find(name: str) -> Program:
    """Find a program, named by an absolute path or on the service's PATH.

    Raises:
        NoProgramError: It is not there.
    """
    path = shutil.which(name)
    if path is None:
        place = "" if "/" in name else " on the service's PATH"
        fix = "install it for the service's user, or correct its argv"
        raise NoProgramError(f"the program {name!r} is not there{place}, or may not be executed: {fix}")
    search: list[Path] = []
    trees = dict.fromkeys(_trees(Path(path), search))
    return Program(Path(path).resolve(), tuple(trees), tuple(dict.fromkeys(search)))


def _trees(path: Path, search: list[Path], depth: int = 0) -> Iterator[Path]:
    real = path.resolve()
    # A virtual environment's interpreter is a link: the link's own folder shows which environment it belongs to.
    roots = (path.parent.parent, real.parent.parent)
    environment = next((root for root in roots if (root / "pyvenv.cfg").is_file()), None)
    if environment is not None:
        yield environment.resolve()
        # Also the installation that the environment was created from.
        for line in (environment / "pyvenv.cfg").read_text("utf-8", "replace").splitlines():
            key, _, value = line.partition("=")
            if key.strip() == "home":
                folder = Path(value.strip())
                yield folder.parent
                # Its python may be a link into the installation proper, as uv and pyenv make them.
                yield (folder / "python3").resolve().parent.parent
    elif _NODE_MODULES in real.parts:
        # Packages are hoisted next to the one that needs them: the outermost folder holds all of them.
        yield Path(*real.parts[: real.parts.index(_NODE_MODULES) + 1])
    else:
        # A Python needs its library, which is next to its bin folder.
        yield real.parent.parent if real.name.startswith("python") else real
    words = _shebang(real)
    interpreter = next(iter(words), None)
    if interpreter is not None and Path(interpreter).name == "env":
        script = next((word for word in words[1:] if not word.startswith("-") and "=" not in word), "")
        interpreter = shutil.which(script)
        if interpreter is None:
            raise NoProgramError(f"{real} needs {script!r}, which is not there: install it for the service's user")
        search.append(Path(interpreter).parent)
    if interpreter is not None and depth < _MAX_WRAPPERS:
        yield from _trees(Path(interpreter), search, depth + 1)


def _shebang(file: Path) -> list[str]:
    """Return the words of a script's first line, its interpreter first; empty: it is no script, or not readable."""
    try:
        with file.open("rb") as opened:
            line = opened.read(_MAX_SHEBANG).partition(b"\n")[0]
    except OSError:
        return []
    return os.fsdecode(line[2:]).split() if line.startswith(b"#!") else []


_KEPT: Final = ("--pure", "--print-logs", "--log-level", "--with-builtin")
"""The options of `opencode acp` and `goose acp`. These presets once ran another command, which had others."""


def contradictions(agent: Agent) -> Iterator[str]:
    """Yield contradictions in the configuration, whatever machine the agent runs on, each with its fix."""
    argv, options = agent.argv, agent.options
    if not argv and options.preset in {None, "acp"}:
        other = ", or preset, a program that the service knows" if options.preset is None else ""
        yield f"it needs argv, the command{other}"
    yield from invocation.misplaced_placeholders(argv)
    yield from inputs.misplaced_fields(options.prompt or "", options.inputs)
    preset = invocation.preset_of(agent)
    own = [word.partition("=")[0] for word in argv[1:] if word.startswith("-")]
    unknown = next((word for word in own if word not in _KEPT), None)
    if unknown and options.preset in {"opencode", "goose"}:
        yield f"argv: the preset runs `{preset.program} acp`, which has no {unknown}: leave it out"
    if options.model is not None and options.model.provider not in preset.models:
        yield f"preset {options.preset} speaks with the provider {' or '.join(preset.models)} only"
    if options.model is None and preset.keys and not {*preset.keys} & {*agent.environment}:
        first = next(iter(preset.models))
        yield (
            f'it needs a key: model = {{ provider = "{first}", key_env = "{preset.keys[0]}" }}, or, if it may '
            f'hold the key itself, environment = ["{preset.keys[0]}"] and its hosts in egress'
        )
    if agent.network and (options.egress is not None or options.model is not None):
        yield "network = true lets it reach everything: remove it, or remove egress and model"


def missing(agent: Agent, data: Path) -> Iterator[str]:
    """Yield the missing requirements of this machine, each with its fix. `data`: the service's folder."""
    try:
        if (name := program_name(agent)) is not None:
            find(name)
    except NoProgramError as error:
        yield str(error)
    model = agent.options.model
    if model is not None and model.key_command and shutil.which(model.key_command[0]) is None:
        yield f"key_command: {model.key_command[0]!r} is not there: install it for the service's user"
    for variable in agent.secret_names:
        if not os.environ.get(variable):
            yield f"the variable {variable} is not set: set it for the service, and here"
    for path in map(Path, agent.options.readable):
        if not path.exists():
            yield f"readable: {path} is not there"
        elif data.resolve().is_relative_to(path.resolve()) or path.resolve().is_relative_to(data.resolve()):
            yield f"readable: {path} would show the agent the service's own data; name other folders"


def missing_key(agent: Agent) -> str | None:
    """Return the problem and fix if the key of the agent's model is missing; None if it is set or not needed."""
    options = agent.options
    needed = preset_for(options.preset, ()).keys
    allowed = tuple(name for name in needed if name in agent.environment)
    if options.model is not None:
        needed = allowed = () if options.model.key_env is None else (options.model.key_env,)
    if not needed or any(os.environ.get(name) for name in allowed):
        return None
    return f"there is no key: set {' or '.join(allowed) or 'model'} in the environment of the service"


_WITH_SERVERS: Final = ", ".join(name for name, preset in PRESETS.items() if preset.servers)
TAKES_NONE: Final = f"only agents with the preset {_WITH_SERVERS} or acp take them"


def hears(agent: Agent) -> bool:
    """Whether an agent's program takes messages while it works; not if the operator's script around it reads them."""
    preset, name = invocation.preset_of(agent), program_name(agent)
    if preset.hears is None or not preset.hears_argv:
        return preset.hears is not None
    try:
        path = None if name is None else find(name).path
        # A script that is not from npm is the operator's, and may read its input to the end.
        return path is not None and (_NODE_MODULES in path.parts or not _shebang(path))
    except NoProgramError:
        # Other machines may have the program installed, since it has a preset.
        return True


def program_name(agent: Agent) -> str | None:
    """Return the program's name or path; None: it is the service's Python, or a file of the checkout."""
    name = agent.argv[0] if agent.argv else invocation.preset_of(agent).program
    if name == "{python}" or ("/" in name and not name.startswith("/")):
        return None
    return name
