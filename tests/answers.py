"""A command that writes, and what it sent."""

from tests.lab import EXECUTION, ORGANIZATION, RUN, Server

__all__ = ["CREATE", "EXECUTION", "ORGANIZATION", "RUN", "posts"]

CREATE = ("orgs", "create", "New.Admin@example.com", "--json")


def posts(server: Server) -> list[bytes]:
    return [request.body for request in server.requests if request.method == "POST"]
