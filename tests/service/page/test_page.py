"""The page: signing in, invitations, runs and settings in a browser, over a real socket (docs/run/page.md)."""

import contextlib
import html
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
import sqlalchemy as sa

from service.clock import now_micros
from service.page.text import markdown, terminal
from service.settings import DataFolder
from service.store import runs, turn_files, turns
from service.store.database import Database
from service.store.turns import TurnOutcome
from tests.service.conftest import BARE, OPERATOR, UNBOXED, Api, Make, Own, http_client, order, refusal
from tests.service_process import make_repository
from tests.waiting import eventually, present

SCRIPT = "<script>alert(1)</script>"
VANDAL = """
import json, os, pathlib
marks, name = {marks!r}, {name!r}
pathlib.Path(".runwarden").mkdir()
pathlib.Path(name).write_text(marks)
found = [dict(path=name, line=1, title=marks, message=marks, suggestion=marks)]
pathlib.Path(".runwarden/findings.json").write_text(json.dumps(dict(version=1, findings=found)))
pathlib.Path(os.environ["RUNWARDEN_RESULT"]).write_text(json.dumps(dict(summary=marks)))
for _ in range(5000): print(marks, "word " * 5)
print("the last line")
"""
"""An agent that leaves HTML in all of its output."""


class Browser:
    """A browser's state for the page: its session and the last form's secret."""

    def __init__(self, base_url: str) -> None:
        self.http = http_client(base_url=base_url.removesuffix("/v1"))
        self.csrf = ""
        self.cookies = dict[str, str]()

    def _noted(self, answer: httpx.Response) -> httpx.Response:
        for cookie in answer.headers.get_list("set-cookie"):
            assert {"HttpOnly", "Secure", "SameSite=lax"} <= set(cookie.split("; "))
            name, _, value = cookie.split(";")[0].partition("=")
            self.cookies[name] = value
        self.http.headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        if found := re.search(r'name="csrf" value="(\w+)"', answer.text):
            self.csrf = found[1]
        return answer

    def get(self, path: str) -> httpx.Response:
        return self._noted(self.http.get(path))

    def post(self, path: str, headers: dict[str, str] | None = None, **fields: str) -> httpx.Response:
        return self._noted(self.http.post(path, data={"csrf": self.csrf} | fields, headers=headers))

    def sign_in(self, token: str) -> httpx.Response:
        answer = self.post("/sign-in", token=token)
        following = answer
        while following.status_code == 303:
            following = self.get(following.headers["location"])
        return answer


@pytest.fixture
def browse(shared_service: Any) -> Callable[..., Browser]:
    """`browse()` is a browser without a session; `browse(api)` is signed in with an organization's token."""

    def make(api: Api | None = None) -> Browser:
        made = Browser(shared_service.base_url)
        assert api is None or made.sign_in(api.token).status_code == 303
        return made

    return make


@pytest.fixture
def site(equipped: Any) -> Api:
    """A service whose mails link to its page, with an operator's view."""
    return Api(equipped)


@pytest.fixture(scope="module")
def ended(tenant: Make, tmp_path_factory: pytest.TempPathFactory) -> tuple[Api, str]:
    """An organization, and the page of its only run, which has ended."""
    bare = make_repository(tmp_path_factory.mktemp("ended") / "api", {"README.md": "# api\n"})
    mine = tenant(repositories=[{"name": "api", "platform": "github", "path": "acme/api", "url": str(bare)}])
    run_id = mine.start("something")
    mine.ended(run_id)
    return mine, f"/runs/{run_id}"


@contextlib.contextmanager
def stored(api: Api) -> Iterator[sa.Connection]:
    """Write to the database of a service."""
    url = DataFolder(api.service.data_dir).database_url
    with contextlib.closing(Database(url)) as database, database.write() as connection:
        yield connection


