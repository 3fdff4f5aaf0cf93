"""`apply`: the setup of a service from a file."""

import json
import os
import sys
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Final

import click
from pydantic import ValidationError

from service.cli.document import apply_setup
from service.cli.output import AdminContext, admin_command, elsewhere_option, operator
from service.clock import now_micros
from service.errors import first_fault
from service.settings import Settings
from service.setup import Setup, SetupError
from service.store import audit

_ACTIONS: Final = {"agent": "agent.add", "host": "host.connect", "offer": "offer.add", "repository": "repository.add"}
"""The name of a document's entry in the audit trail."""
_UNCONNECTED: Final = "  on no connected host of its platform: it is used without a token, and no results are posted"


@click.command("apply")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@elsewhere_option
@admin_command
def apply(admin: AdminContext, file: Path, *, elsewhere: bool) -> None:
    """Apply FILE (TOML, JSON when it ends in .json, '-' for TOML on standard input); applying again changes nothing."""
    from_stdin = str(file) == "-"
    raw = sys.stdin.buffer.read() if from_stdin else file.read_bytes()
    try:
        document = json.loads(raw) if file.suffix == ".json" else tomllib.loads(raw.decode("utf-8"))
    except ValueError as error:
        raise SetupError(f"{file}: {error}") from error
    try:
        setup = Setup.model_validate(document)
    except ValidationError as error:
        raise SetupError(f"{file}: {first_fault(error, document)}") from error
    with admin.change("apply", create=True) as change:
        base = Path.cwd() if from_stdin else file.absolute().parent
        result = apply_setup(change.connection, setup, base, now_micros(), None if elsewhere else admin.folder.root)
        change.record("apply")
        shown = change.connection.engine.url.render_as_string(hide_password=True)
        acts = [("organization.create", org["id"], org["id"]) for org in result["organizations"] if org["created"]]
        for org in result["organizations"]:
            acts += [("token.create", token["id"], org["id"]) for token in org["tokens"] if token["value"] is not None]
        done = [row for row in result["applied"] if row["outcome"] != "unchanged"]
        acts += [(_ACTIONS[row["kind"]], row["name"], row["organization"]) for row in done]
        audit.record_each(change.connection, operator(), acts, now_micros)
    # Those of agents are checked with them.
    secrets = {host.token_env for org in setup.organizations for host in org.hosts}
    secrets |= {repo.webhook_secret_env for org in setup.organizations for repo in org.repositories}
    unset = [] if elsewhere else sorted(name for name in secrets if name and not os.environ.get(name))
    result |= {"unset_variables": unset, "data_dir": str(admin.folder.root), "outbox": str(admin.folder.outbox)}
    result["database"] = shown
    slugs = {org["id"]: org["slug"] for org in result["organizations"]}
    owned = defaultdict(list)
    for row in result["applied"]:
        if row["kind"] in {"host", "repository"}:
            owned[row["organization"]].append(row)
    lines = []
    for org in result["organizations"]:
        lines.append(f"{org['slug']}  {'created' if org['created'] else 'kept'}")
        lines += [f"  it differs from the file, and stays so; to change it: {command}" for command in org["differs"]]
        for token in org["tokens"]:
            lines.append(f"  token {token['alias']}: {token['value'] or 'kept'}  until {token['expires_at'][:10]}")
        urls = {
            f"{row['platform']}:{row['path']}": f"  {row['url']}{_UNCONNECTED if row['connected'] is False else ''}"
            for row in org["repositories"]
        }
        lines += [
            f"  {row['kind']} {row['name']}  {row['outcome']}{urls.get(row['name'], '')}" for row in owned[org["id"]]
        ]
    for row in result["applied"]:
        if row["kind"] in {"agent", "offer"}:
            owner = row["organization"]
            of = "" if owner is None else f" of {slugs.get(owner, owner)}"
            lines.append(f"{row['kind']} {row['name']}{of}  {row['outcome']}")
    lines += [f"the variable {name} is not set here; the service needs it" for name in result["unset_variables"]]
    admin.show(result, [*lines, f"applied to the service in {result['data_dir']}, database {result['database']}"])


@click.command("schema")
@click.argument("file", type=click.Choice(["agents.toml", "service.toml"]))
def schema(file: str) -> None:
    """Print the JSON Schema of FILE, for the editor; agents.toml stands for any document of `apply`."""
    model = Settings if file == "service.toml" else Setup
    click.echo(json.dumps(model.model_json_schema(), indent=2))
