"""`org`, `token`, `offer`, `host`, `repository`, `agent`: what an operator can create, change, list and remove."""

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from service.cli import main
from service.settings import DataFolder
from service.store import runs, turns
from service.store.database import Database
from tests.lab import Respond, Server
from tests.service.conftest import NOW, Make, accepted, http_client, order
from tests.service_process import command


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with an organization `acme`, which may have tokens."""
    command(tmp_path / "data", "org", "create", "Acme", "--entitlement", "ServiceAPI")
    return tmp_path / "data"


def attempt(data: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments, "--data-dir", str(data)])


def refusal(data: Path, *arguments: str) -> str:
    """Run a command that must fail; return its message."""
    done = attempt(data, *arguments, "--json")
    assert done.exit_code == 2, done.output
    return str(json.loads(done.stdout)["error"]["message"])


GITHUB, GITLAB = ("--org", "acme", "--platform", "github"), ("--org", "acme", "--platform", "gitlab")
REFUSALS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("org create Acme", (), "--slug"),
    ("org grant acme Everything", (), "ServiceAPI"),
    ("token create --org acme", (), "--scope"),
    ("host connect --host git.acme.example", GITLAB, "--api-url"),
    ("host connect", (*GITHUB, "--token-env", "not a name"), "token_env"),
    ("host disconnect", GITHUB, "host list"),
    ("agent add x --argv true --org nobody", (), "org create"),
    ("agent add x --argv true --fallback x --elsewhere", (), "circle"),
)


def test_every_refusal_names_the_fix(data: Path) -> None:
    """Status 2 and one sentence: on standard error, or with --json as {"error": …} on standard output."""
    for words, more, fix in REFUSALS:
        assert fix in refusal(data, *words.split(), *more), words
    plain = attempt(data, "org", "create", "Acme")
    assert (plain.exit_code, plain.stdout, "--slug" in plain.stderr) == (2, "", True)


def test_unknown_and_circular_fallbacks_are_refused(data: Path, tmp_path: Path) -> None:
    """A file is refused as a whole, whichever of several agents is at fault; a later `agent add` is refused as well."""
    file = tmp_path / "setup.toml"

    def refused(**fallbacks: str) -> str:
        agents = [f'[[agents]]\nname = "{name}"\nargv = ["true"]\n{given}\n' for name, given in fallbacks.items()]
        file.write_text("".join(agents), "utf-8")
        return refusal(data, "apply", str(file), "--elsewhere")

    missing = refused(a='fallback = ["reviewer", "b"]')
    itself = refused(a='fallback = ["a"]')
    circle = refused(a='fallback = ["b"]', b='fallback = ["reviewer", "c"]', c='fallback = ["a"]')
    late = refused(a='fallback = ["reviewer"]\nfallback_after = "soon"')
    twice = refused(a='fallback = ["reviewer", "reviewer"]')
    none = refused(a='fallback_after = "1h"')

    assert "agent a: the fallback 'b' is not configured; list agents with: runwarden service agent list" in missing
    assert "the fallbacks of agents lead in a circle: a → a; remove one" in itself
    assert re.search("circle: (a → b → c → a|b → c → a → b|c → a → b → c); remove one", circle)
    assert "agents.a.fallback_after: 'soon' is not a valid duration; write a number above 0 and a unit" in late
    assert "agents.a: fallback: an agent is there twice: remove it once" in twice
    assert "agents.a: fallback_after: there is no fallback: add one, such as fallback = [" in none
    assert [one["name"] for one in command(data, "agent", "list")["agents"]] == ["reviewer"]
    given = ("--fallback", "reviewer", "--fallback-after", "90s", "--argv", "true", "--elsewhere")
    made = command(data, "agent", "add", "a", *given)
    assert (made["fallback"], made["fallback_after"]) == (["reviewer"], "90s")
    assert "circle" in refusal(data, "agent", "add", "a", "--fallback", "a", "--argv", "true", "--elsewhere")


def test_reading_commands_never_wait_or_create_files(data: Path, tmp_path: Path) -> None:
    """A mistyped --data-dir is reported and nothing is created there; a damaged database is left alone."""
    with closing(sqlite3.connect(data / "service.sqlite", isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        assert [one["slug"] for one in command(data, "org", "list")["organizations"]] == ["acme"]
    assert "--data-dir" in refusal(tmp_path / "typo", "org", "list")
    damaged = b"no database at all, though as long as the header of one would be" * 20
    (data / "service.sqlite").write_bytes(damaged)

    assert not (tmp_path / "typo").exists()
    assert "not a database; check its server" in refusal(data, "status")
    assert "restore the back-up" in refusal(data, "org", "create", "Other")
    assert (data / "service.sqlite").read_bytes() == damaged


def test_a_token_needs_serviceapi_and_is_printed_once(data: Path) -> None:
    """Without ServiceAPI the error has the command that grants it (spec 5.5).

    `create` prints the value, no list does (spec 5.4); slugs ignore case.
    """
    command(data, "org", "create", "Poor")
    make = ("token", "create", "--org", "Poor", "--scope", "admin", "--alias", "ci")
    message = refusal(data, *make)
    granted = command(data, "org", "grant", "poor", "ServiceAPI")
    value = attempt(data, *make).stdout.strip()
    listed = attempt(data, "token", "list", "--org", "POOR", "--json").stdout
    withdrawn = command(data, "org", "withdraw", "poor", "ServiceAPI")

    assert "runwarden service org grant poor ServiceAPI" in message
    assert (granted["entitlements"], withdrawn["entitlements"]) == (["ServiceAPI"], [])
    assert (value[:4], "ci" in listed, value in listed) == ("rwt_", True, False)
    assert "ServiceAPI" in refusal(data, *make)


def test_revoked_and_inactive_tokens_are_refused(api: Any) -> None:
    """A revocation takes effect while the service runs; an organization stays locked until it is activated again."""
    admin = api.service.admin
    admin("org", "create", "Drowsy", "--entitlement", "ServiceAPI")
    made = admin("token", "create", "--org", "drowsy", "--scope", "admin")
    client = http_client(made["value"], api.service.base_url)
    answers, active = [], []
    for act in ("activate", "deactivate", "activate"):
        active.append(admin("org", act, "drowsy")["active"])
        answers.append(client.get("/external/runs"))
    admin("token", "revoke", made["id"])
    answers.append(client.get("/external/runs"))

    assert active == [True, False, True]
    assert [one.status_code for one in answers] == [200, 403, 200, 401]
    assert answers[1].json()["error_code"] == "organization_inactive"
    assert [one["state"] for one in admin("token", "list", "--org", "drowsy")["tokens"]] == ["revoked"]
    assert "token list" in refusal(api.service.data_dir, "token", "revoke", made["id"])


def test_a_hosts_api_address_must_name_the_host(data: Path) -> None:
    """The address must name its host, with or without a path; otherwise the token would go to the public host."""
    for address, name in (
        ("https://api.octocorp.ghe.com", "octocorp.ghe.com"),
        ("https://git.acme.example:8443/", "git.acme.example"),
        ("https://git.acme.example/api/v3", "git.acme.example"),
        ("https://api.github.com", "github.com"),
    ):
        assert command(data, "host", "connect", *GITHUB, "--api-url", address)["host"] == name


def test_a_connected_host_is_listed_as_it_was_connected(data: Path) -> None:
    """Its last answer and what it said of its token are not part of it."""
    connected = command(data, "host", "connect", *GITHUB)

    assert command(data, "host", "list", "--org", "acme")["hosts"] == [connected]
    keys = "platform host group probe api_url clone_url token_env token_ends token_command app rotate"
    assert list(connected) == keys.split()


def test_a_host_check_prints_the_reason(data: Path) -> None:
    """The API only has a word; the check prints the reason, and status 1 unless all hosts are healthy."""
    with Server() as server:
        server.script(Respond(200, {"version": "17.5.1-ee"}), Respond(401, {"message": "Bad credentials"}))
        command(data, "host", "connect", *GITLAB, "--api-url", server.origin)
        well, ill = (attempt(data, "host", "check", "--org", "acme", "--json") for _ in range(2))
    (first,), (second,) = (json.loads(one.stdout)["hosts"] for one in (well, ill))

    assert (well.exit_code, first["status"], first["reason"]) == (0, "ok", None)
    assert (ill.exit_code, second["status"], "--token-env" in second["reason"]) == (1, "unauthorized", True)


def test_removals_apply_at_once(tenant: Make) -> None:
    """Agents, repositories and hosts disappear without a restart."""
    hosts = [{"platform": one, "probe": "git", "clone_url": "/no/{path}.git"} for one in ("github", "gitlab")]
    repositories = [{"name": name, "platform": "github", "path": f"acme/{name}"} for name in ("api", "web")]
    api = tenant(hosts=hosts, repositories=repositories)
    mine = ("--org", api.organization["slug"])
    api.service.admin("agent", "add", "passing", "--argv", "true", *mine)
    api.service.admin("agent", "remove", "passing", *mine)
    api.service.admin("repository", "remove", "api", *mine)
    api.service.admin("host", "disconnect", *mine, "--platform", "github")
    agent = api.post("/external/agents/passing/runs", {"repository": "web"})
    repository = api.post("/external/agents/reviewer/runs", {"repository": "acme/api"})

    assert (agent.status_code, agent.json()["error_code"]) == (404, "agent_not_found")
    assert repository.status_code == 201, "gitlab is still connected, and may have it"
    assert set(api.get("/external/installation/health").json()["code_hosting"]) == {"gitlab"}


def test_a_csv_table_is_utf8_in_any_terminal(data: Path) -> None:
    """The table is UTF-8 even if the terminal's encoding is ASCII."""
    command(data, "org", "create", "Größe", "--slug", "size")
    done = CliRunner(charset="ascii").invoke(main, ["org", "list", "-o", "csv", "--data-dir", str(data)])

    assert (done.exit_code, "Größe" in done.stdout_bytes.decode()) == (0, True)


