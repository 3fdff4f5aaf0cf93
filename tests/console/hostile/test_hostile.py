"""Hostile text stays text on the screen, in commands, notifications, the clipboard and files."""

import asyncio
import csv
import json
import re
import sys
from base64 import b64decode
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from app.api.requests import (
    ContinueRun,
    CreateOrganization,
    OnboardProject,
    StartAgent,
    StartRun,
    WriteRequest,
    as_json,
)
from app.engine.text import FORMULA_STARTS
from app.profiles import LEDGER_FILE, Profile, Settings, data_folder
from app.profiles.token import EnvToken
from storage.ledger import Ledger, new_action_id
from storage.records import Action, ActionFailure, Repository
from tests.lab import Lab, Respond, Server
from tests.pty.ansi import Piece, pieces, unprintable
from tests.pty.terminal import ESCAPE, Terminal, environment

SEQUENCES = (
    "\x1b[2J\x1b[H",
    "\x1b]0;owned\x07",
    "\x1b]52;c;b3duZWQ=\x07",
    "\x1b]8;;http://evil.example\x07click\x1b]8;;\x07",
    "\x1bP+q544e\x1b\\",
    "\x1b[6n",
    "\x1b[5;77;1m",
    "\x1b[?1049l",
    "\x1bc",
    "\x9b31m\x9d0;owned\x9c",
    "\x90q\x9c",
    "\x00\x01\x07\x08\x0b\x0c\x0e\x0f\x7f",
    "\r\nsecond line\n\nfourth\ttabbed",
    "\u202egnp.exe\u202c \u2066isolated\u2069",
    "\u200b\u200c\u200d\u2060\ufeff\u00ad",
    "\ue000\U000f0000\ufdd0\uffff",
    "e\u0301\u0302\u0303\u0304\u0305\u0306\u0307\u0308\u0309" * 8,
    "表示幅の広い文字列" * 20,
    "👩‍👩‍👧‍👦🏳️‍🌈🇩🇪" * 20,
    "[/nope][bold red]markup[/] [@click=app.quit()]quit[/] [$accent]",
    ":smile: {run_id} %s %(x)s $HOME `id` \\x1b[2J",
    "\u2028\u2029\x85",
    "ﷺ" * 50,
    "<script>alert(1)</script>&lt;",
    "--upload-pack=touch /tmp/owned",
    "x" * 1_000_000,
    "\n" * 5_000,
    "",
    " ",
)


OURS = re.compile(r"\]2;.*|\]22;[a-z-]+")
"""Strings that the console itself sends: the window's title, and the pointer's shape."""

COLOURS = re.compile(r"\x1b\[(?!5;77;1m)[\d;]*m")
"""The text attributes that anyone may print; blinking in colour 77 marks a payload."""
CALM = re.compile(
    COLOURS.pattern
    + r"|\x1b\[\d+;\d+H|\x1b\[2[23];2t|\x1b\[<u|\x1b\[>\d+u|\x1b\[\?(2026|2048)\$p"
    + r"|\x1b\[\?(7|25|1000|1003|1004|1006|1015|1016|1049|2004|2026|2048)[hl]"
)
"""All sequences of an undisturbed console: positions, the saved title, keys and modes."""


KEYS = """
[keys]
"runs.export" = "x"
"runs.repositories" = "R"
"runs.views" = "V"
"run.copy_json" = "Y"
"""
EACH = """
import json, sys
from app.__main__ import main
for arguments in json.loads(sys.argv[1]):
    print("= ended with", main(arguments), "=", flush=True)
"""
"""Runs commands one after the other in one process, since starting an interpreter takes longer than a command."""
ENDED = re.compile(rb"= ended with (\d+) =\r\n")


def prints(folder: Path, base_url: str, commands: Sequence[Sequence[str]]) -> list[tuple[bytes, int]]:
    """Run commands on one terminal; return the output and exit status of each."""
    terminal = Terminal((json.dumps(commands),), environment(folder, base_url), code=EACH)
    assert terminal.end() == 0, terminal.seen[-2000:]
    terminal.close()
    *parts, rest = ENDED.split(terminal.seen)
    assert rest == b""
    found = list(zip(parts[::2], map(int, parts[1::2]), strict=True))
    assert len(found) == len(commands)
    return found


def foreign(data: bytes, calm: re.Pattern[str] = CALM) -> list[Piece]:
    """Return the output that is neither plain text nor a sequence that an undisturbed console sends."""

    def is_ours(piece: Piece) -> bool:
        match piece.kind:
            case "text":
                return not unprintable(piece.text)
            case "osc":
                return OURS.fullmatch(piece.text) is not None and not unprintable(piece.text)
            case "control":
                return piece.text in "\r\n"
            case _:
                return calm.fullmatch(piece.text) is not None

    return [piece for piece in pieces(data) if not is_ours(piece)]


