"""Prometheus and Grafana: a real Prometheus scrapes the bot, and what ships asks for figures that there are."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from app.automations.metrics import DURATIONS, FIGURES
from tests.automations.test_acting import service
from tests.automations.test_watch_command import cli
from tests.service_process import ROOT

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


def test_the_dashboard_shows_every_figure() -> None:
    """And no other; that alerts ask for figures that there are, tests/distribution/test_facts.py shows."""
    dashboard = json.loads(DASHBOARD.read_text())
    shown = {
        name
        for panel in dashboard["panels"]
        for each in panel["targets"]
        for name in re.findall(r"\brunwarden_\w+", each["expr"])
    }

    assert shown == {*NAMES} - {f"{DURATIONS}_count", f"{DURATIONS}_sum"}
