"""The log has one line for each request and turn with who and what, and no secrets."""

import json
import logging
from pathlib import Path
from typing import Any, get_args

import pytest

from service.observability.log import Masks, formatter
from service.settings import LogFormat
from tests.service.conftest import BARE, UNBOXED, Api
from tests.service_process import Node, start_service

SECRET = "s3cr3t/of a log"
FOREIGN = f"\x1b[31mred\x07 \ud800 2\nlines {SECRET} the-k3y Bearer abcdefgh https://me:pa55word@host/x rwt_{'a' * 43}"
WANTED = ("s3cr3t", "the-k3y", "abcdefgh", "pa55word", "rwt_", "\x1b", "\x07", "\ud800")


def test_foreign_text_in_the_log_is_cleaned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages, fields and tracebacks are all cleaned; text of several lines is still one record."""
    monkeypatch.setenv("LENT", SECRET)
    monkeypatch.setenv("SOME_API_KEY", "the-k3y")
    (masks := Masks()).add(["LENT"])
    assert [word for word in WANTED if word in repr(masks)] == []
    with pytest.raises(ValueError, match="red") as raised:
        raise ValueError(FOREIGN)

    def formatted(form: LogFormat, message: str, error: Any = None, extra: dict[str, object] | None = None) -> str:
        traced = None if error is None else (type(error), error, error.__traceback__)
        made = logging.getLogger("x").makeRecord("x", logging.INFO, "f", 1, message, (), traced, extra=extra)
        return formatter(form, masks).format(made)

    for form in get_args(LogFormat):
        for text in (
            formatted(form, FOREIGN),
            formatted(form, "x", extra={"actor": FOREIGN}),
            formatted(form, "x", raised.value),
        ):
            assert [word for word in WANTED if word in text or json.dumps(word)[1:-1] in text] == []
            lines = text.splitlines()
            assert all(line.startswith("    ") for line in lines[1:])
            assert form == "text" or len(lines) == 1


def lines(node: Node, logger: str) -> list[dict[str, Any]]:
    """Return the records of a logger in a service's log; each must be one line."""
    records: list[dict[str, Any]] = [json.loads(line) for line in node.log.splitlines()]
    return [record for record in records if record["logger"].startswith(logger)]


def test_each_request_and_turn_has_a_log_line(tmp_path: Path) -> None:
    """The line has who asked for what, its result and its duration; a well-formed id of the caller's is kept."""
    api = Api(start_service(tmp_path, settings=f'{UNBOXED}[log]\nformat = "json"\n'))
    run_id = api.start("fail")
    api.ended(run_id)
    given = api.get("/external/runs", headers={"X-Request-Id": "trace-1:a.b_c"})
    made = api.post("/external/runs/none/cancel", {}, headers={"X-Request-Id": "x\ty; rm"})
    stranger = BARE.get(f"{api.service.base_url}/external/runs?{api.token}")
    BARE.get(f"{api.service.base_url.removesuffix('/v1')}/livez")
    assert api.service.stop() == 0
    by_id = {one["request_id"]: one for one in lines(api.service, "service.observability.requests")}
    # Matched by their ids, since a line follows its answer and may come after later requests' lines.
    requests = [by_id[one.headers["X-Request-Id"]] for one in (given, made, stranger)]
    turn = lines(api.service, "service.execution.turn")[0]

    assert given.headers["X-Request-Id"] == requests[0]["request_id"] == "trace-1:a.b_c"
    assert made.headers["X-Request-Id"] == requests[1]["request_id"] != "x\ty; rm"
    assert [one["status"] for one in requests] == [200, 404, 401]
    assert "/livez" not in {one["route"] for one in by_id.values()}
    assert [one["route"] for one in requests[:2]] == ["/v1/external/runs", "/v1/external/runs/{run_id}/cancel"]
    assert [one["actor"] for one in requests] == ["tests", "tests", None]
    assert {one["organization"] for one in requests[:2]} == {"acme"} == {turn["organization"]}
    assert requests[0]["token_id"].startswith("tok_")
    assert all(one["duration_ms"] > 0 for one in requests)
    assert (turn["run_id"], turn["turn"]) == (run_id, 1)
    assert api.token not in api.service.log