def invited(api: Api, address: str) -> tuple[dict[str, Any], str]:
    """Create an organization, and return it with the code that its administrator gets by mail."""
    made = api.post("/external/organizations", {"email": address}).json()
    found = present(re.search(r"rwt_[\w-]+", (api.service.outbox / f"{made['organization_id']}.eml").read_text()))
    return made, found[0]


def text_of(answer: httpx.Response) -> str:
    """The words of a page, without its tags."""
    return html.unescape(" ".join(re.sub(r"<[^>]+>", " ", answer.text).split()))


def test_a_token_signs_in_without_being_stored(api: Api, tenant: Make, browse: Any) -> None:
    """The session is another value, which is not stored either."""
    mine = tenant()
    browser = browse()
    refused = browser.sign_in("rwt_wrong")
    assert refused.status_code == 401
    assert "unknown, revoked or expired" in text_of(refused)
    assert browser.get("/runs").headers["location"] == "/sign-in?next=%2Fruns"
    assert browser.post("/sign-in", token=mine.token, next="//elsewhere.example").headers["location"] == "/"
    assert browser.get("/runs").status_code == 200
    assert mine.token not in browser.http.headers["Cookie"]
    kept = b"".join(one.read_bytes() for one in Path(api.service.data_dir).glob("service.sqlite*"))
    assert mine.token.encode() not in kept
    assert browser.http.headers["Cookie"].partition("=")[2].encode() not in kept


def test_a_form_from_another_site_or_session_is_refused(tenant: Make, browse: Any) -> None:
    """Nothing is started; the typed text is shown again, except secrets."""
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


def test_an_invitation_gives_one_token(site: Api) -> None:
    """Opening the mail's link accepts nothing; afterwards the token works, and the code no longer does."""
    made, code = invited(site, "jane@customer.example")
    mail = (site.service.outbox / f"{made['organization_id']}.eml").read_text()
    assert "https://runs.acme.example/invitation?code=3D" in mail
    browser, link = Browser(site.service.base_url), f"/invitation?code={code}"
    for _ in range(2):
        assert made["organization_name"] in text_of(browser.get(link))
    accepted = browser.post("/invitation", code=code)
    token = present(re.search(r'value="(rwt_[\w-]+)" readonly', accepted.text))
    assert http_client(token[1], site.service.base_url).get("/external/runs").status_code == 200
    assert browser.get("/runs").status_code == 200
    assert "jane@customer.example" in text_of(browser.get("/settings/members"))
    assert token[1] not in browser.get("/settings/tokens").text
    again = browser.post("/invitation", code=code)
    assert again.status_code == 400
    assert "accepted before" in text_of(again)
    assert browser.get(link).status_code == 404


def test_a_run_is_started_answered_and_cancelled(own: Own, browse: Any, tmp_path: Path) -> None:
    """The form keeps typed text; a run is shown with its change and log, whatever they contain."""
    mine, _ = own()
    browser = browse(mine)
    refused = browser.post("/runs/new", agent="scribe", repository="nobody/nothing", instructions="keep this")
    assert (refused.status_code, "keep this" in refused.text) == (400, True)

    said = f"do {SCRIPT} [here](javascript:alert(1))"
    run = browser.post("/runs/new", agent="scribe", repository="acme/api", instructions=said).headers["location"]
    mine.ended(run.rpartition("/")[2])
    for path in ("", "/changes", "/log", "/changes?turn=1"):
        shown = browser.get(run + path)
        assert SCRIPT in text_of(shown)
        assert not [one for one in (SCRIPT, 'href="javascript') if one in shown.text]
    assert "diff --git" in browser.get(f"{run}/changes.patch").text
    assert "scribe at work on turn 1" in browser.get(f"{run}/log/1").text

    assert browser.post(f"{run}/reply", instructions=f"wait {tmp_path / 'gate'}").headers["location"] == run
    mine.reaches(run.rpartition("/")[2], "working")
    refused = browser.post(f"{run}/reply", instructions="too early")
    assert (refused.status_code, "too early" in text_of(refused)) == (409, True)
    for _ in range(2):
        answer = browser.post(f"{run}/message", instructions="use the new API", when="end")
        assert answer.headers["location"] == run
    assert text_of(browser.get(run)).count("use the new API") == 1, "sent twice by a double click"
    browser.post(f"{run}/cancel")
    assert "said (dropped)" in text_of(browser.get(run))
    assert browser.post(f"{run}/message", instructions="too late", when="end").status_code == 409
    eventually(lambda: "⊘ cancelled" in text_of(browser.get(run)), "it is shown as cancelled")


