"""What the service says of itself (/openapi.json) and the transcribed specification say the same."""

from typing import Any

import pytest

from tests.conformance.conftest import Subject

METHODS = {"get", "put", "post", "delete", "patch"}


@pytest.fixture(scope="module")
def described(subject: Subject) -> dict[str, Any]:
    return dict(subject.http.get(f"{subject.root}/openapi.json").json())


def operations(document: dict[str, Any], prefix: str = "") -> dict[str, dict[str, Any]]:
    """Return `POST /external/runs` to the operation, references resolved."""
    return {
        f"{method.upper()} {path.removeprefix(prefix)}": resolved(document, operation)
        for path, item in document["paths"].items()
        for method, operation in item.items()
        if method in METHODS
    }


EXTENSIONS = {
    "GET /external/runs/{run_id}",
    "GET /external/runs/{run_id}/diff",
    "GET /external/runs/{run_id}/turns/{n}/diff",
    "GET /external/runs/{run_id}/turns/{n}/log",
    "POST /external/runs/{run_id}/cancel",
}
"""What the service has beside the specification, under a tag that says so."""


def resolved(document: dict[str, Any], node: Any) -> Any:
    if isinstance(node, list):
        return [resolved(document, one) for one in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        target: Any = document
        for step in node["$ref"].removeprefix("#/").split("/"):
            target = target[step]
        return resolved(document, target)
    return {key: resolved(document, value) for key, value in node.items()}


def parameters(operation: dict[str, Any]) -> dict[tuple[str, str], tuple[bool, Any, Any, Any]]:
    return {
        (one["in"], one["name"]): (
            one.get("required", False),
            one["schema"].get("type"),
            one["schema"].get("format"),
            [one["schema"].get(key) for key in ("minimum", "maximum", "default", "enum")],
        )
        for one in operation.get("parameters", [])
    }


def body(operation: dict[str, Any]) -> dict[str, Any] | None:
    if "requestBody" not in operation:
        return None
    assert operation["requestBody"]["required"] is True
    assert list(operation["requestBody"]["content"]) == ["application/json"]
    return shape(operation["requestBody"]["content"]["application/json"]["schema"])


def statuses(operation: dict[str, Any]) -> set[str]:
    """Return the documented statuses; `default`, which stands for 405 and the like, is no status."""
    return set(operation["responses"]) - {"default"}


def shape(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the required fields and the types of all fields, nested objects included."""
    return {
        "required": sorted(schema.get("required", [])),
        "fields": {
            name: (types(one), shape(one) if types(one) == {"object"} else None)
            for name, one in schema["properties"].items()
        }
        if "properties" in schema
        else {},
    }


def types(schema: dict[str, Any]) -> set[str]:
    if "anyOf" in schema:
        return set().union(*(types(one) for one in schema["anyOf"]))
    found = schema.get("type", [])
    return {found} if isinstance(found, str) else set(found)


def test_paths_and_methods_agree(specification: dict[str, Any], described: dict[str, Any]) -> None:
    """The same six operations, under /v1, in the same version of the API; extensions are marked as such."""
    ours = operations(described, "/v1")
    assert set(ours) - EXTENSIONS == set(operations(specification))
    assert {name for name, operation in ours.items() if operation.get("tags") == ["results"]} == EXTENSIONS
    assert all(path.startswith("/v1/") for path in described["paths"])
    assert described["info"]["version"] == specification["info"]["version"]


@pytest.mark.parametrize("aspect", [parameters, body, statuses], ids=["in", "body", "out"])
def test_operations_agree(specification: dict[str, Any], described: dict[str, Any], aspect: Any) -> None:
    """Parameters with their bounds and defaults; bodies with required fields and types; statuses."""
    ours, theirs = operations(described, "/v1"), operations(specification)

    for name, operation in theirs.items():
        assert aspect(ours[name]) == aspect(operation), name


def test_every_failure_is_described_by_the_failure_body(
    specification: dict[str, Any], described: dict[str, Any]
) -> None:
    """On both sides: a message that is required, and an error_code that may be null (spec 2.8)."""
    for document in (specification, described):
        for operation in operations(document).values():
            for status, answer in operation["responses"].items():
                if status == "default" or int(status) >= 400:
                    schema = answer["content"]["application/json"]["schema"]
                    assert schema["required"] == ["message"]
                    assert types(schema["properties"]["error_code"]) == {"string", "null"}
