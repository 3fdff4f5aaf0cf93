"""`python -m service`: what an operator types (docs/run/install.md)."""

import json
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from jsonschema import Draft202012Validator

from service.cli import EXAMPLES, main
from service.settings import DataFolder, Settings, SettingsError
from tests.service_process import command, demo_setup, refused_start
from tests.waiting import present


def test_apply_makes_everything_and_a_second_time_nothing(tmp_path: Path) -> None:
    """Token values are shown when they are made and never again; the rest is added, changed or unchanged, by name."""
    document, data = tmp_path / "setup.json", tmp_path / "data"
    setup = demo_setup(tmp_path)
    setup["organizations"][0]["repositories"][0]["url"] = "api.git"
    setup["organizations"][0]["repositories"][1]["url"] = "https://elsewhere.example/acme/web.git"
    given = []
    for argv in ("true", "true", "false"):
        setup["agents"] = [{"name": "mine", "argv": [argv]}]
        document.write_text(json.dumps(setup), "utf-8")
        given.append(command(data, "apply", str(document)))
    first, second, _ = (one["organizations"][0] for one in given)
    said = CliRunner().invoke(main, ["apply", str(document), "--data-dir", str(data)]).output.splitlines()

    assert first["tokens"][0]["value"].startswith("rwt_")
    assert second["tokens"] == [first["tokens"][0] | {"value": None}]
    assert (first["created"], second["created"], first["slug"]) == (True, False, "acme")
    assert first["repositories"] == second["repositories"]
    assert first["repositories"][0]["url"] == str(tmp_path / "api.git"), "relative to the document"
    assert [one["connected"] for one in first["repositories"][:2]] == [None, False]
    hostless = "on no connected host of its platform: it is used without a token, and no results are posted"
    assert any(line.endswith(f"acme/web.git  {hostless}") for line in said)
    outcomes = [next(each["outcome"] for each in one["applied"] if each["name"] == "mine") for one in given]
    assert outcomes == ["added", "unchanged", "changed"]
    assert {"agent mine  unchanged", "offer PARTNER  unchanged"} <= set(said)
    assert said[-1] == f"applied to the service in {data}, database sqlite:///{data}/service.sqlite"


REPOSITORY = {"name": "c", "platform": "gitea", "path": "a/c"}
SCHEDULED = {"agent": "mine", "instructions": "Go.", "on": ["schedule"], "schedule": "0 3 * * *"}


def test_schemas_let_an_editor_find_a_misspelt_key(tmp_path: Path) -> None:
    """And a wrong duration, in what `apply` takes and in the settings; both accept what the service accepts.

    An old name is marked as such.
    """
    agent = {"name": "mine", "preset": "claude-code", "model": {"provider": "anthropic", "key_env": "KEY"}}
    agent |= {"fallback": ["reviewer"], "fallback_after": "90s"}
    setup = demo_setup(tmp_path) | {"agents": [agent]}
    setup["organizations"][0]["hosts"] = [{"platform": "gitea", "token_env": "TOKEN", "token_ends": "2027-01-01"}]
    execution = {"concurrency": 3, "organization_places": 2, "agent": {"cpu_s": 1.5}}
    settings = {"execution": execution, "events": {"allow_private": ["10.0.0.0/8"]}}
    Settings.model_validate(settings)
    schemas = {}
    for name, document, misspelt in (
        ("agents.toml", setup, setup | {"agents": [agent | {"modell": agent["model"]}]}),
        ("service.toml", settings, settings | {"execution": {"concurency": 3}}),
    ):
        schema = schemas[name] = json.loads(CliRunner().invoke(main, ["schema", name]).output)
        validator = Draft202012Validator(schema)
        assert list(validator.iter_errors(json.loads(json.dumps(document)))) == []
        (error,) = validator.iter_errors(misspelt)
        assert error.message.startswith("Additional properties are not allowed")
    durations = [
        {"agents": [agent | {"fallback_after": "soon"}]},
        {"organizations": [{"name": "a", "tokens": [{"alias": "b", "duration": "0d"}]}]},
        {
            "organizations": [
                {"name": "a", "repositories": [{**REPOSITORY, "triggers": [SCHEDULED | {"catch_up": "1"}]}]}
            ]
        },
    ]
    old = schemas["service.toml"]["$defs"]["ExecutionSettings"]["properties"]["organization_places"]

    assert [Draft202012Validator(schemas["agents.toml"]).is_valid(each) for each in durations] == [False] * 3
    assert old["deprecated"] is True


