"""Additional checks for schemathesis: the rules for failures that no single operation's schema can express."""

from schemathesis import Case, CheckContext, Response, check


@check
def failure_manners(ctx: CheckContext, response: Response, case: Case) -> None:
    """Every failure has the body of spec 2.8, even a 404 or 405 that no operation documents; none is a 422."""
    status = response.status_code
    assert status != 422, "a fault of the caller is 400 here, never 422"
    if status < 400 or case.method.upper() == "HEAD":
        return
    assert response.headers.get("content-type", [""])[0].startswith("application/json"), "a failure is JSON"
    document = response.json()
    assert isinstance(document.get("message"), str), "a failure has a message"
    assert document["message"], "a failure's message says something"
    if status == 405:
        assert response.headers.get("allow"), "405 names the methods that are offered"
    if status == 401:
        assert response.headers.get("www-authenticate"), "401 carries a challenge"
