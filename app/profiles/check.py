"""Whether the service accepts a new profile."""

import asyncio
import os

from app.api.client import Client
from app.api.errors import ApiError
from app.engine.text import safe_text
from app.profiles import Profile
from app.profiles.token import TokenError
from storage.records.error_kinds import error_kind


async def check(new: Profile) -> tuple[str, bool] | None:
    """Ask the service for its newest run; None: it accepts the token.

    Returns what happened and what to do, printable, and whether the token is at fault.
    """
    env = dict(os.environ)
    try:
        # A command or a keyring may take its time.
        token = await asyncio.to_thread(new.token.read, env)
    except TokenError as error:
        return safe_text(str(error)), True
    finally:
        os.environ.update(env)  # Reading removed the token's variable; the console needs it again.
    client = Client(new.base_url, token)
    try:
        await client.list_runs(page_size=1)
    except ApiError as error:
        kind, message = error_kind(error.kind), safe_text(error.message, limit=200)
        if kind.setup_fix or kind.concerns == "token":
            return f"{kind.title}. {kind.setup_fix or message}", kind.concerns == "token"
        return f"{message} Is the address right?", False
    finally:
        await client.aclose()
    return None
