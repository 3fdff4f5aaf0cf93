"""Signing in by an email address, with a real identity provider (npm's oidc-provider; `.ci/run` installs it)."""

import html
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.lab import free_port
from tests.service.conftest import Api, http_client, served
from tests.service.page.test_page import Browser, invited, text_of
from tests.waiting import present

PROVIDER: Final = Path(__file__).with_name("oidc_provider.mjs")
MODULES: Final = Path(os.environ.get("RUNWARDEN_TEST_OIDC", ".venv/.tools")).absolute()
SECRET: Final = "s" * 40
pytestmark = pytest.mark.skipif(
    shutil.which("node") is None or not (MODULES / "node_modules/oidc-provider").exists(),
    reason="no node, or no oidc-provider in RUNWARDEN_TEST_OIDC: npm install --prefix FOLDER oidc-provider",
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A service that trusts a provider."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = ["node", str(PROVIDER), str(MODULES), f"{url}/sign-in/oidc/back", SECRET]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as provider:
        try:
            assert provider.stdout is not None
            issuer = provider.stdout.readline().strip()
            settings = (
                f'[page]\nurl = "{url}"\n[page.oidc]\nissuer = "{issuer}"\nclient_id = "runwarden"\n'
                'name = "Acme"\ndomains = { "acme.example" = "acme" }\nrole = "developer"\n'
            )
            secret, arguments = {"RUNWARDEN_OIDC_SECRET": SECRET}, ["--port", str(port)]
            options = {"settings": settings, "environment": secret, "arguments": arguments}
            with served(tmp_path_factory, "oidc", **options) as service:
                yield Api(service)
        finally:
            provider.kill()


def sign_in(world: Api, email: str) -> tuple[Browser, httpx.Response]:
    """Sign in at the provider, and return with the browser's cookies of both."""
    browser = Browser(world.service.base_url)
    begun = browser.get("/sign-in/oidc?next=/settings/members")
    assert begun.status_code == 302, begun.text
    provider, address = http_client(), begun.headers["location"]
    back = world.service.base_url.removesuffix("/v1")
    while not address.startswith(back):
        answer = provider.get(address)
        if form := re.search(r'action="([^"]+)"', answer.text):
            fields = dict(re.findall(r'name="(prompt)" value="(\w+)"', answer.text)) | {"login": email, "password": "x"}
            answer = provider.post(str(answer.url.join(html.unescape(form[1]))), data=fields)
        address = str(answer.url.join(answer.headers["location"]))
    return browser, browser.get(address.removeprefix(back))


def test_a_known_verified_address_signs_in(world: Api) -> None:
    """A member's address or a mapped domain is accepted, and unverified addresses are not."""
    for email, status, words in (
        ("jane@stranger.example", 403, "is in no organization here"),
        ("unverified@acme.example", 403, "does not vouch"),
    ):
        _, answer = sign_in(world, email)
        assert (answer.status_code, words in text_of(answer)) == (status, True)

    browser, answer = sign_in(world, "Joe@acme.example")
    assert answer.headers["location"] == "/settings/members"
    assert browser.get("/settings/members").status_code == 403
    assert browser.get("/runs/new").status_code == 200
    world.service.admin("member", "set", "jane@stranger.example", "--role", "viewer", "--org", "acme")
    jane, _ = sign_in(world, "jane@stranger.example")
    assert [jane.get(path).status_code for path in ("/runs", "/runs/new")] == [200, 403]


def test_a_member_of_several_organizations_chooses(world: Api) -> None:
    """The choice has a signed ticket, so neither it nor the member can be forged."""
    made, code = invited(world, "kim@acme.example")
    assert Browser(world.service.base_url).post("/invitation", code=code).status_code == 200
    browser, answer = sign_in(world, "kim@acme.example")
    offered = dict(re.findall(r'name="member" value="(mem_\w+)">([^<]+)<', answer.text))
    ticket = present(re.search(r'name="ticket" value="([^"]+)"', answer.text))
    slug = made["organization_slug"]
    assert sorted(offered.values()) == sorted(["Acme (acme)", f"{made['organization_name']} ({slug})"])
    other = next(member for member, name in offered.items() if slug in name and name != "Acme (acme)")
    assert browser.post("/sign-in/choose", ticket=ticket[1] + "x", member=other).status_code == 400
    assert browser.post("/sign-in/choose", ticket=ticket[1], member="mem_0").status_code == 403
    assert browser.post("/sign-in/choose", ticket=ticket[1], member=other).headers["location"] == "/settings/members"
    assert made["organization_name"] in text_of(browser.get("/settings/members"))


def test_an_unrequested_oidc_answer_is_refused(world: Api) -> None:
    """Another browser's answer, a forged one, and one without the cookie are refused."""
    browser = Browser(world.service.base_url)
    assert browser.get("/sign-in/oidc/back?code=x&state=y").status_code == 400
    browser.get("/sign-in/oidc")
    for query in ("code=x&state=y", "error=access_denied&state=y", ""):
        answer = browser.get(f"/sign-in/oidc/back?{query}")
        assert answer.status_code == 502
        assert "did not sign you in" in text_of(answer)
    assert browser.get("/runs").status_code == 303