TITLES = ("".join(SEQUENCES[:12]), "".join(SEQUENCES[12:20]), *SEQUENCES[:12], *SEQUENCES[19:22])
"""Hostile names that a configuration copied in good faith may have."""
PROFILE = f"{TITLES[0]}profile"
TELLING = "import json, sys; print(json.dumps(sys.argv[2:]), file=open(sys.argv[1], 'a'))"
"""A user's notification command, which records its arguments."""
TOLD = ("{title}", "{body}", "{profile}", "{run_id}", "{repository}", "{branch}", "{status}")


def configuration(base_url: str, told: Path) -> str:
    """A configuration with hostile names, desktop notifications and a command."""
    command = [sys.executable, "-c", TELLING, str(told), *TOLD]
    parts = [
        f"default_profile = {_toml(PROFILE)}",
        "[notify]\nbell = false\ndesktop = true\nhold_s = 0",
        f"command = [{', '.join(map(_toml, command))}]",
        *(f"[profiles.{_toml(name)}]\nbase_url = {_toml(base_url)}" for name in (PROFILE, *TITLES[1:4])),
    ]
    for number, title in enumerate(TITLES):
        name = _toml(f"{title}{number}")
        parts.append(f'[[views]]\nname = {name}\nquery = "branch:main"')
        parts.append(f"[[templates]]\nname = {name}\ninstructions = {_toml(title + 'do')}")
        parts.append(f'[[commands]]\nname = {name}\nargv = [{_toml(title + "/nowhere")}, "{{branch}}"]\nconfirm = true')
    return "\n".join([*parts, KEYS])


def ledger_file(base_url: str, folder: Path) -> Path:
    """The path of the hostile profile's ledger."""
    profile = Profile(PROFILE, base_url, EnvToken())
    return data_folder(Settings(data_dir=folder, profiles=(profile,)), profile) / LEDGER_FILE


async def write_ledger(path: Path) -> list[str]:
    """Writes of each kind and outcome, hostile in every field that others control; returns their ids, oldest first."""
    path.parent.mkdir(parents=True, mode=0o700)
    ids = []
    async with await Ledger.open(path) as ledger:
        for number, payload in enumerate(SEQUENCES):
            request = a_request(number, payload)
            subject = f"{request.subject}{number}" if request.subject else ""
            # An agent's name is an encoded segment of its path.
            path = f"/external/agents/{quote(payload, safe='')}/executions"
            texts, at = (subject, f"{payload}{number}", path, as_json(request), f"console:{payload}"), ledger.clock()
            action = await ledger.prepare(Action(new_action_id(at), request.kind, *texts, "prepared", at))
            ids.append(action.action_id)
            await ledger.sending(action.action_id)
            error = ActionFailure(payload, payload, 500, payload)
            match number // 5 % 3:
                case 0:
                    made = {"organization_name": payload, "organization_id": payload, payload: payload}
                    await ledger.settle(action.action_id, "confirmed", None, payload, json.dumps(made))
                case 1:
                    await ledger.settle(action.action_id, "rejected", error)
                case _:
                    await ledger.settle(action.action_id, "unknown", error)
    return ids


def a_request(number: int, payload: str) -> WriteRequest:
    repository = Repository.of(payload, {"owner": payload, "repo": payload})
    requests: tuple[WriteRequest, ...] = (
        CreateOrganization(payload, payload),
        StartRun(payload, repository, payload, {payload: payload}),
        ContinueRun(payload, payload, repository, payload, {payload: payload}),
        StartAgent(payload, payload, payload, {payload: payload}),
        OnboardProject(payload),
    )
    return requests[number % len(requests)]


def write_list(path: Path) -> None:
    """A list of organizations with invalid or odd addresses and hostile offer codes."""
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["email", "offer_code", "".join(SEQUENCES[:3])])
        # A field of a megabyte fails the whole file, any other error only its row.
        rows.writerows([f"{text}@evil.example", text, text] for text in SEQUENCES if len(text) < 100_000)


