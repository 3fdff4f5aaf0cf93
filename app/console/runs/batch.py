"""A batch: the requests of one confirmation, sent one after the other, and their outcomes."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Self

from app.actions import ActionRefusedError, Actions, AlreadyAskedError
from app.console.runs.many import ManyTask
from app.text import SafeText, safe_text
from storage.records import Action, Run, RunDetail
from widgets.badges import Badge, action_badge, run_badge
from widgets.batch import BatchLine, BatchView
from widgets.forms.pages import reason

HOPELESS: Final = frozenset({"rate_limited", "not_authorized", "forbidden", "token"})
"""Refusals that the next run would meet as well."""
WAITING: Final = Badge("◌", "waiting", "quiet")
REFUSED: Final = Badge("⊘", "not sent", "warn")


@dataclass(frozen=True, slots=True)
class Sent:
    """The outcome of one run's request."""

    run: Run
    action: Action | None
    """None: it was refused before anything was prepared."""
    refusal: ActionRefusedError | None = None
    """Why it was refused."""

    @property
    def is_done(self) -> bool:
        """Whether it took effect, now or at an earlier attempt."""
        return self.action is not None and self.action.state == "confirmed"

    @property
    def made(self) -> str | None:
        """The run that it started or continued."""
        return self.action.result_id if self.is_done and self.action is not None else None

    @property
    def may_be_tried_again(self) -> bool:
        """Whether it failed for a reason that has nothing to do with this run."""
        if self.action is None:
            return False
        return self.action.state == "not_sent" or (self.action.state == "rejected" and self._is_hopeless)

    @property
    def ends_all(self) -> bool:
        """Whether to stop here: the next run would be refused too, or this outcome is unknown."""
        if self.action is None or self.is_done:
            return False
        return self._is_hopeless if self.action.state == "rejected" else True

    @property
    def _is_hopeless(self) -> bool:
        return self.action is not None and self.action.error is not None and self.action.error.kind in HOPELESS


@dataclass(frozen=True, slots=True)
class RunBatch:
    """A confirmed task and its progress."""

    batch_id: str
    task: ManyTask
    begun_at: datetime
    sent: Mapping[str, Sent] = field(default_factory=dict)
    """By the id of the run that the request was for."""
    is_sending: bool = False

    def settled(self, sent: Sent) -> Self:
        """The batch with the outcome of one run's request."""
        return replace(self, sent={**self.sent, sent.run.run_id: sent})

    def resolved(self, action: Action) -> Self:
        """The batch with the resolution of an unknown outcome."""
        old = next(sent for sent in self.sent.values() if sent.action and sent.action.action_id == action.action_id)
        return self.settled(replace(old, action=action))

    @property
    def has_begun(self) -> bool:
        """Whether a request was sent or is about to be."""
        return bool(self.sent) or self.is_sending

    @property
    def unknown(self) -> tuple[Action, ...]:
        """Actions of unknown outcome."""
        return tuple(sent.action for sent in self.sent.values() if sent.action and sent.action.state == "unknown")

    @property
    def confirmed(self) -> tuple[str, ...]:
        """Ids of the runs for which it took effect."""
        return tuple(run_id for run_id, sent in self.sent.items() if sent.is_done)

    @property
    def rest(self) -> tuple[Run, ...]:
        """The runs without a request so far, and those that can be tried again."""
        sent = self.sent
        return tuple(run for run in self.task.runs if run.run_id not in sent or sent[run.run_id].may_be_tried_again)

    @property
    def made(self) -> tuple[str, ...]:
        """Ids of the runs that were started or continued."""
        return tuple(run_id for sent in self.sent.values() if (run_id := sent.made) is not None)

    def view(self, details: Mapping[str, RunDetail]) -> BatchView:
        """The batch as a line, with these details of its runs."""
        settled = (sent.action.settled_at or self.begun_at for sent in self.sent.values() if sent.action)
        made = [details[run_id] for run_id in self.made if run_id in details]
        return BatchView(
            key=self.batch_id,
            title=safe_text(self.task.text.title),
            moved_at=max(settled, default=self.begun_at),
            lines=tuple(self._line(run, details) for run in self.task.runs),
            confirmed=len(self.confirmed),
            unknown=len(self.unknown),
            made=len(self.made),
            ended=sum(detail.is_final for detail in made),
            failed=sum(detail.run.status == "failed" for detail in made),
            is_sending=self.is_sending,
        )

    def _line(self, run: Run, details: Mapping[str, RunDetail]) -> BatchLine:
        sent = self.sent.get(run.run_id)
        if sent is None:
            return BatchLine(WAITING, safe_text(run.run_id), _where(run))
        if sent.action is None:
            why = sent.refusal.message if sent.refusal is not None else ""
            return BatchLine(REFUSED, safe_text(run.run_id), safe_text(why))
        badge, action = action_badge(sent.action.state), sent.action
        if sent.made is None:
            why = reason(action.error) if action.error is not None else ""
            return BatchLine(badge, safe_text(run.run_id), safe_text(why))
        if (detail := details.get(sent.made)) is not None:
            badge = run_badge(detail.run.status, is_final=detail.is_final)
        return BatchLine(badge, safe_text(sent.made), _where(detail.run if detail else run), opens=sent.made)


def _where(run: Run) -> SafeText:
    return safe_text(f"{run.repository.label}  {run.branch_name}", limit=200)


async def send_each(
    actions: Actions, task: ManyTask, runs: Sequence[Run], words: str, *, is_wanted: Callable[[], bool]
) -> AsyncIterator[Sent]:
    """Send the request of one run after the other, until an answer stops the rest or `is_wanted` returns False.

    Raises:
        StorageError: The ledger cannot be written; nothing more is sent.
    """
    for run in runs:
        if not is_wanted():
            return
        request, key = task.request(run, words), task.key(run, task.filled(run, words))
        try:
            sent = Sent(run, await actions.submit(request, key=key))
        except AlreadyAskedError as asked:
            sent = Sent(run, asked.existing)
        except ActionRefusedError as refused:
            sent = Sent(run, None, refused)
        yield sent
        if sent.ends_all:
            return