def test_only_images_and_markdown_artifacts_are_shown(tenant: Make, browse: Any) -> None:
    """All others, even SVG and HTML, are downloads; files are only served as images or bytes, without rights."""
    mine = tenant()
    files = {
        "charts/a&b.PNG": b"\x89PNG",
        "report.md": b"# Well <script>alert(1)</script>\n\n![x](https://evil.example/x.png)",
        "page.html": b"<script>alert(1)</script>",
        "drawing.svg": b"<svg><script>alert(1)</script></svg>",
    }
    with stored(mine) as connection:
        run = runs.accept(connection, order(mine.organization["id"]), now_micros())
        turns.claim(connection, run.id, 1, "w", now_micros())
        for name, content in files.items():
            turn_files.put_artifact(connection, (run.id, 1), 1, name, len(content), content)
        turns.end(connection, run.id, 1, TurnOutcome("completed", commit_sha="c" * 40), now_micros())
    browser, here = browse(mine), f"/runs/{run.id}"
    links = [html.unescape(one) for one in re.findall(r'href="(/runs/run_\w+/artifact[^"]*)', browser.get(here).text)]
    shown = {name: browser.get(link) for name, link in zip(sorted(files), links, strict=True)}
    saved = {name: browser.get(f"{link}&save=1") for name, link in zip(sorted(files), links, strict=True)}
    kinds = {name: one.headers["content-type"].partition(";")[0] for name, one in saved.items()}
    image = present(re.search(r'<img class="artifact" src="([^"]+)"', shown["charts/a&b.PNG"].text))

    assert {name: one.content for name, one in saved.items()} == files
    assert kinds == dict.fromkeys(files, "application/octet-stream") | {"charts/a&b.PNG": "image/png"}
    for one in saved.values():
        assert one.headers["content-disposition"].startswith("attachment; ")
        assert (one.headers["x-content-type-options"], one.headers["cache-control"]) == ("nosniff", "no-store")
        assert one.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert browser.get(html.unescape(image[1])).content == b"\x89PNG"
    assert "<h3>Well &lt;script&gt;alert(1)&lt;/script&gt;</h3>" in shown["report.md"].text
    assert "evil.example" not in re.sub(r"<a [^>]*>", "", shown["report.md"].text)
    assert [shown[name].content == files[name] for name in sorted(files)] == [False, True, True, False]


def crawl(browser: Browser) -> tuple[dict[str, int], set[str]]:
    """Return every address that an organization's pages link to, with its status, and their forms' targets."""
    found, forms = {"/": 0}, set[str]()
    while path := next((one for one, status in found.items() if not status), ""):
        answer = browser.get(path)
        found[path] = answer.status_code
        links = [*re.findall(r'href="(/[^"#]+)', answer.text), answer.headers.get("location", path)]
        found |= {one: 0 for one in map(html.unescape, links) if one not in found and not one.startswith("/assets/")}
        forms |= set(re.findall(r'method="post" action="([^"]+)"', answer.text))
    return found, forms


