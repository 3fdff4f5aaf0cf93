"""Permissions: every route, with every scope of a token and every role of a member."""

import contextlib
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final
from unittest.mock import MagicMock

import pytest
from fastapi.routing import iter_route_contexts

from service.api.app import build
from service.clock import now_micros
from service.page.app import with_page
from service.settings import OidcSettings, PageSettings, Role, Settings
from service.store import invitations, sessions, tokens
from service.store.database import Database
from service.store.sessions import ROLES, LastAdminError
from service.store.tokens import SCOPES
from tests.service.conftest import BARE, BOTH, NOW, Api, Make, http_client, organization
from tests.service.page.test_page import Browser, text_of
from tests.waiting import present

OPEN: Final = None
"""Routes that need no scope, by their nature or because the answer only concerns the sender."""
READ, WRITE = {"runs:read", "runs:write"}, {"runs:write"}
SETTINGS, SEEN = {"settings"}, {"settings", "runs:read", "runs:write"}
ADMIN: Final[set[str]] = set()
API_ROUTES: Final = {
    "POST /v1/external/organizations": {"organizations:create"},
    "GET /v1/external/invitations": {"organizations:create"},
    "POST /v1/external/invitations/{invitation_id}/resend": {"organizations:create"},
    "GET /v1/external/installation/health": OPEN,
    "POST /v1/external/gitlab/projects": SETTINGS,
    "GET /v1/external/runs": READ,
    "POST /v1/external/runs": WRITE,
    "POST /v1/external/agents/{name}/runs": WRITE,
    "GET /v1/external/agents": READ,
    "GET /v1/external/questions": READ,
    "GET /v1/external/runs/{run_id}": READ,
    "GET /v1/external/runs/{run_id}/diff": READ,
    "GET /v1/external/runs/{run_id}/turns/{n}/diff": READ,
    "GET /v1/external/runs/{run_id}/turns/{n}/log": READ,
    "GET /v1/external/runs/{run_id}/turns/{n}/artifacts/{name:path}": READ,
    "POST /v1/external/runs/{run_id}/cancel": WRITE,
    "POST /v1/external/runs/{run_id}/messages": WRITE,
    "GET /openapi.json": OPEN,
    "GET /metrics": OPEN,
    "GET /livez": OPEN,
    "GET /readyz": OPEN,
    "POST /hooks/{platform}": OPEN,
}
PAGE_ROUTES: Final = {
    "GET /": OPEN,
    "GET /assets/{version}/{name}": OPEN,
    "GET /api": OPEN,
    "GET /sign-in": OPEN,
    "POST /sign-in": OPEN,
    "GET /sign-in/oidc": OPEN,
    "GET /sign-in/oidc/back": OPEN,
    "POST /sign-in/choose": OPEN,
    "GET /invitation": OPEN,
    "POST /invitation": OPEN,
    "GET /runs": READ,
    "GET /runs/new": WRITE,
    "POST /runs/new": WRITE,
    "GET /runs/{run_id}": READ,
    "POST /runs/{run_id}/reply": WRITE,
    "POST /runs/{run_id}/cancel": WRITE,
    "POST /runs/{run_id}/message": WRITE,
    "GET /runs/{run_id}/artifact": READ,
    "GET /runs/{run_id}/changes": READ,
    "GET /runs/{run_id}/changes.patch": READ,
    "GET /runs/{run_id}/log": READ,
    "GET /runs/{run_id}/log/{turn}": READ,
    "GET /runs/{run_id}/log/{turn}/more": READ,
    "GET /settings": OPEN,
    "GET /settings/tokens": ADMIN,
    "POST /settings/tokens": ADMIN,
    "POST /settings/tokens/{token_id}/revoke": ADMIN,
    "GET /settings/members": ADMIN,
    "POST /settings/members": ADMIN,
    "POST /settings/members/{member_id}/role": ADMIN,
    "POST /settings/members/{member_id}/remove": ADMIN,
    "GET /settings/hosts": SEEN,
    "GET /settings/agents": SEEN,
    "GET /settings/usage": SEEN,
    "GET /settings/events": SETTINGS,
    "POST /settings/events/endpoints": SETTINGS,
    "POST /settings/events/endpoints/{endpoint_id}/rotate": SETTINGS,
    "POST /settings/events/endpoints/{endpoint_id}/remove": SETTINGS,
    "POST /settings/events/{event_id}/replay": SETTINGS,
    # Only the operator sees anything here.
    "GET /operator": OPEN,
    "GET /operator/runs": OPEN,
    "GET /operator/runs/cancel": OPEN,
    "POST /operator/runs/cancel": OPEN,
    "GET /operator/usage": OPEN,
    "POST /operator/invitations/{invitation_id}/resend": OPEN,
    # It would sign the browser out.
    "POST /sign-out": OPEN,
}
"""Method and path, with the sufficient scopes; `admin` is allowed everywhere."""


