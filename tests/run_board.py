"""A peer whose runs a test can change at will: it lists them over a real socket, as the spec says or with a quirk.

The real service executes its runs, so a test cannot make one vanish, come alive again or change between two pages; here
it can.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

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
    ignore_dates: bool = False
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
        if not self.ignore_dates:
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

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            query = {key: values[-1] for key, values in parse_qs(url.query).items()}
            status, body = (200, {"code_hosting": board.health}) if "health" in url.path else board.answer(query)
            payload = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    board.base_url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield board
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
