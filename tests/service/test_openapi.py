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


def test_the_description_is_whole_and_promises_no_422(api: Any) -> None:
    """Every reference leads somewhere, every operation has its failures; that it agrees with the spec: conformance."""
    document = api.http.get(api.service.base_url.removesuffix("/v1") + "/openapi.json").json()
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]

    assert len(operations) == 6
    assert all({"401", "403", "404", "429", "500", "default"} <= set(one["responses"]) for one in operations)
    assert all("422" not in one["responses"] for one in operations)
    for reference in references(document):
        node: Any = document
        for step in reference.removeprefix("#/").split("/"):
            node = node[step]