def test_every_route_declares_its_role(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new endpoint or page must declare here who may use it."""
    monkeypatch.setenv("RUNWARDEN_OIDC_SECRET", "s" * 40)
    oidc = OidcSettings(issuer="https://login.acme.example", client_id="runwarden")
    settings = Settings(page=PageSettings(url="https://runs.acme.example", oidc=oidc))
    context: Any = MagicMock(settings=settings)
    api = build(context)
    served: Any = with_page(api, context)

    for app, rows in ((served.api, API_ROUTES), (served.pages, PAGE_ROUTES)):
        found = [one for one in iter_route_contexts(app.routes) if one.methods]
        assert {f"{method} {one.path}" for one in found for method in one.methods - {"HEAD"}} == {*rows}
    off: Any = MagicMock(settings=Settings(page=PageSettings(enabled=False)))
    assert with_page(api, off) is api


def is_refused(answer: Any, accepted: set[str]) -> bool:
    """Whether an answer refuses because of a missing scope; it then names the sufficient ones."""
    words = text_of(answer)
    refused = answer.status_code == 403 and "needs the scope" in words
    assert not refused or all(one in words for one in {"admin", *accepted}), words
    return refused


@pytest.fixture
def browser_of(idle: Api, tenant: Make, database_of_idle: Database) -> Any:
    """`browser_of(role)` is a browser with the session of a new organization's member, and a client of an admin."""

    def make(role: Role) -> tuple[Browser, Api]:
        mine = tenant(on=idle.service)
        with database_of_idle.write() as connection:
            now = now_micros()
            member = sessions.add_member(connection, mine.organization["id"], f"{role}@acme.example", now, role)
            value = sessions.begin(connection, now, organization_id=mine.organization["id"], member_id=member.id)
        browser = Browser(mine.service.base_url)
        browser.cookies["__Host-runwarden_session"] = value
        for _ in range(2):
            browser.get("/api")
        return browser, mine

    return make


def test_each_endpoint_asks_for_its_scope(idle: Api, tenant: Make, database_of_idle: Database) -> None:
    """403 `insufficient_scope` names the missing scope, whatever the request is about."""
    mine = tenant(on=idle.service)
    owner, root = mine.organization["id"], mine.service.base_url.removesuffix("/v1")
    for scopes in ((), *((one,) for one in SCOPES)):
        with database_of_idle.write() as connection:
            # The command line would refuse a token without any scope.
            _, value = tokens.create(connection, owner, scopes=scopes, alias=None, now=now_micros())
        for route, accepted in API_ROUTES.items():
            method, _, path = route.partition(" ")
            given = {"headers": {"Authorization": f"Bearer {value}"}, "json": {} if method == "POST" else None}
            answer = BARE.request(method, root + path, **given)
            is_allowed = accepted is OPEN or bool({*scopes} & {"admin", *accepted})

            assert is_refused(answer, accepted or set()) is not is_allowed, (route, scopes)
            assert is_allowed or answer.json()["error_code"] == "insufficient_scope"


def test_each_page_asks_for_its_scope(browser_of: Any) -> None:
    """A member may do what the role allows; the page names the missing scope."""
    for role in ROLES:
        browser, _ = browser_of(role)
        for route, accepted in PAGE_ROUTES.items():
            method, _, path = route.partition(" ")
            answer = browser.post(path) if method == "POST" else browser.get(path)
            is_allowed = accepted is OPEN or bool({*ROLES[role]} & {"admin", *accepted})

            assert is_refused(answer, accepted or set()) is not is_allowed, (route, role)
            assert not path.startswith("/operator") or answer.status_code == 404


def test_admins_and_the_operator_change_roles(browser_of: Any) -> None:
    """The change is immediate, even in an open session; the last admin stays while there are other members."""
    browser, mine = browser_of("admin")
    ours, admin = ("--org", mine.organization["slug"]), mine.service.admin
    assert browser.post("/settings/members", email="vera@acme.example", role="viewer").status_code == 303
    assert browser.post("/settings/members", email="dora@acme.example", role="boss").status_code == 400
    vera, role = row_of(browser, "vera@acme.example")
    assert role == "viewer"
    own, _ = row_of(browser, "admin@acme.example")
    for path in (f"/settings/members/{own}/role", f"/settings/members/{own}/remove"):
        refused = browser.post(path, role="developer")
        assert refused.status_code == 409
        assert "last admin" in text_of(refused)
    with pytest.raises(AssertionError, match="last admin"):
        admin("member", "set", "admin@acme.example", "--role", "viewer", *ours)
    assert browser.post(f"/settings/members/{vera}/role", role="admin").status_code == 303
    assert browser.post(f"/settings/members/{own}/role", role="viewer").status_code == 303
    assert [browser.get(path).status_code for path in ("/settings/members", "/runs")] == [403, 200]
    changed = admin("member", "set", "Admin@acme.example", "--role", "developer", *ours)
    listed = {one["email"]: one["role"] for one in admin("member", "list", *ours)["members"]}
    assert listed == {"vera@acme.example": "admin", changed["email"]: "developer"}
    trail = admin("audit", "list", *ours, "--action", "member")["entries"]
    acts = [("member.add", "viewer"), ("member.role", "admin"), ("member.role", "viewer"), ("member.role", "developer")]
    assert [(one["action"], one["detail"]) for one in trail if one["outcome"] == "done"] == acts


def row_of(browser: Browser, email: str) -> tuple[str, str]:
    """Return the id and the role that the list of members shows."""
    shown = browser.get("/settings/members")
    row = present(re.search(rf"<tr>(?:(?!</tr>).)*{re.escape(email)}.*?</tr>", shown.text, re.DOTALL))[0]
    return present(re.search(r"mem_\w+", row))[0], present(re.search(r"<option selected>(\w+)", row))[1]


def test_an_invitation_has_a_role(idle: Api, tenant: Make) -> None:
    """Accepting it creates a member and a token of that role, on the page or with the command.

    A change or removal affects the session's next request; other organizations are unaffected.
    """
    mine = tenant(on=idle.service)
    slug, admin = mine.organization["slug"], mine.service.admin

    def code(role: str, to: str = slug, name: str = "") -> str:
        known = {*mine.service.outbox.glob("*.eml")}
        admin("invitation", "send", f"{name or role}@acme.example", "--org", to, "--role", role)
        (mail,) = {*mine.service.outbox.glob("*.eml")} - known
        return present(re.search(r"rwt_[\w-]+", mail.read_text()))[0]

    browser = Browser(mine.service.base_url)
    browser.post("/invitation", code=code("viewer"))
    assert [browser.get(path).status_code for path in ("/runs", "/runs/new")] == [200, 403]
    token = http_client(admin("org", "accept-invitation", code("developer"))["token"], mine.service.base_url)
    assert token.get("/external/agents").status_code == 200
    assert token.post("/external/gitlab/projects").status_code == 403

    elsewhere = Browser(mine.service.base_url)
    elsewhere.post("/invitation", code=code("admin", tenant(on=idle.service).organization["slug"], "viewer"))
    admin("member", "set", "viewer@acme.example", "--role", "developer", "--org", slug)
    assert browser.get("/runs/new").status_code == 200
    boss = Browser(mine.service.base_url)
    boss.sign_in(mine.token)
    member, _ = row_of(boss, "viewer@acme.example")
    assert boss.post(f"/settings/members/{member}/remove").status_code == 303
    assert browser.get("/runs").headers["location"].startswith("/sign-in")
    assert elsewhere.get("/settings/members").status_code == 200


def test_a_newer_invitation_or_role_withdraws_older_ones(database: Database) -> None:
    """A newer invitation, a role or a removal withdraws those of the same address and organization.

    An expired one stays expired.
    """
    for change in ("invite", "role", "remove"):
        owner, other = (organization(database, f"{name}-{change}") for name in ("acme", "other"))
        with database.write() as connection:
            eve = sessions.add_member(connection, owner, "Eve@acme.example", NOW, "viewer")
            older = [
                str(
                    invitations.waiting_code(
                        connection, invitations.invite(connection, org, f"{who}@acme.example", NOW)
                    )
                )
                for org, who in ((owner, "eVe"), (owner, "bob"), (other, "eve"))
            ]
            match change:
                case "invite":
                    invitations.invite(connection, owner, "eve@acme.example", NOW, "viewer")
                case "role":
                    sessions.set_role(connection, owner, eve.id, "developer", NOW)
                case _:
                    sessions.set_role(connection, owner, eve.id, None, NOW)
            assert [invitations.accept(connection, code, NOW) for code in older] == [None, owner, other], change
            assert present(invitations.by_code(connection, older[0])).state(NOW) == "withdrawn"

    owner, later = organization(database), NOW + invitations.LIFE_MICROS
    with database.write() as connection:
        old = invitations.invite(connection, owner, "eve@acme.example", NOW)
        sessions.put_member(connection, owner, "boss@acme.example", NOW, "admin")
        sessions.put_member(connection, owner, "eve@acme.example", later, "viewer")
        expired = present(invitations.by_id(connection, old))
        assert invitations.invite_again(connection, expired, "operator:page", later) is None


@BOTH
def test_a_role_given_during_acceptance_is_kept(database: Database) -> None:
    """In either order, the invitation does not make an admin out of a new viewer.

    Of two admins who demote each other, one stays.
    """
    owner = organization(database, now=NOW)
    with database.write() as connection:
        both = [sessions.add_member(connection, owner, f"{name}@a.example", NOW).id for name in ("ada", "bob")]
        code = str(invitations.waiting_code(connection, invitations.invite(connection, owner, "eve@a.example", NOW)))

    def give(connection: Any) -> None:
        sessions.put_member(connection, owner, "eve@a.example", NOW, "viewer")

    def accept(connection: Any) -> None:
        if invitations.accept(connection, code, NOW):
            sessions.put_member(connection, owner, "eve@a.example", NOW, "admin")

    def demote(member_id: str, connection: Any) -> None:
        with contextlib.suppress(LastAdminError):
            sessions.set_role(connection, owner, member_id, "viewer", NOW)

    def at_once(*acts: Callable[[Any], None]) -> dict[str, str]:
        gate = threading.Barrier(2)

        def act(one: Callable[[Any], None]) -> None:
            gate.wait()
            with database.write() as connection:
                one(connection)

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(act, acts))
        with database.read() as connection:
            return {one.email[:3]: one.role for one in sessions.members_of(connection, owner)}

    assert at_once(give, accept) == {"ada": "admin", "bob": "admin", "eve": "viewer"}
    assert sorted(at_once(*(partial(demote, one) for one in both)).values()) == ["admin", "viewer", "viewer"]
