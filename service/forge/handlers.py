"""Handlers post a status, pull request or comment; each reads first what exists, so that a repetition does no harm.

Text from outside is made inert before it is posted.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from service.clock import DAY_MICROS, rfc3339
from service.forge import ForgeError, cut
from service.forge.github import Forgejo, GitHub
from service.forge.gitlab import GitLab
from service.store.postings import POSTED, Posted, Posting
from service.store.runs import Run
from service.store.turns import NEEDS_ANSWER, Turn
from service.text import fence_of, not_closing, one_line, printable

Forge = GitHub | GitLab
FORGES: Final[Mapping[str, type[Forge]]] = {"github": GitHub, "gitlab": GitLab, "forgejo": Forgejo}
_MAX_TITLE: Final = 120
_MAX_SUMMARY: Final = 8000
_MAX_INSTRUCTIONS: Final = 2000
_MAX_TURNS: Final = 10
_MAX_LIST: Final = 40_000
"""The length of all instructions together: GitHub accepts 65,536 characters in the whole text."""
_MAX_ESCAPE: Final = 5
"""The most characters that encode one, as in `&amp;`."""
_FENCED: Final = re.compile(r"^(`{3,})[^\n`]*\n(.*?)^\1[ \t]*$", re.MULTILINE | re.DOTALL)
# Without pipes: in a row of a table they end a cell, and with it the code.
_CODE: Final = re.compile(r"(?<!`)(`+)(?!`)([^\n|]+?)(?<!`)\1(?!`)")
_SPECIAL: Final = re.compile(r"[\\\[`$~]")
_MENTION: Final = re.compile(r"@(?=\w)|#(?=\d)|(?<!\w)!(?=\d)")
_COMMAND: Final = re.compile(r"(?m)^([ \t]*(?:>[ \t]*)*)/(?=\w)")
_NO_COMMAND: Final = "\\1\u200b/"
_STANDINGS: Final = {
    None: "is at work",
    "completed": "is done",
    "failed": "failed",
    "cancelled": "was cancelled",
    NEEDS_ANSWER: "needs an answer: continue the run with it",
}
_END: Final = "<!-- /runwarden -->"
"""The line after which a pull request's text is no longer the service's."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A posting with its content."""

    posting: Posting
    run: Run
    turns: list[Turn]
    """The turns, oldest first."""
    default_branch: str | None
    """The default branch's name; None: it has not been read from the repository yet."""
    run_url: str | None
    mask: Callable[[str], str]
    same: Sequence[Any] = ()
    """Other runs' pull requests with the same change."""
    linked: Posting | None = None
    """The posting of the run's pull request, if there is one."""
    issue: int | None = None
    """The number of the issue that the run is from, if it is from one."""

    @property
    def turn(self) -> Turn:
        """The turn that requested the posting."""
        return next(turn for turn in self.turns if turn.number == self.posting.number)

    @property
    def mark(self) -> str:
        """The line by which a pull request or comment of this run is recognized."""
        return f"<!-- runwarden {self.run.id} -->"

    @property
    def named_run(self) -> str:
        """The run's id, with a link to its page if there is one."""
        if self.run_url:
            return f"[{self.run.id}]({self.run_url})"
        return f"`{self.run.id}`"

    @property
    def origin(self) -> str:
        """The run and the turn, and the fallback that did it."""
        if self.turn.agent is None:
            stand_in = ""
        else:
            stand_in = f", by {in_code(self.turn.agent)} in place of {in_code(self.run.agent)}"
        return f"Run {self.named_run}, turn {self.turn.number}{stand_in}."

    def shown(self, text: str | None, limit: int) -> str:
        """Return text from outside as Markdown that only shows it, at most twice as long as the limit."""
        text = cut(self.mask(text or ""), limit)
        safe = inert(text)
        if len(safe) <= 2 * limit:
            return safe
        return inert(cut(text, limit // _MAX_ESCAPE))

    def shown_line(self, text: str | None, limit: int) -> str:
        """Return the first line of text from outside, changed so that the forge neither obeys it nor notifies anyone.

        GitLab obeys lines such as `/merge`, a merge obeys "fixes #7", both forges notify `@names`, and an HTML comment
        could imitate a mark.
        """
        line = not_closing(one_line(self.mask(text or "").strip().partition("\n")[0])).replace("<!--", "&lt;!--")
        line = re.sub(r"@(?=\w)", "@\u200b", line)
        return cut(re.sub(r"^(\s*(?:>\s*)*)/(?=\w)", _NO_COMMAND, line), limit)


def post_status(forge: Forge, subject: Subject) -> Posted:
    status = subject.posting.wanted
    text = subject.shown_line(str(status["text"]), 1000)
    context = f"runwarden/{status['agent']}"
    forge.set_status(subject.posting.subject, subject.run.branch, context, status["state"], text, subject.run_url)
    return Posted(subject.run_url)


def post_pull_request(forge: Forge, subject: Subject) -> Posted:
    """Open the pull request of a run's branch, or bring the service's part of its text up to date.

    Users' changes stay: its title, the text around that part, its draft state, and that it is closed.
    """
    existing = forge.pull_requests(subject.run.branch)
    current = next((pull for pull in existing if pull.state == "open"), None)
    if current is None:
        # The run's own pull request, if a user closed it, or it was merged at the run's commit.
        ours = [pull for pull in existing if subject.mark in pull.body]
        commit = subject.posting.wanted["commit"]
        current = next((pull for pull in ours if pull.state == "closed" or pull.head == commit), None)
        if current is not None:
            return Posted(current.url, f"pull request {current.number} is {current.state}, and was not opened again")
        for other in subject.same:
            if other.state != POSTED:
                raise ForgeError(f"waits for the run {other.run_id}, whose pull request has the same change")
            for pull in forge.pull_requests(other.branch):
                if pull.state == "open" and pull.head == other.commit_sha:
                    text = f"the same change is in pull request {pull.number} of the run {other.run_id}"
                    return Posted(pull.url, f"{text}; none was opened")
        run, base = subject.run, subject.default_branch
        if base is None or base == run.branch:
            text = f"there is no branch to merge {run.branch} into: the default branch is {base or 'not known'}"
            raise ForgeError(text, is_final=True)
        title = subject.shown_line(subject.turn.summary or subject.turns[0].instructions, _MAX_TITLE)
        text = f"{_part(subject)}\n"
        is_draft = bool(subject.posting.wanted["is_draft"])
        current = forge.open(run.branch, base, title or run.branch, text, is_draft=is_draft)
    # Renew the service's part; a text without its marks belongs to users and stays. A server may change line ends.
    pattern = f"{re.escape(subject.mark)}.*?{re.escape(_END)}"
    text = current.body.replace("\r\n", "\n")
    body = re.sub(pattern, lambda _: _part(subject), text, count=1, flags=re.DOTALL)
    if body != current.body:
        forge.update(current.number, body)
    return Posted(current.url)


def post_comment(forge: Forge, subject: Subject) -> Posted:
    """Comment on the issue that a run is with the state of the run, or bring that comment up to date."""
    turn, issue = subject.turn, int(subject.posting.wanted["issue"])
    text = (turn.failure or turn.summary or turn.reason) if turn.outcome else None
    standing = "is waiting for a slot"
    if turn.outcome or turn.attempt:
        standing = _STANDINGS[turn.outcome]
    parts = [subject.mark, f"{in_code(subject.run.agent)} {standing}."]
    parts.append(subject.shown(text, _MAX_SUMMARY))
    if subject.linked is not None and subject.linked.url:
        parts.append(f"Pull request: {subject.linked.url}")
    body = "\n\n".join(filter(None, [*parts, subject.origin]))
    account = own_account(forge)
    # Not all comments, which can be thousands; a day earlier, since the forge's clock and time zone may differ.
    since = f"{rfc3339(subject.run.created_at - DAY_MICROS)[:19]}Z"
    ours = (comment for comment in forge.comments(issue, since) if subject.mark in comment.body)
    previous = next((comment for comment in ours if account in {None, comment.author.lower()}), None)
    if previous is None:
        previous = forge.comment(issue, body)
    elif previous.body.replace("\r", "").strip() != body:
        forge.edit(previous, body)
    return Posted(previous.url)


def own_account(forge: Forge) -> str | None:
    """Return the name of the token's account in lower case; None: it may not ask, and only marks identify its texts."""
    try:
        return forge.account().lower()
    except ForgeError as error:
        if error.status not in {403, 404}:
            raise
        return None


def _part(subject: Subject) -> str:
    run, items = subject.named_run, []
    for turn in subject.turns[-_MAX_TURNS:]:
        # Indented by the number's width: otherwise the item would end, and with it a block that keeps text inert.
        number = f"{turn.number}. "
        text = subject.shown(turn.own_instructions, _MAX_INSTRUCTIONS).strip()
        items.append(f"{number}{text}".replace("\n", "\n" + " " * len(number)))
    while sum(map(len, items)) > _MAX_LIST:
        del items[0]
    workers = " and ".join(dict.fromkeys(in_code(turn.agent or subject.run.agent) for turn in subject.turns))
    parts = [
        subject.mark,
        subject.shown(subject.turn.summary, _MAX_SUMMARY),
        None if subject.issue is None else f"Closes #{subject.issue}",
        "#### Instructions",
        "\n".join(items),
        f"Made by the agent {workers} in the run {run}. Review it as any other change: an agent can be misled.",
        _END,
    ]
    return "\n\n".join(filter(None, parts))


def inert(text: str) -> str:
    """Return text from outside as Markdown without mentions, links, images, HTML, commands and closed issues."""
    text = not_closing(printable(text.replace("\r", "")))
    parts, at = [], 0
    for block in _FENCED.finditer(text):
        parts += [_prose(text[at : block.start()]), code_block(block[2].removesuffix("\n"))]
        at = block.end()
    return "".join([*parts, _prose(text[at:])])


def _prose(text: str) -> str:
    parts, at = [], 0
    # Backslashes are doubled outside of code, so none can turn the backtick after it into text.
    for code in _CODE.finditer(text):
        parts += [_escape(text[at : code.start()]), code[0]]
        at = code.end()
    return _COMMAND.sub(_NO_COMMAND, "".join([*parts, _escape(text[at:])]))


def _escape(text: str) -> str:
    # The forges look for mentions in rendered text: an entity would become one again.
    text = text.replace("&", "&amp;").replace("<", "&lt;")
    return _MENTION.sub("\\g<0>\u200b", _SPECIAL.sub(r"\\\g<0>", text))


def code_block(text: str, kind: str = "") -> str:
    """Return a block of code that its content cannot end."""
    if "```" in text and (disarmed := _COMMAND.sub(_NO_COMMAND, text)) != text:
        # GitLab ends the block at a shorter fence and obeys what follows: the text is changed, so it is no suggestion.
        text, kind = disarmed, ""
    fence = fence_of(text)
    return f"{fence}{kind}\n{text}\n{fence}"


def in_code(text: str) -> str:
    fence = fence_of(text, least=1)
    padding = " " if text[:1] in "` " or text[-1:] in "` " else ""
    return f"{fence}{padding}{text}{padding}{fence}"
