"""The page: signing in, invitations, runs and settings in a browser, over a real socket (docs/service.md)."""

import email
import email.policy
import html
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.lab import Respond
from tests.service.conftest import BARE, Api, http_client
from tests.service.receiver import Receiver
from tests.waiting import eventually

SCRIPT = "<script>alert(1)</script>"
OPERATOR = "rwo_" + "o" * 40


class Browser:
    """What a browser keeps of a page: its session and the last form's secret."""

    def __init__(self, base_url: str) -> None:
        self.http = http_client(base_url=base_url.removesuffix("/v1"))
        self.csrf = ""

    def _noted(self, answer: httpx.Response) -> httpx.Response:
        if cookie := answer.headers.get("set-cookie"):
            assert {"HttpOnly", "Secure", "SameSite=lax", "Path=/"} <= set(cookie.split("; "))
            self.http.headers["Cookie"] = cookie.split(";")[0]
        if found := re.search(r'name="csrf" value="(\w+)"', answer.text):
            self.csrf = found[1]
        return answer

    def get(self, path: str) -> httpx.Response:
        return self._noted(self.http.get(path))

    def post(self, path: str, headers: dict[str, str] | None = None, **fields: str) -> httpx.Response:
        return self._noted(self.http.post(path, data={"csrf": self.csrf} | fields, headers=headers))

    def sign_in(self, token: str) -> httpx.Response:
        answer = self.post("/sign-in", token=token)
        if answer.status_code == 303:
            self.get(answer.headers["location"])
        return answer


@pytest.fixture
def browse(shared_service: Any) -> Callable[..., Browser]:
    """`browse()` is a browser without a session; `browse(api)` is signed in with an organization's token."""

    def make(api: Api | None = None) -> Browser:
        made = Browser(shared_service.base_url)
        assert api is None or made.sign_in(api.token).status_code == 303
        return made

    return make


def text_of(answer: httpx.Response) -> str:
    """The words of a page, without its marks."""
    return html.unescape(" ".join(re.sub(r"<[^>]+>", " ", answer.text).split()))


def test_a_token_signs_in_and_is_stored_nowhere(api: Api, tenant: Callable[..., Api], browse: Any) -> None:
    """The session is another value; it ends with its token, and with the person's leave."""
    mine = tenant()
    browser = browse()
    refused = browser.sign_in("rwt_wrong")
    assert refused.status_code == 401
    assert "unknown, revoked or expired" in text_of(refused)
    assert browser.get("/runs").headers["location"] == "/sign-in?next=%2Fruns"
    assert browser.post("/sign-in", token=mine.token, next="//elsewhere.example").headers["location"] == "/runs"
    assert browser.get("/runs").status_code == 200
    assert mine.token not in browser.http.headers["Cookie"]
    kept = b"".join(one.read_bytes() for one in Path(api.service.data_dir).glob("service.sqlite*"))
    assert mine.token.encode() not in kept
    assert browser.http.headers["Cookie"].partition("=")[2].encode() not in kept

    other = browse(mine)
    assert other.post("/sign-out").headers["location"] == "/sign-in"
    assert other.get("/runs").status_code == 303
    api.service.admin("token", "revoke", mine.organization["tokens"][0]["id"])
    assert browser.get("/runs").status_code == 303


