"""The page in a real Chromium, by keyboard alone: `make page-check`.

One service and at most two browsers serve all of these tests.
"""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.program import ROOT
from tests.service.conftest import OPERATOR, UNBOXED, Api, Own, served
from tests.service.page.test_page import invited
from tests.waiting import eventually

pytestmark = pytest.mark.campaign
AXE: Final = ROOT / ".venv/.npm/node_modules/axe-core/axe.min.js"
MAX_TABS: Final = 400
TAB, ENTER, CONTROL = "\ue004", "\ue007", "\ue009"
FOCUSED: Final = """
const one = document.activeElement, look = getComputedStyle(one), box = one.getBoundingClientRect();
const seen = box.width && box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth;
return {is: one.matches(arguments[0]), nowhere: one === document.body,
        visible: Boolean(seen) && look.outlineStyle !== "none" && parseFloat(look.outlineWidth) >= 2,
        what: one.outerHTML.slice(0, 200)};
"""
JUDGE: Final = """
const done = arguments[0], rules = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
axe.run(document, {runOnly: rules, resultTypes: ["violations"]}).then((found) => done([
    ...found.violations.map((one) => one.id + ": " + one.nodes.map((node) => node.html).join(" | ")),
    ...(document.documentElement.scrollWidth > innerWidth ? ["the page is wider than the window"] : []),
    ...[...document.querySelectorAll(".wide")]
       .filter((one) => innerWidth < 640 && one.scrollWidth > one.clientWidth + 1)
       .map((one) => `one has to scroll sideways: ${one.ariaLabel}`)]));
"""
LOOKS: Final = (("light", 1280), ("dark", 390))
"""Two of four combinations suffice: page.css sets colours by the theme alone, and the layout by the width alone."""


