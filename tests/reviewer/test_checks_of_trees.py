"""What the rules see that need to know the tree."""

from typing import Any

TESTED = {"tests/test_all.py": "from src import a, b, c\n"}


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
    """A dead link, one out of the tree and a good one, told apart by their text."""
    (branch.folder / "dead").symlink_to("nowhere")
    (branch.folder / "absolute").symlink_to("/etc/passwd")
    (branch.folder / "src/up").symlink_to("../../outside")
    (branch.folder / "src/good.py").symlink_to("api.py")
    branch.commit({})

    done = branch.turn()

    assert ids(done) == {"dead": {"dead-symlink"}, "absolute": {"symlink-outside"}, "src/up": {"symlink-outside"}}
    assert "root:" not in done.review


def test_paths_that_differ_by_case(branch: Any) -> None:
    """Two names that are one file elsewhere."""
    branch.commit({"src/Api.py": "from src.api import add\n\nadd(1, 2)\n"})

    assert ids(branch.turn())["src/Api.py"] == {"case-collision"}


def test_broken_links_in_documents(branch: Any) -> None:
    """Relative links to nothing are found; addresses, anchors, code and good paths are left alone."""
    branch.commit(
        {
            "docs/a.md": "[no](nope.md) [ok](../README.md#x) [w](https://x.y) [h](#a) `[c](d.md)` [up](../../issues)\n"
            "```\n[code](gone.md)\n```\n[ref]: missing.png\n"
        }
    )

    section = branch.turn().section("Findings")

    assert "nope.md is not in the tree" in section
    assert "missing.png is not in the tree" in section
    assert "gone.md" not in section
    assert "2 times" in section


def test_deleting_a_file_breaks_links_elsewhere(branch: Any) -> None:
    """A document that the branch did not touch is read when its target is gone."""
    branch.commit({"src/api.py": None, "src/new.py": "X = 1\n"})

    assert ids(branch.turn())["README.md"] == {"broken-link"}


def test_module_that_no_test_names(branch: Any) -> None:
    """A new module without a test is named; one whose name a test mentions is not."""
    branch.commit({"src/billing.py": "def pay():\n    return 1\n", "src/api.py": "def add(a, b):\n    return b + a\n"})

    assert ids(branch.turn()) == {"src/billing.py": {"missing-test"}}


def test_whole_tree_names_untested_modules_by_folder(branch: Any) -> None:
    """Many modules without a test make one finding a folder, which a narrower turn does not resolve."""
    files = {f"src/m{n}.py": f"def f{n}():\n    return {n}\n" for n in range(8)}
    branch.commit(files)
    branch.git("update-ref", "refs/remotes/origin/main", "HEAD")

    done = branch.turn()
    branch.accept()
    narrow = branch.turn("Only security.", 2)

    assert ids(done) == {"src": {"missing-test"}}
    assert "m0.py, m1.py, m2.py, m3.py, m4.py, m5.py and 2 more" in done.section("Findings")
    assert "0 resolved, 0 still open, 0 new, 1 not looked at" in narrow.section("Since the last review")


def test_repository_without_tests(repo: Any) -> None:
    """One finding for the whole repository, not one for each module."""
    repo.commit({"src/a.py": "def a():\n    return 1\n", "src/b.py": "def b():\n    return 2\n"})

    assert ids(repo.turn()) == {".": {"no-tests"}}


def test_functions_that_exist_twice(branch: Any) -> None:
    """A copied body is found under another name; the finding names the other place."""
    body = "".join(f"    x{n} = f({n})\n" for n in range(9)) + "    return x0\n"
    branch.commit(
        {"src/a.py": f"def one():\n{body}", "src/b.py": f'def two():\n    """Other words."""\n{body}', **TESTED}
    )

    section = branch.turn().section("Findings")

    assert "two does the same as one in src/a.py, line 1" in section
