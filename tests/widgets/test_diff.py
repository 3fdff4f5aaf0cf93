"""A diff is drawn from its patch, line by line, and no control character reaches the terminal."""

import re
from itertools import pairwise

import pytest

from app.results.diff import Patch
from storage.records.results import ChangedFile
from tests.widgets.stage import staged
from widgets.results.diff import NONE, DiffRows, DiffView, colours

PATCH = b"""\
diff --git a/src/old.py b/src/new.py
similarity index 90%
rename from src/old.py
rename to src/new.py
index 1111111..2222222 100644
--- a/src/old.py
+++ b/src/new.py
@@ -1,4 +1,5 @@ def first():
 import os
-limit = 10
+limit = 12
+more = True
 done = None
 end = 1
@@ -20,2 +21,1 @@
 last = 1
-- a/x
diff --git a/logo.png b/logo.png
index 3333333..4444444 100644
GIT binary patch
literal 3
Kc${N}
diff --git a/end.txt b/end.txt
index 5555555..6666666 100644
--- a/end.txt
+++ b/end.txt
@@ -1 +1 @@
-one
\\ No newline at end of file
+two
"""


def rows_of(patch: bytes, step: int = 10**6) -> DiffRows:
    rows = DiffRows(Patch(patch))
    while not rows.is_complete:
        rows.extend(step)
    return rows


def shown(patch: bytes, *files: ChangedFile) -> DiffView:
    view = DiffView()
    view.call_later(view.show, rows_of(patch), files, ("main…head",))
    return view


@pytest.mark.parametrize("step", [1, 1_000])
def test_a_removed_line_is_next_to_its_replacement(step: int) -> None:
    """The patch may be read in any way, and its lines may look like anything."""
    rows = rows_of(PATCH, step)

    assert [len(file.left) for file in rows.unified] == [10, 0, 4]
    pairs = [
        (left, right) for file in rows.split for left, right in zip(file.left, file.right, strict=True) if left != right
    ]
    texts = [tuple("" if line == NONE else rows.patch.line(line).decode() for line in pair) for pair in pairs]
    assert texts == [("-limit = 10", "+limit = 12"), ("", "+more = True"), ("-- a/x", ""), ("-one", ""), ("", "+two")]


async def test_the_cursor_stays_on_its_line_after_resizing() -> None:
    """In two columns the same lines take fewer rows."""
    changed = b"".join(b"-%d\n" % n for n in range(40)) + b"".join(b"+%d new\n" % n for n in range(40))
    view = shown(PATCH.partition(b"@@")[0] + b"@@ -1,40 +1,40 @@\n" + changed)
    async with staged(view, (80, 24)) as (app, pilot):
        await pilot.press("end", "up")
        for width in (200, 80, 200):
            await pilot.resize_terminal(width, 50)
            await pilot.pause()
            assert (b"38 new" in view.texts(view.cursor), view.is_split) == (True, width == 200)
            assert any("38 new" in line for line in app.lines)


async def test_old_and_new_are_side_by_side_on_a_wide_screen() -> None:
    """A key shows one below the other. Searching finds lines, and the hunk under the cursor is copied."""
    view = shown(PATCH)
    async with staged(view, (160, 24)) as (app, pilot):
        assert re.search(r"2 -limit = 10 +│ +2 \+limit = 12", app.lines[4])

        view.put_cursor(3)
        await pilot.press("|")
        assert ([*view.texts(view.cursor)], view.cursor) == ([b"limit = 12"], 4)
        assert "+limit" not in app.lines[4]

        view.put_cursor(9)
        assert view.hunk_text().splitlines() == ["@@ -20,2 +21,1 @@", " last = 1", "-- a/x"]
        assert view.go_to_line("src/new.py", 3)
        assert [*view.texts(view.cursor)] == [b"more = True"]
        assert not view.go_to_line("missing", 1)


def test_syntax_is_read_from_the_whole_file() -> None:
    """A string over several lines is highlighted on each; slow or unknown languages stay plain."""
    found = colours(b'"""A docstring\nthat goes on.\n"""\nlimit = 1\n', "x.py")

    assert [[span[2] for span in line] for line in found][:4] == [["string"], ["string"], ["string"], ["number"]]
    assert all(a[1] <= b[0] for line in found for a, b in pairwise(line))
    assert colours(b"x = 1", "unknown.zzz") == ()
    assert colours(b"x" * 5_000, "x.py") == ()
