"""`python -m bench.peer COUNT [SECONDS]`: a service with so many runs that never change, and so far away.

It prints its base address.
"""

import json
import sys
import time
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

NEWEST = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=5)
STEP = timedelta(seconds=30)
"""Between the creations of two runs."""


class Peer(BaseHTTPRequestHandler):
    """Lists runs newest first, by the spec 4.2; the page token is a place in the list."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    count = 0
    latency_s = 0.0

    def do_GET(self) -> None:
        """Answers the two reading endpoints."""
        url = urlsplit(self.path)
        query = {key: values[-1] for key, values in parse_qs(url.query).items()}
        answers = {"runs": self._list, "health": lambda _: {"code_hosting": {"github": {"status": "ok"}}}}
        answer = answers.get(url.path.rpartition("/")[2])
        body = answer(query) if answer else {"message": "There is no such endpoint."}
        payload = json.dumps(body).encode()
        time.sleep(self.latency_s)
        self.send_response(200 if answer else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def _list(self, query: dict[str, str]) -> dict[str, object]:
        first, last = 0, self.count
        if "date_to" in query:
            first = max(0, -((datetime.fromisoformat(query["date_to"]) - NEWEST) // STEP))
        if "date_from" in query:
            last = min(last, (NEWEST - datetime.fromisoformat(query["date_from"])) // STEP + 1)
        if query.get("status", "completed") != "completed":
            last = first
        start, size = max(first, int(query.get("page_token", first))), int(query.get("page_size", 10))
        end = min(last, start + size)
        return {
            "runs": [run(n) for n in range(start, end)],
            "page_size": size,
            "next_token": str(end) if end < last else None,
            "total_count": max(0, last - first),
        }

    def log_message(self, *_: object) -> None:
        """Quiet."""


def run(number: int) -> dict[str, object]:
    """The run at a place of the list, newest first."""
    created = NEWEST - number * STEP
    return {
        "run_id": f"run_{10**9 - number:020d}",
        "status": "completed",
        "branch_name": f"agent/topic-{number % 5000}",
        "repository": {"platform": "github", "data": {"owner": "acme", "repo": f"service-{number % 40}"}},
        "created_at": created.isoformat(),
        "updated_at": (created + timedelta(seconds=90)).isoformat(),
    }


def main() -> None:
    """Serves until it is killed."""
    Peer.count = int(sys.argv[1])
    Peer.latency_s = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
    server = ThreadingHTTPServer(("127.0.0.1", 0), Peer)
    server.daemon_threads = True
    print(f"http://127.0.0.1:{server.server_address[1]}/v1", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
