"""The machine-readable description that the service gives of itself."""

from collections.abc import Iterator
from typing import Any


def references(node: Any) -> Iterator[str]:
    """Yield every $ref in a document."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref":
                yield value
            else:
                yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def test_every_path_of_the_spec_is_described_and_no_422(api: Any) -> None:
    """The six operations with their success status and the failure body; every reference leads somewhere."""
    document = api.http.get(api.service.base_url.removesuffix("/v1") + "/openapi.json").json()
    described = {
        f"{method.upper()} {path}": set(operation["responses"])
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }

    assert described == {
        "POST /v1/external/organizations": {"201", "default"},
        "GET /v1/external/runs": {"200", "default"},
        "POST /v1/external/runs": {"201", "default"},
        "POST /v1/external/agents/{name}/runs": {"201", "default"},
        "GET /v1/external/installation/health": {"200", "default"},
        "POST /v1/external/gitlab/projects": {"200", "default"},
    }
    for reference in references(document):
        node: Any = document
        for step in reference.removeprefix("#/").split("/"):
            node = node[step]
