"""The file with the service's variables, which is read again on SIGHUP."""

import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from service.cli.environment import ENVIRONMENT_VARIABLE, EnvironmentFile
from service.settings import SettingsError
from tests.service.conftest import METRICS_TOKEN, UNBOXED, Api, member, placed
from tests.service.git_hosts import GitHttpHost
from tests.service_process import demo_setup, make_repository
from tests.waiting import COLD_START_S, eventually


def test_a_rotated_token_needs_no_restart(start: Callable[..., Api], tmp_path: Path) -> None:
    """Tokens of code hosts and of scraping are read again; an unusable file changes nothing, and no value is logged."""
    make_repository(tmp_path / "hosted" / "acme" / "api", {"README.md": "# api\n"})
    file = tmp_path / "environment"
    file.write_text(f"# Tokens\nHOST_TOKEN=first-token\nRUNWARDEN_METRICS_TOKEN='{METRICS_TOKEN}'\n")
    with closing(GitHttpHost(tmp_path / "hosted", "first-token")) as host:
        url = f"{host.origin}/{{path}}.git"
        entry = {"platform": "github", "host": "127.0.0.1", "probe": "git", "clone_url": url, "token_env": "HOST_TOKEN"}
        setup = demo_setup(tmp_path) | {"organizations": [member(hosts=[entry], repositories=[placed()])]}
        api = start(setup=setup, settings=UNBOXED, environment={ENVIRONMENT_VARIABLE: str(file)})

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
        ):
            read_again(text, why)
        read_again(
            "HOST_TOKEN=second-token\nRUNWARDEN_METRICS_TOKEN=\n", "changed: HOST_TOKEN, RUNWARDEN_METRICS_TOKEN"
        )
        turn = api.work("write it again", "scribe")

        assert turn["outcome"] == "completed", turn["log"]
        assert api.http.get(api.service.base_url.replace("/v1", "/metrics"), headers=bearer).status_code == 404
        assert "second-token" not in api.service.log


def test_a_world_writable_file_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error has the fix."""
    file = tmp_path / "environment"
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(file))
    file.write_text("A_=1\n")
    file.chmod(0o646)
    with pytest.raises(SettingsError, match="everyone may write it: chmod o-w"):
        EnvironmentFile().load()
