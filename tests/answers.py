"""What a service answers to writes, word for word, and what it was sent."""

from tests.fault_server import FaultServer

ORGANIZATION = {
    "organization_id": "org_1",
    "organization_name": "Example",
    "organization_slug": "example",
    "parent_organization_id": "org_0",
}


RUN = {
    "run_id": "run_1",
    "status": "queued",
    "branch_name": "agent/x",
    "repository": {"platform": "github", "data": {"owner": "acme", "repo": "api"}},
    "created_at": "2026-05-01T12:00:00Z",
    "updated_at": "2026-05-01T12:00:00Z",
}


EXECUTION = {
    "agent_name": "nightly",
    "execution_id": "exe_1",
    "repository": "acme/api",
    "status": "queued",
    "created_at": "2026-05-01T12:00:00Z",
}


CREATE = ("orgs", "create", "New.Admin@example.com", "--json")


def posts(server: FaultServer) -> list[bytes]:
    return [request.body for request in server.requests if request.method == "POST"]
