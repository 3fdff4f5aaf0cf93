"""The programs that the service knows how to call, each as one entry of data.

docs/dev/service-internals.md shows how to write one.

In argv, environment and settings, `{url}` is the model proxy, `{token}` a key that is worth nothing elsewhere,
`{model}` the model's name, `{home}` the home folder, `{guidance}` the file of that name below, and `{session}` the
session of an earlier turn of the run.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any, Final

from service.agents import outcome
from service.agents.options import AgentOptions, McpServer, PresetName
from service.agents.outcome import AgentReport, Listener

Servers = Mapping[str, McpServer]
SERVERS: Final = "RUNWARDEN_MCP_SERVERS"
MODEL: Final = "RUNWARDEN_MODEL"
"""The variables in which `acp_client.py` finds them, and the model's name."""
ServerWords = tuple[tuple[str, ...], Mapping[str, str]]
"""One program's configuration for a repository's MCP servers: arguments and variables.

The variables that the servers need are passed on by name, so that no value is in an argument or a file.
"""


def _claude_servers(servers: Servers, names: Sequence[str]) -> ServerWords:
    environment = {name: f"${{{name}}}" for name in names}
    written = {
        name: _server(server, {"type": "http"} if server.url else {"type": "stdio", "env": environment})
        for name, server in servers.items()
    }
    return ("--mcp-config", json.dumps({"mcpServers": written})), {}


def _codex_servers(servers: Servers, names: Sequence[str]) -> ServerWords:
    words: list[str] = []
    for name, server in servers.items():
        for key, value in _server(server, {} if server.url else {"env_vars": names}).items():
            # JSON strings and lists are also valid TOML.
            words += ("-c", f"mcp_servers.{name}.{key}={json.dumps(value, ensure_ascii=False)}")
    return tuple(words), {}


def _acp_servers(servers: Servers, names: Sequence[str]) -> ServerWords:
    written = {name: _server(server, {"variables": names}) for name, server in servers.items()}
    return (), {SERVERS: json.dumps(written)}


def _server(server: McpServer, more: Mapping[str, object]) -> dict[str, Any]:
    if server.url:
        return {**more, "url": server.url}
    return {**more, "command": server.command[0], "args": server.command[1:]}


_CODEX_MODEL: Final = "model_providers.runwarden"
_SMALL: Final = ("claude-haiku-*", "gpt-*-mini", "gpt-*-nano", "gemini-*-flash*")
_OPENCODE: Final[dict[str, object]] = {
    "autoupdate": False,
    "share": "disabled",
    "permission": "allow",
    # Otherwise the program chooses the model itself.
    "agent": {"title": {"disable": True}},
    "instructions": ["{guidance}"],
}


@dataclass(frozen=True, slots=True)
class ModelWords:
    """How a program is configured for one provider's model."""

    environment: Mapping[str, str] = field(default_factory=dict)
    argv: tuple[str, ...] = ()
    name: tuple[str, ...] = ()
    """Arguments that choose the model; left out if no name is configured."""


@dataclass(frozen=True, slots=True)
class Preset:
    """How the service calls one program."""

    program: str
    """The program's name; empty: the first word of the agent's argv."""
    argv: tuple[str, ...]
    models: Mapping[str, ModelWords]
    keys: tuple[str, ...]
    """The variables from which it reads a key if the service does not hold the key."""
    resume: tuple[str, ...] = ()
    """Further arguments in a turn that resumes a session."""
    small: tuple[str, ...] = ()
    """Models that it asks for titles and summaries whatever its configured model is; patterns with `*`."""
    is_prompted: bool = True
    """Whether it reads its instructions from standard input."""
    before: tuple[str, ...] = ()
    """A command that starts the program."""
    environment: Mapping[str, str] = field(default_factory=dict)
    folders: tuple[str, ...] = ()
    """Folders that must exist in its home."""
    sealed: tuple[str, ...] = ()
    """Folders of its home that are read-only, so that it installs nothing there."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Files of its home with their content, written before each turn."""
    servers: Callable[[Servers, Sequence[str]], ServerWords] | None = None
    """Configures a repository's MCP servers and their variables; None if the program does not support them."""
    guidance: tuple[str, ...] = ()
    """Files of a repository with text for the model, which the program reads by itself only if it also obeys the
    repository's configuration: the first that is there is passed on."""
    untrusted: tuple[str, ...] = ()
    """Arguments that make it ignore the repository's own configuration."""
    untrusted_environment: Mapping[str, str] = field(default_factory=dict)
    hidden: tuple[str, ...] = ()
    """Files of a repository that make it execute something; hidden unless the repository is trusted."""
    left_behind: tuple[str, ...] = ()
    """Patterns of files that it writes for itself into a checkout, which are never committed."""
    hears: Callable[[str, str], object] | None = None
    """Makes the documents, one a line of standard input, that instruct it before and while it works, of a text and the
    name that the program repeats when it takes it; None: it takes no messages while it works."""
    hears_argv: tuple[str, ...] = ()
    """Its arguments if it is given these documents, and not the text of its instructions."""
    listener: Listener | None = None
    of_line: Callable[[str, AgentReport], None] | None = None
    """The function that reads its output where that is not JSON."""
    reports_endings: bool = False
    """Whether the program says itself that a model's answer was a refusal, or was cut."""


