"""The screens about profiles: the sheet that switches to another one, and the runs of all profiles in one list."""

import dataclasses
from collections.abc import Iterable
from contextlib import aclosing, suppress
from datetime import datetime, timedelta
from typing import ClassVar, Final

from msgspec.structs import replace
from rich.cells import cell_len
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from app.api.errors import ApiError, RateLimitedError
from app.console.base import ALL
from app.console.feeds import CoalescedTask, read_vitals
from app.console.session import OpenRun, Session
from app.console.sheets import PickerScreen
from app.engine.engine import Engine
from app.engine.text import plural, safe_text
from app.health.facts import is_down
from app.profiles import Profile
from app.runs.query import parse
from app.runs.screen_actions import RETRY, RUN_BINDINGS, RunActions, keys_for
from app.runs.screen_views import TableQuery, problem_texts
from storage.cache.merged import MergedCaches
from storage.errors import StorageError
from storage.records import RunRow
from storage.records.run import split_row_id
from widgets.forms.inputs import LineInput
from widgets.frame import Notice, PollTiming, Vitals, freshness
from widgets.kit import after_refresh, hidden
from widgets.kit.badges import STYLES, Badge, ProfileMark
from widgets.kit.cells import shorten
from widgets.kit.choice_lists import Options, fuzzy
from widgets.runs.columns import DEFAULT_COLUMNS, ColumnChoice
from widgets.runs.filter import FilterBar, SearchInput, ViewTab
from widgets.runs.table import RunTable

UNREADABLE: Final = Badge("✗", "files unusable", "bad")
COLUMNS: Final = ColumnChoice(("status", "profile", *DEFAULT_COLUMNS[1:]))

OTHER_PROFILE_POLL_S: Final = 60.0
"""Seconds between two polls of a profile that is not on show."""
MAX_S: Final = 900.0
"""Seconds between two polls of a failing one, at most."""
LOOK_S: Final = 5.0
"""Seconds between two readings of the caches; services are polled far less often."""
NAME: Final = 24
"""Cells of a profile's name."""


