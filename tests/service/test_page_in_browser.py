"""The page in a real Chromium, by keyboard, on both databases: `make page-check` (minutes)."""

import email
import email.policy
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab import free_port
from tests.service.chromium import Person
from tests.service.conftest import UNBOXED, Api, http_client
from tests.service.deployment import VARIABLE
from tests.service_process import git, make_repository
from tests.waiting import eventually

pytestmark = pytest.mark.campaign


@pytest.fixture
def served(start: Callable[..., Api], either_url: str | None) -> Api:
    """A service on either database, whose mails lead to its page."""
    port = free_port()
    settings = f'{UNBOXED}concurrency = 2\n[page]\nurl = "http://127.0.0.1:{port}"\n'
    environment = {} if either_url is None else {VARIABLE: either_url}
    return start(settings=settings, arguments=["--port", str(port)], environment=environment)


@pytest.fixture
def sit_down() -> Iterator[Callable[..., Person]]:
    """`sit_down(api)` opens a browser for one more person; no console may have complained at the end."""
    people: list[Person] = []

    def open_browser(api: Api, **options: Any) -> Person:
        people.append(Person(api.service.base_url.removesuffix("/v1"), **options))
        return people[-1]

    yield open_browser
    complaints = [one for person in people for one in person.complaints()]
    for person in people:
        person.driver.quit()
    assert not complaints


def invited(api: Api, address: str) -> str:
    """Create an organization by the API and return the link in the mail to its administrator."""
    made = api.post("/external/organizations", {"email": address}).json()
    raw = (api.service.outbox / f"{made['organization_id']}.eml").read_bytes()
    mail = email.message_from_bytes(raw, policy=email.policy.default)
    assert isinstance(mail, email.message.EmailMessage)
    plain = mail.get_body(("plain",))
    assert plain is not None
    link = re.search(r"http://\S+/invitation\?code=\S+", plain.get_content())
    assert link is not None
    return link[0]


def curl(shown: str) -> int:
    """Run the command that the page shows and return the status of the answer."""
    options = "--silent --output /dev/null --write-out '%{http_code}'"
    return int(subprocess.run(["sh", "-c", f"{shown} {options}"], check=True, capture_output=True, text=True).stdout)


def test_an_invitation_leads_by_keyboard_to_a_commit_and_a_revoked_token(
    served: Api, sit_down: Callable[..., Person], tmp_path: Path
) -> None:
    """Mail, link, code, token, a run that is followed to its commit, a reply, and the token's end."""
    link = invited(served, "jane@customer.example")
    jane = sit_down(served)
    jane.open(link)
    assert "jane@customer.example" in jane.text
    jane.press("main button")
    shown = jane.attribute("pre", "innerText")
    assert curl(shown) == 200

    gate, slug = tmp_path / "gate", served.service.admin("org", "list")["organizations"][-1]["slug"]
    bare = make_repository(tmp_path / "customer" / "shop", {"README.md": "# shop\n"})
    repository = ["--org", slug, "--platform", "github", "--path", "customer/shop", "--url", str(bare)]
    served.service.admin("repository", "add", "shop", *repository)
    jane.press("main a[href='/runs']")
    jane.press("main a[href='/runs/new']")
    jane.type("#repository", "customer/shop")
    jane.type("#instructions", f"wait {gate}")
    jane.press("form[method=post] button:not(.link)")
    eventually(lambda: "scribe at work on turn 1" in jane.text, "the log is followed")
    assert "Cancel this run" in jane.text
    gate.touch()
    eventually(lambda: "completed" in jane.text and "commit" in jane.text, "the run is followed to its commit")
    branch = jane.attribute(".facts code", "textContent")
    assert git("rev-parse", "--short=12", branch, cwd=bare) in jane.text

    jane.press("nav a[href$='/changes']")
    assert f"wait {gate}" in jane.text
    jane.press("nav[aria-label=Run] a")
    jane.type("#instructions", "and once more")
    jane.press(".reply button:not([name])")
    eventually(lambda: jane.text.count("completed") >= 3, "the second turn is followed to its end")
    assert git("rev-list", "--count", branch, cwd=bare) == "3"

    jane.press("header a[href='/settings/tokens']")
    jane.press("button[aria-label='Revoke first administrator']")
    assert jane.path.startswith("/sign-in")
    assert curl(shown) == 401


