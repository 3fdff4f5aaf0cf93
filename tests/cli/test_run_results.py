"""`runs view`, `runs log`, `runs artifacts` and `runs cancel`, against a misbehaving service."""

import json

from tests.cli.conftest import CommandLine
from tests.lab import Drop, Lab, Respond


def test_a_log_of_steps_is_a_conversation(boarded: CommandLine, lab: Lab) -> None:
    """--all and --json leave nothing out, and --raw prints the bytes."""
    long = "x" * 200_000
    lab.put("run_1", "completed")
    lab.turns["run_1"] = {"turns": [{"number": 1, "state": "completed"}]}
    lab.logs["run_1", 1] = f"{long}\nends\x07\n".encode()
    log = ("runs", "log", "run_1")
    end, lines = boarded(*log), boarded(*log, "--all")
    said, result = {"kind": "said", "text": f"I look.\x1b[2J\n{long}"}, "\n".join(map(str, range(500)))
    lab.steps["run_1", 1] = [said, {"kind": "result", "text": result, "failed": True}]
    whole = boarded(*log, "--all")
    told, raw = boarded(*log, "--all", "--json").json(), boarded(*log, "--all", "--raw")

    # The end of a log is its last 64 KiB.
    assert ("earlier bytes are left out" in end.err, "ends␇" in end.out, len(end.out) < 70_000) == (True, True, True)
    assert lines.out == raw.out.replace("\x07", "␇") == f"{long}\nends␇\n"
    assert "\nsaid      I look.␛[2J\n" in f"\n{whole.out}"
    assert f"\n          {long}\n" in whole.out
    assert told["text"].splitlines() == lines.out.splitlines()
    usage = {"model": "m", "input_tokens": 5}
    lab.turns["run_1"]["turns"][0] |= {"outcome": "failed", "reason": "no", "usage": usage}
    followed = boarded(*log, "--follow", "--json")
    events = [json.loads(line) for line in followed.out.splitlines()]
    assert (followed.code, [each.pop("event") for each in events]) == (1, ["step", "step", "usage", "end"])
    assert events[:2] == told["steps"]
    assert (events[2]["input_tokens"], events[3]["outcome"], events[3]["reason"]) == (5, "failed", "no")
    assert told["steps"][0] == dict.fromkeys(("at", "call", "seconds", "tokens")) | said | {"failed": False}


def test_artifacts_are_listed_and_saved(boarded: CommandLine, lab: Lab) -> None:
    """The newest turn's artifact wins; files go to the current folder or -C, are never replaced, and stay inside it."""
    files = {(1, "a b/x.png"): b"\x89\0", (1, "report.md"): b"old", (2, "report.md"): b"new", (2, "../out"): b"out"}
    lab.put("run_1", "completed")
    lab.artifacts |= {("run_1", *key): content for key, content in files.items()}
    named = [(turn, {"name": name, "bytes": len(content)}) for (turn, name), content in files.items()]
    lab.turns["run_1"] = {
        "turns": [
            {"number": number, "state": "completed", "artifacts": [one for turn, one in named if turn == number]}
            for number in (1, 2)
        ]
    }
    folder, command = boarded.home / "saved", ("runs", "artifacts", "run_1")
    listed = boarded(*command, "--json").json()
    saved = boarded(*command, "report.md", "a b/x.png", "-C", str(folder), "--json").json()
    again, outside = boarded(*command, "report.md", "-C", str(folder)), boarded(*command, "-C", str(folder))
    (folder / "link").symlink_to(boarded.home)
    lab.turns["run_1"]["turns"][1]["artifacts"] = [{"name": "link/x", "bytes": 1}, {"name": "gone", "bytes": 1}]
    lab.artifacts["run_1", 2, "link/x"] = b"x"
    linked, gone = (boarded(*command, name, "-C", str(folder)) for name in ("link/x", "gone"))

    assert [(one["turn"], one["name"], one["bytes"], one["saved_as"]) for one in listed["artifacts"]] == [
        *((2, "report.md", 3, None), (2, "../out", 3, None)),
        *((1, "a b/x.png", 2, None), (1, "report.md", 3, None)),
    ]
    assert [one["saved_as"] for one in saved["artifacts"]] == [f"{folder}/report.md", f"{folder}/a b/x.png"]
    assert ((folder / "report.md").read_bytes(), (folder / "a b/x.png").read_bytes()) == (b"new", b"\x89\0")
    assert (again.code, "File exists. Nothing is replaced" in again.err) == (2, True)
    assert (outside.code, (boarded.home / "out").exists()) == (2, False)
    assert (linked.code, (boarded.home / "x").exists()) == (2, False)
    assert (gone.code, "It was pruned" in gone.err) == (7, True)


def test_a_pull_request_and_what_a_turn_cost_are_shown(boarded: CommandLine, lab: Lab) -> None:
    """The output has the reason why the remaining findings cannot be posted."""
    url = "https://github.example/acme/api/pull/7"
    postings = [
        {"kind": "pull_request", "state": "posted", "url": url},
        {"kind": "review", "state": "waiting", "reason": "GitHub\x1b[2J is away"},
    ]
    used = {"requests": 1, "input_tokens": 1000, "cached_tokens": 200, "output_tokens": 3, "cost_usd": 0.345678}
    lab.put("run_1", "working")
    turn = {"number": 1, "state": "completed", "usage": used}
    lab.turns["run_1"] = {"turns": [turn], "postings": postings}
    viewed, document = boarded("runs", "view", "run_1"), boarded("runs", "view", "run_1", "--json").json()
    opened = boarded("runs", "open", "run_1", "--pull-request", "--json", BROWSER="false", PATH="")

    assert opened.json() == {"url": url, "opened": False}
    assert f"\npull request: {url}\nreview: not posted yet · GitHub␛[2J is away\n" in viewed.out
    assert "  1,203 tokens  $0.3457\n" in viewed.out
    assert document["turns"][0]["usage"]["cost_usd"] == 0.345678
    assert document["postings"][0] == {"kind": "pull_request", "state": "posted", "url": url, "reason": None}


def test_following_a_log_survives_faults_but_needs_a_log(boarded: CommandLine, lab: Lab) -> None:
    """After the log became shorter, following continues at its new end. Without cancellations, `cancel` is refused."""

    def piece(data: bytes, offset: int, size: int, *, ended: bool = False) -> Respond:
        places = {"Offset": offset, "Next": offset + len(data), "Size": size, "Ended": str(ended).lower()}
        return Respond(200, data, {f"Runwarden-Log-{name}": str(at) for name, at in places.items()})

    pieces = [piece(b"one\n", 0, 4), Drop(), piece(b"", 2, 2), piece(b"two", 2, 5, ended=True)]
    lab.put("run_1", "working")
    lab.turns["run_1"] = {"turns": [{"number": 1, "state": "failed", "outcome": "failed"}]}
    lab.otherwise = lambda request: pieces.pop(0) if request.path.endswith("/log") else lab.answer(request)
    done = boarded("runs", "log", "run_1", "--follow")

    assert (done.code, done.out) == (1, "one\ntwo\n")
    assert "Still following" in done.err
    assert "replaced by a shorter one" in done.err

    refusal = Respond(405, {"message": "GET no"})
    lab.otherwise = lambda request: refusal if "run_1" in request.path else lab.answer(request)
    cancelled = boarded("runs", "cancel", "run_1", "--json")

    assert (cancelled.json()["state"], cancelled.json()["error"]["kind"]) == ("rejected", "not_offered")
