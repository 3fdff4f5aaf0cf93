"""The invocation of an agent's program for one turn, made from its configuration and its preset."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from service.agents.options import Agent, RepositorySetup
from service.agents.outcome import OutcomeReader
from service.agents.presets import PLAIN, ModelWords, Preset, preset_for
from service.errors import ServiceError

_NAMES: Final = ("instructions", "instructions_file", "conversation_file", "run_id", "branch")
_ANY: Final = re.compile(r"\{(" + "|".join(_NAMES) + r")\}")
_SAFE: Final = re.compile(r"(--[A-Za-z0-9][\w.-]*=)?" + _ANY.pattern)
_MAX_BYTES: Final = 100_000
"""Linux accepts up to 128 KiB in one argument."""
PROXY_PORT: Final = 3128
MODEL_PORT: Final = 3129
_PROXY_URL: Final = f"http://127.0.0.1:{PROXY_PORT}"
_PROXY: Final = {
    # Some programs read only one of these variables, or only one case.
    **dict.fromkeys(("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"), _PROXY_URL),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost"),
    "NODE_USE_ENV_PROXY": "1",
}
_TOKEN: Final = "runwarden-worth-nothing-elsewhere"  # noqa: S105 — a dummy that only the model proxy accepts


class PlaceholderError(ServiceError):
    """A placeholder cannot be filled in; the text says how to fix that."""


def misplaced_placeholders(argv: Sequence[str]) -> Iterator[str]:
    """Yield a fault for each placeholder whose value would be the program, or only a part of an argument."""
    for at, word in enumerate(argv):
        match = _ANY.search(word)
        if match and (at == 0 or not _SAFE.fullmatch(word)):
            yield f"argv: {word!r}: {match[0]} has to be a whole argument, or follow --name= directly"


def fill(argv: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """Return a command with the values in place of the placeholders.

    Raises:
        PlaceholderError: A value is too long for an argument.
    """
    words = []
    for word in argv:
        if (match := _SAFE.fullmatch(word)) is None:
            words.append(word)
            continue
        option, name = match.groups()
        value = values[name].replace("\0", "")
        if len(value.encode("utf-8", "surrogateescape")) > _MAX_BYTES:
            raise PlaceholderError(f"the {name} are too long for an argument; use {{{name}_file}} in its argv")
        # A program would read a leading dash as an option; a leading space prevents that, with the same meaning.
        if option:
            value = f"{option}{value}"
        elif value.startswith("-"):
            value = f" {value}"
        words.append(value)
    return words


@dataclass(frozen=True, slots=True)
class CommandTemplate:
    """A command whose placeholders are not filled in yet, with its environment."""

    words: tuple[str, ...]
    environment: Mapping[str, str]
    reader: OutcomeReader = field(default_factory=OutcomeReader)
    """The reader of its output; without a preset, only the exit status says how the agent ended."""
    preset: Preset = PLAIN


def preset_of(agent: Agent) -> Preset:
    """Return an agent's preset, `PLAIN` if it has none; without its guards if the agent trusts the repository."""
    preset = preset_for(agent.options.preset, agent.argv)
    if agent.options.trust_repository:
        # In a trusted repository, the program itself reads the guidance.
        return replace(preset, untrusted=(), untrusted_environment={}, hidden=(), guidance=())
    return preset


def is_relayed(agent: Agent) -> bool:
    options = agent.options
    return not agent.network and (options.preset, options.egress, options.model) != (None, None, None)


def reads_document(agent: Agent) -> bool:
    """Whether an agent reads the contract's document, and with it the inputs."""
    names = {match[2] for match in map(_SAFE.fullmatch, agent.argv) if match}
    return agent.options.preset is None and not names & {"instructions", "instructions_file"}


def of(
    agent: Agent,
    program: str,
    home: str,
    guidance: str,
    session: str | None,
    setup: RepositorySetup,
    *,
    hears: bool = True,
) -> CommandTemplate:
    """Return the agent's invocation; `session` names the session of an earlier turn of the run, if there is one.

    `program` is the path of its program, and `guidance` that of the repository's text for the model, or of an empty
    file; `setup` is the repository's. If it does not hear messages, it gets its instructions as text.
    """
    preset, options = preset_of(agent), agent.options
    proxied = _PROXY if is_relayed(agent) else {}
    model = ModelWords() if options.model is None else preset.models[options.model.provider]
    values = {
        "{url}": f"http://127.0.0.1:{MODEL_PORT}",
        "{token}": _TOKEN,
        "{model}": (options.model and options.model.name) or "",
        "{home}": home,
        "{guidance}": guidance,
        "{session}": session or "",
    }

    def fill(*words: str) -> tuple[str, ...]:
        for name, value in values.items():
            words = tuple(word.replace(name, value) for word in words)
        return words

    variables = {**preset.environment, **model.environment, **preset.untrusted_environment}
    environment = proxied | dict(zip(variables, fill(*variables.values()), strict=True))
    if options.preset is None:
        return CommandTemplate((program, *agent.argv[1:]), environment)
    name = model.name if options.model is not None and options.model.name else ()
    resume = () if session is None else preset.resume
    hears_argv = preset.hears_argv if hears else ()
    if setup.mcp_servers and preset.servers is not None:
        names = (*setup.variables, *agent.environment, *proxied)
        server_argv, server_variables = preset.servers(setup.mcp_servers, names)
    else:
        server_argv, server_variables = (), {}
    # In some programs, resuming is a subcommand, which follows the options.
    last = fill(*preset.untrusted, *model.argv, *name, *agent.argv[1:], *resume)
    return CommandTemplate(
        words=(*fill(*preset.before), program, *fill(*preset.argv), *hears_argv, *server_argv, *last),
        environment={**environment, **server_variables},
        reader=OutcomeReader(preset.listener, preset.of_line),
        preset=preset if hears else replace(preset, hears=None),
    )