MARKS = '"><script>alert(1)</script><img src=x onerror=alert(2)> {{ 7 * 7 }} \u202egnp.\u2066 \x1b]8;;https://x.example\x07here'
HOSTILE = f"""
import json, os, pathlib, sys
task, marks = json.load(sys.stdin), {MARKS!r}
words = task["instructions"]
print("at work", marks, "<b>" * 30, flush=True)
folder = pathlib.Path(".runwarden")
folder.mkdir()
result = {{"summary": "# Done\\n\\n###### deep\\n\\n" + marks + " [x](javascript:alert(3)) ![y](https://x.example/y.png)\\n\\n"
           "| a | b |\\n|---|---|\\n| " + "wide" * 100 + " | 2 |\\n\\n```\\n" + "code " * 100 + "\\n```\\n&#8238;end"}}
if "ask" in words:
    question = {{"question": marks + " Which?", "choices": [marks[:150], "W" * 150, "no"]}}
    (folder / "question.json").write_text(json.dumps(question))
else:
    names = ["<img src=x onerror=alert(4)>.py", "a b", "x\\ty.html", "\u202etxt.exe", "W" * 150 + ".c"]
    for number, name in enumerate(names):
        pathlib.Path(name).write_text("def f(a):  # " + marks + "\\n    return 'x' * 3\\n" * (1 + 1500 * (number == 0)))
    about = {{"path": names[0], "line": 2, "title": marks[:100], "suggestion": marks, "message": marks + "W" * 300}}
    found = [about | {{"severity": one}} for one in ("blocker", "major", "minor", "note")]
    (folder / "findings.json").write_text(json.dumps({{"version": 1, "findings": found}}))
pathlib.Path(os.environ["RUNWARDEN_RESULT"]).write_text(json.dumps(result))
if "fail" in words:
    sys.exit(marks)
"""
"""An agent whose every word, name and line is hostile."""
INPUTS = """{
    depth = { type = "integer", default = 2, description = "How deep <b>it</b> goes" },
    mood = { type = "text", choices = ["kind", "<script>alert(5)</script>"] },
    strict = { type = "boolean", default = true },
    goal = { type = "text", required = true },
}""".replace("\n", " ").replace(", }", " }")
LOOKS = [(dark, width) for dark in (False, True) for width in (1280, 360)]


