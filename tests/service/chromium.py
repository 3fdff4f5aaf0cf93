"""People at a real Chromium, who use the keyboard alone."""

import re
import shutil
from typing import Any, Final

import pytest

from tests.program import ROOT
from tests.waiting import eventually

AXE: Final = ROOT / ".venv/.npm/node_modules/axe-core/axe.min.js"
_MOST_TABS: Final = 400
_FOCUSED: Final = """
const one = document.activeElement, look = getComputedStyle(one), box = one.getBoundingClientRect();
const seen = box.width && box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth;
return {is: one.matches(arguments[0]), nowhere: one === document.body,
        visible: Boolean(seen) && look.outlineStyle !== "none" && parseFloat(look.outlineWidth) >= 2,
        what: one.outerHTML.slice(0, 200)};
"""
_AXE: Final = """
const done = arguments[0];
axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}).then(
    (found) => done(found.violations.map((one) => one.id + ": " + one.nodes.map((node) => node.html).join(" | "))));
"""


class Person:
    """A person at a browser of their own, with a session of its own."""

    def __init__(self, base_url: str, *, scripts: bool = True) -> None:
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
        self.base_url = base_url
        if not scripts:
            self.cdp("Emulation.setScriptExecutionDisabled", value=True)

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
        """What the page shows."""
        return str(self.driver.execute_script("return document.body.innerText"))

    def attribute(self, selector: str, name: str) -> str:
        """Return a property of the first such element."""
        return str(
            self.driver.execute_script("return document.querySelector(arguments[0])[arguments[1]]", selector, name)
        )

    def keys(self, text: str) -> None:
        """Press keys, wherever the focus is."""
        self._chain().send_keys(text).perform()

    def _chain(self) -> Any:
        return pytest.importorskip("selenium.webdriver").ActionChains(self.driver)

    def reach(self, selector: str) -> None:
        """Press Tab until the focus is on an element; each that has the focus on the way shows it."""
        for _ in range(_MOST_TABS):
            focused = self.driver.execute_script(_FOCUSED, selector)
            assert focused["nowhere"] or focused["visible"], f"the focus is not seen: {focused['what']}"
            if focused["is"]:
                return
            self.keys("\ue004")
        raise AssertionError(f"Tab does not reach {selector} on {self.path}: {self.text[:2000]}")

    def type(self, selector: str, text: str) -> None:
        """Reach a field and type a text over what it holds."""
        self.reach(selector)
        webdriver = pytest.importorskip("selenium.webdriver")
        self._chain().key_down(webdriver.Keys.CONTROL).send_keys("a").key_up(webdriver.Keys.CONTROL).perform()
        self.keys(text)

    def press(self, selector: str) -> None:
        """Reach a button or link, press Enter, and wait for the next page."""
        self.reach(selector)
        self.driver.execute_script("document.before = true")
        self.keys("\ue007")
        eventually(self._is_next, f"Enter on {selector} leads to another page")

    def _is_next(self) -> bool:
        ready = "return !document.before && document.readyState === 'complete' && location.href !== 'about:blank'"
        return bool(self.driver.execute_script(ready))

    def look(self, *, dark: bool, width: int) -> None:
        """Ask for a theme and a width, as of a phone or a desktop."""
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.cdp("Emulation.setEmulatedMedia", features=features)
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)

    def faults(self) -> list[str]:
        """Return what axe-core finds on the page, and whether it is wider than the window."""
        if not AXE.exists():
            pytest.skip("no axe-core: run `make page-check` where npm is")
        self.driver.execute_script(AXE.read_text("utf-8"))
        found = [str(one) for one in self.driver.execute_async_script(_AXE)]
        is_wide = "return document.documentElement.scrollWidth > innerWidth"
        return found + (["the page is wider than the window"] if self.driver.execute_script(is_wide) else [])

    def complaints(self) -> list[str]:
        """Return what the browser's console said since the last call: errors, warnings, breaches of the policy."""
        said = [str(one["message"]) for one in self.driver.get_log("browser")]
        # A page that says what is wrong has a status of its own.
        expected = re.compile(r"(?!\S*/assets/)\S+ - Failed to load resource: .* status of 4")
        return [one for one in said if not expected.match(one)]