def test_apply_does_not_undo_what_an_operator_decided(tmp_path: Path) -> None:
    """A deactivated organization, a withdrawn entitlement and a retired offer stay; what would change it is said.

    An organization whose slug another name has keeps its name.
    """
    document, data = tmp_path / "setup.json", tmp_path / "data"

    def apply(name: str) -> list[str]:
        organization = {"name": name, "slug": "acme", "entitlements": ["ServiceAPI", "CreateOrganizations"]}
        offers = [{"code": "PARTNER", "kind": "partner"}]
        document.write_text(json.dumps({"organizations": [organization], "offers": offers}), "utf-8")
        (made,) = command(data, "apply", str(document))["organizations"]
        return list(made["differs"])

    apply("Acme")
    for change in (("deactivate", "acme"), ("withdraw", "acme", "CreateOrganizations")):
        command(data, "org", *change)
    command(data, "offer", "retire", "PARTNER")
    again, renamed = apply("Acme"), apply("Bank")
    held = command(data, "org", "list")["organizations"][0]
    said = CliRunner().invoke(main, ["apply", str(document), "--data-dir", str(data)]).output

    assert (held["name"], held["active"], held["entitlements"]) == ("Acme", False, ["ServiceAPI"])
    assert command(data, "offer", "list")["offers"][0]["retired"] is True
    assert again == ["runwarden service org activate acme", "runwarden service org grant acme CreateOrganizations"]
    (name,) = [one for one in renamed if "name the entry 'Acme'" in one]
    assert name in said


def test_settings_that_cannot_be_read_or_met_are_named(tmp_path: Path) -> None:
    """No TOML, an unknown section and an unknown value are refused, each with the key, or with the variable."""
    for text, named in (
        ("not toml", ""),
        ("[limit]\n", "limit"),
        ("[execution]\norganization_slots = 1\norganization_places = 2\n", "execution: .* old name .*: remove it"),
        ("[limits]\nrequests_per_minute = 0\n", "limits.requests_per_minute"),
        ('[execution]\nsandbox = "prefer"\n', "execution.sandbox: Input should be 'require' or 'none'"),
    ):
        (tmp_path / "service.toml").write_text(text, "utf-8")
        with pytest.raises(SettingsError, match=rf"service\.toml: .*{named}"):
            DataFolder(tmp_path).settings()
    (tmp_path / "service.toml").write_text('[mail.smtp]\nhost = "127.0.0.1"\nusername = "x"\n', "utf-8")
    done = refused_start(tmp_path, PATH="/nowhere")
    assert (done.returncode, "RUNWARDEN_SMTP_PASSWORD" in done.stderr) == (2, True)


