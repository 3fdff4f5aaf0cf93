"""`runwarden gitlab`: onboarding projects (named by spec 4.6)."""

from typing import TYPE_CHECKING

import click

from app.cli.context import Invocation
from app.cli.documents import unsent_document
from app.cli.options import FactCommand, Noun
from app.cli.writes import carry_out, tell

if TYPE_CHECKING:
    from app.api.requests import OnboardProject


@click.group(cls=Noun)
def gitlab() -> None:
    """Onboard GitLab projects."""


@gitlab.command("onboard", cls=FactCommand)
@click.argument("project")
@click.option("--key", metavar="KEY", help="The same request under the same key is sent once.")
@click.pass_obj
def onboard(invocation: Invocation, /, *, project: str, key: str | None) -> int:
    """Onboard PROJECT: group/project, or its numeric id. Exit code 1 if GitLab would not have it."""
    from app.api.requests import OnboardProject

    invocation.beside_error = unsent_document("gitlab.onboard")
    name = project.removeprefix("gitlab:")
    is_id = name.isascii() and name.isdecimal()
    request = OnboardProject(project_id=int(name)) if is_id else OnboardProject(project_path=name)
    return invocation.run(lambda: _onboard(invocation, request, key))


async def _onboard(invocation: Invocation, request: "OnboardProject", key: str | None) -> int:
    async with invocation.engine(needs_token=True) as engine:
        action = await carry_out(engine, request, key=key)
    return tell(invocation.output, action)
