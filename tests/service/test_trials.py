"""Offers and trials (spec 2.1, 3): what was offered at signup holds only if it still does at the first code host."""

from typing import Any

import pytest

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
