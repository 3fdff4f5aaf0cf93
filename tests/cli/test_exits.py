from pathlib import Path

import pytest

from app.actions import ActionRefusedError
from app.api.errors import ApiError, RateLimitedError
from app.cli.exits import EXIT_BY_KIND, Exit, of_api_error
from app.cli.main import failure_of
from app.notify.delivery import RouteError
from storage.errors import StorageError


def descendants(root: type) -> list[type]:
    return [root, *(below for child in root.__subclasses__() for below in descendants(child))]


@pytest.mark.parametrize("error", descendants(ApiError) + descendants(ActionRefusedError))
def test_every_kind_of_error_has_an_exit_code(error: type) -> None:
    """A new error cannot slip through with another one's code."""
    assert error.kind == "refused_here" or error.kind in EXIT_BY_KIND  # type: ignore[attr-defined] — both trees have it


def test_a_rate_limit_tells_its_wait() -> None:
    """A script can sleep for as long as it is told to."""
    failure = of_api_error(RateLimitedError("Slow down.", retry_after_s=7.0))

    assert failure.exit == 5
    assert failure.as_json()["retry_after_s"] == 7.0


@pytest.mark.parametrize("error", descendants(StorageError))
def test_a_file_that_cannot_be_used_is_a_matter_of_configuration(error: type[StorageError]) -> None:
    """Exit code 2, the error's own kind, and the file."""
    failure = failure_of(error("Broken. Mend it.", path=Path("/x")))

    assert failure is not None
    assert (failure.exit, failure.kind, failure.detail["file"]) == (2, error.kind, "/x")


def test_every_other_error_that_speaks_to_a_user_is_a_failure_with_its_text() -> None:
    """Of git, of a route or of a new kind: no crash."""
    failure = failure_of(RouteError("The route is closed. Open it."))

    assert failure is not None
    assert (failure.kind, failure.message, failure.exit) == ("failed", "The route is closed. Open it.", Exit.USAGE)


def test_an_unforeseen_error_is_no_failure_of_the_users() -> None:
    """It is left to the process's boundary."""
    assert failure_of(RuntimeError("bug")) is None
