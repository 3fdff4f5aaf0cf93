"""Patches are read as git wrote them, whatever names and contents they have."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.results.diff import Patch, as_name, unquote_name
from tests.results.repository import commit, git

HOSTILE = ["with blank", "tab\there", "new\nline", 'quo"te', "-rf", "--upload-pack=x", "uml\u00e4ut", "b/b b/b"]


def diff(repository: Path) -> bytes:
    prefixes = ("--src-prefix=a/", "--dst-prefix=b/")
    return git(repository, "diff", "--no-ext-diff", *prefixes, "-M", "--binary", "--full-index", "HEAD~1", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet", "--initial-branch=main")
    for name in ("kept", "gone", "moved from", "run.sh", "link"):
        (tmp_path / name).write_text("".join(f"{name} {n}\n" for n in range(20)))
    (tmp_path / "picture").write_bytes(bytes(range(256)))
    commit(tmp_path, "x")
    return tmp_path


def test_facts_of_a_patch_equal_gits(repository: Path) -> None:
    """Names, kinds, counts, modes and blobs agree for every kind of change and name."""
    (repository / "kept").write_text("-- a/x\n++ b/x\n" * 3)  # Names as in `--- a/x` and `+++ b/x` of the patch.
    (repository / "gone").unlink()
    (repository / "moved from").rename(repository / "moved to")
    with (repository / "moved to").open("a") as file:
        file.write("one more\n")
    (repository / "run.sh").chmod(0o755)
    (repository / "picture").write_bytes(bytes(range(255)))
    (repository / "empty").touch()
    for name in HOSTILE:
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text(f"{name}\r\n\x1b]0;x\x07 no newline")
    commit(repository, "x")
    files = {file.path: file for file in Patch(diff(repository)).changed_files()}
    listed = git(repository, "diff", "-M", "--no-abbrev", "--raw", "-z", "HEAD~1", "HEAD").decode().split("\0")
    counts = git(repository, "diff", "-M", "--numstat", "HEAD~1", "HEAD").decode()

    assert set(files) == {name for name in listed if name and not name.startswith(":")} - {"moved from"}
    assert {file.kind for file in files.values()} == {"added", "modified", "deleted", "renamed", "mode"}
    for name in ("kept", "gone"):
        assert f"{files[name].additions}\t{files[name].deletions}\t{name}" in counts
        assert any(f"{files[name].old_blob} {files[name].new_blob or '0' * 40}" in line for line in listed)
    assert (files["picture"].is_binary, files["run.sh"].new_mode) == (True, "100755")
    assert files["moved to"].old_path == "moved from"


def test_a_file_name_keeps_its_bytes(repository: Path) -> None:
    """Names are bytes without an encoding. A quoted name has C's octal bytes and every escape that git uses."""
    name = b"latin-\xe9"
    (repository / as_name(name)).write_text("x\n")
    commit(repository, "x")
    (patched,) = Patch(diff(repository)).changed_files()

    assert patched.path.encode("utf-8", "surrogateescape") == name
    assert unquote_name(rb'"b/\303\244\t\"\\\a"') == 'b/\u00e4\t"\\\a'.encode()


def test_lines_are_numbered_by_the_counts_of_their_hunk() -> None:
    """Removed lines that look like headers are lines; a form feed or a lone CR does not end a line."""
    patch = Patch(b"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -3,3 +3,2 @@ def f\n--- a/x\n-\x0c\r y\n++++ b/x\n z\n")
    patch.read()
    (file,) = patch.files

    assert bytes(patch.kinds[3:]) == b"@--+ "
    assert [patch.numbers(n) for n in range(4, 8)] == [(3, None), (4, None), (None, 3), (5, 4)]
    assert (file.hunks[0].line, file.hunks[0].end) == (3, 8)
    assert (patch.line(5), patch.problem) == (b"-\x0c\r y", "")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"@@ -1,5 +1,5 @@\n a\n-b\n", "middle of a hunk"),
        (b"@@ -1,5 +1,5 @@\n a\ndiff --git a/y b/y\n", "is damaged"),
        (b"@@ -1 +1 @@\n-a\n+b\n\\ No newline at end of file\n", ""),
        (b"\xff\xfe\0garbage", ""),
        (b"@@ -1,2 +1,2 @@\n a\n\n", ""),
    ],
)
def test_a_damaged_patch_is_shown_as_far_as_possible(data: bytes, problem: str) -> None:
    """Every byte is on some line, and a note says what is missing."""
    patch = Patch(data)
    patch.read()

    assert b"\n".join(patch.line(n) for n in range(len(patch.kinds))).rstrip(b"\n") == data.rstrip(b"\n")
    assert problem in patch.problem
    assert bool(problem) == bool(patch.problem)


PIECES = [
    *(b"diff --git a/x b/x\n", b'diff --git "a/\\n" "b/\\n"\n', b"--- a/x\n", b"+++ b/x\n", b"@@ -1,2 +1,2 @@ f\n"),
    *(b"\\ No\n", b"GIT binary patch\n", b"literal 3\n", b"rename from x\n", b"index 0000..1111 120000\n", b"+a\n"),
    *(b"-a\n", b" a\n", b"\n", b"\r", b"\0", b"\xff", b"@@ -0,0 +1,999999999 @@\n", b"new file mode 160000\n"),
    b"--- /dev/null\n",
]


@given(st.lists(st.sampled_from(PIECES), max_size=30))
def test_random_bytes_are_read_as_a_patch(pieces: list[bytes]) -> None:
    """Every byte is on one line, every hunk in its file, and every file has its facts."""
    data = b"".join(pieces)
    patch = Patch(data)
    files = patch.changed_files()

    assert b"\n".join(patch.line(n) for n in range(len(patch.kinds))) == data.removesuffix(b"\n")
    assert len(files) == len(patch.files)
    for file in patch.files:
        assert all(file.line <= hunk.line < hunk.end <= file.end for hunk in file.hunks)
    assert all(one.end <= other.line for one, other in pairwise(patch.files))
