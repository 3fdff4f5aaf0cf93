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
from tests.service.test_page import invited
from tests.waiting import eventually

pytestmark = pytest.mark.campaign
AXE: Final = ROOT / ".venv/.npm/node_modules/axe-core/axe.min.js"
MOST_TABS: Final = 400
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
"""Two of four are enough: page.css sets colours by the theme alone, and the layout by the width alone."""


class Person:
    """A browser whose user presses keys only."""

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
        """Go to an address, as if it were typed."""
        self.driver.get(path if path.startswith("http") else self.base_url + path)

    @property
    def path(self) -> str:
        """The address of the page, without the site's."""
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
        for _ in range(MOST_TABS):
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
        """Return what axe-core finds on the page in both themes and widths."""
        self.driver.execute_script(AXE.read_text("utf-8"))
        found = []
        for theme, width in LOOKS:
            self.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
            metrics = {"height": 900, "deviceScaleFactor": 1, "mobile": False}
            self.cdp("Emulation.setDeviceMetricsOverride", width=width, **metrics)
            found += [f"{theme} {width}: {one}" for one in self.driver.execute_async_script(JUDGE)]
        return found

    def complaints(self) -> list[str]:
        """Return what the browser's console reported since the last call: errors, warnings, breaches of the policy."""
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
    """The browsers that are open; each test clears their sessions."""
    people: list[Person] = []
    yield people
    for person in people:
        person.driver.quit()


@pytest.fixture
def sit_down(site: Api, browsers: list[Person]) -> Iterator[Callable[[], Person]]:
    """`sit_down()` is a browser for one more person; no console may have complained at the end."""
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


def test_axe_finds_nothing_on_any_page(site: Api, sit_down: Callable[[], Person], tmp_path: Path) -> None:
    """Light and dark, on a desktop and a phone; each page is under 50 KB."""
    if not AXE.exists():
        pytest.skip("no axe-core: run `make page-check` where npm is")
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

    check("/", "/invitation?code=none", link, "/api")
    person.open("/sign-in?next=/settings/tokens")
    person.sign_in(site.token)
    person.type("#alias", "W" * 190)
    person.press("main form button")
    check_here("new token")
    gate = tmp_path / "gate"
    runs = [site.start("write it"), site.start("fail"), site.start(f"wait {gate}")]
    for run in runs[:2]:
        site.ended(run)
    site.reaches(runs[2], "working")
    check("/runs", "/runs?status=queued", f"/runs?date_from={'x' * 40}", f"/runs/new?like={runs[0]}")
    for run in runs:
        check(*(f"/runs/{run}{path}" for path in ("", "/changes", "/log")))
    check(*(f"/settings/{name}" for name in ("members", "hosts", "agents", "usage", "events", "none")))
    person.sign_out()
    person.open("/sign-in")
    person.sign_in(OPERATOR)
    check("/operator", "/operator/runs", "/operator/runs/cancel?status=working", "/operator/usage")
    gate.touch()

    assert not found, "\n".join(f"{name}: {one}"[:500] for name, faults in found.items() for one in faults)


def test_a_refused_reply_is_not_sent_by_itself(
    site: Api, sit_down: Callable[[], Person], own: Own, tmp_path: Path
) -> None:
    """A reply that came while another turn works stays on its page and is not sent when that turn ends."""
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
