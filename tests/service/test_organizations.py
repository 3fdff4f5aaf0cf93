"""POST /external/organizations (spec 2.1, 2.2, 4.1, 7.1)."""

import email
import email.policy
import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import pytest

from tests.service.conftest import BARE


def invitation(api: Any, organization_id: str) -> email.message.EmailMessage:
    raw = (api.service.outbox / f"{organization_id}.eml").read_bytes()
    message = email.message_from_bytes(raw, policy=email.policy.default)
    assert isinstance(message, email.message.EmailMessage)
    return message


def test_an_organization_is_created_and_its_administrator_invited(api: Any) -> None:
    """201 with the four fields of 2.2, its parent on record, no token yet, and one mail that says until when."""
    answer = api.post("/external/organizations", {"email": "jane@customer.example", "offer_code": None})
    made = answer.json()
    listed = {one["id"]: one for one in api.service.admin("org", "list")["organizations"]}
    mail = invitation(api, made["organization_id"])
    expires = parsedate_to_datetime(mail["Expires"])

    assert answer.status_code == 201
    assert set(made) == {"organization_id", "organization_name", "organization_slug", "parent_organization_id"}
    assert made["parent_organization_id"] == api.service.organization["id"]
    assert listed[made["organization_id"]]["parent_id"] == api.service.organization["id"]
    assert api.service.admin("token", "list", "--org", made["organization_id"])["tokens"] == []
    assert mail["To"] == "jane@customer.example"
    assert made["organization_name"] in mail["Subject"]
    assert timedelta(days=29, hours=23) < expires - datetime.now(UTC) <= timedelta(days=30)


def test_each_successful_call_makes_another_organization(api: Any) -> None:
    """The same email twice: two organizations, two slugs, two mails (spec 4.1)."""
    made = [api.post("/external/organizations", {"email": "twice@customer.example"}).json() for _ in range(2)]

    assert made[0]["organization_id"] != made[1]["organization_id"]
    assert made[0]["organization_slug"] != made[1]["organization_slug"]
    assert all(invitation(api, one["organization_id"])["To"] == "twice@customer.example" for one in made)


@pytest.mark.parametrize(
    "address",
    ["", "nobody", "a@", "@b", "a b@c.example", "a@b@c.example", "a@b..example", "a@b", "a" * 65 + "@b.example"],
)
def test_an_invalid_email_is_400(api: Any, address: str) -> None:
    """Nothing is created."""
    before = len(api.service.admin("org", "list")["organizations"])
    answer = api.post("/external/organizations", {"email": address})

    assert (answer.status_code, answer.json()["error_code"] in {"invalid_email", "invalid_request"}) == (400, True)
    assert len(api.service.admin("org", "list")["organizations"]) == before


def test_an_address_of_a_private_network_is_taken(api: Any) -> None:
    """`.local` is what many of them are called."""
    assert api.post("/external/organizations", {"email": "user@corp.local"}).status_code == 201


@pytest.mark.parametrize(
    ("code", "status"), [("PARTNER", 201), ("OLD", 201), ("PUBLIC", 400), ("UNHEARD", 400), ("", 400), ("partner", 400)]
)
def test_partner_offers_are_accepted_and_others_are_not(api: Any, code: str, status: int) -> None:
    """A retired partner offer still signs up; public and unknown codes are 400 (spec 2.1, 3)."""
    answer = api.post("/external/organizations", {"email": "a@b.example", "offer_code": code})

    assert answer.status_code == status
    if status == 201:
        listed = {one["id"]: one for one in api.service.admin("org", "list")["organizations"]}
        assert listed[answer.json()["organization_id"]]["offer_code"] == code
    else:
        assert answer.json()["error_code"] == "invalid_offer_code"


def test_the_invitation_code_becomes_a_token_once(api: Any) -> None:
    """The operator turns the code of the mail into the first token; a second time it is used up."""
    made = api.post("/external/organizations", {"email": "first@b.example"}).json()
    code = re.findall(r"rwt_\S+", invitation(api, made["organization_id"]).get_content())[0]
    accepted = api.service.admin("org", "accept-invitation", code)
    answer = BARE.get(f"{api.service.base_url}/external/runs", headers={"Authorization": f"Bearer {accepted['token']}"})

    assert accepted["organization"]["id"] == made["organization_id"]
    assert answer.json()["runs"] == []
    with pytest.raises(AssertionError, match="used or expired"):
        api.service.admin("org", "accept-invitation", code)


HOST = ("--platform", "github", "--clone-url", "https://github.com/{path}.git")


def trial(api: Any, organization_id: str) -> Any:
    listed = {one["id"]: one for one in api.service.admin("org", "list")["organizations"]}
    return listed[organization_id]["trial"]


def sign_up(api: Any, code: str | None) -> str:
    answer = api.post("/external/organizations", {"email": "a@customer.example", "offer_code": code})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["organization_id"])


def offer(api: Any, *options: str) -> str:
    """Add an offer under a code of its own and return the code."""
    code = f"CODE-{len(api.service.admin('offer', 'list')['offers'])}"
    api.service.admin("offer", "add", code, "--kind", "partner", *options)
    return code


def test_the_trial_starts_at_the_first_code_host(api: Any) -> None:
    """Until then it waits; a second host, or the same one again, starts no second trial (spec 3)."""
    organization = sign_up(api, None)
    before = trial(api, organization)
    api.service.admin("host", "connect", "--org", organization, *HOST)
    first = trial(api, organization)
    api.service.admin("host", "connect", "--org", organization, *HOST)

    assert (before["state"], before["started_at"]) == ("waiting", None)
    assert (first["state"], first["granted_code"]) == ("standard", None)
    assert first["started_at"] is not None
    assert trial(api, organization) == first
    assert trial(api, api.organization["id"]) is None, "the operator's own organization never signed up"


def test_an_offer_that_still_holds_is_granted(api: Any) -> None:
    """The trial runs on the terms of the signup, also when the offer changes afterwards."""
    code = offer(api, "--price", "49 EUR a month")
    organization = sign_up(api, code)
    api.service.admin("host", "connect", "--org", organization, *HOST)
    api.service.admin("offer", "add", code, "--kind", "partner", "--retired")

    assert trial(api, organization) | {"started_at": None} == {
        "state": "offer",
        "signup_code": code,
        "granted_code": code,
        "started_at": None,
    }


@pytest.mark.parametrize(
    "change",
    [["--retired", "--price", "49 EUR"], ["--price", "59 EUR"], []],
    ids=["retired", "repriced", "without a price"],
)
def test_a_retired_or_repriced_offer_falls_back_to_the_standard_trial(api: Any, change: list[str]) -> None:
    """Decided when the trial activates, not at signup (spec 3); the code of the signup stays on record."""
    code = offer(api, "--price", "49 EUR")
    organization = sign_up(api, code)
    api.service.admin("offer", "add", code, "--kind", "partner", *change)
    api.service.admin("host", "connect", "--org", organization, *HOST)

    assert (trial(api, organization)["state"], trial(api, organization)["signup_code"]) == ("standard", code)
