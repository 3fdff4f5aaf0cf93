"""Routing: the first rule that matches, and mistakes in the file are named with their line."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from app.notify.plan import routes_of
from app.profiles import ConfigError
from app.profiles.load import parse
from app.profiles.settings import DEFAULT_ROUTE
from storage.records.alert import Alert

NIGHT = datetime(2026, 5, 1, 3).astimezone()
FAILED = Alert(
    *("failed:acme/api", "", DEFAULT_ROUTE, "error", "t", {"repository": "acme/api"}), key="k", body="", at=NIGHT
)
ROUTES = "\n".join(f"[notify.routes.{name}]\ndesktop = true" for name in ("oncall", "team", "log")) + "\n"
RULES = """
[[notify.rules]]
severity = "error"
repository = ["acme/*", "other"]
hours = "22:00-07:00"
route = "oncall"
[[notify.rules]]
kind = "host"
routes = ["oncall", "team"]
[[notify.rules]]
severity = "warning"
route = "team"
"""


@pytest.mark.parametrize(
    ("hour", "change", "routes"),
    [
        (3, {}, ("oncall",)),
        (12, {}, ("team",)),
        (3, {"about": {"repository": "acmes"}}, ("team",)),
        (3, {"level": "warning"}, ("team",)),
        (3, {"group": "host:github", "about": {}}, ("oncall", "team")),
        (3, {"level": "information"}, ()),
        (3, {"route": "log"}, ("log",)),
    ],
)
def test_severity_kind_repository_and_hour_choose(
    hour: int, change: dict[str, object], routes: tuple[str, ...]
) -> None:
    """The first that matches; what names its route needs none."""
    notify = parse(Path("/c.toml"), ROUTES + RULES).notify

    assert routes_of(replace(FAILED, **change), notify, NIGHT + timedelta(hours=hour - 3)) == routes  # type: ignore[arg-type] # fields by name


def test_without_rules_everything_goes_over_the_channels_of_notify() -> None:
    """The default needs no table."""
    assert routes_of(FAILED, parse(Path("/c.toml"), "").notify, NIGHT) == ("default",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[notify.rules]]\nroute = "elsewhere"', "notify.rules[1].route: there is no route 'elsewhere'"),
        ('[[notify.rules]]\nroute = "team"\nkind = "failure"', "notify.rules[1].kind: 'failure' is not known"),
        ('[[notify.rules]]\nroute = "team"\nseverity = "critical"', "information, warning, error"),
        ('[[notify.rules]]\nroute = "team"\nhours = "25:00-26:00"', "are not valid hours"),
        ('[notify.routes.x]\ncommand = ["a"]\ntitle = "{branche}"', "there is no placeholder {branche}"),
        ('[notify.routes.x]\ncommand = ["a"]\ntext = "{rule.name}"', "there is no placeholder {rule.name}"),
        ('[notify.routes.x]\ncommand = ["a"]\nmarkup = "bbcode"', "text, markdown, html"),
        ('[notify.routes.x]\ncommand = ["a"]\nrepeat = "5s"', "notify.routes.x.repeat: 5s is out of range"),
        ('[notify.routes.x]\ncommand = ["a"]\nescalate_after = "5m"', "there is no such key"),
        ('[notify.routes.x]\ncommand = ["a"]\nfallback = "y"', "there is no route 'y'"),
        ('[notify.routes.x]\ncommand = ["a"]\nfallback = "x"', "leads back to itself"),
        ('[notify.routes.default]\ncommand = ["a"]', "Choose another name"),
        ('[notify]\ngroup_wait = "soon"', "'soon' is not a valid duration"),
    ],
)
def test_a_mistake_is_refused_with_its_line(text: str, said: str) -> None:
    """Before anything is told."""
    with pytest.raises(ConfigError) as error:
        parse(Path("/c.toml"), ROUTES + text)

    assert said in str(error.value)
    assert (error.value.line or 0) > 5
