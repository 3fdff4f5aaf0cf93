"""`python -m service` as an operator uses it (docs/run/install.md)."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from service.cli import main
from service.settings import DataFolder
from tests.service_process import PROGRAM, command, demo_setup, refused_start


def test_apply_creates_everything_once(tmp_path: Path) -> None:
    """Token values are printed once, when they are created; other entries are added, changed or unchanged, by name."""
    document, data = tmp_path / "setup.json", tmp_path / "data"
    setup = demo_setup(tmp_path)
    setup["organizations"][0]["repositories"][0]["url"] = "api.git"
    given = []
    for argv in ("true", "true", "false"):
        setup["agents"] = [{"name": "mine", "argv": [argv]}]
        document.write_text(json.dumps(setup), "utf-8")
        given.append(command(data, "apply", str(document)))
    first, second, _ = (one["organizations"][0] for one in given)

    assert first["tokens"][0]["value"].startswith("rwt_")
    assert second["tokens"] == [first["tokens"][0] | {"value": None}]
    assert (first["created"], second["created"], first["slug"]) == (True, False, "acme")
    assert first["repositories"] == second["repositories"]
    assert first["repositories"][0]["url"] == str(tmp_path / "api.git"), "relative to the document"
    outcomes = [next(each["outcome"] for each in one["applied"] if each["name"] == "mine") for one in given]
    assert outcomes == ["added", "unchanged", "changed"]


def test_apply_does_not_undo_an_operators_decisions(tmp_path: Path) -> None:
    """What was deactivated, withdrawn, retired or revoked stays so, and the output has the commands to change it."""
    document, data = tmp_path / "setup.json", tmp_path / "data"

    def apply() -> list[str]:
        organization = {"name": "Acme", "slug": "acme", "entitlements": ["ServiceAPI", "CreateOrganizations"]}
        organization |= {"tokens": [{"alias": "my ci", "scopes": ["runs:read"]}]}
        offers = [{"code": "PARTNER", "kind": "partner"}]
        document.write_text(json.dumps({"organizations": [organization], "offers": offers}), "utf-8")
        (made,) = command(data, "apply", str(document))["organizations"]
        return list(made["differs"])

    apply()
    for change in (("deactivate", "acme"), ("withdraw", "acme", "CreateOrganizations")):
        command(data, "org", *change)
    command(data, "offer", "retire", "PARTNER")
    (token,) = command(data, "token", "list", "--org", "acme")["tokens"]
    command(data, "token", "revoke", token["id"])
    again = apply()
    held = command(data, "org", "list")["organizations"][0]

    assert (held["active"], held["entitlements"]) == (False, ["ServiceAPI"])
    assert command(data, "offer", "list")["offers"][0]["retired"] is True
    assert [row["state"] for row in command(data, "token", "list", "--org", "acme")["tokens"]] == ["revoked"]
    assert again[:2] == ["runwarden service org activate acme", "runwarden service org grant acme CreateOrganizations"]
    create = "runwarden service token create --org acme --scope runs:read --alias 'my ci' --duration 30d"
    assert again[2:] == [create]


AN_ORGANIZATION = '[[organizations]]\nname = "A"\n'
A_REPOSITORY = '{ name = "x", platform = "github", path = "a/b", url = "x.git" }'
SAME_PATH = '{ name = "y", platform = "github", path = "A/b.git", url = "y.git" }'
TWO_NAMES = '[[organizations]]\nname = "Acme"\n[[organizations]]\nname = "ACME!"\n'


def test_a_faulty_document_changes_nothing(tmp_path: Path) -> None:
    """Exit status 2; the error names the entry, and nothing is applied."""
    file, data = tmp_path / "setup.toml", tmp_path / "data"
    for document, message in (
        ("nonsense", "Expected"),
        (AN_ORGANIZATION + 'entitlements = []\ntokens = [{ alias = "t" }]\n', "ServiceAPI"),
        ("colour = 3\n", "colour: there is no such key"),
        ('[[agents]]\nname = "x"\nargv = ["true"]\norganization = "nobody"\n', "nobody"),
        (TWO_NAMES, "organizations.0 (Acme) and organizations.1 (ACME!) both have the slug acme"),
        (
            f"{AN_ORGANIZATION}repositories = [{A_REPOSITORY}, {SAME_PATH}]\n",
            "(x) and organizations.0.repositories.1 (y)",
        ),
    ):
        file.write_text(document, "utf-8")
        done = CliRunner().invoke(main, ["apply", str(file), "--data-dir", str(data), "--json"])

        assert done.exit_code == 2
        assert message in json.loads(done.stdout)["error"]["message"]
        assert not (data / "service.sqlite").exists() or command(data, "org", "list")["organizations"] == []


def test_pruning_asks_only_on_a_terminal(tmp_path: Path) -> None:
    """Only yes or --yes removes anything there; a scheduled job, which has no terminal, is not asked."""
    command(tmp_path, "org", "create", "Acme")
    prune = ["prune", "--older-than", "1d", "--data-dir", str(tmp_path)]

    def typed(answer: bytes, *options: str) -> tuple[int, bool]:
        keyboard, terminal = pty.openpty()
        os.write(keyboard, answer)
        argv = [sys.executable, "-c", PROGRAM, *prune, *options]
        done = subprocess.run(argv, check=False, stdin=terminal, capture_output=True, text=True)
        for descriptor in (keyboard, terminal):
            os.close(descriptor)
        return done.returncode, "Remove the logs" in done.stderr

    assert [typed(b"n\n"), typed(b"y\n"), typed(b"", "--yes"), typed(b"", "--dry-run")] == [
        (2, True),
        (0, True),
        (0, False),
        (0, False),
    ]
    assert CliRunner().invoke(main, prune).exit_code == 0
    closed = ["sh", "-c", 'exec "$@" <&-', "sh", sys.executable, "-c", PROGRAM, *prune]
    assert subprocess.run(closed, check=False).returncode == 0


def test_one_turn_can_be_shown_alone(api: Any) -> None:
    """A turn's log and diff are exact; a turn without a change says so."""
    run_id = api.start("write it")
    api.ended(run_id)
    api.follow(run_id, "nothing more")
    api.ended(run_id)
    file = DataFolder(api.service.data_dir).turn_file(run_id, 1, "diff")

    def shown(*options: str) -> Result:
        return CliRunner().invoke(main, ["run", run_id, *options, "--data-dir", str(api.service.data_dir)])

    (second,) = api.service.admin("run", run_id, "--log", "--turn", "2")["turns"]
    nothing = shown("--diff", "--turn", "2")
    file.write_bytes(file.read_bytes() + b"\xff\x1b no text\n")
    raw = shown("--diff", "--turn", "1")

    assert (second["turn"], "scribe at work on turn 2" in second["log"], "turn 1" in second["log"]) == (2, True, False)
    assert "no diff here (nothing changed" in nothing.stdout
    assert (raw.stdout_bytes, raw.stderr) == (file.read_bytes(), f"turn 1: {file}\n"), "for git apply"


def test_a_port_and_a_data_folder_belong_to_one_service(api: Any, tmp_path: Path) -> None:
    """A second service exits with status 2 and the fix; the first continues."""
    port = api.service.base_url.removesuffix("/v1").rpartition(":")[2]
    taken, second = refused_start(tmp_path, "serve", "--port", port), refused_start(api.service.data_dir)

    assert (taken.returncode, "--port" in taken.stderr) == (2, True)
    assert (second.returncode, "runwarden: another service runs on" in second.stderr) == (2, True)
    assert api.get("/external/runs").status_code == 200
