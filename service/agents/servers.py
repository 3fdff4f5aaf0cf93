"""A repository's MCP servers, in each program's form of configuration.

Variables are passed on by name, so that no value is in an argument or a file.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from service.agents.options import McpServer

Servers = Mapping[str, McpServer]
SERVERS: Final = "RUNWARDEN_MCP_SERVERS"
"""The variable in which `acp_client.py` finds them."""
MODEL: Final = "RUNWARDEN_MODEL"
"""The variable in which it finds the model's name."""


@dataclass(frozen=True, slots=True)
class ServerWords:
    """One program's configuration for servers."""

    argv: tuple[str, ...] = ()
    settings: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Keys to add to a JSON document, by the file of its home or the variable that holds the document."""


ServerWriter = Callable[[Servers, Sequence[str]], ServerWords]
"""Takes the servers, and the names of the variables that they may need."""


def claude(servers: Servers, names: Sequence[str]) -> ServerWords:
    """Configure Claude Code."""
    environment = {name: f"${{{name}}}" for name in names}
    written = {
        name: _of(one, {"type": "http"}) if one.url else _of(one, {"type": "stdio", "env": environment})
        for name, one in servers.items()
    }
    return ServerWords(("--mcp-config", json.dumps({"mcpServers": written})))


def codex(servers: Servers, names: Sequence[str]) -> ServerWords:
    """Configure Codex."""
    words: list[str] = []
    for name, one in servers.items():
        for key, value in _of(one, {} if one.url else {"env_vars": names}).items():
            # JSON's texts and lists are valid TOML, too.
            words += ("-c", f"mcp_servers.{name}.{key}={json.dumps(value, ensure_ascii=False)}")
    return ServerWords(tuple(words))


def acp(servers: Servers, names: Sequence[str]) -> ServerWords:
    """Configure `acp_client.py`."""
    return ServerWords(settings={SERVERS: {name: _of(one, {"variables": names}) for name, one in servers.items()}})


def _of(server: McpServer, more: Mapping[str, object]) -> dict[str, Any]:
    if server.url:
        return {**more, "url": server.url}
    return {**more, "command": server.command[0], "args": server.command[1:]}
