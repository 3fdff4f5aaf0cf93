"""The audit trail has every administrative act, its author and object; it has no secrets and never changes."""

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from click.testing import CliRunner

from service.cli import main
from service.cli.output import operator
from service.clock import DAY_MICROS, now_micros
from service.execution.retention import Retention
from service.hosts.tokens import HostTokens
from service.settings import DataFolder, RetentionSettings, Settings
from service.store import audit, deletions, events, invitations, sessions, tokens
from service.store.database import Database
from tests.service.conftest import BOTH, NOW, Api, Make, organization
from tests.service_process import command

ACTS: list[tuple[str, str, str | None]] = [
    ("org create Acme --entitlement ServiceAPI", "organization.create", "org_"),
    ("org grant acme CreateOrganizations", "organization.grant", "org_"),
    ("org withdraw acme CreateOrganizations", "organization.withdraw", "org_"),
    ("token create --org acme --scope admin", "token.create", "tok_"),
    ("invitation send a@customer.example --org acme", "invitation.send", "inv_"),
    ("offer add PARTNER --kind partner", "offer.add", "PARTNER"),
    ("host connect --org acme --platform github", "host.connect", "github github.com"),
    ("repository add api --org acme --platform github --path a/b --url /srv/none", "repository.add", "github:a/b"),
    ("repository remove api --org acme", "repository.remove", "api"),
    ("host disconnect --org acme --platform github", "host.disconnect", "github"),
    ("agent add mine --argv true --org acme", "agent.add", "mine"),
    ("agent remove mine --org acme", "agent.remove", "mine"),
    ("prune --older-than 1d", "prune", None),
    ("org deactivate acme", "organization.deactivate", "org_"),
    ("org activate acme", "organization.activate", "org_"),
    ("org delete acme --yes", "organization.delete", "org_"),
]


def entries(data: Path, *options: str) -> list[dict[str, Any]]:
    return list(command(data, "audit", "list", *options)["entries"])


def test_every_act_of_an_operator_is_recorded(tmp_path: Path) -> None:
    """Entries have the account and machine, outlive the organization, and have no secret or personal data."""
    data = tmp_path / "data"
    said = [command(data, *act.split()) for act, _, _ in ACTS]
    found = entries(data)
    text = str(found)

    assert [(one["action"], one["outcome"]) for one in found] == [(action, "done") for _, action, _ in ACTS]
    assert all((one["target"] or "").startswith(target or "") for one, (_, _, target) in zip(found, ACTS, strict=True))
    assert {one["actor"] for one in found} == {operator()}
    assert said[3]["token"] not in text
    assert "customer.example" not in text
    assert {one["organization_id"] for one in found} == {said[0]["id"], None}
    # A deleted organization is named by its id.
    assert len(entries(data, "--org", said[0]["id"], "--action", "organization", "--since", "1h")) == 6


def test_failed_commands_are_recorded_without_their_values(tmp_path: Path) -> None:
    """A token typed in place of an id does not get into the trail; a repeated `apply` creates no token."""
    data, file = tmp_path / "data", tmp_path / "setup.toml"
    file.write_text(
        '[[organizations]]\nname = "Acme"\ntokens = [{alias = "ci"}]\n[[offers]]\ncode = "X"\nkind = "partner"\n',
        "utf-8",
    )
    for _ in range(2):
        command(data, "apply", str(file))
    for arguments in (["token", "revoke", "rwt_pasted"], ["org", "accept-invitation", "rwt_code"]):
        assert CliRunner().invoke(main, [*arguments, "--data-dir", str(data)]).exit_code == 2
    found = entries(data)

    made = ["apply", "organization.create", "token.create", "offer.add"]
    assert [one["action"] for one in found[:-2]] == [*made, "apply"], "what stays as it is has no entry"
    assert [(one["action"], one["outcome"], one["target"]) for one in found[-2:]] == [
        ("token.revoke", "failed", None),
        ("invitation.accept", "failed", None),
    ]
    assert "rwt_" not in str(found)


def test_the_trail_shows_names_instead_of_ids(database: Database) -> None:
    """A token without an alias and a deleted organization are shown by their ids."""
    owner, gone = organization(database), organization(database, "gone")
    with database.write() as connection:
        token, bare = (
            tokens.create(connection, owner, scopes=("admin",), alias=alias, now=NOW)[0].id for alias in ("ci", None)
        )
        member = sessions.put_member(connection, owner, "ada@acme.example", NOW, "viewer").id
        invited = invitations.invite(connection, owner, "joe@acme.example", NOW)
        endpoint = events.add_endpoint(connection, owner, "https://a.example/", events.TYPES, (), NOW).id
        both = audit.names(connection, [owner, gone])
        assert deletions.delete_organization(connection, gone, NOW)
        named = audit.names(connection, [owner, gone, token, bare, member, invited, endpoint, "run_x", "acme"])

    assert both == {owner: "acme", gone: "gone"}
    people = {member: "ada@acme.example", invited: "joe@acme.example"}
    assert named == people | {owner: "acme", token: "ci", endpoint: "https://a.example/"}


def test_a_tokens_acts_are_recorded_under_its_id(tenant: Make, idle: Api) -> None:
    """The trail has its first use, a created organization and a cancelled run, but not each request."""
    repository = {"name": "api", "platform": "github", "path": "acme/api", "url": "/srv/none.git"}
    api = tenant(on=idle.service, entitlements=["ServiceAPI", "CreateOrganizations"], repositories=[repository])
    child = api.post("/external/organizations", {"email": "a@customer.example"}).json()["organization_id"]
    run_id = api.start("look")
    assert api.post(f"/external/runs/{run_id}/cancel", {}).status_code == 202
    token = f"token:{api.organization['tokens'][0]['id']}"
    found = [one for one in entries(api.service.data_dir) if one["actor"] == token]

    acts = ["token.first_use", "organization.create", "invitation.send", "run.cancel"]
    assert [one["action"] for one in found] == acts
    assert (found[1]["organization_id"], found[3]["target"]) == (child, run_id)
    assert "customer.example" not in str(found)


@BOTH
def test_audit_entries_cannot_be_changed(database: Database, tmp_path: Path) -> None:
    """The database refuses changes; entries stay forever, unless `retention.audit_days` removes older ones."""
    folder = DataFolder(tmp_path)
    folder.create()
    with database.write() as connection:
        for days in (2, 0):
            audit.record(connection, "operator:me@here", "apply", now_micros() - days * DAY_MICROS)
    with database.write() as connection, pytest.raises(sa.exc.DBAPIError, match="append-only"):
        connection.exec_driver_sql("UPDATE audit SET actor = 'operator:someone@else'")
    left = []
    for days in (None, 1.0):
        settings = Settings(retention=RetentionSettings(audit_days=days))
        Retention(database, HostTokens(database), folder, settings, now_micros).prune_database()
        with database.read() as connection:
            left.append(len(audit.latest(connection, 10)))

    assert left == [2, 1]