def allowed_models(options: AgentOptions) -> tuple[str, ...]:
    """Return the models that an agent may ask; empty: any, as its program chooses."""
    if options.model is None or options.model.models or options.model.name is None:
        return () if options.model is None else options.model.models
    return (options.model.name, *preset_for(options.preset, ()).small)


def _opencode(provider: str, package_version: str) -> ModelWords:
    options = {"baseURL": f"{{url}}{package_version}", "apiKey": "{token}"}
    config = _OPENCODE | {"provider": {provider: {"options": options}}}
    return ModelWords({"OPENCODE_CONFIG_CONTENT": json.dumps(config)})


GENERIC: Final = {
    "anthropic": ModelWords({"ANTHROPIC_BASE_URL": "{url}", "ANTHROPIC_API_KEY": "{token}"}),
    "openai": ModelWords({"OPENAI_BASE_URL": "{url}/v1", "OPENAI_API_BASE": "{url}/v1", "OPENAI_API_KEY": "{token}"}),
    "gemini": ModelWords({"GOOGLE_GEMINI_BASE_URL": "{url}", "GEMINI_API_KEY": "{token}"}),
    # Project and location are those of the operator's base_url.
    "vertex": ModelWords(
        {
            "ANTHROPIC_VERTEX_BASE_URL": "{url}/v1",
            "ANTHROPIC_VERTEX_PROJECT_ID": "runwarden",
            "CLOUD_ML_REGION": "global",
        }
    ),
    "bedrock": ModelWords({"ANTHROPIC_BEDROCK_BASE_URL": "{url}", "AWS_REGION": "us-east-1"}),
}
"""The variables that most clients read, by the wire API, for a command that the operator wrote."""
PLAIN: Final = Preset(program="", argv=(), models=GENERIC, keys=(), is_prompted=False, reports_endings=True)
"""Any other command."""


def _claude(provider: str, **variables: str) -> ModelWords:
    return ModelWords({**GENERIC[provider].environment, **variables}, name=("--model", "{model}"))


def _copilot(provider: str, version: str) -> ModelWords:
    variables = {"COPILOT_PROVIDER_TYPE": provider, "COPILOT_PROVIDER_API_KEY": "{token}", "COPILOT_MODEL": "{model}"}
    # Offline it needs no account of GitHub.
    return ModelWords({**variables, "COPILOT_PROVIDER_BASE_URL": f"{{url}}{version}", "COPILOT_OFFLINE": "true"})


def _over_acp(preset: Preset) -> Preset:
    """Return the preset of a program that speaks ACP, to which `acp_client.py` speaks."""
    return replace(
        preset,
        # Not as a module, which could import code from the checkout.
        before=("{python}", "-I", str(Path(__file__).with_name("acp_client.py")), "{session}", "{conversation_file}"),
        environment={**preset.environment, MODEL: "{model}"},
        servers=_acp_servers,
        hears=lambda text, name: {"text": text, "name": name},
        hears_argv=(),
        listener=outcome.acp,
        reports_endings=False,
    )


