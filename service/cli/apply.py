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

from service.cli.output import AdminContext, admin_command, elsewhere_option, operator
from service.clock import now_micros
from service.errors import first_fault
from service.settings import Settings
from service.setup import Setup, SetupError, apply_setup
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
        made = apply_setup(change.connection, setup, base, now_micros(), None if elsewhere else admin.folder.root)
        change.record("apply")
        shown = change.connection.engine.url.render_as_string(hide_password=True)
        acts = [("organization.create", one["id"], one["id"]) for one in made["organizations"] if one["created"]]
        for one in made["organizations"]:
            acts += [("token.create", token["id"], one["id"]) for token in one["tokens"] if token["value"] is not None]
        done = [one for one in made["applied"] if one["outcome"] != "unchanged"]
        acts += [(_ACTIONS[one["kind"]], one["name"], one["organization"]) for one in done]
        audit.record_each(change.connection, operator(), acts, now_micros)
    # Those of agents are checked with them.
    secrets = {host.token_env for one in setup.organizations for host in one.hosts}
    secrets |= {each.webhook_secret_env for one in setup.organizations for each in one.repositories}
    unset = [] if elsewhere else sorted(name for name in secrets if name and not os.environ.get(name))
    made |= {"unset_variables": unset, "data_dir": str(admin.folder.root), "outbox": str(admin.folder.outbox)}
    made["database"] = shown
    slugs = {one["id"]: one["slug"] for one in made["organizations"]}
    owned = defaultdict(list)
    for one in made["applied"]:
        if one["kind"] in {"host", "repository"}:
            owned[one["organization"]].append(one)
    lines = []
    for organization in made["organizations"]:
        lines.append(f"{organization['slug']}  {'created' if organization['created'] else 'kept'}")
        lines += [f"  it differs from the file, and stays so; to change it: {one}" for one in organization["differs"]]
        for one in organization["tokens"]:
            lines.append(f"  token {one['alias']}: {one['value'] or 'kept'}  until {one['expires_at'][:10]}")
        urls = {
            f"{one['platform']}:{one['path']}": f"  {one['url']}{_UNCONNECTED if one['connected'] is False else ''}"
            for one in organization["repositories"]
        }
        lines += [
            f"  {one['kind']} {one['name']}  {one['outcome']}{urls.get(one['name'], '')}"
            for one in owned[organization["id"]]
        ]
    for one in made["applied"]:
        if one["kind"] in {"agent", "offer"}:
            owner = one["organization"]
            of = "" if owner is None else f" of {slugs.get(owner, owner)}"
            lines.append(f"{one['kind']} {one['name']}{of}  {one['outcome']}")
    lines += [f"the variable {name} is not set here; the service needs it" for name in made["unset_variables"]]
    admin.show(made, [*lines, f"applied to the service in {made['data_dir']}, database {made['database']}"])


@click.command("schema")
@click.argument("file", type=click.Choice(["agents.toml", "service.toml"]))
def schema(file: str) -> None:
    """Print the JSON Schema of FILE, for the editor; agents.toml stands for any document of `apply`."""
    model = Settings if file == "service.toml" else Setup
    click.echo(json.dumps(model.model_json_schema(), indent=2))
