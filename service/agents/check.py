"""Checks an agent's requirements on this machine, so that a turn does not fail for lack of one."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from service.agents import layouts
from service.agents.inputs import misplaced
from service.agents.invocation import PlaceholderError, check_placeholders, preset_of
from service.agents.layouts import NoProgramError
from service.agents.options import AgentOptions
from service.agents.presets import PRESETS, preset_for
from service.store.agents import Agent

_KEPT: Final = ("--pure", "--print-logs", "--log-level", "--with-builtin")
"""The options of `opencode acp` and `goose acp`. These presets once ran another command, which had others."""


def contradictions(
    argv: tuple[str, ...], options: AgentOptions, environment: tuple[str, ...], *, network: bool
) -> Iterator[str]:
    """Yield contradictions in the configuration, whatever machine the agent runs on, each with its fix."""
    if not argv and options.preset in {None, "acp"}:
        other = ", or preset, a program that the service knows" if options.preset is None else ""
        yield f"it needs argv, the command{other}"
    try:
        check_placeholders(argv)
    except PlaceholderError as error:
        yield str(error)
    yield from misplaced(options.prompt or "", options.inputs)
    if options.preset is not None:
        preset = preset_for(options.preset, argv)
        given = [word.partition("=")[0] for word in argv[1:] if word.startswith("-")]
        wrong = [word for word in given if word not in _KEPT and options.preset in {"opencode", "goose"}]
        if wrong:
            yield f"argv: the preset runs `{preset.program} acp`, which has no {wrong[0]}: leave it out"
        if options.model is not None and options.model.provider not in preset.models:
            yield f"preset {options.preset} speaks with the provider {' or '.join(preset.models)} only"
        if options.model is None and preset.keys and not {*preset.keys} & {*environment}:
            first = next(iter(preset.models))
            yield (
                f'it needs a key: model = {{ provider = "{first}", key_env = "{preset.keys[0]}" }}, or, if it may '
                f'hold the key itself, environment = ["{preset.keys[0]}"] and its hosts in egress'
            )
    if network and (options.egress is not None or options.model is not None):
        yield "network = true lets it reach everything: remove it, or remove egress and model"


def missing(argv: tuple[str, ...], options: AgentOptions, environment: tuple[str, ...], data: Path) -> Iterator[str]:
    """Yield the missing requirements of this machine, each with its fix. `data`: the service's folder."""
    try:
        name = program_name(argv, options)
        if name is not None:
            layouts.find(name)
    except NoProgramError as error:
        yield str(error)
    model = options.model
    keys = () if model is None or model.key_env is None else (model.key_env,)
    if model is not None and model.key_command and shutil.which(model.key_command[0]) is None:
        yield f"key_command: {model.key_command[0]!r} is not there: install it for the service's user"
    for variable in (*environment, *keys):
        if not os.environ.get(variable):
            yield f"the variable {variable} is not set: set it for the service, and here"
    for path in map(Path, options.readable):
        if not path.exists():
            yield f"readable: {path} is not there"
        elif data.resolve().is_relative_to(path.resolve()) or path.resolve().is_relative_to(data.resolve()):
            yield f"readable: {path} would show the agent the service's own data; name other folders"


def missing_keys(options: AgentOptions, environment: tuple[str, ...]) -> list[str]:
    """Return the missing keys of the agent's model, each with its fix."""
    if options.model is not None:
        key = options.model.key_env
        has_key = key is None or os.environ.get(key)
        return [] if has_key else [f"there is no key: set {key} in the environment of the service"]
    keys = () if options.preset is None else preset_for(options.preset, ()).keys
    given = [name for name in keys if name in environment]
    if not keys or any(os.environ.get(name) for name in given):
        return []
    return [f"there is no key: set {' or '.join(given) or 'model'} in the environment of the service"]


_TAKING: Final = ", ".join(name for name, one in PRESETS.items() if one.servers)
TAKES_NONE: Final = f"only agents with the preset {_TAKING} or acp take them"


def takes_servers(options: AgentOptions) -> bool:
    """Whether an agent's program takes the repository's MCP servers."""
    return options.preset is not None and preset_for(options.preset, ()).servers is not None


def hears(agent: Agent) -> bool:
    """Whether an agent's program takes messages while it works; not if the operator's script around it reads them."""
    preset, name = preset_of(agent), program_name(agent.argv, agent.options)
    if preset.hears is None or not preset.hears_argv:
        return preset.hears is not None
    try:
        return name is not None and not layouts.find(name).is_wrapper
    except NoProgramError:
        # It may be installed on other machines, as its preset knows it.
        return True


def program_name(argv: tuple[str, ...], options: AgentOptions) -> str | None:
    """Return the program's name or path; None: it is the service's Python, or a file of the checkout."""
    name = argv[0] if argv else preset_for(options.preset, argv).program if options.preset else ""
    return None if name == "{python}" or ("/" in name and not name.startswith("/")) else name
