"""What agents and repositories plant for git: configuration, hooks, filters, submodules, links; none of it acts."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.service.conftest import SANDBOXES
from tests.service_process import git

HOSTILE = """
import json, os, pathlib, subprocess
trap = pathlib.Path(json.load(__import__("sys").stdin)["inputs"]["trap"])
alarm = f"touch {trap}"
script = pathlib.Path("evil.sh"); script.write_text(f"#!/bin/sh\\n{alarm}\\n"); script.chmod(0o755)
def infect(folder):
    config = f'[core]\\n\\tfsmonitor = "{alarm}; false"\\n\\tsshCommand = "{alarm}"\\n\\thooksPath = {os.getcwd()}\\n'
    config += f'[filter "x"]\\n\\tclean = "{alarm}; cat"\\n\\tsmudge = "{alarm}; cat"\\n'
    config += f'[alias]\\n\\tadd = "!{alarm}"\\n'
    try:
        with open(os.path.join(folder, "config"), "a") as file: file.write(config)
        hook = pathlib.Path(folder, "hooks", "pre-push"); hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\\n{alarm}\\n"); hook.chmod(0o755)
    except OSError: pass
infect(os.environ["GIT_DIR"])
clean = {k: v for k, v in os.environ.items() if not k.startswith("GIT_DIR") and not k.startswith("GIT_WORK")}
subprocess.run(["git", "init", "-q", "nested"], env=clean, check=True)
pathlib.Path("nested/file").write_text("kept")
infect("nested/.git")
pathlib.Path(".gitattributes").write_text("* filter=x\\n")
pathlib.Path("nested/.gitattributes").write_text("* filter=x\\n")
pathlib.Path(".git").unlink(); pathlib.Path(".git").mkdir(); infect(".git")
pathlib.Path("pre-push").write_text(f"#!/bin/sh\\n{alarm}\\n"); pathlib.Path("pre-push").chmod(0o755)
pathlib.Path("link").symlink_to("/etc/passwd")
locked = pathlib.Path("locked"); locked.mkdir(); (locked / "in").write_text("x"); locked.chmod(0o500)
pathlib.Path(os.environ["RUNWARDEN_RESULT"]).symlink_to("/etc/passwd")
"""


@pytest.mark.parametrize("sandbox", SANDBOXES)
def test_what_an_agent_plants_for_git_never_runs(sandboxed: Callable[[str], Any], tmp_path: Path, sandbox: str) -> None:
    """Hooks, filters, fsmonitor and aliases in any git-dir it can write, a nested repository, links: harmless."""
    trap = tmp_path / "sprung"
    api = sandboxed(sandbox)
    api.add_agent(tmp_path, "hostile", HOSTILE)
    run_id = api.begin("hostile", trap=str(trap))
    run = api.ended(run_id)
    repository = api.service.repositories["acme/api"]
    committed = git("ls-tree", "-r", run["branch_name"], cwd=repository)

    assert run["status"] == "completed", api.log(run_id)
    assert not trap.exists()
    assert "nested/file" in committed
    assert "120000" in committed
    assert ".git/" not in committed
    assert "160000" not in committed
    assert list((api.service.data_dir / "work").iterdir()) == []


SUBMODULE = """commit refs/heads/modules
committer A <a@b.invalid> 1735689600 +0000
data 1
x
from refs/heads/main
M 160000 4b40829fb03b2a58f094f9cc58fd0395cafad355 vendored
M 100644 inline .gitmodules
data {length}
{text}
M 100644 inline .gitattributes
data 34
* filter=evil diff=evil merge=evil
"""


def test_submodules_and_attributes_of_a_repository_run_nothing(api: Any, tmp_path: Path) -> None:
    """A submodule whose address is a command, and filters for every file: the submodule stays what it was."""
    repository = api.service.repositories["acme/api"]
    trap = tmp_path / "sprung"
    text = f'[submodule "vendored"]\n\tpath = vendored\n\turl = ext::sh -c "touch {trap}"\n\tupdate = !touch {trap}\n'
    stream = SUBMODULE.format(length=len(text), text=text)
    subprocess.run(["git", "fast-import", "--quiet"], cwd=repository, input=stream.encode(), check=True)
    run = api.ended(api.start("write beside it", branch_name="modules"))
    tree = git("ls-tree", "modules", "vendored", cwd=repository)

    assert run["status"] == "completed", api.log(run["run_id"])
    assert tree.startswith("160000 commit 4b40829f")
    assert not trap.exists()


TUNNEL = """
import json, os, pathlib, shutil, sys
outside = json.load(sys.stdin)["inputs"]["outside"]
shutil.rmtree("src"); os.symlink(outside, "src")
os.symlink("/", "root"); os.symlink("../../..", "up"); os.symlink("loop", "loop")
"""


def test_links_out_of_the_checkout_are_committed_as_links(api: Any, tmp_path: Path) -> None:
    """What they point to is neither read, nor changed, nor removed with the workspace."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    api.add_agent(tmp_path, "tunnel", TUNNEL)
    run = api.ended(api.begin("tunnel", outside=str(outside)))
    tree = git("ls-tree", "-r", "--full-tree", run["branch_name"], cwd=api.service.repositories["acme/api"])

    assert run["status"] == "completed", api.log(run["run_id"])
    assert sorted(line.split()[-1] for line in tree.splitlines() if line.startswith("120000")) == [
        "loop",
        "root",
        "src",
        "up",
    ]
    assert "secret" not in tree
    assert (outside / "secret").read_text() == "secret"
