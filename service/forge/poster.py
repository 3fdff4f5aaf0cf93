"""The poster sends a run's due postings; one that fails is due again later, until it is refused or too old."""

import logging
import random
from typing import Final

from service.clock import SECOND_MICROS, Clock
from service.forge import ForgeError
from service.forge.handlers import FORGES, Forge, Subject, post_comment, post_pull_request, post_status
from service.forge.review import post_review
from service.hosts.tokens import HostTokens, TokenError
from service.secrets import Secrets, of_environment
from service.settings import Settings
from service.store import agents, hosts, postings, repositories, runs, turns
from service.store.database import Database
from service.store.hosts import Host
from service.store.repositories import Repository
from service.store.runs import Run

_POST = {"pull_request": post_pull_request, "review": post_review, "status": post_status, "comment": post_comment}
_MAX_WAIT_S: Final = 900.0
_logger = logging.getLogger(__name__)


def post(database: Database, tokens: HostTokens, settings: Settings, clock: Clock, run_id: str) -> None:
    """Send the due postings of a run; one worker at a time does so."""
    while True:
        with database.read() as connection:
            run = runs.by_id(connection, run_id)
            posting = postings.first_due(connection, run_id, now := clock())
            if run is None or posting is None:
                return
            connected = hosts.of(connection, run.organization_id)
            host = hosts.at(connection, run.organization_id, run.platform, run.url)
            agent = agents.by_name(connection, run.organization_id, run.agent)
            of_run = turns.of(connection, run.id)
            default = repositories.default_branch(connection, run.url)
            same = postings.same_changes(connection, run, posting, now) if posting.kind == "pull_request" else ()
            requested = postings.of_run(connection, run_id)
        names = [*settings.secret_names, *(host.token_env for host in connected)]
        names += () if agent is None else agent.secret_names
        run_url = None
        if settings.run_url is not None:
            run_url = settings.run_url.replace("{run_id}", run.id)
        by_kind = {other.kind: other for other in requested if other.kind != "status"}
        issue = by_kind["comment"].wanted["issue"] if "comment" in by_kind else None
        mask = Secrets(of_environment(names) | tokens.rotated_tokens(connected)).mask
        subject = Subject(posting, run, of_run, default, run_url, mask, same, by_kind.get("pull_request"), issue)
        try:
            forge = forge_of(tokens, host, run, settings.forge.timeout_s)
            posted = _POST[posting.kind](forge, subject)
        except ForgeError as error:
            failure = error
        except Exception:  # The boundary: one posting's fault must not keep the others back.
            _logger.exception("%s: the %s failed in the service itself", posting.run_id, posting.kind)
            failure = ForgeError("the service itself failed; its log says why", status=500)
        else:
            with database.write() as connection:
                postings.mark_posted(connection, posting, posted, clock())
            _logger.info("%s: posted the %s%s", run.id, posting.kind, f": {posted.url}" if posted.url else "")
            continue
        wait_s = min(settings.forge.retry_s * 2 ** min(posting.attempts, 20), _MAX_WAIT_S)
        # The random part spreads the retries of postings that failed together.
        wait_s = max(failure.retry_after_s or 0.0, wait_s * random.uniform(0.5, 1.0))  # noqa: S311 — no secret
        due_at = clock() + int(wait_s * SECOND_MICROS)
        is_over = failure.is_final or due_at > posting.wanted_at + int(settings.forge.give_up_s * SECOND_MICROS)
        with database.write() as connection:
            # Any other failure concerns only this posting.
            if failure.retry_after_s is not None or failure.is_unreachable:
                postings.put_off(connection, run, due_at)
            postings.mark_failed(connection, posting, str(failure), due_at=None if is_over else due_at)
        then = "not retried automatically" if is_over else f"retried in {wait_s:.0f} s"
        _logger.warning("%s: the %s was not posted: %s; %s", posting.run_id, posting.kind, failure, then)


def forge_of(tokens: HostTokens, host: Host | None, run: Run | Repository, timeout_s: float) -> Forge:
    """Return the forge of a repository, or of a run's, on its connected host.

    Raises:
        ForgeError: There is no such host, or it has no API or no token.
    """
    if host is None:
        problem = f"the repository {run.path} is on no connected host of the platform {run.platform}"
        raise ForgeError(f"{problem}; connect it")
    try:
        token = tokens.of(host)
    except TokenError as error:
        raise ForgeError(str(error), is_unreachable=True) from error
    if host.api_url is None or token is None:
        lacking = "token (--token-env, and its variable)"
        if host.api_url is None:
            lacking = "API address (--api-url)"
        raise ForgeError(f"the connected host {host.host} has no {lacking}, which results need")
    return FORGES[run.platform](host.api_url, run.path, token, timeout_s)
