"""Reading automations: defaults, and every error with its line and its fix."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from app.automations.rule import (
    NO_LIMIT,
    UNLIMITED,
    DoAgent,
    DoContinue,
    Limit,
    OnHealth,
    OnRun,
    OnSchedule,
    Rule,
    Scope,
)
from app.automations.sentence import limits, sentence, warnings
from app.profiles import ConfigError, NotifySettings, Settings
from app.profiles.load import parse

NOW = datetime(2026, 5, 1, tzinfo=UTC)
DESIGN = """
[[automations]]
name = "nightly security review"
on = { schedule = "0 3 * * mon-fri", timezone = "Europe/Berlin" }
do = { agent = "security-review", repository = "acme/api", inputs = { depth = "full" } }

[[automations]]
name = "second chance"
on = { run = "failed", repository = "acme/*" }
do = { continue = "The run failed. Find out why, fix it, and finish the job." }
limit = { per_conversation = 1, per_hour = 5 }

[[automations]]
name = "page on bad code host"
on = { health = "not ok", for = "5m" }
do = { notify = "oncall" }

[notify.routes.oncall]
command = ["page", "{title}"]
"""


def rules(text: str) -> tuple[Rule, ...]:
    return loaded(text).automations


def loaded(text: str) -> Settings:
    return parse(Path("/etc/config.toml"), text)


def rule(**keys: str) -> str:
    """One automation's table; empty keys are left out."""
    base = {"name": '"r"', "on": '{ run = "failed" }', "do": '{ notify = "default" }'}
    lines = [f"{key} = {value}" for key, value in {**base, **keys}.items() if value]
    return "\n".join(["[[automations]]", *lines])


def test_the_examples_of_the_documentation_are_read() -> None:
    """The examples get the defaults that the documentation states."""
    nightly, second, page = rules(DESIGN)

    assert nightly.on == OnSchedule("0 3 * * mon-fri", "Europe/Berlin")
    assert nightly.do == DoAgent("security-review", "acme/api", None, (("depth", "full"),))
    assert second.on == OnRun("failed", None, Scope(("acme/*",)))
    assert isinstance(second.do, DoContinue)
    assert second.limit == Limit(per_conversation=1, per_hour=5, per_day=100)
    assert page.on == OnHealth(lasting=timedelta(minutes=5))
    assert (nightly.overlap, nightly.catch_up, nightly.pause_after) == ("skip", timedelta(hours=1), 5)
    assert nightly.limit == Limit(3, 20, 100)
    assert page.limit == NO_LIMIT
    (few,) = rules(rule(limit="{ per_hour = 5 }"))
    assert few.limit == Limit(UNLIMITED, 5, UNLIMITED)
    assert (nightly.needs_approval, nightly.approval_expires, nightly.quiet) == (False, timedelta(hours=24), None)


def test_a_mistake_is_named_with_its_line_and_its_fix() -> None:
    """After any error, nothing of the file is used."""
    for text, words in (
        (rule(on="{ }"), "says nothing"),
        (rule(on='{ run = "failed", health = "not ok" }'), "several things"),
        (rule(do='{ notify = "oncal" }'), "there is no route"),
        (rule(on='{ every = "10s" }'), "out of range. Use 60s"),
        (rule(profile='"acme"'), "there is no such profile"),
        (rule(on='{ schedule = "0 3 * * *", timezone = "Mars/Base" }'), "time zone"),
        (rule(do='{ start = "x", repository = "acme" }'), "not a repository"),
        (rule(name='"a\\nb"'), "cannot be a name"),
        (rule(on='{ run = "stuck", from = "working" }'), "does not change"),
        (rule(on='{ every = "6h" }', do='{ continue = "go on" }'), "needs a run"),
        (rule(do="{ retry = false }"), "must be true"),
        (rule(do='{ start = "{host.platform}", repository = "acme/api" }'), "no placeholder"),
        (rule(do='{ command = ["{run.id}"] }'), "cannot be a placeholder"),
        (rule(on='{ run = "failed", metadata = { team = 7 } }'), "a string"),
        (rule(limit="{ per_hour = 0 }"), "out of range"),
        (rule() + "\n" + rule(name='"R"'), "another automation"),
        ("[notify.routes.x]\n", "leads nowhere"),
    ):
        with pytest.raises(ConfigError, match=words) as caught:
            loaded(text)
        assert caught.value.fix, text
        assert caught.value.line is not None, text


def test_a_rule_says_in_a_sentence_what_it_does() -> None:
    """The sentence has the trigger, the action and the limits."""
    nightly, second, page = rules(DESIGN)

    assert sentence(nightly, NOW) == (
        "At 03:00 on Monday through Friday (Europe/Berlin), start the agent security-review on acme/api."
    )
    assert sentence(second, NOW).startswith("When a run in acme/* fails, continue it: “The run failed.")
    labelled, *_ = rules(rule(on='{ run = "stuck", branch = "x", metadata = { team = "x*", kind = ["a", "b"] } }'))
    assert sentence(labelled, NOW).startswith("When a run on x labelled team=x* and kind=a or b is stuck, ")
    assert sentence(page, NOW) == "When a code host is unhealthy for 5m, notify oncall."
    assert limits(second) == (
        "At most 1 a conversation, 5 an hour, 100 a day; not while its last run is active; at most 1h late;"
        " pauses after 5 failures in a row."
    )


def test_a_rule_that_is_hardly_meant_is_warned_of() -> None:
    """The warning comes before the rule is enabled. One whose route has no active channel reaches no one."""
    for text, words in (
        (rule(on='{ schedule = "30 3 * * *" }', quiet='"00:00-23:59"'), "never acts"),
        (rule(on='{ every = "1m" }', do='{ command = ["x"] }'), "limit.per_day"),
        (rule(do='{ continue = "again" }'), "trigger itself"),
        (rule(catch_up='"5s"'), "catch_up is 5s"),
        (rule(do="{ cancel = true }"), "never cancels anything"),
        (rule(approval="true", approval_expires='"1s"'), "approved in time"),
        (rule(on='{ run = "faild" }'), "not a status that the API specifies"),
        (rule(on='{ run = "failed", from = "failed" }'), "never acts"),
        (rule(on='{ health = "not ok", for = "36d" }'), "never acts"),
        (rule(on='{ schedule = "0 */1 * * *" }', limit="{ per_day = 23 }"), "24 times a day"),
        (
            rule(on='{ run = "stuck" }', do="{ cancel = true }", name='"a"') + "\n" + rule(do="{ retry = true }"),
            "each other",
        ),
        (rule(do="{ retry = true }", name='"a"') + "\n" + rule(do="{ retry = true }", name='"b"'), "each other"),
    ):
        found = rules(text)
        assert words in " ".join(warnings(found[0], found, NOW)), text
    found = rules(rule())
    assert "reaches no one" in " ".join(warnings(found[0], found, NOW, NotifySettings().silent))
    assert "reaches no one" not in " ".join(warnings(found[0], found, NOW, NotifySettings(command=("tell",)).silent))
