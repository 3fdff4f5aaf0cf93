"""The poster retries each posting of a turn until it is posted, refused for good, or too old."""

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from service.clock import SECOND_MICROS, Clock
from service.execution.secrets import Secrets, of_environment
from service.forge.client import Forge, ForgeError
from service.forge.github import GitHub
from service.forge.gitlab import GitLab
from service.forge.handlers import Handler, Subject, post_pull_request, post_status
from service.forge.review import post_review
from service.hosts.http import token_of
from service.reference import location
from service.settings import ForgeSettings
from service.store import agents, hosts, postings, repositories, runs, turns
from service.store.database import Database
from service.store.hosts import Host
from service.store.postings import Posting
from service.store.runs import Run

HANDLERS: Final[Mapping[str, Handler]] = {
    "pull_request": post_pull_request,
    "review": post_review,
    "status": post_status,
}
CLAIM_MICROS: Final = 300 * SECOND_MICROS
"""A claim expires after this time, since the worker that made it must have died."""
_FORGES: Final[Mapping[str, type[GitHub | GitLab]]] = {"github": GitHub, "gitlab": GitLab}
_BATCH: Final = 20
_ROUND_S: Final = 2.0
_LONGEST_WAIT_S: Final = 900.0
_logger = logging.getLogger(__name__)


class Poster:
    """Posts for one database; any number of them may work on it at once."""

    def __init__(
        self,
        database: Database,
        settings: ForgeSettings,
        clock: Clock,
        secret_names: Sequence[str | None] = (),
        handlers: Mapping[str, Handler] = HANDLERS,
    ) -> None:
        self._database = database
        self._settings = settings
        self._clock = clock
        self._secret_names = secret_names
        self._handlers = handlers
        self._rests: dict[tuple[str, str], int] = {}
        """The instant (microseconds) until which a forge gets no requests, as it asked for a wait or did not answer."""

    def recover(self) -> None:
        """Release a dead worker's claims at once on SQLite, which has one worker; on PostgreSQL they expire."""
        if self._database.is_sqlite:
            with self._database.write() as connection:
                postings.release_all(connection)

    def post_due(self, is_stopping: Callable[[], bool] = lambda: False) -> int:
        """Post what is due and not claimed; return the number of attempts."""
        with self._database.read() as connection:
            found = postings.due(connection, [*self._handlers], self._clock(), _BATCH)
        return sum(not is_stopping() and self._post(one) for one in found)

    def _post(self, posting: Posting) -> bool:
        now = self._clock()
        with self._database.read() as connection:
            run = runs.by_id(connection, posting.run_id)
        if run is None:
            return False
        rest = self._rests.get((run.organization_id, run.platform), 0)
        with self._database.write() as connection:
            if rest > now:
                postings.put_off(connection, posting, rest)
                return False
            if not postings.claim(connection, posting, now, until=now + CLAIM_MICROS):
                return False
        try:
            posted = self._handlers[posting.kind](*self._prepared(posting, run))
        except ForgeError as error:
            self._fail(posting, run, error)
        except Exception:  # The boundary: one posting's fault must not keep the others back.
            _logger.exception("%s: the %s failed in the service itself", posting.run_id, posting.kind)
            self._fail(posting, run, ForgeError("the service itself failed; its log says why", status=500))
        else:
            with self._database.write() as connection:
                postings.mark_posted(connection, posting, posted, self._clock())
            _logger.info("%s: posted the %s%s", run.id, posting.kind, f": {posted.url}" if posted.url else "")
        return True

    def _prepared(self, posting: Posting, run: Run) -> tuple[Forge, Subject]:
        with self._database.read() as connection:
            connected = hosts.of(connection, run.organization_id)
            agent = agents.by_name(connection, run.organization_id, run.agent)
            of_run = turns.of(connection, run.id)
            default = repositories.default_branch(connection, run.url)
        names = [
            *self._secret_names,
            *(() if agent is None else agent.secret_names),
            *(one.token_env for one in connected),
        ]
        url = self._settings.run_url
        shown = None if url is None else url.replace("{run_id}", run.id)
        subject = Subject(posting, run, of_run, default, shown, Secrets(of_environment(names)).mask)
        return forge_of(connected, run, self._settings.timeout_s), subject

    def _fail(self, posting: Posting, run: Run, error: ForgeError) -> None:
        now = self._clock()
        wait_s = min(self._settings.retry_s * 2 ** min(posting.attempts, 20), _LONGEST_WAIT_S)
        # The random part spreads the retries of postings that failed together.
        wait_s = max(error.retry_after_s or 0.0, wait_s * random.uniform(0.5, 1.0))  # noqa: S311 — no secret
        due_at = now + int(wait_s * SECOND_MICROS)
        is_late = due_at > posting.wanted_at + int(self._settings.give_up_s * SECOND_MICROS)
        if error.retry_after_s is not None or (error.status is None and not error.is_final):
            self._rests[run.organization_id, run.platform] = due_at
        is_over = error.is_final or is_late
        with self._database.write() as connection:
            postings.mark_failed(connection, posting, str(error), due_at=None if is_over else due_at)
        cure = "not retried automatically" if is_over else f"retried in {wait_s:.0f} s"
        _logger.warning("%s: the %s was not posted: %s; %s", posting.run_id, posting.kind, error, cure)


def forge_of(connected: Sequence[Host], run: Run, timeout_s: float) -> Forge:
    """Return the forge of a run's repository.

    Raises:
        ForgeError: Its host is not connected with an API and a token.
    """
    where = location(run.url)
    for host in connected:
        # The same path on another host is another repository.
        if host.platform == run.platform and where is not None and where.host == host.host:
            token = token_of(host)
            if host.api_url is None or token is None:
                lacking = "API address (--api-url)" if host.api_url is None else "token (--token-env, and its variable)"
                raise ForgeError(f"the connected host {host.host} has no {lacking}, which results need")
            return _FORGES[run.platform](host.api_url, run.path, token, timeout_s)
    raise ForgeError(f"the repository {run.path} is on no connected host of the platform {run.platform}; connect it")


class PosterThread:
    """A thread that posts while the worker runs."""

    def __init__(self, poster: Poster) -> None:
        self._poster = poster
        self._stopping = threading.Event()
        # A daemon: a posting under way at the end keeps its claim, and is due again when that expires.
        self._thread = threading.Thread(target=self._run, name="poster", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._poster.recover()
        self._thread.start()

    def close(self) -> None:
        """Stop after the posting at hand."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_ROUND_S)

    def _run(self) -> None:
        busy_until = 0.0
        while not self._stopping.wait(0 if time.monotonic() < busy_until else _ROUND_S):
            try:
                tried = self._poster.post_due(self._stopping.is_set)
            except Exception:  # The boundary: a database that is away must not end posting for good.
                _logger.exception("due postings could not be read; the next try follows")
                tried = 0
            busy_until = time.monotonic() + _ROUND_S if tried == _BATCH else 0.0
