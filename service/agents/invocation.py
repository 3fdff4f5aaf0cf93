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
_LONGEST_BYTES: Final = 100_000
"""Linux accepts up to 128 KiB in one argument."""
PROXY_PORT: Final = 3128
MODEL_PORT: Final = 3129
_PROXY_URL: Final = f"http://127.0.0.1:{PROXY_PORT}"
_PROXY: Final = {
    # Some programs know only one of these, or only one case.
    **dict.fromkeys(("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"), _PROXY_URL),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost"),
    "NODE_USE_ENV_PROXY": "1",
}
_TOKEN: Final = "runwarden-worth-nothing-elsewhere"  # noqa: S105 — as it says


class PlaceholderError(ServiceError):
    """A placeholder cannot be filled in; the text says how to fix that."""


def misplaced(argv: Sequence[str]) -> Iterator[str]:
    """Yield a fault for each placeholder whose value would be the program, or only a part of an argument."""
    for at, word in enumerate(argv):
        found = _ANY.search(word)
        if found and (at == 0 or not _SAFE.fullmatch(word)):
            yield f"argv: {word!r}: {found[0]} has to be a whole argument, or follow --name= directly"


def fill(argv: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """Return a command with the values in place of the placeholders.

    Raises:
        PlaceholderError: A value is too long for an argument.
    """
    words = []
    for word in argv:
        if (found := _SAFE.fullmatch(word)) is None:
            words.append(word)
            continue
        value = values[found[2]].replace("\0", "")
        if len(value.encode("utf-8", "surrogateescape")) > _LONGEST_BYTES:
            raise PlaceholderError(f"the {found[2]} are too long for an argument; use {{{found[2]}_file}} in its argv")
        # A program would read a leading dash as an option; a leading space prevents that, with the same meaning.
        words.append(f"{found[1]}{value}" if found[1] else f" {value}" if value.startswith("-") else value)
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
    if agent.options.preset is None:
        return PLAIN
    preset = preset_for(agent.options.preset, agent.argv)
    if agent.options.trust_repository:
        # The program itself reads the guidance of such a repository.
        return replace(preset, untrusted=(), untrusted_environment={}, hidden=(), guidance=())
    return preset


def is_relayed(agent: Agent) -> bool:
    """Whether an agent reaches the outside through the relay."""
    options = agent.options
    return not agent.network and any(one is not None for one in (options.preset, options.egress, options.model))


def reads_document(agent: Agent) -> bool:
    """Whether an agent reads the contract's document, and with it the inputs."""
    words = {found[2] for found in map(_SAFE.fullmatch, agent.argv) if found}
    return agent.options.preset is None and not words & {"instructions", "instructions_file"}


def of(
    agent: Agent,
    program: str,
    home: str,
    guidance: str,
    session: str | None,
    setup: RepositorySetup,
    *,
    is_wrapped: bool = False,
) -> CommandTemplate:
    """Return the agent's invocation; `session` names the session of an earlier turn of the run, if there is one.

    `program` is the path of its program, and `guidance` that of the repository's text for the model, or of an empty
    file; `setup` is the repository's.
    A program that is wrapped in the operator's script gets its instructions as text, and no messages.
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
    variables = {**preset.environment, **model.environment, **preset.untrusted_environment}
    environment = {**proxied, **{name: _replace(value, values) for name, value in variables.items()}}
    if preset is PLAIN:
        return CommandTemplate((program, *agent.argv[1:]), environment)
    name = model.name if options.model is not None and options.model.name else ()
    is_text = is_wrapped and bool(preset.hears_argv)
    resume = () if session is None else preset.resume
    server_argv: tuple[str, ...] = ()
    server_variables: Mapping[str, str] = {}
    if setup.mcp_servers and preset.servers is not None:
        names = (*setup.variables, *agent.environment, *proxied)
        server_argv, server_variables = preset.servers(setup.mcp_servers, names)
    # For some programs, resuming is a subcommand, which follows the options.
    given = (*preset.untrusted, *model.argv, *name, *agent.argv[1:], *resume)
    return CommandTemplate(
        words=(
            *(_replace(word, values) for word in preset.before),
            program,
            *(_replace(word, values) for word in preset.argv),
            *(() if is_text else preset.hears_argv),
            *server_argv,
            *(_replace(word, values) for word in given),
        ),
        environment={**environment, **server_variables},
        reader=OutcomeReader(preset.listener, preset.of_line, must_end=True),
        preset=replace(preset, hears=None) if is_text else preset,
    )


def _replace(text: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(name, value)
    return text