class AllProfilesScreen(RunActions):
    """The matching runs of every profile, however many."""

    TAB = ALL
    BINDINGS: ClassVar[list[BindingType]] = [
        *RUN_BINDINGS,
        Binding("slash", "search", "search", tooltip="Words, or status:failed …", id="runs.search"),
        RETRY,
        hidden("escape", "clear", "clear", tooltip="The marks, or the line", id="runs.clear"),
    ]

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._timing = PollTiming(session.clock(), OTHER_PROFILE_POLL_S)
        self._vitals: dict[str, Vitals | StorageError] = {}
        """The figures of the profiles that were read. An error: our own files for it cannot be read."""
        self._not_before: dict[str, datetime] = {}
        """When each profile may be polled again."""
        self._open: dict[str, Engine] = {}
        """The engines of the profiles whose files can be read."""
        self._query = TableQuery()
        self.bar = FilterBar(lambda line: parse(line, session.clock()).spans)
        self.bar.views.can_save = False
        self.table = RunTable(session.clock(), COLUMNS, confirmed_for=session.settings.history.confirmed_for)
        self._profiles = CoalescedTask(self._read_profiles, self.run_worker)
        self._rows = CoalescedTask(self._read_rows, self.run_worker)
        self._summaries = CoalescedTask(self._learn, self.run_worker)

    def compose_body(self) -> Iterable[Widget]:
        yield self.bar
        yield self.table

    def on_mount(self) -> None:
        self.table.notice = Notice("◌", "Reading the runs of all profiles…", tone="busy")
        self.table.focus()
        self._show_query()
        self.set_interval(LOOK_S, self._profiles.ask)

    def on_screen_resume(self) -> None:
        self._profiles.ask()

    def tick(self, now: datetime) -> None:
        self._show_vitals(self.session.vitals.now)
        self.table.tick(now)

    # Reading profiles

    async def _read_profiles(self) -> None:
        if not self.is_current:
            return
        profiles = self.session.engines.profiles
        for profile in profiles:
            await self._read_profile(profile)
        for profile in profiles:
            name = profile.name
            now = self.session.clock()
            vitals = self._vitals[profile.name]
            is_current = name == self.session.profile.name
            if is_current or isinstance(vitals, StorageError) or now < self._not_before.get(name, now):
                continue
            link = vitals.runs_link
            last_ok_at = None if link is None or link.is_failing else link.last_ok_at
            # Another console or a bot may be polling it.
            if last_ok_at is not None and now - last_ok_at < timedelta(seconds=OTHER_PROFILE_POLL_S):
                continue
            problem = await (await self.session.engines.engine(name)).refresh()
            wait_s = OTHER_PROFILE_POLL_S
            if isinstance(problem, RateLimitedError) and problem.retry_after_s is not None:
                wait_s = max(OTHER_PROFILE_POLL_S, problem.retry_after_s)
            elif problem is not None:
                failures = link.failures if link is not None else 0
                wait_s = min(MAX_S, OTHER_PROFILE_POLL_S * 2.0 ** min(failures, 10))
            self._not_before[name] = self.session.clock() + timedelta(seconds=wait_s)
            await self._read_profile(profile)

    async def _read_profile(self, profile: Profile) -> None:
        engines = self.session.engines
        try:
            engine = await engines.engine(profile.name)
            before = Vitals(profile.name, profile.read_only)
            self._vitals[profile.name] = await read_vitals(engine, before, self.session.clock())
        except StorageError as error:
            self._vitals[profile.name] = error
        if len(self._vitals) == len(engines.profiles):
            readable = [name for name, vitals in self._vitals.items() if isinstance(vitals, Vitals)]
            self._open = {name: await engines.engine(name) for name in readable}
            self._rows.ask()
        self._show_vitals(self.session.vitals.now)

    def in_header(self, _: Vitals) -> Vitals:
        """The sums of all profiles, and each one's link to its service."""
        session = self.session
        links = []
        vitals_known = [vitals for vitals in self._vitals.values() if isinstance(vitals, Vitals)]
        for name in (profile.name for profile in session.engines.profiles):
            vitals = self._vitals.get(name, Vitals(name))
            badge = UNREADABLE
            if isinstance(vitals, Vitals):
                timing = session.vitals.timing if name == session.profile.name else self._timing
                badge = freshness(vitals.runs_link, timing, session.clock())
                if not vitals.health_is_stale and vitals.runs_link is not None and not vitals.link_fails:
                    words = session.healthy_words
                    down = [f"{host.platform} {host.status}" for host in vitals.health if is_down(host, words)]
                    badge = Badge("▲", safe_text(", ".join(down), limit=60), "bad") if down else badge
            links.append((ProfileMark(name, session.settings.color_of(name)), badge))
        sums = {
            key: sum(getattr(vitals, key) for vitals in vitals_known) for key in ("working", "queued", "failed_today")
        }
        return replace(Vitals(ALL, can_switch=True, links=tuple(links), known=bool(vitals_known)), **sums)

    @property
    def acting_engine(self) -> Engine | str:
        """The engine of the row's profile, or of the marked rows if they are all of one."""
        here = {"" if self.table.row is None else self.table.row.profile}
        profiles = {split_row_id(row_id)[0] for row_id in self.table.marks} or here
        if len(profiles) > 1:
            return f"The marked runs are of {' and '.join(sorted(profiles))}: one action goes to one profile."
        return self._open.get(profiles.pop(), "No run is selected: an action goes to the profile of its run.")

    @property
    def acting_profile(self) -> Profile:
        """The row's profile; without a row, the profile on show."""
        engine = self.acting_engine
        if isinstance(engine, str):
            return self.session.profile
        return engine.profile

    @property
    def focused_run_id(self) -> str | None:
        """The id, in its profile, of the marked run or the one under the cursor, or None if several are marked."""
        return self.chosen_ids[0] if len(self.chosen_ids) == 1 else None

    @property
    def chosen_ids(self) -> tuple[str, ...]:
        """The ids, in their profile, of the marked runs or the one under the cursor."""
        run_ids = () if self.table.row is None else (self.table.row.run_id,)
        return tuple(split_row_id(row_id)[1] for row_id in self.table.marks or run_ids)

    def action_refresh(self) -> None:
        """Poll every service now, except those that stated a longer wait."""
        late = self.session.clock() + timedelta(seconds=MAX_S)
        self._not_before = {name: until for name, until in self._not_before.items() if until > late}
        super().action_refresh()
        self._profiles.ask()

    @property
    def keys_now(self) -> dict[str, str]:
        row = self.table.row
        if row is None:
            return {}
        return keys_for(row.status, row.summary, is_final=row.is_final)

    def trouble(self) -> None:
        """None: the header shows each link's problem."""

    # Rows

    async def _read_rows(self) -> None:
        if not self._open:
            return
        merged = MergedCaches({name: engine.cache for name, engine in self._open.items()})
        now = self.session.clock()
        for name, engine in self._open.items():
            vitals = self._vitals[name]
            ahead = (await engine.cache.budget()).clock_ahead
            link = vitals.runs_link if isinstance(vitals, Vitals) else None
            as_of = link.last_ok_at if link is not None and link.is_failing else None
            self.table.profile_times[name] = ahead, None if as_of is None else as_of + ahead
        request = self.table.request(self._query.condition(now), self._query.sort)
        self.table.show(await merged.window(request), request)
        self.table.mark_stuck(await merged.stuck())
        self.table.notice = Notice("∅", "No run of any profile matches", ("escape shows all.",))
        self.bar.views.tabs = (ViewTab(safe_text(plural(self.table.window.runs, "run"))),)
        self.refresh_bindings()
        self._summaries.ask()

    async def _learn(self) -> None:
        for name, engine in self._open.items():
            rows_here = (row for row in self.table.rows_on_show if row.profile == name)
            plain_rows = [dataclasses.replace(row, run_id=row.own_id, profile="") for row in rows_here]
            if rows := [row for row in plain_rows if engine.summaries.are_due(row)]:
                # An unreachable service must not delay the others.
                with suppress(ApiError):
                    async with aclosing(engine.summaries.learn(rows)) as learnt:
                        async for row in learnt:
                            self.table.summarize(row.of(name))

    @on(RunTable.WindowRequested)
    def read_window(self) -> None:
        self._rows.ask()

    @on(RunTable.Highlighted)
    @on(RunTable.Marked)
    def show_chosen(self) -> None:
        self._show_query()
        self.show_trouble()
        self.refresh_bindings()

    @on(RunTable.Chosen)
    def open_run(self, message: RunTable.Chosen) -> None:
        if isinstance(message.entry, RunRow):
            profile, run_id = split_row_id(message.entry.run_id)
            self.post_message(OpenRun(run_id, profile))

    @on(RunTable.SortRequested)
    def sort_rows(self, message: RunTable.SortRequested) -> None:
        self._show(replace(self._query, sort=message.sort))

    # Search

    def _show(self, query: TableQuery) -> None:
        follow = query.sort == self._query.sort
        self._query = query
        self.table.sort = query.sort
        self.table.start_over(follow=follow)
        self._rows.ask_anew()
        self._show_query()

    def _show_query(self) -> None:
        query = self._query.query(self.session.clock())
        marks = len(self.table.marks)
        self.table.words = tuple(query.filter.search.casefold().split())
        if self._query.cursor is None:
            self.bar.line.set_line(self._query.line, 0)
        marked = [safe_text(f"■ {marks:,} marked")] if marks else []
        texts = problem_texts(query.problems[0]) if query.problems else marked
        self.bar.remark = tuple(texts), "bad" if query.problems else "busy"

    def go_to(self, target: str) -> None:
        self._show(replace(self._query, line=target, cursor=None))

    @property
    def bookmark(self) -> tuple[TableQuery, str | None]:
        return self._query, None if self.table.row is None else self.table.row.run_id

    def return_to(self, bookmark: tuple[TableQuery, str | None]) -> None:
        self._show(bookmark[0])
        if bookmark[1] is not None:
            self.table.seek(bookmark[1])

    def action_search(self) -> None:
        self.bar.line.focus()

    def action_clear(self) -> None:
        if self.table.marks:
            self.table.mark(self.table.marks, is_marked=False)
        else:
            self.go_to("")

    @on(Input.Changed, "SearchInput")
    def search_line(self) -> None:
        line = self.bar.line
        if line.has_focus:
            self._show(replace(self._query, line=line.value, cursor=line.cursor_position))

    @on(SearchInput.Left)
    def leave_line(self, message: SearchInput.Left) -> None:
        self.set_focus(self.table)
        self.go_to("" if message.is_cleared else self.bar.line.value.strip())