def test_sessions_are_limited_to_their_organization(own: Own, tenant: Any, browse: Any, api: Api) -> None:
    """With the other's session, every address and form of its pages answers as if nothing existed."""
    mine, other = own()[0], tenant()
    run_id = mine.start("something secret")
    mine.ended(run_id)
    stranger, browser = browse(other), browse(mine)
    browser.post("/settings/members", email="a@customer.example")
    slug, url = mine.organization["slug"], "http://127.0.0.1:9/"
    endpoint = api.service.admin("events", "endpoints", "add", url, "--org", slug, "--allow-private", "127.0.0.1")["id"]
    mine.ended(mine.start("more"))
    paths, forms = crawl(browser)
    run, ids = f"/runs/{run_id}", re.compile(r"(run|tok|mem|evt|ep)_\w+|\w{26}")
    marks = {one[0] for path in (*paths, *forms) if (one := ids.search(path))} | {"something secret", url}

    assert {run, f"{run}/changes", f"{run}/changes.patch"} <= {*paths}
    theirs = [one for one in forms if any(mark in one for mark in marks)]
    acts = {one.rpartition("/")[2] for one in theirs}
    assert acts >= {"reply", "revoke", "remove", "replay", "rotate"}
    assert any(endpoint in one for one in theirs)
    more = f"{run}/log/1/more?offset=0&line=1"
    for path in (*paths, f"{run}/log", f"{run}/log/1", more, f"/runs/new?like={run_id}"):
        shown, is_theirs = stranger.get(path), any(mark in path for mark in marks)
        assert shown.status_code == (404 if is_theirs else paths.get(path, 200)), path
        # An answer may repeat what the address itself contains.
        assert not [one for one in marks if one in shown.text and one not in path], path
    for path in (*theirs, f"{run}/cancel"):
        assert stranger.post(path, instructions="x").status_code == 404, path
    assert stranger.get("/operator").status_code == 404
    assert len(mine.turns(run_id)) == 1


def test_tokens_are_created_shown_once_and_revoked(tenant: Make, browse: Any, shared_service: Any) -> None:
    """The list shows each token's last use; a session expires with its token."""
    browser = browse(tenant())
    made = browser.post("/settings/tokens", alias=f"ci {SCRIPT}", duration="7d", **{"scope-admin": "on"})
    value = present(re.search(r'value="(rwt_[\w-]+)" readonly', made.text))
    client = http_client(value[1], shared_service.base_url)
    before = browser.get("/settings/tokens")
    assert client.get("/external/runs").status_code == 200
    after = browser.get("/settings/tokens")
    for path in re.findall(r"/settings/tokens/tok_\w+/revoke", after.text):
        browser.post(path)

    assert ["never" in text_of(one) for one in (before, after)] == [True, False]
    assert not [one for one in (before, after) if value[1] in one.text or SCRIPT in one.text]
    assert client.get("/external/runs").status_code == 401
    assert browser.get("/runs").status_code == 303


def test_the_operator_lists_and_invites_organizations(site: Api) -> None:
    """The operator's token opens nothing else; a new invitation voids the old code."""
    made, _ = invited(site, "joe@customer.example")
    assert http_client(OPERATOR, site.service.base_url).get("/external/runs").status_code == 401
    browser = Browser(site.service.base_url)
    assert browser.sign_in(OPERATOR).headers["location"] == "/operator"
    shown = browser.get("/operator")
    assert made["organization_name"] in text_of(shown)
    row = present(re.search(r"joe@customer\.example.*?(/operator/invitations/inv_\w+/resend)", shown.text, re.DOTALL))
    again = [browser.post(row[1]).status_code for _ in range(2)]
    assert again == [303, 404], "a second click sends no third code"
    mails = [one.read_text() for one in site.service.outbox.glob("*.eml")]
    codes = [re.findall(r"rwt_[\w-]+", mail)[0] for mail in mails if "joe@customer.example" in mail]
    assert sorted(browser.post("/invitation", code=code).status_code for code in codes) == [200, 400]


