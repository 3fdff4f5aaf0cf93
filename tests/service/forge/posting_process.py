"""A worker that posts, for a process of its own: it imports nothing of the tests, which would take most of its time."""

import os

from service.forge.poster import Poster
from service.settings import ForgeSettings
from service.store import postings
from service.store.database import Database


def post_in_a_process(url: str, now: int) -> None:
    """Be a worker that posts what is due; it may be killed at any moment."""
    os.environ["FORGE_TOKEN_HERE"] = "bot-token"
    database = Database(url)
    with database.read() as connection:
        found = postings.due_runs(connection, now, 1)
    for run_id in found:
        Poster(database, ForgeSettings(timeout_s=60), lambda: now).post(run_id)
