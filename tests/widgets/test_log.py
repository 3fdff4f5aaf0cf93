"""A log is shown from any byte on, without storing its lines, and no control character reaches the terminal."""

import random

import pytest

from storage.records.results import LogChunk
from tests.widgets.stage import staged
from widgets.results.log import BLOCK, LogSpool, LogView, log_pieces, short_time


def chunk(data: bytes, begin: int = 0, end: int | None = None) -> LogChunk:
    end = len(data) if end is None else end
    return LogChunk(begin, end, len(data), ended=False, data=data[begin:end])


@pytest.mark.parametrize("seed", range(2))
def test_lines_do_not_depend_on_cuts(seed: int) -> None:
    """Pieces are read from the end backwards, and added at the end as the log grows."""
    chance = random.Random(seed)
    size = 3 * BLOCK if seed == 0 else 400
    data = b"".join(b"x" * chance.randrange(90) + b"\n" for _ in range(size // 40)) + b"tail" * (seed % 2)
    cuts = sorted(chance.sample(range(1, len(data)), 6))
    begin, *_, middle = cuts
    spool = LogSpool()
    spool.add_chunk(chunk(data, begin, middle))
    spool.add_chunk(chunk(data, middle, len(data)))
    held = spool.count
    before = spool.add_chunk(chunk(data, 0, begin))

    assert [spool.line(row) for row in range(spool.count)] == data.removesuffix(b"\n").split(b"\n")
    assert spool.count == held + before


SHOWN = {
    "its colours": (b"\x1b[32mok\x1b[0m then", [("ok", "good"), (" then", "plain")]),
    "hidden text": (b"\x1b[8msecret\x1b[5m!", [("secret", "plain"), ("!", "plain")]),
    "black on black": (b"\x1b[30;40mthere", [("there", "quiet")]),
    "progress": (b"10%\r50%\r100%\r", [("100%", "plain"), ("  ↻ 2 earlier", "quiet")]),
    "other sequences": (b"\x1b[2J\x1b]0;x\x07\xc2\x9b", [("␛[2J␛]0;x␇�", "plain")]),
    "nothing": (b"", []),
}


@pytest.mark.parametrize(("raw", "pieces"), SHOWN.values(), ids=SHOWN)
def test_only_colour_sequences_are_kept(raw: bytes, pieces: list[tuple[str, str]]) -> None:
    """Everything else becomes visible; for an overwritten line, the last state is shown."""
    assert [piece[:2] for piece in log_pieces(raw)] == pieces


async def test_a_log_follows_only_at_its_end() -> None:
    """Lines that are loaded above do not move the visible ones."""
    data = b"".join(b"line %d\n" % n for n in range(1_000))
    spool = LogSpool()
    view = LogView(spool)
    half = data.index(b"line 500\n")
    async with staged(view, (60, 12)) as (app, pilot):
        spool.add_chunk(chunk(data, half, data.index(b"line 900\n")))
        view.show_added(follow=True)
        await pilot.pause()
        assert app.lines[-1].strip() == "line 899"

        before = spool.add_chunk(chunk(data, 0, half))
        view.show_added(before=before)
        await pilot.press("k")
        spool.add_chunk(chunk(data, data.index(b"line 900\n")))
        view.show_added(follow=view.follows)
        await pilot.pause()
        assert app.lines[-1].strip() == "line 899"
        assert view.cursor == 898

        await pilot.press("G")
        assert view.follows
        assert app.lines[-1].strip() == "line 999"


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"2026-05-01T12:00:07.123456Z attempt 1", b"12:00:07 attempt 1"),
        (b"[2026-05-01T14:00:07+02:00] go", b"[12:00:07] go"),
        (b"2026-99-01T12:00:07Z no", b"2026-99-01T12:00:07Z no"),
        (b"at 2026-05-01T12:00:07Z", b"at 2026-05-01T12:00:07Z"),
    ],
)
def test_a_line_begins_with_its_local_time(raw: bytes, shown: bytes) -> None:
    """The time has eight characters; a time without a zone is only cut, and other text stays."""
    assert short_time(raw) == shown