def test_the_operator_searches_for_an_organization(site: Api) -> None:
    """The newest hundred are shown, so an older one is found by a part of its name, slug, id or invited address."""
    made, _ = invited(site, "ann@findable.example")
    browser = Browser(site.service.base_url)
    browser.sign_in(OPERATOR)
    by = [made["organization_slug"].upper(), " ann@findable.example", made["organization_id"][4:], "nobody<b>", "None"]

    found = [browser.get("/operator?" + urlencode({"search": text})).text for text in by]

    listed = [page.partition("<h2>Workers")[0].partition("<h2>Organizations")[2] for page in found]
    assert [f"org={made['organization_slug']}" in page for page in listed] == [True, True, True, False, False]
    assert [page.count("<tr><td>") for page in listed] == [1, 1, 1, 0, 0]
    assert "nobody&lt;b&gt;" in found[3]


def test_an_operator_cancels_only_the_runs_shown(idle: Api, tenant: Make, database_of_idle: Database) -> None:
    """A cancellation needs a confirmation in this session, spares later turns and other runs, and is in the trail."""
    mine, operator = tenant(on=idle.service), Browser(idle.service.base_url)
    operator.sign_in(OPERATOR)
    owner, slug = mine.organization["id"], mine.organization["slug"]
    with database_of_idle.write() as connection:
        ids = [runs.accept(connection, order(owner), now_micros()).id for _ in range(41)]
        assert turns.cancel(connection, ids[0], "done", now_micros())
    listed = operator.get(f"/operator/runs?org={slug}")
    preview = html.unescape(present(re.search(r'href="(/operator/runs/cancel[^"]+)"', listed.text))[1])
    shown = operator.get(preview)
    assert "Cancel 40 runs?" in text_of(shown)
    fields = dict(re.findall(r'type="hidden" name="(org|status|shown)" value="([^"]*)"', shown.text))
    with database_of_idle.write() as connection:
        # Two runs, an old one and one of the preview, have another turn by now.
        assert turns.cancel(connection, ids[1], "done", now_micros())
        for one in ids[:2]:
            assert runs.resume(connection, present(runs.by_id(connection, one)), order(owner), now_micros())
        later = [*ids[:2], runs.accept(connection, order(owner), now_micros()).id]
    assert operator.post("/operator/runs/cancel", csrf="0" * 64, **fields).status_code == 403
    assert operator.post("/operator/runs/cancel", {"Sec-Fetch-Site": "cross-site"}, **fields).status_code == 403
    assert operator.post("/operator/runs/cancel", **fields | {"shown": "run_x:" + "9" * 5000}).status_code == 400

    done = operator.get(operator.post("/operator/runs/cancel", **fields).headers["location"])
    assert "39 runs cancelled" in text_of(done)
    assert {one["run_id"] for one in mine.runs(status="queued")} == {*later}
    assert {one["run_id"] for one in mine.runs(status="failed")} == {*ids[2:]}
    trail = mine.service.admin("audit", "list", "--org", slug, "--action", "run.cancel")["entries"]
    assert {(one["actor"], one["target"]) for one in trail} == {("operator:page", one) for one in ids[2:]}


def test_every_page_forbids_foreign_and_inline_scripts(ended: tuple[Api, str], browse: Any) -> None:
    """Pages have no inline style or script and load only from this site. No cache keeps a page, patch or log."""
    mine, run = ended
    browser = browse(mine)
    settings = ("/settings/tokens", "/settings/events", "/settings/x")
    shown_runs = (run, f"{run}/changes", f"{run}/changes.patch", f"{run}/log/1", f"{run}/log/1?form=steps")
    for path in ("/sign-in", "/invitation", "/runs", "/runs/new", "/api", "/runs/none", *settings, *shown_runs):
        shown = browser.get(path)
        policy = shown.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert shown.headers["cache-control"] == "no-store", path
        assert shown.headers["x-content-type-options"] == "nosniff"
        assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?! src=\"/assets/)|(src|href)=\"//", shown.text), path
        for asset in re.findall(r'(?:src|href)="(/assets/[^"]+)"', shown.text):
            assert BARE.get(str(browser.http.base_url).rstrip("/") + asset).status_code == 200