def test_a_secret_that_is_unset_is_told_unless_it_is_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a host and of a webhook."""
    monkeypatch.setenv("A_TOKEN", "x")
    document, data = tmp_path / "setup.toml", tmp_path / "data"
    named = ("github", "NO_TOKEN"), ("gitlab", "A_TOKEN")
    hosts = ", ".join(f'{{ platform = "{platform}", token_env = "{name}" }}' for platform, name in named)
    webhook = f'{A_REPOSITORY[:-2]}, webhook_secret_env = "NO_SECRET" }}'
    document.write_text(f"{AN_ORGANIZATION}hosts = [{hosts}]\nrepositories = [{webhook}]\n", "utf-8")
    given = ["apply", str(document), "--data-dir", str(data)]

    assert command(data, "apply", str(document))["unset_variables"] == ["NO_SECRET", "NO_TOKEN"]
    assert "the variable NO_TOKEN is not set here" in CliRunner().invoke(main, given).output
    assert "is not set" not in CliRunner().invoke(main, [*given, "--elsewhere"]).output


AN_ORGANIZATION = '[[organizations]]\nname = "A"\n'
A_REPOSITORY = '{ name = "x", platform = "github", path = "a/b", url = "x.git" }'
SAME_PATH = '{ name = "y", platform = "github", path = "A/b.git", url = "y.git" }'
TWO_SLUGS = f'{AN_ORGANIZATION}slug = "bank"\n[[organizations]]\nname = "B"\nslug = "bank"\n'
TWO_NAMES = '[[organizations]]\nname = "Acme"\n[[organizations]]\nname = "ACME!"\n'
TWO_ALIASES = 'tokens = [{ alias = "t" }, { alias = "t", scopes = ["organizations:create"] }]\n'
TWO_HOSTS = 'hosts = [{ platform = "github" }, { platform = "github", group = "b" }]\n'
TWO_OFFERS = '[[offers]]\ncode = "X"\nkind = "partner"\n[[offers]]\ncode = "X"\nkind = "public"\n'
SAME_NAME = f"repositories = [{A_REPOSITORY}, {A_REPOSITORY.replace('a/b', 'a/c')}]\n"
TWICE = [
    (TWO_SLUGS, "organizations.0 (A) and organizations.1 (B) both have the slug bank"),
    (TWO_NAMES, "organizations.0 (Acme) and organizations.1 (ACME!) both have the slug acme"),
    (AN_ORGANIZATION + TWO_ALIASES, "tokens.0 (t) and organizations.0.tokens.1 (t) both have the alias t"),
    (AN_ORGANIZATION + TWO_HOSTS, "both have the platform github"),
    (AN_ORGANIZATION + SAME_NAME, "both have the name x"),
    (f"{AN_ORGANIZATION}repositories = [{A_REPOSITORY}, {SAME_PATH}]\n", "(x) and organizations.0.repositories.1 (y)"),
    (2 * '[[agents]]\nname = "x"\nargv = ["true"]\n', "agents.0 (x) and agents.1 (x) both have the name x"),
    (TWO_OFFERS, "offers.0 (X) and offers.1 (X) both have the code X"),
]


def test_a_faulty_document_changes_nothing_and_is_explained(tmp_path: Path) -> None:
    """Exit status 2, the entry is named, and no half of it was applied."""
    file, data = tmp_path / "setup.toml", tmp_path / "data"
    for document, message in (
        ("nonsense", "Expected"),
        ("[[organizations]]\n", "organizations.0.name"),
        (AN_ORGANIZATION + 'entitlements = []\ntokens = [{ alias = "t" }]\n', "ServiceAPI"),
        (AN_ORGANIZATION + 'hosts = [{ platform = "github", probe = "git" }]\n', "probe git needs clone_url"),
        (AN_ORGANIZATION + 'repositories = [{ name = "x", platform = "github", path = "a/b" }]\n', "--url"),
        ("organizations = [3]\n", "organizations.0: a number was found where a table is expected"),
        ("colour = 3\n", "colour: there is no such key"),
        ('[[agents]]\nname = "x"\nargv = ["true"]\norganization = "nobody"\n', "nobody"),
        *TWICE,
    ):
        file.write_text(document, "utf-8")
        done = CliRunner().invoke(main, ["apply", str(file), "--data-dir", str(data), "--json"])

        assert done.exit_code == 2
        assert message in json.loads(done.stdout)["error"]["message"]
        assert not (data / "service.sqlite").exists() or command(data, "org", "list")["organizations"] == []


def test_one_turn_can_be_shown_alone(api: Any) -> None:
    """Log and diff of a turn are its own; a turn that changed nothing says so, one that is not there is refused."""
    run_id = api.start("write it")
    api.ended(run_id)
    api.follow(run_id, "nothing more")
    api.ended(run_id)
    file = DataFolder(api.service.data_dir).turn_diff(run_id, 1)

    def shown(*options: str, run_id: str = run_id) -> Result:
        return CliRunner().invoke(main, ["run", run_id, *options, "--data-dir", str(api.service.data_dir)])

    (second,) = api.service.admin("run", run_id, "--log", "--turn", "2")["turns"]
    diffs = [shown("--diff", "--turn", turn) for turn in "123"]
    file.write_bytes(file.read_bytes() + b"\xff\x1b no text\n")
    raw = shown("--diff", "--turn", "1")

    assert (second["turn"], "scribe at work on turn 2" in second["log"], "turn 1" in second["log"]) == (2, True, False)
    assert f"+++ b/notes/{run_id}-1.json" in diffs[0].stdout
    assert "no diff here (nothing changed" in diffs[1].stdout
    assert (raw.stdout_bytes, raw.stderr) == (file.read_bytes(), f"turn 1: {file}\n"), "for git apply"
    assert "scribe at work on turn 1" in shown("--log").stdout
    assert shown(run_id="run_none").exit_code == diffs[2].exit_code == 2
    assert "has no turn 3; it has 2" in diffs[2].stderr


def test_an_error_that_no_command_foresees_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Status 2 and what to install, here of an agent's check where git is missing."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(shutil.which("python3") or "")
    command(tmp_path, "org", "create", "Acme Inc.")
    (tmp_path / "service.toml").write_text('[execution]\nsandbox = "none"\n', "utf-8")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    done = CliRunner().invoke(main, ["agent", "check", "reviewer", "--data-dir", str(tmp_path)])

    assert (done.exit_code, "install git" in done.stderr) == (2, True)
    assert "Traceback" not in done.stderr


def test_a_port_and_a_data_folder_are_one_service_s(api: Any, tmp_path: Path) -> None:
    """Status 2 and the cure; the first goes on."""
    port = api.service.base_url.removesuffix("/v1").rpartition(":")[2]
    taken, second = refused_start(tmp_path, "serve", "--port", port), refused_start(api.service.data_dir)

    assert (taken.returncode, "--port" in taken.stderr) == (2, True)
    assert (second.returncode, "runwarden: another service runs on" in second.stderr) == (2, True)
    assert api.get("/external/runs").status_code == 200


def commands(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every command with its name, the groups included."""
    yield path, group
    context = click.Context(group)
    for name in group.list_commands(context):
        command = present(group.get_command(context, name))
        below = f"{path} {name}".strip()
        yield from commands(command, below) if isinstance(command, click.Group) else [(below, command)]


def test_examples_can_be_typed() -> None:
    """Of nothing that there is not; each is parsed as it stands."""
    assert set(EXAMPLES) <= {name for name, _ in commands(main)}
    for name, shown in EXAMPLES.items():
        told = CliRunner().invoke(main, [*name.split(), "--help"]).output
        for example in shown:
            assert f"  runwarden service {example}\n" in told
            context, words = click.Context(main, info_name="service"), shlex.split(example)
            command: click.Command = main
            while isinstance(command, click.Group):
                _, found, words = command.resolve_command(context, words)
                assert found is not None
                command = found
            if not example.startswith("restore"):  # It wants a file that is there.
                command.make_context("it", words, parent=context)
