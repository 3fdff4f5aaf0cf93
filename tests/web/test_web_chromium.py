"""The console in a real browser."""

from tests.fault_server import FaultServer, Respond
from tests.web.chromium import Chromium, tab
from tests.web.conftest import Web


async def test_the_console_works_by_key_and_by_mouse_and_for_its_own_page_alone(web: Web, browser: Chromium) -> None:
    """The printed link shows the runs, a key Health, a click the runs; nothing is loaded from another machine.

    And another page cannot reach it, not even from the browser that has the pass, and knowing the address.
    """
    async with tab(browser) as page:
        await page.go(web.link)
        await page.until_drawn("fix/login-timeout", "github")
        blank = await page.evaluate("document.querySelectorAll('canvas').length")
        seen = len(page.drawn)
        await page.press("2")
        await page.until_drawn("our link", after=seen)
        seen = len(page.drawn)
        await page.click(50, 32)
        await page.until_drawn("agent/dark-mode", after=seen)
        await page.press("q")
        await page.until_said("This console has ended.")
        seen = len(page.drawn)
        await page.evaluate("document.querySelector('.ended a').click()")
        await page.until_drawn("fix/login-timeout", after=seen)

        assert blank > 0
        places = {address.partition("://")[2].partition("/")[0] for address in page.requests}
        assert places == {web.origin.removeprefix("http://")}
        assert await page.evaluate("document.fonts.check('16px \"Roboto Mono\"')")
        room = await page.evaluate("location.href")
        assert web.link.split("/")[-1] not in room

        with FaultServer() as elsewhere:
            elsewhere.otherwise = lambda _: Respond(200, "<p>elsewhere</p>", {"Content-Type": "text/html"})
            await page.go(elsewhere.origin)
            await page.until_said("elsewhere")
            seen = len(page.drawn)
            socket = await page.evaluate(
                f"new Promise(done => {{ const s = new WebSocket('{room.replace('http', 'ws', 1)}ws');"
                "s.onopen = () => done('open'); s.onerror = () => done('refused') })"
            )
            text = await page.evaluate(
                f"fetch('{room}', {{credentials: 'include'}}).then(() => 'read', () => 'refused')"
            )

        assert (socket, text) == ("refused", "refused")
        assert len(page.drawn) == seen