class ProfileSwitcher(PickerScreen[str]):
    """Closes with the name of the profile to show, or with None for no change."""

    TITLE_TEXT = "Switch profile"
    HINT = "enter open"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "open", id="profiles.open"),
        hidden("down", "move(1)", "down", priority=True, id="picker.down"),
        hidden("up", "move(-1)", "up", priority=True, id="picker.up"),
        hidden("ctrl+o", "leave", "cancel", priority=True, id="profiles.leave"),
    ]

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session

    def compose_choice(self) -> ComposeResult:
        yield LineInput(placeholder="type to find", compact=True)
        yield Options(markup=False)

    def on_mount(self) -> None:
        self._find()
        self.query_one(LineInput).focus()

    def on_resize(self) -> None:
        """Draw for the new width, the first one included."""
        after_refresh(self, self._find)

    def action_move(self, step: int) -> None:
        profiles = self.query_one(Options)
        profiles.action_cursor_down() if step > 0 else profiles.action_cursor_up()

    @on(Input.Submitted)
    def action_open(self) -> None:
        option = self.query_one(Options).highlighted_option
        self.dismiss(None if option is None else option.id)

    @on(OptionList.OptionSelected)
    def choose_profile(self, message: OptionList.OptionSelected) -> None:
        self.dismiss(message.option_id)

    @on(Input.Changed)
    def _find(self) -> None:
        """List the profiles that match; the cursor stays on its own, and begins on the current one."""
        text = self.query_one(LineInput).value.strip()
        profiles = self.query_one(Options)
        session = self._session
        current = session.profile.name
        about = {
            own.name: (own.base_url, "current" if own.name == current else "", "read-only" if own.read_only else "")
            for own in session.engines.profiles
        }
        about[ALL] = "their runs in one list", "", ""
        scores = {name: match[0] for name in about if (match := fuzzy(text, name)) is not None}
        names = sorted(scores, key=lambda name: -scores[name])
        options = []
        for name in names:
            shown, style = ProfileMark(name, session.settings.color_of(name)).styled(NAME - 3)
            notes = safe_text(" · ".join(filter(None, about[name])), limit=300)
            room = max(0, profiles.size.width - NAME - 3)
            head = ("  ", (shown, style), " " * (NAME - cell_len(shown)))
            options.append(Option(Content.assemble(*head, (shorten(notes, room, "middle"), STYLES["quiet"])), name))
        before = profiles.highlighted_option
        profiles.set_options(options)
        current_name = next((name for name in (before and before.id, current) if name in scores), None)
        if current_name is not None:
            profiles.highlighted = names.index(current_name)
        else:
            profiles.highlighted = 0 if names else None