def test_a_log_is_shown_in_colours() -> None:
    """Eight colours and bold are shown, other sequences are dropped, and no output becomes HTML.

    Characters that reverse text or control a terminal become signs, even as references.
    """
    printed = "\x1b[1;31mFAILED\x1b[0m \x1b[2Ka<b \x1b[38;5;9mx\x1b[39m\x1b]8;;http://h\x07link\x1b]8;;\x07 \x1b[92mok"

    assert terminal(printed) == ("<i class='b t1'>FAILED</i> a&lt;b xlink <i class='t2'>ok</i>")
    assert terminal("plain \x1b") == "plain ␛"
    assert terminal(f"\x1b[{'3' * 5000}mplain") == "plain"

    assert markdown("&#8238;live &#27;]8;; &#x2066;\u202e&nbsp;") == "<p>�live �]8;; ��&nbsp;</p>\n"


def test_opening_a_forms_address_changes_nothing(ended: tuple[Api, str], browse: Any) -> None:
    """Only submitting it does."""
    mine, run = ended
    browser = browse(mine)
    token = mine.organization["tokens"][0]["id"]
    for path in ("/sign-out", f"{run}/reply", f"{run}/cancel", f"/settings/tokens/{token}/revoke"):
        assert browser.get(path).status_code == 405
    assert browser.get("/runs").status_code == 200
    assert len(mine.turns(run.rpartition("/")[2])) == 1


def test_failed_sign_ins_lock_nobody_out(start: Make) -> None:
    """Thirty wrong attempts a minute, then 429; valid ones do not count, since behind a proxy all share one address."""
    settings = f"{UNBOXED}[limits]\nrequests_per_minute = 30\n"
    api = start(settings=settings, environment={"RUNWARDEN_OPERATOR_TOKEN": OPERATOR})
    _, code = invited(api, "jane@customer.example")
    stranger = Browser(api.service.base_url)
    answers = [stranger.sign_in(f"rwt_{number}") for number in range(30)]
    refused = next(one for number in range(1000) if (one := stranger.sign_in(f"rwt_{number}")).status_code == 429)

    assert [answer.status_code for answer in answers] == [401] * 30
    assert int(refused.headers["retry-after"]) > 0
    assert 429 in (stranger.post("/invitation", code="rwt_guess").status_code for _ in range(1000))
    limited = next(answer for _ in range(1000) if (answer := api.get("/external/agents")).status_code == 429)
    assert (refusal(limited)[1], 1 <= int(limited.headers["retry-after"]) <= 60) == ("rate_limited", True)
    for token in (api.token, OPERATOR):
        assert Browser(api.service.base_url).sign_in(token).status_code == 303
    assert Browser(api.service.base_url).post("/invitation", code=code).status_code == 200


def test_the_log_contains_no_secret(site: Api) -> None:
    """No token, code or session appears, whatever happens with them."""
    _, code = invited(site, "june@customer.example")
    browser = Browser(site.service.base_url)
    browser.get(f"/invitation?code={code}")
    token = present(re.search(r'value="(rwt_[\w-]+)" readonly', browser.post("/invitation", code=code).text))
    secrets = [code, token[1], site.token, OPERATOR, browser.http.headers["Cookie"].partition("=")[2], browser.csrf]
    for one in (site.token, OPERATOR, "rwt_mistyped", token[1]):
        browser.sign_in(one)
        secrets += [one, browser.http.headers["Cookie"].partition("=")[2], browser.csrf]
    browser.post("/runs/new", token=token[1], instructions=token[1])
    browser.get(f"/runs/{token[1]}")
    browser.get(f"/sign-in?next=/runs/{token[1]}")
    browser.get("/nothing-is-here")

    eventually(lambda: "route=unmatched" in site.service.log, "the last request is logged")
    assert not [one for one in secrets if one and one in site.service.log]


