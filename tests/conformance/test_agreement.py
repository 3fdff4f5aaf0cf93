"""The service's own description (/openapi.json) and the transcribed specification agree."""

from typing import Any

from tests.conformance.conftest import Subject

METHODS = {"get", "put", "post", "delete", "patch"}


def operations(document: dict[str, Any], prefix: str = "") -> dict[str, dict[str, Any]]:
    """Return `POST /external/runs` to the operation, references resolved."""
    return {
        f"{method.upper()} {path.removeprefix(prefix)}": resolved(document, operation)
        for path, item in document["paths"].items()
        for method, operation in item.items()
        if method in METHODS
    }


EXTENSIONS = {
    "GET /external/agents",
    "GET /external/invitations",
    "GET /external/questions",
    "GET /external/runs/{run_id}",
    "GET /external/runs/{run_id}/diff",
    "GET /external/runs/{run_id}/turns/{n}/artifacts/{name}",
    "GET /external/runs/{run_id}/turns/{n}/diff",
    "GET /external/runs/{run_id}/turns/{n}/log",
    "POST /external/invitations/{invitation_id}/resend",
    "POST /external/runs/{run_id}/cancel",
    "POST /external/runs/{run_id}/messages",
}
"""What the service offers in addition to the specification, under its own tag."""


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


def parameters(operation: dict[str, Any]) -> dict[tuple[str, str], list[Any]]:
    keys = ("type", "format", "minimum", "maximum", "default", "enum")
    return {
        (one["in"], one["name"]): [one.get("required", False), *(one["schema"].get(key) for key in keys)]
        for one in operation.get("parameters", [])
    }


def body(operation: dict[str, Any]) -> Any:
    if "requestBody" not in operation:
        return None
    (kind, content), *more = operation["requestBody"]["content"].items()
    return operation["requestBody"]["required"], kind, more, shape(content["schema"])


def statuses(operation: dict[str, Any]) -> set[str]:
    """Return the documented statuses without `default`, which covers 405 and others."""
    return set(operation["responses"]) - {"default"}


def shape(schema: dict[str, Any]) -> Any:
    """Return the required fields and the types of all fields, nested objects included."""
    fields = schema.get("properties", {}).items()
    nested = {name: (types(one), shape(one) if types(one) == {"object"} else None) for name, one in fields}
    return sorted(schema.get("required", [])), nested


def types(schema: dict[str, Any]) -> set[str]:
    if "anyOf" in schema:
        return set().union(*(types(one) for one in schema["anyOf"]))
    found = schema.get("type", [])
    return {found} if isinstance(found, str) else set(found)


def test_the_services_openapi_matches_the_specification(specification: Any, subject: Subject) -> None:
    """Both descriptions have the same six operations under /v1 with their parameters, bodies and statuses.

    Extensions are marked, and each call names who may make it.
    """
    described = subject.description()
    ours, theirs = operations(described, "/v1"), operations(specification)

    assert set(ours) - EXTENSIONS == set(theirs)
    assert {name for name, operation in ours.items() if operation.get("tags") == ["results"]} == EXTENSIONS
    assert all(path.startswith("/v1/") for path in described["paths"])
    assert described["info"]["version"] == specification["info"]["version"]
    for name, operation in theirs.items():
        for aspect in (parameters, body, statuses):
            assert aspect(ours[name]) == aspect(operation), name
    for operation in (*ours.values(), *theirs.values()):
        for status, answer in operation["responses"].items():
            if status == "default" or int(status) >= 400:
                schema = answer["content"]["application/json"]["schema"]
                assert schema["required"] == ["message"]
                assert types(schema["properties"]["error_code"]) == {"string", "null"}
    assert [name for name, operation in ours.items() if not operation["security"]] == []
