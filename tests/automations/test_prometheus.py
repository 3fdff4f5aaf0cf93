"""Prometheus and Grafana: a real Prometheus scrapes the bot, and what ships asks for figures that there are."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from app.automations.metrics import DURATIONS, FIGURES
from tests.automations.test_acting import RUN, Service, automation, configured, service
from tests.automations.test_watch_command import cli, line, watching
from tests.cli.conftest import CommandLine
from tests.fault_server import free_port
from tests.service_process import ROOT
from tests.waiting import eventually

__all__ = ["cli", "service"]
SHIPPED = ROOT / "deploy" / "prometheus"
DASHBOARD = ROOT / "deploy" / "grafana" / "runwarden-watch.json"
NAMES = {
    *(f"runwarden_{name}" for name in FIGURES),
    *(f"{DURATIONS}{end}" for end in ("_bucket", "_count", "_sum")),
}
PROMETHEUS = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="Prometheus is not installed; on Debian: apt-get install prometheus",
)


@PROMETHEUS
@pytest.mark.parametrize(
    "arguments",
    [("check", "config", SHIPPED / "watch.yml"), ("test", "rules", Path(__file__).parent / "watch.test.yml")],
)
def test_promtool_accepts_what_ships_and_the_alerts_fire(arguments: tuple[str, ...]) -> None:
    """Each alert fires on what it is for, and none on a bot that is well."""
    checked = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)

    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_alert_is_tried() -> None:
    """In the test that promtool runs."""
    alerts = set(re.findall(r"alert: (\w+)", (SHIPPED / "watch.rules.yml").read_text()))

    assert alerts == set(re.findall(r"alertname=\"(\w+)\"", (Path(__file__).parent / "watch.test.yml").read_text()))
    assert alerts >= set(re.findall(r"Runwarden\w+", (SHIPPED / "alertmanager.yml").read_text()))


def test_the_alerts_and_the_dashboard_ask_for_figures_that_there_are() -> None:
    """An alert on a figure that is not there never fires; the dashboard shows every one."""
    alerts = set(re.findall(r"\brunwarden_\w+", (SHIPPED / "watch.rules.yml").read_text()))
    dashboard = json.loads(DASHBOARD.read_text())
    shown = {
        name
        for panel in dashboard["panels"]
        for each in panel["targets"]
        for name in re.findall(r"\brunwarden_\w+", each["expr"])
    }

    assert alerts
    assert alerts <= NAMES
    assert shown == {*NAMES} - {f"{DURATIONS}_count", f"{DURATIONS}_sum"}


@PROMETHEUS
def test_a_real_prometheus_scrapes_the_bot(service: Service, cli: CommandLine, tmp_path: Path) -> None:
    """With the configuration that ships, but for the address; it can evaluate every alert and every panel."""
    configured(service, cli.home, automation('{ continue = "go on" }'))
    service.runs = [RUN]
    for file in (SHIPPED / "watch.yml", SHIPPED / "watch.rules.yml"):
        shutil.copy(file, tmp_path)
    port = free_port()

    def answer(path: str, **params: str) -> Any:
        try:
            with urlopen(f"http://127.0.0.1:{port}/api/v1/{path}?{urlencode(params)}") as said:
                return json.load(said)["data"]
        except (URLError, OSError, ValueError, KeyError):
            return {}

    with watching(cli, "--metrics", "0") as bot:
        address = str(line(bot, "metrics")["address"])
        text = (tmp_path / "watch.yml").read_text().replace("127.0.0.1:9464", address).replace("15s", "1s")
        (tmp_path / "watch.yml").write_text(text)
        argv = [
            "prometheus",
            "--config.file=watch.yml",
            f"--web.listen-address=127.0.0.1:{port}",
            "--storage.tsdb.path=data",
        ]
        server = subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=(tmp_path / "log").open("wb"))
        try:
            query = 'runwarden_runs{status="failed"} == 1'
            eventually(lambda: bool(answer("query", query=query).get("result")), "it scrapes the runs")
            (seen,) = answer("targets")["activeTargets"]
            panels = [
                each["expr"] for panel in json.loads(DASHBOARD.read_text())["panels"] for each in panel["targets"]
            ]
            usable = [answer("query", query=expr.replace("$profile", ".*")).get("resultType") for expr in panels]
            alerts = answer("rules")["groups"][0]["rules"]
        finally:
            server.kill()
            server.wait()

    assert (seen["health"], seen["lastError"]) == ("up", "")
    assert {*usable} == {"vector"}
    assert {alert["health"] for alert in alerts} <= {"ok", "unknown"}
