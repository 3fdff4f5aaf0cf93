"""A peer whose runs a test can change at will: it lists them over a real socket, as the spec says or with a quirk.

The real service executes its runs, so a test cannot make one vanish, come alive again or change between two pages; here
it can.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.fault_server import FaultServer, Received, Respond

START = datetime(2026, 5, 1, 12, tzinfo=UTC)


def stamp(minutes: float) -> str:
    """An instant so many minutes into the test's day, as the service writes it."""
    return (START + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@dataclass
class Board:
    """The runs that are listed, and how the listing misbehaves."""

    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    health: dict[str, Any] = field(default_factory=dict)
    requests: list[dict[str, str]] = field(default_factory=list)
    """The query of each list request, oldest first."""
    ignore_status: bool = False
    fail_from: int | None = None
    """The number of the first list request, from 0, that is answered with 429."""
    base_url: str = ""

    def put(self, run_id: str, status: str, *, created: float, updated: float | None = None, **fields: Any) -> None:
        """Adds or replaces a run; times are minutes into the test's day."""
        self.runs[run_id] = {
            "run_id": run_id,
            "status": status,
            "branch_name": "main",
            "repository": {"platform": "github", "data": {"owner": "acme", "repo": "api"}},
            "created_at": stamp(created),
            "updated_at": stamp(created if updated is None else updated),
            **fields,
        }

    def answer(self, query: dict[str, str]) -> tuple[int, dict[str, Any]]:
        """The status and body for a list request."""
        number = len(self.requests)
        self.requests.append(query)
        if self.fail_from is not None and number >= self.fail_from:
            return 429, {"message": "slow down"}
        runs = sorted(self.runs.values(), key=lambda run: (run["created_at"], run["run_id"]), reverse=True)
        if "status" in query and not self.ignore_status:
            runs = [run for run in runs if run["status"] == query["status"]]
        runs = [run for run in runs if _within(run["created_at"], query)]
        size, start = int(query.get("page_size", "10")), int(query.get("page_token", "0"))
        rest = start + size < len(runs)
        return 200, {
            "runs": runs[start : start + size],
            "page_size": size,
            "next_token": str(start + size) if rest else None,
            "total_count": len(runs),
        }


def _within(created: str, query: dict[str, str]) -> bool:
    at = datetime.fromisoformat(created)
    start, end = query.get("date_from"), query.get("date_to")
    return (start is None or at >= datetime.fromisoformat(start)) and (end is None or at <= datetime.fromisoformat(end))


@contextmanager
def served(board: Board) -> Iterator[Board]:
    """The board on a free loopback port."""

    def answer(request: Received) -> Respond:
        if request.method != "GET":
            return Respond(501, {"message": "the board only lists"})
        if "health" in request.path:
            return Respond(200, {"code_hosting": board.health})
        query = {key: values[-1] for key, values in parse_qs(urlsplit(request.target).query).items()}
        return Respond(*board.answer(query))

    with FaultServer() as server:
        server.otherwise = answer
        board.base_url = server.base_url
        yield board
