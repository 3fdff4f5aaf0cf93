"""The page in a real Chromium, by keyboard alone: `make page-check`."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.service.conftest import Own
from tests.waiting import eventually

pytestmark = pytest.mark.campaign
MOST_TABS: Final = 400
TAB, ENTER, CONTROL = "\ue004", "\ue007", "\ue009"
FOCUSED: Final = """
const one = document.activeElement, look = getComputedStyle(one), box = one.getBoundingClientRect();
const seen = box.width && box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth;
return {is: one.matches(arguments[0]), nowhere: one === document.body,
        visible: Boolean(seen) && look.outlineStyle !== "none" && parseFloat(look.outlineWidth) >= 2,
        what: one.outerHTML.slice(0, 200)};
"""


class Person:
    """A browser whose user presses keys only."""

    def __init__(self, driver: Any, keyboard: Any) -> None:
        self.driver, self._keyboard = driver, keyboard

    @property
    def text(self) -> str:
        """The visible text of the page."""
        return str(self.driver.execute_script("return document.body.innerText"))

    def attribute(self, selector: str, name: str) -> str:
        """Return a property of the first such element."""
        script = "return document.querySelector(arguments[0])[arguments[1]]"
        return str(self.driver.execute_script(script, selector, name))

    def reach(self, selector: str) -> None:
        """Press Tab until an element has the focus; the focus must be visible at each step."""
        for _ in range(MOST_TABS):
            focused = self.driver.execute_script(FOCUSED, selector)
            assert focused["nowhere"] or focused["visible"], f"the focus is not visible: {focused['what']}"
            if focused["is"]:
                return
            self._keyboard.send_keys(TAB).perform()
        raise AssertionError(f"Tab does not reach {selector}: {self.text[:2000]}")

    def type(self, selector: str, text: str) -> None:
        """Reach a field and replace its content."""
        self.reach(selector)
        self._keyboard.key_down(CONTROL).send_keys("a").key_up(CONTROL).send_keys(text).perform()

    def press(self, selector: str) -> None:
        """Reach a button or link, press Enter, and wait for the next page."""
        self.reach(selector)
        self.driver.execute_script("document.before = true")
        self._keyboard.send_keys(ENTER).perform()
        ready = "return !document.before && document.readyState === 'complete' && location.href !== 'about:blank'"
        eventually(lambda: self.driver.execute_script(ready), f"Enter on {selector} leads to another page")


@pytest.fixture
def person() -> Iterator[Person]:
    """A browser, whose console may have reported no error and no breach of the page's policy at the end."""
    webdriver: Any = pytest.importorskip("selenium.webdriver", reason="no selenium: run `make page-check`")
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not program or not driver:
        pytest.skip("no chromium or chromedriver; Debian's packages: chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for one in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,900"):
        options.add_argument(one)
    options.set_capability("goog:loggingPrefs", {"browser": "INFO"})
    with webdriver.Chrome(options=options, service=webdriver.ChromeService(driver)) as running:
        yield Person(running, webdriver.ActionChains(running))
        # A page that reports an error has a 4xx status itself.
        reported = [str(one["message"]) for one in running.get_log("browser")]
        assert [one for one in reported if "/assets/" in one or "status of 4" not in one] == []


def test_a_refused_reply_is_not_sent_by_itself(person: Person, own: Own, tmp_path: Path) -> None:
    """A reply that came while another turn works stays on its page and is not sent when that turn ends."""
    (api, _), gate = own(), tmp_path / "gate"
    run_id = api.start("something")
    api.ended(run_id)
    person.driver.get(f"{api.service.base_url.removesuffix('/v1')}/runs/{run_id}")
    person.type("#token", api.token)
    person.press("main button")
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