def test_a_budget_is_shown_or_changed(data: Path) -> None:
    """A limit is only removed on request."""
    for options, day_usd, day_tokens in (
        (("--day-usd", "2.5", "--day-tokens", "1000"), 2.5, 1000),
        ((), 2.5, 1000),
        (("--day-tokens", "500"), 2.5, 500),
        (("--no-limit", "--day-usd", "7"), 7.0, None),
        (("--no-limit",), None, None),
    ):
        budget = command(data, "org", "budget", "acme", *options)["budget"]
        assert budget == {"day_usd": day_usd, "day_tokens": day_tokens}, options
    assert "a day: no limit" in attempt(data, "org", "budget", "acme").stdout


def test_an_offer_keeps_values_that_are_not_given(data: Path) -> None:
    """If the price disappeared, everyone who signed up with it would lose the offer."""
    command(data, "offer", "add", "P1", "--kind", "partner", "--price", "49 EUR", "--retired")
    kept = command(data, "offer", "add", "P1", "--kind", "public")
    back = command(data, "offer", "add", "P1", "--kind", "public", "--in-force")

    assert (kept["kind"], kept["price"], kept["retired"]) == ("public", "49 EUR", True)
    assert (back["price"], back["retired"]) == ("49 EUR", False)


def test_many_runs_are_listed_and_cancelled(data: Path) -> None:
    """Runs of one organization and status are cancelled after a question.

    Others continue, and the audit trail has each.
    """
    with closing(Database(DataFolder(data).database_url)) as database:
        first, theirs = accepted(database), accepted(database, "other").id
        with database.write() as connection:
            # More than a page of a hundred.
            more = [runs.accept(connection, order(first.organization_id), NOW).id for _ in range(110)]
    chosen = ("--org", "acme", "--status", "queued")
    unsure = attempt(data, "run", "cancel", *chosen)
    done = command(data, "run", "cancel", *chosen, "--yes")
    left = command(data, "run", "list", "--status", "queued")

    assert (unsure.exit_code, "nothing was cancelled" in unsure.stderr) == (2, True)
    assert {*done["cancelled"]} == {first.id, *more}
    assert [(one["run_id"], one["organization"]) for one in left["runs"]] == [(theirs, "other")]
    trail = command(data, "audit", "list", "--action", "run.cancel", "--org", "acme")["entries"]
    assert {one["target"] for one in trail} == {first.id, *more}
    assert "--org or --status" in refusal(data, "run", "cancel")


def test_a_turn_accepted_during_the_question_is_not_cancelled(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the operator reads `Cancel 3 runs?`, the old run is continued, and another one starts to work."""
    with closing(Database(DataFolder(data).database_url)) as database:
        kept, resumed, working = (accepted(database) for _ in range(3))

        def confirm(text: str, **_: object) -> bool:
            with database.write() as connection:
                assert turns.cancel(connection, resumed.id, "done", NOW)
                runs.resume(connection, resumed, order(resumed.organization_id), NOW)
                runs.touch(connection, working.id, NOW, status="working")
            return "3 runs" in text

        monkeypatch.setattr("click.confirm", confirm)
        done = command(data, "run", "cancel", "--org", "acme", "--status", "queued")

    assert done["cancelled"] == [kept.id]
