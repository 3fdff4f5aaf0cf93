"""What the rules see that need to know the tree."""

from typing import Any


def ids(done: Any) -> dict[str, set[str]]:
    """Rules by path, as the review lists them."""
    found: dict[str, set[str]] = {}
    path = ""
    for line in done.section("Findings").splitlines():
        if line.startswith("### "):
            path = line.removeprefix("### ").strip("` ")
        elif line.startswith("- **"):
            found.setdefault(path, set()).add(line.split("`")[1])
    return found


def test_files_that_do_not_belong(branch: Any) -> None:
    """Leftovers, build products and large files are named by path."""
    branch.commit(
        {"src/api.py.orig": "x\n", "lib/x.jar": b"PK\0\0", "big.bin": b"\0" * 1_200_000, "img.png": b"\x89\0"}
    )

    found = ids(branch.turn())

    assert found["src/api.py.orig"] == {"leftover-file"}
    assert found["lib/x.jar"] == {"build-product"}
    assert found["big.bin"] == {"large-file"}
    assert "img.png" not in found


def test_links_are_judged_and_never_followed(branch: Any) -> None:
    """A link out of the tree and a good one are told apart by their text."""
    (branch.folder / "absolute").symlink_to("/etc/passwd")
    (branch.folder / "src/up").symlink_to("../../outside")
    (branch.folder / "src/good.py").symlink_to("api.py")
    branch.commit({})

    done = branch.turn()

    assert ids(done) == {"absolute": {"symlink-outside"}, "src/up": {"symlink-outside"}}
    assert "root:" not in done.review


def test_broken_links_in_documents(branch: Any) -> None:
    """Relative links to nothing are found; addresses, anchors, code and good paths are left alone."""
    branch.commit(
        {
            "docs/a.md": "[no](nope.md) [ok](../README.md#x) [w](https://x.y) [h](#a) `[c](d.md)` [up](../../issues)\n"
            "```\n[code](gone.md)\n```\n![pic](missing.png)\n"
        }
    )

    section = branch.turn().section("Findings")

    assert "nope.md is not in the tree" in section
    assert "missing.png is not in the tree" in section
    assert "gone.md" not in section


def test_module_that_no_test_names(branch: Any) -> None:
    """A new module without a test is named; one whose name a test mentions is not."""
    branch.commit({"src/billing.py": "def pay():\n    return 1\n", "src/api.py": "def add(a, b):\n    return b + a\n"})

    assert ids(branch.turn()) == {"src/billing.py": {"missing-test"}}


def test_repository_without_tests(repo: Any) -> None:
    """One finding for the whole repository, not one for each module."""
    repo.commit({"src/a.py": "def a():\n    return 1\n", "src/b.py": "def b():\n    return 2\n"})

    assert ids(repo.turn()) == {".": {"no-tests"}}
