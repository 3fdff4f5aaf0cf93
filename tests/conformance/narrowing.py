"""The specification, narrowed to what exists in the tests' world: whatever fits it must be accepted."""

import copy
from typing import Any

NO_NUL = "^[^\\x00]*$"
PLAIN_VALUE = {
    "anyOf": [
        {"type": ["boolean", "null"]},
        {"type": "string", "pattern": NO_NUL},
        {"type": "integer", "minimum": -(2**63) + 1, "maximum": 2**63 - 1},
        {"type": "number", "minimum": -1e300, "maximum": 1e300},
        {"type": "array", "items": {"type": "string", "pattern": NO_NUL}},
    ]
}
FREE = {"additionalProperties": PLAIN_VALUE, "propertyNames": {"pattern": NO_NUL}}
FREE_OBJECT = {"type": ["object", "null"], "additionalProperties": PLAIN_VALUE}
PART = "[a-z0-9][a-z0-9_-]{0,40}"
BRANCH = {"anyOf": [{"type": "string", "pattern": f"^{PART}(/{PART}){{0,3}}$"}, {"type": "null"}]}
SEGMENT = "[A-Za-z0-9_][A-Za-z0-9._-]{0,99}"
WORD = "[a-z0-9]{1,20}"
EMAIL = {"type": "string", "pattern": f"^{WORD}([.+_-]{WORD}){{0,2}}@[a-z]{{1,20}}[.](com|org|example)$"}


def known(described: dict[str, Any]) -> dict[str, Any]:
    """Return what the service publishes of the same six operations, with what exists in the tests' world.

    Nothing of the form of a request is narrowed but what no schema can say: reserved domains, the bytes of a branch,
    what an object that is free holds, and that `data` needs a platform and goes with no repository.
    """
    made = copy.deepcopy(described)
    paths = made["paths"] = {
        path.removeprefix("/v1"): item
        for path, item in made["paths"].items()
        if not any(operation.get("tags") == ["results"] for operation in item.values())
    }

    def body(path: str) -> dict[str, Any]:
        schema = paths[path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        schema["additionalProperties"] = False
        return dict(schema["properties"])

    creation = body("/external/organizations")
    creation["offer_code"]["enum"] = ["PARTNER", "OLD", None]
    creation["email"]["pattern"] = creation["email"]["pattern"].replace("[A-Za-z]{1,63}$", "(com|org|example)$")
    del creation["email"]["format"]
    start, agent = body("/external/runs"), body("/external/agents/{name}/runs")
    start["run_id"]["enum"] = [None]
    agent["repository"]["enum"] = ["acme/api", "acme/tools", "web", "https://gitlab.example/acme/tools.git"]
    for branch in (start["branch_name"], agent["branch_name"]):
        branch["anyOf"][0]["maxLength"] = 50
    for free in (start["metadata"], agent["inputs"]):
        free["anyOf"][0].update(FREE)
    for free in (start["repository"], start["repository"]["properties"]["data"]):
        free.update(FREE)
    # The repositories of the connected groups.
    for one in start["repository"]["oneOf"]:
        fields = one["properties"]["data"]["properties"]
        for name in {"owner", "group", "project_path"} & fields.keys():
            fields[name]["pattern"] = fields[name]["pattern"].replace(SEGMENT, "acme", 1)
    body("/external/gitlab/projects")
    paths["/external/agents/{name}/runs"]["post"]["parameters"][0]["schema"] = {"enum": ["scribe", "reviewer"]}
    listing = paths["/external/runs"]["get"]
    listing["parameters"] = [one for one in listing["parameters"] if one["name"] not in {"page_token", "data"}]
    return made


def narrowed(specification: dict[str, Any]) -> dict[str, Any]:
    """Return the specification with the agents, repositories, offers and hosts of `service_process.demo_setup`."""
    made = copy.deepcopy(specification)
    schemas = made["components"]["schemas"]
    for name in ("OrganizationCreation", "RunStart", "AgentStart", "ProjectOnboarding"):
        schemas[name]["additionalProperties"] = False
    schemas["OrganizationCreation"]["properties"] = {"email": EMAIL, "offer_code": {"enum": ["PARTNER", "OLD", None]}}
    schemas["RepositoryReference"]["additionalProperties"] = False
    schemas["RepositoryReference"]["properties"]["data"]["additionalProperties"] = PLAIN_VALUE
    # The connected GitLab group.
    segment = "(/[A-Za-z0-9_][A-Za-z0-9._-]{0,99})"
    schemas["Group"]["pattern"] = f"^acme{segment}{{0,3}}$"
    schemas["ProjectPath"]["pattern"] = f"^acme{segment}{{1,4}}$"
    # A run that exists has its own repository; continuing one is the subject of other tests.
    schemas["RunStart"]["properties"] |= {"branch_name": BRANCH, "run_id": {"type": "null"}, "metadata": FREE_OBJECT}
    schemas["AgentStart"]["properties"] = {
        "repository": {"enum": ["acme/api", "acme/tools", "web", "https://gitlab.example/acme/tools.git"]},
        "branch_name": BRANCH,
        "inputs": FREE_OBJECT,
    }
    paths = made["paths"]
    paths["/external/agents/{name}/runs"]["post"]["parameters"][0]["schema"] = {"enum": ["scribe", "reviewer"]}
    listing = paths["/external/runs"]["get"]
    # Tokens come from pages and are bound to their filters; `data` needs a platform, which no schema can say.
    listing["parameters"] = [one for one in listing["parameters"] if one["name"] not in {"page_token", "data"}]
    for one in listing["parameters"]:
        if one["name"] == "repository":
            one["schema"] = {"type": "string", "pattern": "^[a-z]{1,20}/[a-z]{1,20}$"}
    return made