def now() -> str:
    """The current time, as the service writes it."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def _toml(text: str) -> str:
    return '"' + "".join(f"\\U{ord(character):08x}" for character in text) + '"'


TABS = ("2", "4", "5", "7", "1")
ROWS = (*"jj", "\r", "\x1b[6~", ESCAPE, "f", "F", ESCAPE, " ")
"""Keys for runs next to the list, one run alone, following and marking."""
SHEETS = tuple(key for sheet in ("s", "R", "V", "c") for key in (sheet, ESCAPE))
"""Keys for pickers, and for a form prefilled from the run under the cursor."""
OVER_ALL = ("?", ESCAPE, ":", ESCAPE)


def hostile_board(board: Lab, payloads: list[str]) -> None:
    """Puts each payload into every field that the service fills in."""
    for number, payload in enumerate(payloads):
        board.put(
            f"run_{number:03}{payload[:900]}",
            ["completed", "working", payload][number % 3],
            created=number,
            updated=number + 2.0,
            branch_name=payload,
            repository={"platform": [payload, "github"][number % 2], "data": {"owner": payload, "repo": f"r{payload}"}},
            extra={payload: payload},
        )
    board.put("run_zzz_marker", "failed", created=599.0, branch_name="the-marker")
    board.health = {
        "github": {"status": payloads[0]},
        "gitlab": {"status": "degraded", "host": payloads[-1], "group": payloads[0]},
        **{payload[:200]: {"status": payload} for payload in payloads},
    }


COMMANDS = (
    ("runs", "list", "--all"),
    *(("runs", "list", "--all", "--output", form) for form in ("json", "csv")),
    ("runs", "list", "--cached", "--search", "".join(SEQUENCES[:3]).replace("\x00", "")),
    ("runs", "show", f"run_000{SEQUENCES[0]}"),
    ("health",),
    *(("orgs", "list", "--output", form) for form in ("table", "json")),
    *(("actions", "list", "--output", form) for form in ("table", "csv")),
    ("profiles", "list"),
)


def test_no_command_prints_a_foreign_escape_sequence(tmp_path: Path, server: Server) -> None:
    """Tables, documents and spreadsheets contain no foreign sequence, since a terminal would obey it.

    Errors do not either.
    """
    hostile_list = tmp_path / "\x1b]0;owned\x07\x9b31m\u202elist.csv"
    write_list(hostile_list)
    with Lab() as board:
        hostile_board(board, list(SEQUENCES))
        (tmp_path / "config.toml").write_text(configuration(board.base_url, tmp_path / "told"))
        ids = asyncio.run(write_ledger(ledger_file(board.base_url, tmp_path / "data")))
        more = (
            ("actions", "show", ids[3]),
            ("actions", "resolve", ids[10], "--send-again", "--confirm", "no"),
            ("orgs", "import", str(hostile_list), "--dry-run"),
            ("orgs", "import", f"{hostile_list}\x1b[2J"),
        )
        printed = prints(tmp_path, "", (*COMMANDS, *more))
    assert [(bool(sent), foreign(sent, COLOURS)) for sent, _ in printed] == [(True, [])] * len(printed)

    (tmp_path / "config.toml").write_text("")
    server.otherwise = lambda _: Respond(403, {"message": "".join(SEQUENCES[:20]), "error_code": SEQUENCES[0]})
    printed = prints(tmp_path, server.base_url, (("runs", "list"), ("runs", "list", "--json")))
    assert all(status != 0 and foreign(sent, COLOURS) == [] for sent, status in printed), printed


NOTIFICATION = re.compile(r"\]777;notify;[^;]*;[^;]*")
COPIED = re.compile(r"\]52;c;([A-Za-z0-9+/=]*)")
FOLDER = "[bold red]表[nope]{run_id} %s"
"""Text that a path field accepts: markup, wide characters, placeholders."""
TO_START = "\x15"
COPYING = ("y", "Y", "j", "y")
FORM = ("n", "\x14", ESCAPE, ESCAPE, ESCAPE)
"""Keys that open the templates from the form of a new run."""
ORGANIZATIONS = ("3", "y", "\r", ESCAPE)
ACTIVITY = ("6", *"yjy", "v", ESCAPE)
PROFILES = ("\x0f", "h", ESCAPE)
OWN = (":", "redmarkup", "\r", "y", ESCAPE)
ALERTS = (*"=+-@<", "\t", "--upload-pack=x", "@/etc/passwd", "4;1;50", "\x1b]52;c;b3duZWQ=\x07", "a;b;c")
"""Prefixes that a program, a spreadsheet or a terminal would obey."""


def test_no_screen_lets_hostile_text_act(tmp_path: Path) -> None:
    """Every tab, sheet, form and run of the first page is opened, and everything that leaves the console is checked."""
    with Lab() as board:
        hostile_board(board, [text[:2_000] for text in SEQUENCES])
        for number, alert in enumerate(ALERTS):
            repository = {"platform": "github", "data": {"owner": alert, "repo": alert}}
            board.put(f"{alert}{number}", "working", created=598.0, branch_name=alert, repository=repository)
            # Runs of this hour, so that their repositories appear in Insights.
            board.runs[f"{alert}{number}"].update(created_at=now(), updated_at=now())
        (tmp_path / FOLDER).mkdir()
        (tmp_path / "config.toml").write_text(configuration(board.base_url, tmp_path / "told"))
        write_list(tmp_path / FOLDER / "list.csv")
        asyncio.run(write_ledger(ledger_file(board.base_url, tmp_path / "data")))
        terminal = Terminal([], environment(tmp_path, "", TERM="foot"), (140, 40), cwd=tmp_path)
        try:
            _visit(terminal, board, tmp_path)
        finally:
            terminal.close()

    assert [piece for piece in foreign(terminal.seen) if not _is_outward(piece.text)] == []
    assert b"\x1b]owned" not in terminal.seen
    assert b"\x1b[5;77;1m" not in terminal.seen
    osc = [piece.text for piece in pieces(terminal.seen) if piece.kind == "osc"]
    notifications_are_plain_text([text for text in osc if text.startswith("]777")])
    a_notify_command_gets_no_options([json.loads(line) for line in (tmp_path / "told").read_text().splitlines()])
    copies = [copied[1] for text in osc if (copied := COPIED.fullmatch(text))]
    what_is_copied_is_printable_lines([b64decode(copied).decode() for copied in copies])
    exports_are_printable(tmp_path / FOLDER)


def notifications_are_plain_text(sent: list[str]) -> None:
    """Check that title and body are text, including semicolons and sequences."""
    assert sent
    for text in sent:
        assert NOTIFICATION.fullmatch(text)
        assert not unprintable(text)


def a_notify_command_gets_no_options(told: list[list[str]]) -> None:
    """Check that no argument reads as an option or a file: a leading dash, at sign or angle bracket is replaced."""
    assert told
    for arguments in told:
        assert len(arguments) == 7
        assert not unprintable("".join(arguments))
        assert not any(argument.startswith(("-", "@", "<")) for argument in arguments)


def what_is_copied_is_printable_lines(copied: list[str]) -> None:
    """Check that ids are safe text and JSON is escaped, so that a shell executes none of a paste."""
    assert len(copied) > 5
    assert "owned" not in copied
    for text in copied:
        assert not unprintable(text.replace("\n", ""))
    assert any(text.startswith("{") and json.loads(text) for text in copied)


def exports_are_printable(folder: Path) -> None:
    """Check that no cell starts a formula, and that JSON has the exact text in escapes."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir() if path.name != "list.csv"}
    for name, text in texts.items():
        assert not unprintable(text.replace("\n", "")), name
    for name in ("runs.csv", "figures.csv"):
        rows = list(csv.reader(texts[name].splitlines()))
        assert len(rows) > len(ALERTS)
        assert not [cell for row in rows for cell in row if cell.startswith(FORMULA_STARTS)]
    assert set(SEQUENCES[:12]) <= {run["branch_name"] for run in json.loads(texts["runs.json"])["runs"]}


