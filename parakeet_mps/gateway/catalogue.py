"""The models that the API offers, and the languages they understand: the one place that names them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from parakeet_mps.errors import RequestError, UnknownModelError

MODEL_ID = "parakeet-tdt"

ALIASES = ("whisper-1", "gpt-transcribe", "gpt-4o-transcribe", "gpt-4o-mini-transcribe")
"""Other names for `MODEL_ID`, so that examples written for OpenAI's service run unchanged."""

LANGUAGE = "english"
"""Name of the recogniser's language, as `verbose_json` gives it."""

_LANGUAGE_NAMES = ("en", LANGUAGE)
_CREATED = 1_746_057_600  # 1 May 2025, when Parakeet-TDT-0.6B-v2 was published


def model_card(model: str = MODEL_ID) -> dict[str, Any]:
    """Return the OpenAI model object of a served model. Raises `UnknownModelError` for any other name."""
    if model not in (MODEL_ID, *ALIASES):
        raise UnknownModelError(f"The model {model[:64]!r} does not exist; use {MODEL_ID!r}.", param="model")
    return {"id": MODEL_ID, "object": "model", "created": _CREATED, "owned_by": "parakeet-mps"}


def check_languages(possible: Iterable[str], param: str) -> None:
    """Refuse a recording whose `possible` languages, if any are named, do not hold the recogniser's."""
    named = [language for language in possible if language.strip()]
    if named and not any(language.strip().lower() in _LANGUAGE_NAMES for language in named):
        allowed = " or ".join(repr(name) for name in _LANGUAGE_NAMES)
        raise RequestError(f"The language {named[0][:32]!r} is not supported; use {allowed}.", param=param)
