"""Deactivating an organization says what it ends."""

from pathlib import Path

from click.testing import CliRunner

from service.cli import main
from service.settings import DataFolder
from service.store.database import Database
from tests.service.conftest import accepted
from tests.service_process import command, lay_tables


def test_a_deactivation_says_how_many_open_turns_it_cancels(tmp_path: Path) -> None:
    """In the command's answer and in its help; a second one finds none."""
    lay_tables(tmp_path)
    database = Database(DataFolder(tmp_path).database_url)
    made = [accepted(database).id for _ in range(3)]
    accepted(database, slug="other")
    database.close()

    said = CliRunner().invoke(main, ["org", "deactivate", "acme", "--data-dir", str(tmp_path)]).stdout
    again = command(tmp_path, "org", "deactivate", "acme")
    explained = " ".join(CliRunner().invoke(main, ["org", "deactivate", "--help"]).stdout.split())

    assert said.splitlines()[1] == "3 open turns cancelled"
    assert (again["active"], again["cancelled_turns"]) == (False, 0)
    assert "open turns are cancelled" in explained
    assert command(tmp_path, "run", made[0])["turns"][0]["failure"] == "cancelled: the organization was deactivated"
    assert command(tmp_path, "status")["runs"] == {"failed": 3, "queued": 1}
