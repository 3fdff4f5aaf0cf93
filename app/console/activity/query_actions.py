"""The keys that change Activity's query: its views, its stretch of time, and the sheets of kinds and outcomes."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from textual.binding import Binding

from app.console.activity.loaders import Activity, ActivityLoader
from app.console.activity.query import VIEWS, ActivityQuery, kind_badge
from app.console.runs.screen_context import ScreenContext
from widgets.activity.formatting import outcome_badge
from widgets.badges import Badge

if TYPE_CHECKING:
    from app.console.sheets.mark_picker import Picked

_hidden = partial(Binding, show=False)
_OLDER: Final = "The last hour, day, week, month, or any time"
QUERY_BINDINGS: Final = (
    Binding("W", "query('kinds')", "what", tooltip="Show only some kinds", id="activity.kinds"),
    Binding("s", "query('outcomes')", "outcome", tooltip="Show only some outcomes", id="activity.outcomes"),
    Binding("t", "query('since')", "since", tooltip=_OLDER, id="activity.since"),
    _hidden("right_square_bracket", "query('next_view')", "next view", key_display="]", id="activity.next_view"),
    _hidden("left_square_bracket", "query('view_before')", "previous view", key_display="[", id="activity.prev_view"),
)


class QueryActions:
    """Changes one loader's query, by name."""

    def __init__(self, context: ScreenContext, loader: ActivityLoader) -> None:
        self._context = context
        self._loader = loader
        self._actions: dict[str, Callable[[], None]] = {
            "kinds": self._ask_kinds,
            "outcomes": self._ask_outcomes,
            "since": lambda: loader.show(loader.query.later()),
            "next_view": lambda: self._step_view(1),
            "view_before": lambda: self._step_view(-1),
            **{str(view): partial(self._show_view, view) for view in range(len(VIEWS))},
        }

    def do(self, name: str) -> None:
        """Run the action of a key or a chip; a view's chip is named by its index."""
        self._actions[name]()

    def is_possible(self, name: str) -> bool:
        """Whether there is something to choose from."""
        return name not in {"kinds", "outcomes", "since"} or self._loader.held > 0

    def search(self, words: str) -> None:
        """Search for these words."""
        self._loader.show(replace(self._loader.query, search=" ".join(words.split())))

    def clear(self) -> None:
        """Clear the filters; without any, the view."""
        query = self._loader.query
        self._loader.show(ActivityQuery(view=query.view if query.is_narrowed else 0))

    def _show_view(self, view: int) -> None:
        self._loader.show(replace(self._loader.query, view=view))

    def _step_view(self, step: int) -> None:
        self._show_view((self._loader.query.view + step) % len(VIEWS))

    def _ask_kinds(self) -> None:
        kinds = dict(sorted((self._loader.found or Activity()).kinds.items()))
        self._ask("Show what", kinds, self._loader.query.kinds, kind_badge, lambda q, names: replace(q, kinds=names))

    def _ask_outcomes(self) -> None:
        found, before = (self._loader.found or Activity()).outcomes, self._loader.query.outcomes
        self._ask("Show outcome", found, before, outcome_badge, lambda q, names: replace(q, outcomes=names))

    def _ask(
        self,
        title: str,
        counts: Mapping[str, int],
        before: tuple[str, ...],
        badge_of: Callable[[str], Badge],
        narrowed: Callable[[ActivityQuery, tuple[str, ...]], ActivityQuery],
    ) -> None:
        from app.console.sheets.mark_picker import MarkPicker

        if not counts:
            self._context.session.notify("Nothing happened yet: there is nothing to choose from.")
            return

        def picked(names: "Picked | None") -> None:
            if names is not None:
                self._loader.show(narrowed(self._loader.query, names[0]))

        self._context.push_screen(MarkPicker(title, counts, before, badge_of=badge_of), picked)