def test_axe_finds_nothing_on_any_page(
    start: Callable[..., Api], sit_down: Callable[..., Person], tmp_path: Path
) -> None:
    """Light and dark, on a desktop and a phone, with hostile words, names and lines; each page is under 50 KB."""
    port = free_port()
    api = start(
        settings=f'{UNBOXED}concurrency = 2\n[page]\nurl = "http://127.0.0.1:{port}"\n',
        arguments=["--port", str(port)],
        environment={"RUNWARDEN_OPERATOR_TOKEN": "rwo_" + "o" * 40},
    )
    api.add_agent(tmp_path, "hostile", HOSTILE, "--description", MARKS[:60], "--inputs", INPUTS)
    script = tmp_path / "hostile.py"
    api.service.admin("agent", "add", "plain", "--argv", f"{{python}} {script}")
    api.service.admin("org", "create", MARKS[:100])
    invited(api, "waiting@customer.example")
    link = invited(api, "jane@customer.example")
    person = sit_down(api)
    found: dict[str, list[str]] = {}

    def check(*paths: str) -> None:
        for path in paths:
            person.open(path)
            check_here(path)

    def check_here(name: str) -> None:
        size = len(person.attribute("html", "outerHTML").encode())
        if size > 50_000:
            found[f"{name} size"] = [str(size)]
        for dark, width in LOOKS:
            person.look(dark=dark, width=width)
            if faults := person.faults():
                found[f"{name} {'dark' if dark else 'light'} {width}"] = faults

    check("/", "/invitation", "/invitation?code=none", link, "/api", "/operator")
    person.open(link)
    person.press("main button")
    check_here("first token")
    check("/runs", "/settings/usage", "/settings/hosts")

    for alias in ("tests", MARKS[:100], "W" * 190):
        person.cdp("Network.clearBrowserCookies")
        person.open("/sign-in?next=/settings/tokens")
        person.type("#token", api.token)
        person.press("main button")
        person.type("#alias", alias)
        person.press("main form button")
        check_here("new token")
    instructions = [f"do {MARKS}", f"ask {MARKS}", f"fail {MARKS}", "W" * 500]
    branch = {"branch_name": 'x"><img/src=x/onerror=alert(6)>/' + "w" * 100}
    runs = [
        api.begin("plain", fields=branch if not number else {}, instructions=one)
        for number, one in enumerate(instructions)
    ]
    for run in runs:
        api.ended(run)
    gate = tmp_path / "gate"
    runs.append(api.start(f"wait {gate} {MARKS}"))
    api.reaches(runs[-1], "working")
    check("/runs", "/runs?status=failed", "/runs?status=queued", f"/runs?date_from={'x' * 40}&repository=%3Cb%3E")
    for run in runs:
        check(*(f"/runs/{run}{path}" for path in ("", "/changes", "/log")))
    check(f"/runs/{runs[0]}/changes?turn=1&file=2", f"/runs/{runs[0]}/changes?file=x", f"/runs/{runs[0]}/log?turn=7")
    check("/runs/new", "/runs/new?agent=hostile", "/runs/new?agent=%3Cb%3E", f"/runs/new?like={runs[0]}")
    check(*(f"/settings/{name}" for name in ("tokens", "members", "hosts", "agents", "usage", "events", "none")))
    person.open("/settings/members")
    person.type("#email", "jane@customer.example")
    person.press("main form button")
    check_here("a member")
    person.open("/operator")
    check_here("not an operator")
    person.cdp("Network.clearBrowserCookies")
    person.open("/sign-in")
    person.type("#token", "rwt_wrong")
    person.press("main button")
    check_here("a wrong token")
    person.type("#token", "rwo_" + "o" * 40)
    person.press("main button")
    check_here("the operator's view")
    gate.touch()

    assert not found, "\n".join(f"{name}: {one}"[:500] for name, faults in found.items() for one in faults)


CRAWL = """
const done = arguments[0], found = new Set(["/"]), forms = new Set();
(async () => {
  for (const path of found) {
    const answer = await fetch(path);
    if (!(answer.headers.get("content-type") || "").startsWith("text/html")) continue;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const one of page.querySelectorAll("a[href^='/']")) found.add(one.getAttribute("href").split("#")[0]);
    for (const one of page.querySelectorAll("form[method=post]")) forms.add(one.getAttribute("action"));
    for (const one of page.querySelectorAll("[data-log]")) found.add(one.dataset.log);
  }
  return [[...found], [...forms]];
})().then(done);
"""
ASK = """
const [paths, forms, done] = arguments, csrf = document.querySelector("[name=csrf]").value;
(async () => {
  const said = {};
  for (const path of paths) { const answer = await fetch(path); said[path] = [answer.status, await answer.text()]; }
  for (const path of forms) {
    const body = new URLSearchParams({csrf, instructions: "x"});
    const answer = await fetch(path, {method: "POST", body});
    said["POST " + path] = [answer.status, await answer.text()];
  }
  return said;
})().then(done);
"""


def test_no_address_of_an_organization_shows_anything_to_another(
    served: Api, sit_down: Callable[..., Person], tmp_path: Path
) -> None:
    """Every address and form that one's pages lead to, tried in the other's browser, beside one that is their own."""
    mine = Api(served.service, other_organization(served, tmp_path, "Mine"))
    other = Api(served.service, other_organization(served, tmp_path, "Other"))
    run_id = mine.start("something secret", "mine/api")
    mine.ended(run_id)
    people = [sit_down(served) for _ in range(2)]
    for person, api in zip(people, (mine, other), strict=True):
        person.open("/settings/members")
        person.type("#token", api.token)
        person.press("main button")
        person.type("#email", f"jane@{api.organization['slug']}.example")
        person.press("main form button")
    paths, forms = people[0].driver.execute_async_script(CRAWL)
    assert {f"/runs/{run_id}", f"/runs/{run_id}/changes", f"/runs/{run_id}/changes.patch"} <= set(paths)
    assert {f"/runs/{run_id}/reply", f"/settings/tokens/{mine.organization['tokens'][0]['id']}/revoke"} <= set(forms)

    forms = [one for one in forms if re.search(r"/(run|tok|mem)_", one)]
    said = people[1].driver.execute_async_script(ASK, paths, forms)
    marks = ("something secret", "mine", run_id, mine.organization["tokens"][0]["id"])
    for path, (status, text) in said.items():
        is_theirs = any(one in path for one in (run_id, "tok_", "mem_"))
        assert not is_theirs or status == 404, path
        # What the address itself says may be said again.
        assert not [one for one in marks if one in text and one not in path], path
    assert people[0].driver.execute_async_script(ASK, [f"/runs/{run_id}"], [])[f"/runs/{run_id}"][0] == 200
    assert len(mine.get(f"/external/runs/{run_id}").json()["turns"]) == 1


