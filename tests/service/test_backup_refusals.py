"""What must not be restored: damaged, forged, newer, or with a path that leads elsewhere."""

import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from service.store.schema import VERSION
from tests.service.backups import attempt, rebuilt
from tests.service_process import command


def entry(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.size = kind, target, 4 if kind == tarfile.REGTYPE else 0
    return made


def a_newer(found: dict[str, bytes]) -> None:
    found["manifest.json"] = found["manifest.json"].replace(b'"schema_version":', b'"schema_version":9')


BAD: dict[str, tuple[Callable[[Path], Path], str]] = {
    "cut off": (lambda source: cut(source, 0.6), "damaged"),
    "without its end": (lambda source: rebuilt(source, lambda found: found.pop("manifest.json")), "no manifest"),
    "no archive": (lambda source: cut(source, 0.0), "damaged"),
    "a row changed": (
        lambda source: rebuilt(source, lambda found: found.update({"tables/runs.jsonl": b"[]\n"})),
        "tables/runs.jsonl is not what was backed up",
    ),
    "a file lost": (
        lambda source: rebuilt(source, lambda found: found.pop("tables/turns.jsonl")),
        "tables/turns.jsonl",
    ),
    "newer": (lambda source: rebuilt(source, a_newer), "or newer"),
    "a path out": (lambda source: rebuilt(source, len, entry("../evil")), "'../evil'"),
    "a path out of runs": (lambda source: rebuilt(source, len, entry("runs/../../evil")), "evil"),
    "an absolute path": (lambda source: rebuilt(source, len, entry("/tmp/evil")), "evil"),
    "a link": (
        lambda source: rebuilt(source, len, entry("service.toml", tarfile.SYMTYPE, "/etc/passwd")),
        "service.toml",
    ),
    "a hard link": (
        lambda source: rebuilt(source, len, entry("service.toml", tarfile.LNKTYPE, "/etc/passwd")),
        "service",
    ),
    "a device": (lambda source: rebuilt(source, len, entry("service.toml", tarfile.CHRTYPE)), "service.toml"),
    "a name twice": (lambda source: rebuilt(source, len, entry("tables/runs.jsonl")), "out of place"),
}


def cut(source: Path, share: float) -> Path:
    raw = source.read_bytes()
    forged = source.with_name("forged.tar.gz")
    forged.write_bytes(raw[: int(len(raw) * share)] or b"nothing of the kind")
    return forged


@pytest.mark.parametrize("name", BAD)
def test_what_is_damaged_or_forged_is_refused_before_anything_is_touched(
    backup: Path, tmp_path: Path, name: str
) -> None:
    """The whole file is read first: no database, no log and no file elsewhere comes of it."""
    make, message = BAD[name]
    done = attempt("restore", str(make(backup)), "--data-dir", str(tmp_path / "target"))

    assert (done.exit_code, message in done.stderr) == (2, True), done.output
    assert not (tmp_path / "target").exists()
    assert not list(tmp_path.rglob("*evil*"))


def test_what_passes_the_checksums_and_does_not_load_changes_nothing(backup: Path, tmp_path: Path) -> None:
    """Forged with its manifest, over a service with --force: that one stays as it was, and starts."""

    def forge(found: dict[str, bytes]) -> None:
        found["tables/runs.jsonl"] += b'["too few"]\n'

    before = command(tmp_path / "data", "org", "list")
    done = attempt(
        "restore", str(rebuilt(backup, forge, schema_version=VERSION)), "--force", "--data-dir", str(tmp_path / "data")
    )

    assert (done.exit_code, "does not fit" in done.stderr) == (2, True), done.output
    assert command(tmp_path / "data", "org", "list") == before
    assert len(list((tmp_path / "data" / "runs").iterdir())) == 3
