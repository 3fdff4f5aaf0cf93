"""What a turn may change before its change is kept from the push."""

from pathlib import Path

import pytest

from service.agents.options import ChangeLimits
from service.execution.change import Patches, changed_between, oversize, refusal
from service.execution.git import GitRunner


@pytest.mark.parametrize(
    ("names", "size", "limits", "reason"),
    [
        (["src/app.py", ".github/ISSUE_TEMPLATE.md"], 10, {}, None),
        ([".github/workflows/ci.yml"], 10, {}, "protected by '.github/workflows/'"),
        ([".GitHub/Workflows/ci.yml"], 10, {}, "protected by '.github/workflows/'"),
        ([".github"], 10, {}, "protected by '.github/workflows/'"),
        ([".gitlab-ci.yml"], 10, {}, "protected by '.gitlab-ci.yml'"),
        (["CODEOWNERS"], 10, {}, "protected by 'CODEOWNERS'"),
        (["deploy/prod/keys.yml"], 10, {"protected": ["deploy/*.yml"]}, "(change.protected)"),
        ([".github/workflows/ci.yml"], 10, {"protected": []}, None),
        (["a", "b", "c"], 10, {"files": 2}, "it touches 3 files, more than 2 (change.files)"),
        (["a"], 11, {"bytes": 10}, "its patch has 11 bytes, more than 10 (change.bytes)"),
    ],
)
def test_a_change_beyond_its_limits_is_not_pushed(
    names: list[str], size: int, limits: dict[str, object], reason: str | None
) -> None:
    """A protected folder also where something else stands in its place; letters' case does not hide it."""
    found = refusal(ChangeLimits.model_validate(limits), names, size)

    assert (found is None) == (reason is None)
    assert (reason or "") in (found or "")


def test_no_patch_is_made_of_files_that_do_not_fit_into_memory(tmp_path: Path) -> None:
    """Counted before anything reads them: added, changed and removed ones, and no submodule."""
    git, git_dir = (
        GitRunner(
            tmp_path, 30, {f"GIT_{role}_{key}": "a@b" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
        ),
        tmp_path / "r",
    )
    git("init", "--quiet", "--bare", str(git_dir))

    def commit(files: dict[str, str]) -> str:
        blobs = {
            name: git.feed(text, "hash-object", "-w", "--stdin", git_dir=git_dir).strip()
            for name, text in files.items()
        }
        entries = [f"100644 blob {blob}\t{name}\n" for name, blob in blobs.items()] + [
            f"160000 commit {'a' * 40}\tsub{len(files)}\n"
        ]
        tree = git.feed("".join(entries), "mktree", "--missing", git_dir=git_dir).strip()
        return git.feed("x", "commit-tree", tree, "-F", "-", git_dir=git_dir).strip()

    before, after = (
        commit({"kept": "1" * 500, "changed": "2" * 30, "gone": "3" * 4}),
        commit({"kept": "1" * 500, "changed": "4" * 200}),
    )
    touched = [changed_between(git, git_dir, base, after) for base in (before, None, after)]
    sizes = [Patches(git, str, None).content_bytes(git_dir, one) for one in touched]

    assert sizes == [234, 700, 0]
    assert oversize(ChangeLimits(), 256 << 20) is None
    assert "(four times change.bytes)" in (oversize(ChangeLimits(), (256 << 20) + 1) or "")
    assert oversize(ChangeLimits(bytes=1 << 30), 4 << 30) is None