def other_organization(api: Api, folder: Path, name: str) -> dict[str, Any]:
    """Make an organization with a token and a repository, and return it."""
    path = f"{name.lower()}/api"
    bare = make_repository(folder / path, {"README.md": "# api\n"})
    entry = {"name": name, "tokens": [{"alias": f"token of {name.lower()}", "scopes": ["admin"]}]}
    entry |= {"repositories": [{"name": "api", "platform": "github", "path": path, "url": str(bare)}]}
    (folder / f"{name}.json").write_text(json.dumps({"organizations": [entry]}), "utf-8")
    return dict(api.service.admin("apply", str(folder / f"{name}.json"))["organizations"][0])


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_everything_but_following_works_without_scripts(
    start: Callable[..., Api], sit_down: Callable[..., Person], tmp_path: Path, host: str
) -> None:
    """Also without TLS on this machine, under both of its names; a live page is loaded again by itself."""
    api = start(settings=UNBOXED)
    person = sit_down(api, scripts=False)
    person.base_url = person.base_url.replace("127.0.0.1", host)
    person.open("/runs/new")
    person.type("#token", api.token)
    person.press("main button")
    assert person.path == "/runs/new"
    gate = tmp_path / "gate"
    person.type("#repository", "acme/api")
    person.type("#instructions", f"wait {gate}")
    person.press("form[method=post] button:not(.link)")
    assert "Cancel this run" in person.text
    gate.touch()
    eventually(lambda: "completed" in person.text, "the page is loaded again")
    person.press("nav[aria-label=Run] a[href*='/log']")
    assert "scribe at work on turn 1" in person.text
    person.press("nav[aria-label=Run] a")
    person.type("#instructions", f"wait {tmp_path / 'never'}")
    person.press(".reply button:not([name])")
    person.press("main form button.danger")
    eventually(lambda: "⊘ cancelled" in person.text, "the run is cancelled")
    person.press("header a[href='/settings/tokens']")
    person.press("main form button")
    shown = person.attribute("#value", "value")
    assert http_client(shown, api.service.base_url).get("/external/runs").status_code == 200
    assert curl(person.attribute("pre", "textContent")) == 200
    person.press("main a.button")
    person.press("header button")
    assert person.path == "/sign-in"


def test_a_refused_reply_is_not_sent_by_itself(
    start: Callable[..., Api], sit_down: Callable[..., Person], tmp_path: Path
) -> None:
    """The page of a reply that came while another turn works keeps it, and sends nothing when that turn ends."""
    api = start(settings=UNBOXED)
    run_id, gate = api.start("something"), tmp_path / "gate"
    api.ended(run_id)
    person = sit_down(api)
    person.open(f"/runs/{run_id}")
    person.type("#token", api.token)
    person.press("main button")
    person.type("#instructions", "these are my words")
    api.follow(run_id, f"wait {gate}")
    api.reaches(run_id, "working")
    person.press(".reply button:not([name])")
    assert "these are my words" in person.text
    eventually(lambda: person.text.count("scribe at work") == 1, "the log is followed")
    gate.touch()
    api.ended(run_id)
    eventually(lambda: "completed" in person.attribute("#log", "textContent"), "the log is followed to its end")

    assert "these are my words" in person.text
    assert len(api.get(f"/external/runs/{run_id}").json()["turns"]) == 2
