"""The file with the service's variables, which it reads again on SIGHUP."""

import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from service import environment
from service.cli import main
from service.settings import SettingsError
from tests.service.conftest import METRICS_TOKEN, UNBOXED, Api, member, placed
from tests.service.deployment import deployment
from tests.service.git_hosts import GitHttpHost
from tests.service_process import Node, demo_setup, make_repository
from tests.waiting import COLD_START_S, eventually


def test_a_rotated_token_needs_no_restart(start: Callable[..., Api], tmp_path: Path) -> None:
    """Of a code host and for scraping; a file that cannot be used changes nothing, and the log has no value of it."""
    make_repository(tmp_path / "hosted" / "acme" / "api", {"README.md": "# api\n"})
    file = tmp_path / "environment"
    file.write_text(f"# Tokens\nHOST_TOKEN=first-token\nRUNWARDEN_METRICS_TOKEN='{METRICS_TOKEN}'\n")
    with closing(GitHttpHost(tmp_path / "hosted", "first-token")) as host:
        url = f"{host.url}/{{path}}.git"
        entry = {"platform": "github", "host": "127.0.0.1", "probe": "git", "clone_url": url, "token_env": "HOST_TOKEN"}
        setup = demo_setup(tmp_path) | {"organizations": [member(hosts=[entry], repositories=[placed()])]}
        api = start(setup=setup, settings=UNBOXED, environment={environment.VARIABLE: str(file)})

        def read_again(text: str, logged: str) -> None:
            file.write_text(text)
            api.service.signal(signal.SIGHUP)
            eventually(lambda: logged in api.service.log, logged, COLD_START_S, saw=lambda: api.service.log)

        assert api.ended(api.start("write it"))["status"] == "completed"
        host.accept("second-token")
        read_again("HOST_TOKEN second-token\n", "line 1 is not NAME=value")
        read_again("HOST_TOKEN=second-token\nRUNWARDEN_METRICS_TOKEN=short\n", "at least")
        bearer = {"Authorization": f"Bearer {METRICS_TOKEN}"}
        assert api.http.get(api.service.base_url.replace("/v1", "/metrics"), headers=bearer).status_code == 200
        for text, why in (
            ("", "it is empty"),
            ("OTHER=1\n", "still in use: HOST_TOKEN, RUNWARDEN_METRICS_TOKEN; put it back"),
            (f"{environment.VARIABLE}={file}\n", "line 1: this variable is set for the process"),
        ):
            read_again(text, why)
        read_again(
            "HOST_TOKEN=second-token\nRUNWARDEN_METRICS_TOKEN=\n", "changed: HOST_TOKEN, RUNWARDEN_METRICS_TOKEN"
        )
        turn = api.work("write it again", "scribe")

        assert turn["outcome"] == "completed", turn["log"]
        assert api.http.get(api.service.base_url.replace("/v1", "/metrics"), headers=bearer).status_code == 404
        assert "second-token" not in api.service.log


def test_a_worker_reads_it_again_too(tmp_path: Path) -> None:
    """It goes on with the old values while the file is away, and where there is none the signal leaves it running."""
    file = tmp_path / "environment"
    file.write_text("HOST_TOKEN=first-token\n")
    with deployment(tmp_path / "service") as deployed:

        def logs(worker: Node, text: str) -> None:
            worker.signal(signal.SIGHUP)
            eventually(lambda: text in worker.log, text, COLD_START_S)

        without = deployed.begin("worker")
        logs(without, f"no file to read again: set {environment.VARIABLE}")
        assert without.stop() == 0
        deployed.environment[environment.VARIABLE] = str(file)
        worker = deployed.begin("worker")
        file.unlink()
        logs(worker, "the environment stays as it was")
        file.write_text("HOST_TOKEN=other\n")
        logs(worker, "changed: HOST_TOKEN")
        assert worker.stop() == 0


def test_a_file_that_cannot_be_read_is_named_at_the_start(tmp_path: Path) -> None:
    """With the variable that names it."""
    done = CliRunner().invoke(main, ["serve"], env={environment.VARIABLE: str(tmp_path / "missing")})

    assert done.exit_code == 2
    assert f"{tmp_path / 'missing'} ({environment.VARIABLE}): No such file" in done.stderr


def test_values_are_taken_as_systemd_takes_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With or without quotes around them; a variable that is no longer there is unset."""
    (file := tmp_path / "environment").write_text('A_=a b\n; note\n\nexport B_="b\'"\nC_=\nD_=\'x="y"\'\n')
    monkeypatch.setenv(environment.VARIABLE, str(file))
    seen: list[dict[str, str | None]] = []
    for text in (file.read_text(), "A_=2\n", "E_=1\n"):
        file.write_text(text)
        environment.load(lambda given: seen.append({name: given.get(name) for name in ("A_", "B_", "C_", "D_")}))

    assert seen == [
        {"A_": "a b", "B_": "b'", "C_": "", "D_": 'x="y"'},
        {"A_": "2", "B_": None, "C_": None, "D_": None},
        dict.fromkeys(("A_", "B_", "C_", "D_")),
    ]
    for wrong in ("A_='a\n", "1A=b\n", "A B=c\n", "A_=\0\n"):
        file.write_text(wrong)
        with pytest.raises(SettingsError, match="line 1 is not NAME=value"):
            environment.load()
    file.chmod(0o646)
    with pytest.raises(SettingsError, match="everyone may write it: chmod o-w"):
        environment.load()