def test_an_agents_files_are_shown_as_text(own: Own, browse: Any) -> None:
    """None of it becomes HTML, reverses text or controls a terminal; a log is shown from its end."""
    marks = f"{SCRIPT}\u202e\u2066\x1b]8;;https://x.example\x07"
    mine, _ = own(branches={"a<b>": {"x": "x"}})
    source = VANDAL.format(marks=marks, name=f"{SCRIPT[:8]}.py")
    mine.add_agent(mine.service.data_dir, "vandal", source, "--description", SCRIPT)
    run = f"/runs/{mine.begin('vandal', fields={'branch_name': 'a<b>'}, instructions=marks)}"
    mine.ended(run.rpartition("/")[2])
    browser = browse(mine)
    for path in ("/runs", run, f"{run}/changes", f"{run}/log", f"{run}/log?before=90000", "/settings/agents"):
        shown = browser.get(path)
        assert shown.status_code == 200
        assert len(shown.content) < 50_000, path
        assert SCRIPT in text_of(shown), path
        assert not [
            one for one in (SCRIPT, "a<b>", "\u202e", "\u2066", "\x1b", "\x07") if one in shown.text.split("<h1")[1]
        ]
    assert "the last line" in text_of(browser.get(f"{run}/log"))


def test_a_session_ends_with_its_token_or_organization(tenant: Any, browse: Any, api: Api) -> None:
    """A session ends with its token, organization or a sign-out, and each sign-in creates a new one."""
    revoked, deleted, inactive = tenant(), tenant(), tenant()
    browsers, left = (browse(revoked), browse(deleted)), browse(inactive)
    api.service.admin("token", "revoke", revoked.organization["tokens"][0]["id"])
    api.service.admin("org", "delete", "--yes", deleted.organization["slug"])
    api.service.admin("org", "deactivate", inactive.organization["slug"])
    for one in browsers:
        assert one.get("/runs").headers["location"] == "/sign-in?next=%2Fruns"
    for shown in (browse().sign_in(inactive.token), left.get("/runs"), left.get("/")):
        assert (shown.status_code, "is not active" in text_of(shown)) == (403, True)
    assert 'href="/sign-in"' in shown.text
    assert left.get("/sign-in").status_code == 200
    assert left.sign_in(tenant().token).status_code == 303
    assert left.get("/runs").status_code == 200

    token, browser, cookies = tenant().token, browse(), ["__Host-runwarden_session=chosen-by-another"]
    for _ in range(2):
        browser.http.headers["Cookie"] = cookies[-1]
        browser.sign_in(token)
        cookies.append(browser.http.headers["Cookie"])
    assert len({*cookies}) == 3
    assert browser.post("/sign-out").headers["location"] == "/sign-in"
    browser.http.headers["Cookie"] = cookies[-1]
    assert browser.get("/runs").status_code == 303


def test_an_endpoints_secret_is_shown_once(tenant: Make, browse: Any, api: Api) -> None:
    """A forbidden address is reported, and stays in its field."""
    mine = tenant()
    browser, form, chosen = browse(mine), "/settings/events/endpoints", {"type-run.ended": "on"}
    private = f"https://127.0.0.1/?{SCRIPT}"
    refused = browser.post(form, url=private, **chosen)
    assert (refused.status_code, "127.0.0.1 has no public address" in text_of(refused)) == (400, True)
    assert f'value="{html.escape(private)}"' in refused.text
    made = browser.post(form, url=f"https://9.9.9.9/{SCRIPT}", **chosen)
    shown = browser.get("/settings/events")
    assert SCRIPT in text_of(shown)
    assert SCRIPT not in shown.text

    endpoint = present(re.search(rf"{form}/(ep_\w+)/remove", shown.text))
    newer = browser.post(endpoint[0].replace("/remove", "/rotate"))
    secrets = [present(re.search(r'value="(whsec_[^"]+)" readonly', one.text))[1] for one in (made, newer)]
    assert len({*secrets}) == 2
    assert not [one for one in secrets if one in browser.get("/settings/events").text]
    browser.post(endpoint[0])
    assert "9.9.9.9" not in text_of(browser.get("/settings/events"))
