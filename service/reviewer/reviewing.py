"""One turn of work: read, check, fix when asked, compare with the last turn, and put it into a review."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from service.reviewer.checkout import Checkout
from service.reviewer.finding import SEVERITIES, Identified
from service.reviewer.git import Git
from service.reviewer.limits import BUDGET_S
from service.reviewer.review import Review
from service.reviewer.scope import choose_scope, select
from service.reviewer.since import last_record, since_last
from service.reviewer.survey import Surveyor
from service.reviewer.task import Task
from service.reviewer.tidy import Tidied, tidy
from service.reviewer.tree import list_tree
from service.reviewer.wishes import understand

Say = Callable[[str], None]
"""Takes one line for the log."""


class NothingToReviewError(Exception):
    """There is no commit to look at; the text says what to do."""


def review(task: Task, git: Git, checkout: Checkout, say: Say, clock: Callable[[], float]) -> Review:
    """Do one turn.

    Args:
        task: what was asked.
        git: the repository of the checkout.
        checkout: its files; written to only when a fix was asked for.
        say: receives the progress, line by line.
        clock: seconds of work so far, for the limit on time.

    Raises:
        NothingToReviewError: the branch has no commit.
        GitError: the repository cannot be read.
        CheckoutError: a fix cannot be written.
    """
    started = clock()
    head = _head(git)
    record, problem = last_record(checkout, task)
    entries, cut = list_tree(git, head)
    wishes = understand(task.instructions, task.inputs, entries)
    scope = choose_scope(git, task, head, wishes.depth, record.kind if record else None)
    selected, over = select(scope, entries, wishes)
    say(f"Turn {task.turn}: {len(selected)} paths to review; {scope.reason}.")
    with git.blobs() as blobs:
        surveyor = Surveyor(scope, entries, wishes, blobs, lambda: (clock() - started) / BUDGET_S)
        survey = surveyor.survey(selected, whole_tree_known=not cut)
    introduced = tuple(one for one in survey.found if one.fingerprint not in survey.older)
    say(f"Read {len(survey.sources)} files: {len(introduced)} findings, {len(survey.older)} older ones.")
    tidied = tidy(survey.sources, introduced, checkout) if wishes.fix else Tidied()
    done = Review(
        task=task,
        scope=scope,
        wishes=wishes,
        survey=survey,
        selected=frozenset(entry.path for entry in selected),
        reported=_in_order(one for one in introduced if not tidied.cures(one)),
        tidied=tidied,
        since=None,
        since_problem=problem,
        past=record.history if record else (),
        over_limit=over,
    )
    return replace(done, since=since_last(record, done, frozenset(entries))) if record else done


def _head(git: Git) -> str:
    head = git.commit("HEAD")
    if head is None:
        git.ask("rev-parse", "--git-dir")  # fails, and says why, when this is no repository at all
        raise NothingToReviewError("the branch has no commit yet; push one and start the run again")
    return head


def _in_order(found: Iterable[Identified]) -> tuple[Identified, ...]:
    """The heaviest first, then by place."""
    return tuple(
        sorted(found, key=lambda one: (SEVERITIES.index(one.finding.weight), one.finding.path, one.finding.line))
    )
