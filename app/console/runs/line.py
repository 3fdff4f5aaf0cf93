"""The line above the runs: what it asks for is what the table shows, while it is typed and after."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from textual import on
from textual.binding import Binding, BindingType
from textual.widgets import Input

from app.console.runs.acting import RunActingScreen
from app.console.runs.facets import facets
from app.console.runs.preferences import PreferencesFile, PreferencesWriter
from app.console.runs.query_line import replaced, settled
from app.console.runs.views import TableQuery, View, first_query, views_of
from app.console.session import Session
from app.query import Problem, Query, Vocabulary, parse, suggestions
from app.query.terms import KeyName
from app.text import SafeText, safe_text
from storage.errors import StorageError
from storage.records import RunFilter
from widgets.filter.bar import FilterBar
from widgets.filter.search import SearchInput, StyledSpan, Suggestion
from widgets.runs.search_highlight import SearchHighlight
from widgets.runs.table import RunTable

if TYPE_CHECKING:
    from app.console.runs.feed import RunFeed

_SENTENCES: Final = re.compile(r"(?<=[.?]) ")


def _in_words(problem: Problem) -> Iterator[SafeText]:
    """What is wrong and what to write instead; then less of it: what is wrong is underlined anyway."""
    instead = _SENTENCES.split(problem.cure)[0]
    for text in (f"{problem.message} {problem.cure}", f"{problem.message} {instead}", instead):
        yield safe_text(f"✗ {text}", limit=200)


class RunLineScreen(RunActingScreen):
    """A screen whose table shows what a line asks for."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "search", "search", key_display="/", tooltip="Words, or status:failed …", id="runs.search"),
    ]

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._feed: RunFeed | None = None
        self._vocabulary = Vocabulary()

    @property
    def table(self) -> RunTable:
        """The table."""
        return self.query_one(RunTable)

    @property
    def bar(self) -> FilterBar:
        """What is wanted."""
        return self.query_one(FilterBar)

    @property
    def views(self) -> tuple[View, ...]:
        """All views."""
        return views_of(self.console.settings.views, self.memory.now.views)

    @property
    def wanted(self) -> TableQuery:
        """What is wanted."""
        return self._wanted

    def recall(self) -> None:
        """Begins with what was left; before the screen is composed."""
        memory = PreferencesFile.of(self.console.settings, self.console.profile)
        self.memory = PreferencesWriter(memory, self.run_worker, partial(self.console.say, severity="warning"))
        self._wanted = first_query(self.console.settings, self.memory.now)

    def understand(self, line: str) -> tuple[StyledSpan, ...]:
        """What the pieces of a line are."""
        query = parse(line, self.console.clock())
        return tuple((span.start, span.end, span.kind) for span in query.spans)

    def want(self, wanted: TableQuery) -> None:
        """Something else is wanted."""
        before, self._wanted = self._wanted, wanted
        now = self.console.clock()
        if self._feed is not None and (wanted.sort, wanted.condition(now)) != (before.sort, before.condition(now)):
            self._feed.want(wanted)
        self.memory.change(lambda known: replace(known, view=wanted.view.name, sort=wanted.sort))
        self.say_wanted()

    def say_wanted(self) -> None:
        """Shows what is wanted, everywhere it is shown."""
        wanted = self._wanted
        query = wanted.query(self.console.clock())
        self.table.highlight(SearchHighlight.of(query.filter))
        self.table.sorted_by(wanted.sort)
        names = [view.name for view in self.views]
        titles = tuple(safe_text(name, limit=30) for name in names)
        current = names.index(wanted.view.name) if wanted.view.name in names else 0
        self.bar.views.show(titles, current, is_changed=wanted.is_changed)
        self.bar.facets(facets(wanted.line, query.filter))
        self.say_remark(query)

    def say_remark(self, query: Query) -> None:
        """Says what is wrong with the line; once that is nothing, whatever else there is to say."""
        if query.problems:
            self.bar.remark(*_in_words(query.problems[0]), tone="bad")
        else:
            self.bar.remark()

    # What it hears

    @on(Input.Changed, "SearchInput")
    def _on_typed(self) -> None:
        # At once, not after a pause in typing: what is under way is given up by the next key.
        line = self.bar.line
        if line.has_focus:
            self.want(replace(self._wanted, line=line.value, cursor=line.cursor_position))
            self._offer()

    @on(SearchInput.Left)
    def _on_left(self) -> None:
        # What was shown while it was typed stays on show.
        line = self.bar.line
        self._leave(settled(line.value, line.cursor_position))

    @on(SearchInput.Cleared)
    def _on_cleared(self) -> None:
        self._leave(self._wanted.view.query)

    # What its keys do

    def action_search(self) -> None:
        """The keys go to the line."""
        line = self.bar.line
        line.focus()
        line.cursor_position = len(line.value)
        self.run_worker(self._learn(), exclusive=True, group="vocabulary")

    # How it does that

    def set_line(self, line: str) -> None:
        """Another line, from elsewhere than the keys."""
        self.bar.line.put(line, 0)
        self.want(replace(self._wanted, line=line, cursor=None))

    def set_terms(self, keys: set[KeyName], new: Iterable[str]) -> None:
        """New terms in the line, in place of those with these keys."""
        self.set_line(replaced(self._wanted.line, keys, new))

    @property
    def condition(self) -> RunFilter:
        """What is wanted, as of now."""
        return self._wanted.condition(self.console.clock())

    def _leave(self, line: str) -> None:
        self.table.focus()
        self.bar.offer(())
        self.set_line(line.strip())

    def _offer(self) -> None:
        line = self.bar.line
        found = suggestions(line.value, line.cursor_position, self._vocabulary) if line.value else ()
        # What cannot be typed cannot be offered either.
        offers = (
            Suggestion(s.start, s.end, safe_text(s.insert), s.about) for s in found if safe_text(s.insert) == s.insert
        )
        self.bar.offer(tuple(offers))

    async def _learn(self) -> None:
        """What the offers can name."""
        engine = self.console.engine
        if engine is None:
            return
        try:
            self._vocabulary = Vocabulary(
                await engine.cache.repositories(),
                await engine.cache.branches(RunFilter()),
                await engine.cache.known_statuses(),
            )
        except StorageError:
            return  # Offers are a comfort; the screen says elsewhere that the cache is broken.