def _visit(terminal: Terminal, board: Lab, folder: Path) -> None:
    terminal.shows("the-marker")
    terminal.press(*COPYING, *FORM, *TABS, *ROWS, *SHEETS, *OVER_ALL, *ORGANIZATIONS, *ACTIVITY, *PROFILES, *OWN)
    terminal.press("3", "I", TO_START, f"{folder / FOLDER / 'list.csv'}", "\r", ESCAPE, ESCAPE)
    assert "evil.example" in terminal.seen.decode(errors="replace")
    for name in ("runs.csv", "runs.json", "figures.csv"):
        terminal.press("1" if name.startswith("runs") else "4", "x", TO_START, f"{folder / FOLDER / name}")
        terminal.type("\r")
        terminal.read_until((folder / FOLDER / name).exists)
    # A followed run ends: a toast, the strip and the window's title report it.
    for run in board.runs.values():
        if run["status"] == "working":
            run.update(status="failed", updated_at=now())
    board.health = {"github": {"status": SEQUENCES[0], "host": "".join(SEQUENCES[:6])}}
    terminal.press("\x12")
    terminal.wrote(b"\x1b]777;notify;")
    told = folder / "told"
    terminal.read_until(lambda: told.exists() and told.read_text().endswith("\n"))
    # A branch of a megabyte; then the service refuses with hostile messages.
    board.put("run_yyy_long", "working", created=598.0, branch_name=max(SEQUENCES, key=len))
    terminal.press("1", "\x12", "j", "\r", ESCAPE)
    body = {"message": "".join(SEQUENCES[:12]) + "refused-by-the-service", "error_code": SEQUENCES[0]}
    board.otherwise = lambda _: Respond(403, body)
    terminal.press("\x12")
    terminal.shows("403")
    terminal.press("2", "1")
    assert terminal.process.returncode is None, terminal.seen[-2000:]


def _is_outward(text: str) -> bool:
    return any(pattern.fullmatch(text) for pattern in (NOTIFICATION, COPIED))
