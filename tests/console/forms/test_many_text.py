"""What the form for many runs says of one."""

import pytest

from app.console.runs.batch import CONTINUE, RETRY, START_LIKE, ManyText


@pytest.mark.parametrize(
    ("text", "one", "done"),
    [
        (CONTINUE, "Continues 1 run.", "1 of 1 run continued"),
        (START_LIKE, "Starts 1 run.", "1 of 1 run started"),
        (RETRY, "Sends the last instructions of 1 run that failed once more.", "1 of 1 run started again"),
    ],
)
def test_one_run_is_not_told_as_several(text: ManyText, one: str, done: str) -> None:
    """Nor as one after the other; several are."""
    assert (text.outlook(1), text.outcome(1, 1)) == (one, done)
    assert text.outlook(2).startswith(f"{one.removesuffix('.').replace('1 run', '2 runs')}, one after the other")
    assert text.outcome(1, 2) == done.replace("1 run", "2 runs")