class Person:
    """A browser whose user only presses keys."""

    def __init__(self, base_url: str) -> None:
        webdriver: Any = pytest.importorskip("selenium.webdriver", reason="no selenium: run `make page-check`")
        program, driver = shutil.which("chromium"), shutil.which("chromedriver")
        if not program or not driver:
            pytest.skip("no chromium or chromedriver; Debian's packages: chromium and chromium-driver")
        options = webdriver.ChromeOptions()
        options.binary_location = program
        for one in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,900"):
            options.add_argument(one)
        options.set_capability("goog:loggingPrefs", {"browser": "INFO"})
        self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
        self.driver.set_script_timeout(300)
        self.keyboard = webdriver.ActionChains(self.driver)
        self.base_url = base_url

    def cdp(self, command: str, **values: Any) -> None:
        """Send a command of Chromium's DevTools."""
        self.driver.execute_cdp_cmd(command, values)

    def open(self, path: str) -> None:
        """Open an address, as if it were typed."""
        self.driver.get(path if path.startswith("http") else self.base_url + path)

    @property
    def path(self) -> str:
        """The path of the page's address."""
        return str(self.driver.current_url).removeprefix(self.base_url)

    @property
    def text(self) -> str:
        """The visible text of the page."""
        return str(self.driver.execute_script("return document.body.innerText"))

    def attribute(self, selector: str, name: str) -> str:
        """Return a property of the first such element."""
        script = "return document.querySelector(arguments[0])[arguments[1]]"
        return str(self.driver.execute_script(script, selector, name))

    def keys(self, text: str) -> None:
        """Press keys, wherever the focus is."""
        self.keyboard.send_keys(text).perform()

    def reach(self, selector: str) -> None:
        """Press Tab until an element has the focus; the focus must be visible at each step."""
        for _ in range(MAX_TABS):
            focused = self.driver.execute_script(FOCUSED, selector)
            assert focused["nowhere"] or focused["visible"], f"the focus is not visible: {focused['what']}"
            if focused["is"]:
                return
            self.keys(TAB)
        raise AssertionError(f"Tab does not reach {selector} on {self.path}: {self.text[:2000]}")

    def type(self, selector: str, text: str) -> None:
        """Reach a field and replace its content."""
        self.reach(selector)
        self.keyboard.key_down(CONTROL).send_keys("a").key_up(CONTROL).send_keys(text).perform()

    def press(self, selector: str) -> None:
        """Reach a button or link, press Enter, and wait for the next page."""
        self.reach(selector)
        self.driver.execute_script("document.before = true")
        self.keys(ENTER)
        ready = "return !document.before && document.readyState === 'complete' && location.href !== 'about:blank'"
        eventually(lambda: self.driver.execute_script(ready), f"Enter on {selector} leads to another page")

    def reads(self, *words: str) -> None:
        """Wait until the page shows these words."""
        shows = f"{self.path} shows {' and '.join(words)}"
        eventually(lambda: all(one in self.text for one in words), shows, saw=lambda: self.text)

    def sign_in(self, token: str) -> None:
        """Fill in the form of the page that asks for a token."""
        self.type("#token", token)
        self.press("main button")

    def sign_out(self) -> None:
        """Forget the session."""
        self.cdp("Network.clearBrowserCookies")

    def faults(self) -> list[str]:
        """Return what axe-core reports on the page in both themes and widths."""
        self.driver.execute_script(AXE.read_text("utf-8"))
        found = []
        for theme, width in LOOKS:
            self.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
            metrics = {"height": 900, "deviceScaleFactor": 1, "mobile": False}
            self.cdp("Emulation.setDeviceMetricsOverride", width=width, **metrics)
            found += [f"{theme} {width}: {one}" for one in self.driver.execute_async_script(JUDGE)]
        return found

    def complaints(self) -> list[str]:
        """Return what the browser's console reported since the last call: errors, warnings and policy violations."""
        reported = [str(one["message"]) for one in self.driver.get_log("browser")]
        # A page that reports an error has a 4xx status itself.
        expected = re.compile(r"(?!\S*/assets/)\S+ - Failed to load resource: .* status of 4")
        return [one for one in reported if not expected.match(one)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A service with an operator's view."""
    environment = {"RUNWARDEN_OPERATOR_TOKEN": OPERATOR}
    with served(tmp_path_factory, "site", f"{UNBOXED}concurrency = 2\n", environment=environment) as service:
        yield Api(service)


@pytest.fixture(scope="module")
def browsers() -> Iterator[list[Person]]:
    """The open browsers; each test clears their sessions."""
    people: list[Person] = []
    yield people
    for person in people:
        person.driver.quit()


@pytest.fixture
def sit_down(site: Api, browsers: list[Person]) -> Iterator[Callable[[], Person]]:
    """`sit_down()` is a browser for another user; in the end, no console may have complained."""
    root = site.service.base_url.removesuffix("/v1")
    used: list[Person] = []

    def next_browser() -> Person:
        if len(used) == len(browsers):
            browsers.append(Person(root))
        person = browsers[len(used)]
        used.append(person)
        person.base_url = root
        person.sign_out()
        person.cdp("Emulation.clearDeviceMetricsOverride")
        person.cdp("Emulation.setScriptExecutionDisabled", value=False)
        return person

    yield next_browser
    assert [one for person in used for one in person.complaints()] == []


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
"""An agent whose words, names and lines are all hostile."""
INPUTS = """{
    depth = { type = "integer", default = 2, description = "How deep <b>it</b> goes" },
    mood = { type = "text", choices = ["kind", "<script>alert(5)</script>"] },
    strict = { type = "boolean", default = true },
    goal = { type = "text", required = true },
}""".replace("\n", " ").replace(", }", " }")


def test_every_page_passes_axe(site: Api, sit_down: Callable[[], Person], tmp_path: Path) -> None:
    """Each page is checked in light and dark, on desktop and phone, with hostile content, and is under 50 KB."""
    if not AXE.exists():
        pytest.skip("no axe-core: run `make page-check` where npm is")
    owned = ("--org", site.organization["slug"])
    site.add_agent(tmp_path, "hostile", HOSTILE, "--description", MARKS[:60], "--inputs", INPUTS, *owned)
    site.service.admin("agent", "add", "plain", "--argv", f"{{python}} {tmp_path / 'hostile.py'}", *owned)
    site.service.admin("org", "create", MARKS.partition(" \u202e")[0])
    invited(site, "waiting@customer.example")
    link = f"/invitation?code={invited(site, 'june@customer.example')[1]}"
    person = sit_down()
    found: dict[str, list[str]] = {}

    def check(*paths: str) -> None:
        for path in paths:
            person.open(path)
            check_here(path)

    def check_here(name: str) -> None:
        size = len(person.attribute("html", "outerHTML").encode())
        if faults := person.faults() + ([f"{size} bytes"] if size > 50_000 else []):
            found[name] = faults

    check("/", "/invitation", "/invitation?code=none", link, "/api", "/operator")
    person.open(link)
    person.press("main button")
    check_here("first token")
    check("/runs", "/settings/usage", "/settings/hosts")

    person.sign_out()
    person.open("/sign-in?next=/settings/tokens")
    person.sign_in(site.token)
    for alias in (MARKS.partition(" \u202e")[0], "W" * 190):
        person.open("/settings/tokens")
        person.type("#alias", alias)
        person.press("main form button")
    check_here("new token")
    branch = {"branch_name": 'x"><img/src=x/onerror=alert(6)>/' + "w" * 100}
    runs = [site.begin("plain", instructions=f"do {MARKS}")]
    texts = (f"ask {MARKS}", f"fail {MARKS}", "W" * 500)
    runs += [site.begin("plain", fields=branch, instructions=one) for one in texts]
    for run in runs:
        site.ended(run)
    gate = tmp_path / "gate"
    runs.append(site.start(f"wait {gate} {MARKS}"))
    site.reaches(runs[-1], "working")
    check("/runs", "/runs?status=failed", "/runs?status=queued", f"/runs?date_from={'x' * 40}&repository=%3Cb%3E")
    for run in runs:
        check(*(f"/runs/{run}{path}" for path in ("", "/changes", "/log")))
    check(*(f"/runs/{runs[0]}/log?{query}" for query in ("line=3#L3", "find=at+work", "find=none")))
    check(f"/runs/{runs[0]}/changes?turn=1&file=2", f"/runs/{runs[0]}/changes?file=x", f"/runs/{runs[0]}/log?turn=7")
    check("/runs/new", "/runs/new?agent=hostile", "/runs/new?agent=%3Cb%3E", f"/runs/new?like={runs[0]}")
    check(*(f"/settings/{name}" for name in ("tokens", "members", "hosts", "agents", "usage", "events", "none")))
    person.open("/settings/members")
    person.type("#email", "jane@customer.example")
    person.press("main form button")
    check_here("a member")
    check("/operator")
    person.sign_out()
    person.open("/sign-in")
    person.sign_in("rwt_wrong")
    check_here("a wrong token")
    person.sign_in(OPERATOR)
    check_here("the operator's view")
    check("/operator/runs", "/operator/runs?status=failed", "/operator/runs/cancel?status=working", "/operator/usage")
    gate.touch()

    assert not found, "\n".join(f"{name}: {one}"[:500] for name, faults in found.items() for one in faults)


def test_a_refused_reply_is_not_sent_by_itself(
    site: Api, sit_down: Callable[[], Person], own: Own, tmp_path: Path
) -> None:
    """A reply during another turn stays on its page, and is not sent when that turn ends."""
    (api, _), gate = own(on=site.service), tmp_path / "gate"
    run_id = api.start("something")
    api.ended(run_id)
    person = sit_down()
    person.open(f"/runs/{run_id}")
    person.sign_in(api.token)
    person.type("#instructions", "these are my words")
    api.follow(run_id, f"wait {gate}")
    api.reaches(run_id, "working")
    person.press(".reply button:not([name])")
    assert person.attribute("#instructions", "value") == "these are my words"
    eventually(lambda: person.text.count("scribe at work") == 1, "the log is followed", saw=lambda: person.text)
    gate.touch()
    api.ended(run_id)
    eventually(lambda: "completed" in person.attribute("#log", "textContent"), "the log is followed to its end")

    assert person.attribute("#instructions", "value") == "these are my words"
    assert len(api.turns(run_id)) == 2