_PRESETS: Final[Mapping[PresetName, Preset]] = {
    "claude-code": Preset(
        program="claude",
        argv=("-p", "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions"),
        hears_argv=("--input-format", "stream-json", "--replay-user-messages"),
        resume=("--resume", "{session}"),
        models={
            "anthropic": _claude("anthropic"),
            "vertex": _claude("vertex", CLAUDE_CODE_USE_VERTEX="1", CLAUDE_CODE_SKIP_VERTEX_AUTH="1"),
            "bedrock": _claude("bedrock", CLAUDE_CODE_USE_BEDROCK="1", CLAUDE_CODE_SKIP_BEDROCK_AUTH="1"),
        },
        keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
        small=("*claude-haiku-*", "*claude-3-5-haiku*"),
        environment={
            "CLAUDE_CONFIG_DIR": "{home}/.claude",
            # Over ACP, the program uses other names for its models than the configured one.
            "ANTHROPIC_MODEL": "{model}",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            # As root it refuses to skip permissions without this word that it runs in a sandbox.
            "IS_SANDBOX": "1",
        },
        servers=_claude_servers,
        guidance=("CLAUDE.md", ".claude/CLAUDE.md"),
        untrusted=("--setting-sources", "user", "--strict-mcp-config", "--append-system-prompt-file", "{guidance}"),
        hidden=(".claude/settings.json", ".claude/settings.local.json", ".mcp.json"),
        hears=lambda text, name: (
            {"type": "user", "message": {"role": "user", "content": text}} | ({"uuid": name} if name else {})
        ),
        listener=outcome.claude,
        reports_endings=True,
    ),
    "codex": Preset(
        program="codex",
        argv=(
            *("exec", "--json", "--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check"),
            *("-c", "check_for_update_on_startup=false", "-c", "analytics.enabled=false"),
            *("-c", "features.apps=false", "-c", "features.plugins=false"),
        ),
        # Without a prompt the program reads its input; only this subcommand needs the dash for that.
        resume=("resume", "{session}", "-"),
        models={
            "openai": ModelWords(
                {"RUNWARDEN_MODEL_TOKEN": "{token}"},
                (
                    *("-c", 'model_provider="runwarden"', "-c", f'{_CODEX_MODEL}.name="runwarden"'),
                    *("-c", f'{_CODEX_MODEL}.base_url="{{url}}/v1"', "-c", f'{_CODEX_MODEL}.wire_api="responses"'),
                    *("-c", f'{_CODEX_MODEL}.env_key="RUNWARDEN_MODEL_TOKEN"'),
                ),
                name=("-c", 'model="{model}"'),
            )
        },
        keys=("CODEX_API_KEY",),
        environment={"CODEX_HOME": "{home}/.codex"},
        folders=(".codex",),
        servers=_codex_servers,
        hidden=(".codex/config.toml", ".codex/hooks.json"),
        listener=outcome.codex,
    ),
    "opencode": Preset(
        program="opencode",
        argv=("acp",),
        models={
            "anthropic": _opencode("anthropic", "/v1"),
            "openai": _opencode("openai", "/v1"),
            "gemini": _opencode("google", "/v1beta"),
        },
        keys=(
            *("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"),
            *("GOOGLE_GENERATIVE_AI_API_KEY", "OPENROUTER_API_KEY"),
        ),
        environment={
            "OPENCODE_CONFIG_CONTENT": json.dumps(_OPENCODE),
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        },
        small=_SMALL,
        # At each start it installs a package for plugins into the folder of its configuration, unless it cannot write.
        sealed=(".config/opencode",),
        guidance=("AGENTS.md", "CLAUDE.md"),
        untrusted_environment={"OPENCODE_DISABLE_PROJECT_CONFIG": "1"},
        hidden=("opencode.json", "opencode.jsonc", ".opencode"),
        listener=outcome.acp,
    ),
    "gemini": Preset(
        program="gemini",
        argv=("--acp", "--yolo", "--skip-trust"),
        models={"gemini": replace(GENERIC["gemini"], name=("--model", "{model}"))},
        keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        small=("gemini-*-flash*",),
        environment={"GEMINI_CLI_TRUST_WORKSPACE": "true", "NO_BROWSER": "true"},
        folders=(".gemini",),
        # Not the system's settings, which it ignores unless they are in a folder of root's.
        settings={
            ".gemini/settings.json": json.dumps(
                {
                    "security": {"auth": {"selectedType": "gemini-api-key"}},
                    "general": {"enableAutoUpdate": False, "sessionRetention": {"enabled": False}},
                    "privacy": {"usageStatisticsEnabled": False},
                    "telemetry": {"enabled": False},
                    # Over ACP it reports the output of commands only without a terminal.
                    "tools": {"shell": {"enableInteractiveShell": False}},
                }
            )
        },
        hidden=(".gemini/settings.json", ".gemini/.env", ".env", ".gemini/extensions", ".gemini/commands"),
        listener=outcome.acp,
    ),
    "aider": Preset(
        program="aider",
        argv=(
            *("--message-file", "{instructions_file}", "--yes-always", "--no-auto-commits", "--no-dirty-commits"),
            *("--no-gitignore", "--no-check-update", "--analytics-disable", "--no-stream", "--no-pretty"),
            *("--no-show-release-notes", "--no-show-model-warnings", "--no-detect-urls", "--no-browser"),
            *("--chat-history-file", "{home}/.aider.chat.history.md", "--input-history-file", "{home}/.aider.input"),
        ),
        resume=("--restore-chat-history",),
        models={
            name: ModelWords(
                {f"{name.upper()}_API_BASE": url, f"{name.upper()}_API_KEY": "{token}"},
                name=("--model", f"{name}/{{model}}"),
            )
            for name, url in (("anthropic", "{url}"), ("openai", "{url}/v1"), ("gemini", "{url}"))
        },
        keys=("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "DEEPSEEK_API_KEY", "OPENROUTER_API_KEY"),
        is_prompted=False,
        small=_SMALL,
        # The program wraps its lines for a terminal of this width.
        environment={"LITELLM_LOCAL_MODEL_COST_MAP": "True", "BROWSER": "false", "COLUMNS": "4000"},
        folders=(".aider", ".aider/caches"),
        # Without a price list the program downloads one in each turn.
        settings={".aider/caches/model_prices_and_context_window.json": '{"": {}}'},
        hidden=(".aider.conf.yml", ".aider.model.settings.yml", ".aider.model.metadata.json", ".env"),
        left_behind=(".aider*",),
        of_line=outcome.aider,
    ),
    "goose": Preset(
        program="goose",
        argv=("acp", "--with-builtin", "developer"),
        models={
            provider: ModelWords(
                {"GOOSE_PROVIDER": name, f"{name.upper()}_HOST": "{url}", f"{name.upper()}_API_KEY": "{token}"}
            )
            for provider, name in (("anthropic", "anthropic"), ("openai", "openai"), ("gemini", "google"))
        },
        keys=("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GOOGLE_API_KEY"),
        small=_SMALL,
        environment={
            "GOOSE_MODE": "auto",
            "GOOSE_MODEL": "{model}",
            "GOOSE_PATH_ROOT": "{home}/.goose",
            "GOOSE_TELEMETRY_ENABLED": "false",
            "GOOSE_DISABLE_KEYRING": "1",
        },
        folders=(".goose",),
        hidden=(".goose/config.yaml", ".goose/recipes"),
        listener=outcome.acp,
    ),
}
PRESETS: Final = {name: _over_acp(own) if own.listener is outcome.acp else own for name, own in _PRESETS.items()}
_HIDDEN: Final = tuple(dict.fromkeys(file for preset in PRESETS.values() for file in preset.hidden))
ACP: Final = _over_acp(replace(PLAIN, small=_SMALL, hidden=_HIDDEN))
"""Any program that speaks ACP, which may have any key, or need none; argv names it."""
_CLAUDE_CODE: Final = _over_acp(PRESETS["claude-code"])
_CLAUDE_MODELS: Final = {name: ModelWords(words.environment) for name, words in _CLAUDE_CODE.models.items()}
_CODEX_ARGV: Final = ("-c", 'sandbox_mode="danger-full-access"', "-c", 'approval_policy="never"')
_KNOWN: Final[Mapping[str, Preset]] = {
    **dict.fromkeys(
        ("claude-agent-acp", "claude-code-acp"),
        replace(_CLAUDE_CODE, argv=(), resume=(), models=_CLAUDE_MODELS, untrusted=()),
    ),
    "codex-acp": replace(_over_acp(PRESETS["codex"]), argv=_CODEX_ARGV, resume=()),
    "copilot": replace(ACP, models={"openai": _copilot("openai", "/v1"), "anthropic": _copilot("anthropic", "")}),
    **{own.program: replace(own, argv=()) for own in PRESETS.values() if own.listener is outcome.acp},
}
"""Programs that speak ACP and need the configuration of a preset."""


def preset_for(name: PresetName | None, argv: Sequence[str]) -> Preset:
    """Return a preset, `PLAIN` for None; the ACP preset uses the configuration of a known program."""
    if name == "acp":
        return _KNOWN.get(PurePath(argv[0]).name if argv else "", ACP)
    return PLAIN if name is None else PRESETS[name]
