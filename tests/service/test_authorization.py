"""Who may do what (spec 5 and 7.1)."""

import sqlite3
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from service.clock import now_micros
from service.store import organizations, tokens
from service.store.database import Database

ENDPOINTS = [
    ("GET", "/external/runs"),
    ("POST", "/external/runs"),
    ("POST", "/external/agents/reviewer/runs"),
    ("POST", "/external/organizations"),
    ("GET", "/external/installation/health"),
    ("POST", "/external/gitlab/projects"),
]


def ask(api: Any, method: str, path: str, token: str | None) -> httpx.Response:
    headers = {} if token is None else {"Authorization": token}
    return httpx.request(method, api.service.base_url + path, headers=headers, json={} if method == "POST" else None)


@pytest.mark.parametrize(("method", "path"), ENDPOINTS)
@pytest.mark.parametrize("token", [None, "", "Bearer", "Basic YTpi", "Bearer rwt_unknown", "rwt_unknown"])
def test_without_a_valid_token_every_endpoint_answers_401(api: Any, method: str, path: str, token: str | None) -> None:
    """A missing, malformed or unknown token is 401 with a challenge, before the body is looked at."""
    answer = ask(api, method, path, token)

    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert answer.json()["error_code"] in {"missing_token", "invalid_token"}
    assert "Bearer" in answer.json()["message"] or "bearer" in answer.json()["message"]


def test_a_token_ends_when_it_is_revoked(api: Any) -> None:
    """A revoked token answers 401 from the next request on."""
    made = api.service.admin("token", "create", "--org", "acme", "--scope", "admin")
    before = ask(api, "GET", "/external/runs", f"Bearer {made['value']}").status_code
    api.service.admin("token", "revoke", made["id"])

    assert before == 200
    assert ask(api, "GET", "/external/runs", f"Bearer {made['value']}").status_code == 401


def test_a_token_ends_when_it_expires(api: Any) -> None:
    """A token whose duration is over answers 401."""
    database = Database(f"sqlite:///{api.service.data_dir / 'service.sqlite'}")
    with database.write() as connection:
        owner = organizations.by_slug(connection, "acme")
        assert owner is not None
        old = now_micros() - 31 * 86_400_000_000
        _, value = tokens.create(connection, owner.id, scopes=("admin",), alias="old", now=old)
    database.close()

    assert ask(api, "GET", "/external/runs", f"Bearer {value}").status_code == 401


def test_a_token_is_stored_as_its_digest_only(api: Any) -> None:
    """The value of a token stands nowhere in the data folder."""
    for file in api.service.data_dir.rglob("*"):
        if file.is_file():
            assert api.service.admin_token.encode() not in file.read_bytes(), file


def test_the_scheme_is_read_in_any_case(api: Any) -> None:
    """`bearer` works as `Bearer` does."""
    assert ask(api, "GET", "/external/runs", f"bearer {api.service.admin_token}").status_code == 200


def test_organizations_need_the_entitlement(tenant: Callable[..., Any]) -> None:
    """An organization without CreateOrganizations gets 403, whatever its token's scope (spec 5.6)."""
    answer = tenant().post("/external/organizations", {"email": "a@example.com"})

    assert (answer.status_code, answer.json()["error_code"]) == (403, "missing_entitlement")


def test_an_inactive_organization_is_refused_until_it_is_active_again(tenant: Callable[..., Any]) -> None:
    """Deactivated: 403 (spec 7.1); activated: as before."""
    sleepy = tenant()
    sleepy.service.admin("org", "deactivate", sleepy.organization["slug"])
    asleep = sleepy.post("/external/organizations", {})
    sleepy.service.admin("org", "activate", sleepy.organization["slug"])

    assert (asleep.status_code, asleep.json()["error_code"]) == (403, "organization_inactive")
    assert sleepy.get("/external/runs").status_code == 200


def test_a_token_whose_organization_is_gone_answers_404(tenant: Callable[..., Any]) -> None:
    """Parent organization not found: 404 (spec 7.1)."""
    gone = tenant()
    with sqlite3.connect(gone.service.data_dir / "service.sqlite", timeout=30) as connection:
        connection.execute("DELETE FROM organizations WHERE id = ?", (gone.organization["id"],))
    connection.close()
    answer = gone.post("/external/organizations", {})

    assert (answer.status_code, answer.json()["error_code"]) == (404, "organization_not_found")


def test_tokens_need_the_entitlement_service_api(api: Any) -> None:
    """An organization without ServiceAPI cannot have tokens (spec 5.5)."""
    api.service.admin("org", "create", "No Api")

    with pytest.raises(AssertionError, match="needs the entitlement ServiceAPI"):
        api.service.admin("token", "create", "--org", "no-api", "--scope", "admin")


def test_organizations_see_only_their_own_runs(api: Any, tenant: Callable[..., Any]) -> None:
    """A run of another organization is neither listed nor continued."""
    run_id = api.start("mine alone")
    url = str(api.service.repositories["acme/api"])
    other = tenant(repositories=[{"name": "api", "platform": "github", "path": "acme/api", "url": url}])
    listed = other.get("/external/runs").json()
    api.ended(run_id)
    continued = other.follow(run_id, "more")

    assert listed["runs"] == []
    assert (continued.status_code, continued.json()["error_code"]) == (404, "run_not_found")


def test_the_rate_limit_counts_per_organization(start: Callable[..., Any]) -> None:
    """Over the limit: 429 with the seconds to wait, for this organization and not for another (spec 8)."""
    api = start(settings="[limits]\nrequests_per_minute = 3\n")
    api.service.admin("org", "create", "Other", "--entitlement", "ServiceAPI")
    other = api.service.admin("token", "create", "--org", "other", "--scope", "admin")["value"]
    statuses = [api.get("/external/runs").status_code for _ in range(4)]
    refused = api.get("/external/runs")

    assert statuses == [200, 200, 200, 429]
    assert refused.json()["error_code"] == "rate_limited"
    assert 1 <= int(refused.headers["retry-after"]) <= 20
    assert ask(api, "GET", "/external/runs", f"Bearer {other}").status_code == 200