def test_a_form_of_another_site_or_session_is_refused(tenant: Callable[..., Api], browse: Any) -> None:
    """Nothing is started, and what was typed is shown again, but no secret."""
    mine = tenant()
    browser = browse(mine)
    foreign = {"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}
    for headers in foreign:
        assert browser.post("/settings/tokens", headers, **{"scope-admin": "on"}).status_code == 403
        assert browse().post("/sign-in", headers, token=mine.token).status_code == 403
    assert browser.post("/settings/tokens", csrf="0" * 64).status_code == 403

    lost = browse().post("/runs/new", agent="scribe", repository="acme/api", instructions=f"much work {SCRIPT}")
    assert lost.status_code == 401
    assert f"much work {SCRIPT}" in text_of(lost)
    assert SCRIPT not in lost.text
    assert not list(mine.runs())


def test_an_invitation_leads_to_a_token_once(start: Callable[..., Api]) -> None:
    """The mail has a link, as text and as HTML; opening it accepts nothing; the token works, and its code no longer."""
    api = start(settings='[page]\nurl = "https://runs.acme.example"\n')
    made = api.post("/external/organizations", {"email": "jane@customer.example"}).json()
    raw = (api.service.outbox / f"{made['organization_id']}.eml").read_bytes()
    mail = email.message_from_bytes(raw, policy=email.policy.default)
    assert isinstance(mail, email.message.EmailMessage)
    plain, rich = (mail.get_body((kind,)) for kind in ("plain", "html"))
    assert plain is not None
    assert rich is not None
    link = re.search(r"https://runs\.acme\.example(/invitation\?code=\S+)", plain.get_content())
    assert link is not None
    assert f'href="{link[0]}"' in rich.get_content()

    browser = Browser(api.service.base_url)
    code = link[1].partition("=")[2]
    for _ in range(2):
        shown = browser.get(link[1])
        assert made["organization_name"] in text_of(shown)
        assert "jane@customer.example" in text_of(shown)
    accepted = browser.post("/invitation", code=code)
    token = re.search(r'value="(rwt_[\w-]+)" readonly', accepted.text)
    assert token is not None
    assert http_client(token[1], api.service.base_url).get("/external/runs").status_code == 200
    assert browser.get("/runs").status_code == 200
    assert "jane@customer.example" in text_of(browser.get("/settings/members"))
    assert token[1] not in browser.get("/settings/tokens").text
    again = browser.post("/invitation", code=code)
    assert again.status_code == 400
    assert "accepted before" in text_of(again)
    assert browser.get(link[1]).status_code == 404


def test_a_run_is_started_answered_and_cancelled(
    own: Callable[..., tuple[Api, Path]], browse: Any, tmp_path: Path
) -> None:
    """The form comes back with what was typed; a run is shown with its change and log, whatever its words are."""
    mine, _ = own()
    browser = browse(mine)
    refused = browser.post("/runs/new", agent="scribe", repository="nobody/nothing", instructions="keep this")
    assert refused.status_code == 400
    assert "neither configured nor on a connected code host" in text_of(refused)
    assert "keep this" in refused.text

    said = f"do {SCRIPT} [here](javascript:alert(1))"
    run = browser.post("/runs/new", agent="scribe", repository="acme/api", instructions=said).headers["location"]
    mine.ended(run.rpartition("/")[2])
    for path in ("", "/changes", "/log", "/changes?turn=1"):
        shown = browser.get(run + path)
        assert shown.status_code == 200
        assert SCRIPT in text_of(shown)
        assert SCRIPT not in shown.text
        assert 'href="javascript' not in shown.text
    assert "diff --git" in browser.get(f"{run}/changes.patch").text
    assert "scribe at work on turn 1" in browser.get(f"{run}/log/1").text

    gate = tmp_path / "gate"
    assert browser.post(f"{run}/reply", instructions=" ").status_code == 400
    assert browser.post(f"{run}/reply", instructions=f"wait {gate}").headers["location"] == run
    mine.reaches(run.rpartition("/")[2], "working")
    page = browser.get(run)
    assert "Cancel this run" in text_of(page)
    refused = browser.post(f"{run}/reply", instructions="too early")
    assert refused.status_code == 409
    browser.post(f"{run}/cancel")
    eventually(lambda: "⊘ cancelled" in text_of(browser.get(run)), "it is shown as cancelled")
    assert browser.post(f"{run}/cancel").status_code in {303, 409}
    assert "⊘ cancelled" in text_of(browser.get("/runs?status=failed"))


def test_the_list_takes_the_filters_of_the_api(own: Callable[..., tuple[Api, Path]], browse: Any) -> None:
    """Page by page; days count whole; what cannot be used is named, and stays in its field."""
    mine, _ = own()
    ids = [mine.start("nothing") for _ in range(27)]
    for run_id in ids:
        mine.ended(run_id)
    browser = browse(mine)
    first = browser.get("/runs?status=completed&repository=acme/api&date_from=2020-01-01&date_to=2099-12-31")
    assert "27 runs" in text_of(first)
    older = re.search(r'rel="next" href="([^"]+)"', first.text)
    assert older is not None
    second = browser.get(html.unescape(older[1]))
    listed = re.findall(r"/runs/(run_\w+)", first.text + second.text)
    assert sorted(listed) == sorted(ids)
    wrong = browser.get("/runs?date_from=yesterday&repository=a")
    assert wrong.status_code == 400
    assert 'value="yesterday"' in wrong.text
    assert "No run matches" in text_of(browser.get("/runs?status=queued"))


def test_no_session_reaches_another_organization(
    own: Callable[..., tuple[Api, Path]], tenant: Any, browse: Any, api: Api
) -> None:
    """Every address of one, with the session of the other, is as if there were nothing."""
    mine, other = own()[0], tenant()
    run_id = mine.start("something")
    mine.ended(run_id)
    stranger, token = browse(other), mine.organization["tokens"][0]["id"]
    browser = browse(mine)
    browser.post("/settings/members", email="a@customer.example")
    member = re.search(r"/settings/members/(mem_\w+)/remove", browser.get("/settings/members").text)
    assert member is not None
    slug = mine.organization["slug"]
    allowed = ("events", "endpoints", "add", "http://127.0.0.1:9/", "--org", slug, "--allow-private", "127.0.0.1")
    endpoint = f"/settings/events/endpoints/{api.service.admin(*allowed)['id']}"
    mine.ended(mine.start("more"))
    event = re.search(r"/settings/events/evt_\w+/replay", browser.get("/settings/events").text)
    assert event is not None
    run = f"/runs/{run_id}"
    for path in (run, f"{run}/changes", f"{run}/changes?turn=1", f"{run}/changes.patch", f"{run}/log", f"{run}/log/1"):
        assert stranger.get(path).status_code == 404, path
        assert browser.get(path).status_code == 200, path
    for path in (f"{run}/reply", f"{run}/cancel", f"/settings/tokens/{token}/revoke", member[0], event[0]):
        assert stranger.post(path, instructions="x").status_code == 404, path
    for act in ("rotate", "remove"):
        assert stranger.post(f"{endpoint}/{act}").status_code == 404
    for path in (
        "/runs",
        "/settings/tokens",
        "/settings/members",
        "/settings/usage",
        "/settings/hosts",
        "/settings/events",
    ):
        shown = stranger.get(path)
        assert shown.status_code == 200
        assert run_id not in shown.text
        assert token not in shown.text
        assert member[1] not in shown.text
        assert "127.0.0.1:9" not in shown.text
    assert stranger.get(f"/runs/new?like={run_id}").status_code == 404
    assert stranger.get("/operator").status_code == 404


def test_tokens_are_made_shown_once_and_revoked(tenant: Callable[..., Api], browse: Any, shared_service: Any) -> None:
    """With scope, alias and duration (spec 5.2 to 5.4); the list tells when each was used last."""
    mine = tenant()
    browser = browse(mine)
    assert browser.post("/settings/tokens", alias="ci", duration="7d").status_code == 400
    made = browser.post("/settings/tokens", alias=f"ci {SCRIPT}", duration="7d", **{"scope-admin": "on"})
    value = re.search(r'value="(rwt_[\w-]+)" readonly', made.text)
    assert value is not None
    client = http_client(value[1], shared_service.base_url)
    listed = browser.get("/settings/tokens")
    assert SCRIPT in text_of(listed)
    assert SCRIPT not in listed.text
    assert "never" in text_of(listed)
    assert client.get("/external/runs").status_code == 200
    listed = browser.get("/settings/tokens")
    assert "never" not in text_of(listed)
    assert value[1] not in listed.text
    paths = re.findall(r"/settings/tokens/tok_\w+/revoke", listed.text)
    for path in paths:
        browser.post(path)
    assert client.get("/external/runs").status_code == 401
    # Its own token was among them.
    assert browser.get("/runs").status_code == 303


def test_endpoints_are_told_of_events_and_events_replayed(
    own: Callable[..., tuple[Api, Path]], browse: Any, api: Api
) -> None:
    """A secret is shown once; an address that may not be told is named, and stays in its field."""
    mine, _ = own()
    browser = browse(mine)
    private = "https://127.0.0.1/?<script>alert(1)</script>"
    refused = browser.post("/settings/events/endpoints", url=private, **{"type-run.ended": "on"})
    assert refused.status_code == 400
    assert "127.0.0.1 has no public address" in text_of(refused)
    assert f'value="{html.escape(private)}"' in refused.text
    nothing = browser.post("/settings/events/endpoints", url="https://9.9.9.9/")
    assert "Choose at least one type of event" in text_of(nothing)

    with Receiver() as receiver:
        slug = mine.organization["slug"]
        added = ("events", "endpoints", "add", f"{receiver.origin}/{private[-25:]}", "--org", slug)
        receiver.secret = api.service.admin(*added, "--allow-private", "127.0.0.1", "--type", "run.ended")["secret"]
        receiver.script(Respond(503))
        run_id = mine.start("nothing")
        mine.ended(run_id)
        receiver.wait_for(1)
        eventually(lambda: "it answered 503" in text_of(browser.get("/settings/events")), "the failure is shown")
        eventually(lambda: "✓ delivered" in text_of(browser.get("/settings/events")), "the success is shown")
        shown = browser.get("/settings/events")
        assert SCRIPT in text_of(shown)
        assert SCRIPT not in shown.text
        assert receiver.secret not in shown.text
        replay = re.search(r"/settings/events/(evt_\w+)/replay", shown.text)
        assert replay is not None
        assert browser.post(replay[0]).headers["location"] == "/settings/events"
        assert receiver.wait_for(3)[-1].headers["webhook-id"] == replay[1]
        assert receiver.told("run.ended")[0]["run_id"] == run_id

        endpoint = re.search(r"/settings/events/endpoints/(ep_\w+)/remove", shown.text)
        assert endpoint is not None
        newer = browser.post(endpoint[0].replace("/remove", "/rotate"))
        secret = re.search(r'value="(whsec_[^"]+)" readonly', newer.text)
        assert secret is not None
        assert "as well" in text_of(newer)
        assert html.unescape(secret[1]) != receiver.secret
        browser.post(endpoint[0])
        assert "Deliveries" not in text_of(browser.get("/settings/events"))


def test_a_public_endpoint_is_added_on_the_page(tenant: Callable[..., Api], browse: Any) -> None:
    """By its address alone nothing is sent."""
    browser = browse(tenant())
    made = browser.post("/settings/events/endpoints", url="https://9.9.9.9/hook", **{"type-run.ended": "on"})
    assert made.status_code == 200
    secret = re.search(r'value="(whsec_[^"]+)" readonly', made.text)
    assert secret is not None
    listed = browser.get("/settings/events")
    assert "https://9.9.9.9/hook run.ended" in text_of(listed)
    assert html.unescape(secret[1]) not in html.unescape(listed.text)


def test_the_operator_sees_all_and_invites_again(start: Callable[..., Api]) -> None:
    """With a token of the environment, which opens nothing else; an old code ends where a new one is sent."""
    api = start(environment={"RUNWARDEN_OPERATOR_TOKEN": OPERATOR})
    made = api.post("/external/organizations", {"email": "jane@customer.example"}).json()
    assert (
        BARE.get(f"{api.service.base_url}/external/runs", headers={"Authorization": f"Bearer {OPERATOR}"}).status_code
        == 401
    )
    browser = Browser(api.service.base_url)
    assert browser.sign_in(OPERATOR).headers["location"] == "/operator"
    shown = browser.get("/operator")
    assert made["organization_name"] in text_of(shown)
    assert "invited jane@customer.example" in text_of(shown)
    again = re.search(r"/operator/invitations/inv_\w+/resend", shown.text)
    assert again is not None
    assert browser.post(again[0]).status_code == 303
    codes = [re.search(r"rwt_[\w-]+", one.read_text()) for one in sorted(api.service.outbox.glob("*.eml"))]
    assert sorted(browser.post("/invitation", code=code[0]).status_code for code in codes if code) == [200, 400]
    trail = api.service.admin("audit", "list")["entries"]
    assert {"session.begin", "invitation.send", "invitation.accept"} <= {one["action"] for one in trail}


def test_every_page_forbids_foreign_and_inline_code(browse: Any, tenant: Callable[..., Api]) -> None:
    """Nothing is kept by caches, no page has a style or script of its own, and sources are this site's."""
    browser = browse(tenant())
    for path in (
        "/sign-in",
        "/invitation",
        "/runs",
        "/runs/new",
        "/settings/tokens",
        "/settings/events",
        "/api",
        "/runs/none",
        "/settings/x",
    ):
        shown = browser.get(path)
        policy = shown.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert shown.headers["cache-control"] == "no-store"
        assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?! src=\"/assets/)|(src|href)=\"//", shown.text), path
        for asset in re.findall(r'(?:src|href)="(/assets/[^"]+)"', shown.text):
            assert BARE.get(str(browser.http.base_url).rstrip("/") + asset).status_code == 200


def test_attempts_are_limited(start: Callable[..., Api]) -> None:
    """Thirty a minute, then 429 with Retry-After, also for a right token."""
    api = start()
    browser = Browser(api.service.base_url)
    answers = [browser.post("/sign-in", token=f"rwt_{number}") for number in range(32)]
    assert [answer.status_code for answer in answers[:30]] == [401] * 30
    assert answers[-1].status_code == 429
    assert int(answers[-1].headers["retry-after"]) > 0


def test_the_page_can_be_turned_off(start: Callable[..., Api]) -> None:
    """Its paths are then nothing, in the API's form."""
    api = start(settings="[page]\nenabled = false\n")
    answer = BARE.get(api.service.base_url.removesuffix("/v1") + "/sign-in")
    assert answer.status_code == 404
    assert answer.json()["error_code"] == "not_found"
