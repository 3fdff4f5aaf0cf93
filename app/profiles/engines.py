"""The engines of all profiles (one polls, the others are open for reading), and the check of a new profile."""

import asyncio
import os
import shlex
from collections.abc import Callable, MutableMapping
from contextlib import AsyncExitStack, suppress
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING

from msgspec.structs import replace

from app.engine.text import safe_text
from app.profiles import Profile, Settings
from app.profiles.token import EnvToken, FileToken, ReadToken, Token, TokenError
from storage.records.error_kinds import error_kind

if TYPE_CHECKING:
    from app.engine.engine import Engine


class ProfileEngines:
    """Opens the profiles' engines on demand and closes them at the end; unusable files raise `StorageError`."""

    def __init__(
        self, settings: Settings, current: Profile, env: MutableMapping[str, str], clock: Callable[[], datetime]
    ) -> None:
        """Open nothing yet; remove all tokens from the environment, which commands inherit.

        `current` may differ from the configured profile of the same name.
        """
        configured = {profile.name: profile for profile in settings.profiles}
        # --read-only applies to this console, not only to its first profile.
        is_forced = current.read_only and not configured.get(current.name, current).read_only
        self.profiles = tuple(
            replace(profile, read_only=profile.read_only or is_forced)
            for profile in {**configured, current.name: current}.values()
        )
        """All profiles, in the order of the configuration."""
        self._settings = settings
        self._current = current.name
        self._clock = clock
        self._tokens: dict[str, Token] = {}
        tokens = [(profile.name, profile.token) for profile in self.profiles if isinstance(profile.token, EnvToken)]
        for variable in {source.variable for _, source in tokens}:
            try:
                token = Token(env.get(variable, "").strip())
            except TokenError:
                continue  # The variable stays: the engine reports the problem with it.
            del env[variable]
            self._tokens |= {name: token for name, source in tokens if source == EnvToken(variable)}
        self._engines: dict[str, asyncio.Future[Engine]] = {}

    def profile(self, name: str) -> Profile:
        """The profile of that name."""
        return next(profile for profile in self.profiles if profile.name == name)

    async def engine(self, name: str) -> "Engine":
        """Open a profile's engine; it polls only after `open_polling`."""
        task = self._engines.get(name)
        if task is None:
            task = self._engines[name] = asyncio.create_task(self._open(self.profile(name)))
        try:
            # The caller may be cancelled half-way; a half-open engine must be finished before it can be closed.
            return await asyncio.shield(task)
        except Exception:
            self._engines.pop(name, None)
            raise

    async def open_polling(self, name: str) -> "Engine":
        """Open a profile's engine and let it poll."""
        engine = await self.engine(name)
        engine.start_polling()
        return engine

    async def close_engine(self, name: str) -> None:
        """Close one profile's engine, if it is open."""
        task = self._engines.pop(name, None)
        if task is not None:
            await (await task).close()

    async def close(self) -> None:
        """Close every engine."""
        tasks = list(self._engines.values())
        self._engines = {}
        async with AsyncExitStack() as stack:
            for engine in await asyncio.gather(*tasks, return_exceptions=True):
                if not isinstance(engine, BaseException):
                    stack.push_async_callback(engine.close)

    async def _open(self, profile: Profile) -> "Engine":
        # These imports take longer than the first frame did; keys must not wait for them.
        await asyncio.to_thread(import_module, "app.engine.engine")
        from app.engine.engine import Engine

        # Reading a file is cheap and prompts nobody, so a replaced token is picked up here.
        if profile.name not in self._tokens and not isinstance(profile.token, EnvToken | FileToken):
            with suppress(TokenError):  # The engine reports why the token is missing.
                self._tokens[profile.name] = await asyncio.to_thread(profile.token.read, os.environ)
        if (token := self._tokens.get(profile.name)) is not None:
            again = None if isinstance(profile.token, EnvToken | ReadToken) else profile.token
            profile = replace(profile, token=ReadToken(token, again))
        settings = self._settings
        if profile.name != self._current:
            command_line = f"{settings.command_line} {shlex.quote(f'--profile={profile.name}')}"
            settings = replace(settings, command_line=command_line)
        return await Engine.open(settings, profile, actor="console", clock=self._clock)


async def check(new: Profile) -> tuple[str, bool] | None:
    """Ask the service for its newest run; return None if it accepts the token.

    Otherwise returns what happened and what to do, printable, and whether the token is at fault.
    """
    from app.api.client import Client  # not on the way to the first frame
    from app.api.errors import ApiError

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
        kind = error_kind(error.kind)
        message = safe_text(error.message, limit=200)
        if kind.setup_fix or kind.concerns == "token":
            return f"{kind.title}. {kind.setup_fix or message}", kind.concerns == "token"
        return f"{message} Is the address right?", False
    finally:
        await client.aclose()
    return None
