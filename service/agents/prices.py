"""Prices of models: an operator's own, otherwise the provider's list price as of a day."""

import re
from collections.abc import Mapping
from datetime import date
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

_SUFFIX: Final = re.compile(r"[@-](\d{8}|\d{4}-\d{2}-\d{2}|latest)$", re.ASCII)
_NAMES: Final = ("input", "output", "cached", "cache_write")
_Figures = tuple[float, float, float | None, float | None]


class Price(BaseModel):
    """The price of a million tokens, in US dollars."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    input: Annotated[float, Field(ge=0)]
    output: Annotated[float, Field(ge=0)]
    cached: Annotated[float, Field(ge=0)] | None = None
    """Input that the provider read from its cache; None: the price of other input."""
    cache_write: Annotated[float, Field(ge=0)] | None = None
    """Input that the provider wrote to its cache; None: the price of other input."""


class ListPrice(Price):
    """A provider's public price."""

    looked_up: date
    beyond: tuple[int, Price] | None = None
    """A number of tokens, with the price of a longer prompt."""


def _price_list(
    day: date, names: str, figures: _Figures, beyond: tuple[int, _Figures] | None = None
) -> dict[str, Price]:
    other = None
    if beyond is not None:
        other = (beyond[0], Price.model_validate(dict(zip(_NAMES, beyond[1], strict=True))))
    price = ListPrice.model_validate(dict(zip(_NAMES, figures, strict=True)) | {"looked_up": day, "beyond": other})
    return dict.fromkeys(names.split(), price)


_NOV_24, _NOV_28 = date(2026, 11, 24), date(2026, 11, 28)
_LIST_PRICES: Final = {
    # Anthropic's published price list.
    **_price_list(_NOV_24, "claude-opus-4 claude-opus-4-0 claude-opus-4-1", (15, 75, 1.5, 18.75)),
    **_price_list(
        _NOV_24, "claude-opus-4-5 claude-opus-4-6 claude-opus-4-7 claude-opus-4-8 claude-opus-5", (5, 25, 0.5, 6.25)
    ),
    **_price_list(_NOV_24, "claude-sonnet-4 claude-sonnet-4-0 claude-sonnet-4-5 claude-sonnet-4-6", (3, 15, 0.3, 3.75)),
    **_price_list(_NOV_24, "claude-haiku-4-5", (1, 5, 0.1, 1.25)),
    **_price_list(_NOV_24, "claude-fable-5", (10, 50, 1, 12.5)),
    **_price_list(_NOV_24, "claude-fable-5-1", (10, 50, 0.25, 12.5)),
    # Anthropic's list of models within Claude Code 2.1.330.
    **_price_list(_NOV_28, "claude-opus-5-5", (4, 20, 0.2, 5)),
    **_price_list(_NOV_28, "claude-sonnet-5", (2, 10, 0.2, 2.5)),
    **_price_list(_NOV_28, "claude-sonnet-5-5", (2, 10, 0.1, 2.5)),
    **_price_list(_NOV_28, "claude-haiku-5-5", (0.1, 0.5, 0.01, 0.125), (100_000, (0.5, 2.5, 0.05, 0.625))),
    **_price_list(_NOV_28, "claude-fable-5-2", (8, 40, 0.2, 10)),
    # OpenAI's and Google's published price lists; those of long prompts, and Google's of cached ones, by models.dev.
    **_price_list(_NOV_24, "gpt-5.5", (5, 30, 0.5, None), (272_000, (10, 45, 1, None))),
    **_price_list(_NOV_24, "gpt-5.4", (2.5, 15, 0.25, None), (272_000, (5, 22.5, 0.5, None))),
    **_price_list(_NOV_24, "gpt-5.3-codex", (1.75, 14, 0.175, None)),
    **_price_list(_NOV_24, "gemini-2.5-pro", (1.25, 10, 0.125, None), (200_000, (2.5, 15, 0.25, None))),
    **_price_list(_NOV_24, "gemini-2.5-flash", (0.3, 2.5, 0.03, None)),
}


def without_date(model: str) -> str:
    """Return a model's name without a final date or `-latest`."""
    return _SUFFIX.sub("", model)


def price_of(model: str, prices: Mapping[str, Price]) -> Price | None:
    """Return the price of a model; None: it is not known.

    The longest name among an operator's `own` prices that the model's name starts with decides. A list price needs the
    whole name, except for a final date or `-latest`: `gpt-5.4-mini` is another model than `gpt-5.4`.
    """
    fitting = max((name for name in prices if model.startswith(name)), key=len, default=None)
    if fitting is None:
        return _LIST_PRICES.get(without_date(model))
    return prices[fitting]
