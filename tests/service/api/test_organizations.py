"""POST /external/organizations (spec 2.1, 2.2, 4.1, 7.1)."""

import contextlib
import email
import email.policy
import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import pytest

from service.store.organizations import slug_of
from tests.service.conftest import Make, http_client, refusal


def invitation(api: Any, organization_id: str) -> email.message.EmailMessage:
    raw = (api.service.outbox / f"{organization_id}.eml").read_bytes()
    message = email.message_from_bytes(raw, policy=email.policy.default)
    assert isinstance(message, email.message.EmailMessage)
    return message


def created(api: Any, **fields: Any) -> Any:
    return api.post("/external/organizations", {"email": "a@customer.example"} | fields)


def test_creating_an_organization_invites_its_administrator(api: Any) -> None:
    """The answer has the four fields of 2.2, and one mail has the deadline, even for a known email.

    Its parent is recorded. Addresses in `.local` are accepted, since many private networks use it.
    """
    unknown = created(api, offer_code="UNHEARD")
    answers = [created(api, email="jane@corp.local", offer_code=None) for _ in range(2)]
    made, second = (answer.json() for answer in answers)
    ours = api.service.organization["id"]
    mails = [invitation(api, one["organization_id"]) for one in (made, second)]

    assert refusal(unknown) == (400, "invalid_offer_code")
    assert [answer.status_code for answer in answers] == [201, 201]
    assert set(made) == {"organization_id", "organization_name", "organization_slug", "parent_organization_id"}
    known = {one["id"]: one for one in api.service.admin("org", "list")["organizations"]}
    assert made["parent_organization_id"] == known[made["organization_id"]]["parent_id"] == ours
    assert all(made[f"organization_{field}"] != second[f"organization_{field}"] for field in ("id", "slug"))
    assert [mail["To"] for mail in mails] == ["jane@corp.local"] * 2
    assert made["organization_name"] in mails[0]["Subject"]
    assert api.service.admin("token", "list", "--org", made["organization_id"])["tokens"] == []
    left = parsedate_to_datetime(mails[0]["Expires"]) - datetime.now(UTC)
    assert timedelta(days=29, hours=23) < left <= timedelta(days=30)


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("Компания Омега", "kompaniya-omega"),
        ("Ελληνική Εταιρία", "elliniki-etairia"),
        ("Große Łódź & Œuvre", "grosse-lodz-oeuvre"),
        ("Ärzte GmbH №5", "arzte-gmbh-no5"),
        ("株式会社", "organization"),
    ],
)
def test_a_slug_is_readable_in_every_alphabet(name: str, slug: str) -> None:
    """European alphabets are transcribed; other scripts have no short transcription."""
    assert slug_of(name) == slug


def test_a_partner_lists_and_resends_its_invitations(tenant: Make) -> None:
    """Invitations are listed newest first; resending voids the old code, and an accepted one cannot be resent."""
    api = tenant(entitlements=["ServiceAPI", "CreateOrganizations"])
    first, second = (created(api, email=f"{name}@customer.example").json()["organization_id"] for name in "ab")
    path = f"{api.get('/external/invitations').json()['invitations'][1]['invitation_id']}/resend"
    again = api.post(f"/external/invitations/{path}", {})
    codes = [re.findall(r"rwt_\S+", file.read_text())[0] for file in sorted(api.service.outbox.glob(f"{first}*"))]
    for code in codes[::-1]:
        with contextlib.suppress(AssertionError):
            api.service.admin("org", "accept-invitation", code)
    listed = api.get("/external/invitations").json()
    closed = api.post(f"/external/invitations/{again.json()['invitation_id']}/resend", {})
    child = api.service.admin("token", "create", "--org", second, "--alias", "theirs", "--scope", "admin")["value"]
    theirs = http_client(child, api.service.base_url)

    assert (again.status_code, again.json()["state"], again.json()["mail"]) == (201, "sent", "outbox")
    found = [
        (one["organization_id"], one["email"][0], one["state"], one["accepted_at"] is None)
        for one in listed["invitations"]
    ]
    states = [(first, "a", "accepted", False), (second, "b", "sent", True), (first, "a", "withdrawn", True)]
    assert (found, listed["may_create"]) == (states, True)
    assert (closed.status_code, closed.json()["error_code"]) == (409, "invitation_closed")
    assert theirs.get("/external/invitations").json() == {"invitations": [], "may_create": False}
    assert theirs.post(f"/external/invitations/{path}").status_code == 404
    assert "rwt_" not in str(listed)
