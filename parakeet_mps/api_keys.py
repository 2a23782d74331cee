"""API keys: who may use the service, when `API_KEYS` or `API_KEYS_FILE` says that not everybody may.

Standard library only: the supervisor checks them too, before it starts anything.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
from collections.abc import Iterable
from pathlib import Path

from parakeet_mps.settings import SettingError, Settings

_log = logging.getLogger(__name__)

_KEY = re.compile(r"[\x21-\x2b\x2d-\x7e]{1,512}")  # visible ASCII without the comma
_Stamp = tuple[int, int, int]


class ApiKeys:
    """The accepted keys: those of `listed` (comma separated) and those of `file` (one a line, `#` starts a comment).

    The file is read again when it changes; while it is missing or unfit the last good keys stay. Only hashes are kept.
    """

    def __init__(self, listed: str, file: Path | None = None) -> None:
        """Raises `SettingError` when keys are asked for and there are none, or one is malformed; names no key."""
        self._listed = _digests(listed.split(","), "API_KEYS") if listed else frozenset()
        self._file = file
        self._stamp: _Stamp | None = None
        self._digests = self._listed
        if file:
            self._digests, self._stamp = self._read(file)

    @property
    def required(self) -> bool:
        """Whether a request needs a key."""
        return bool(self._digests)

    def accept(self, key: str) -> bool:
        """Say whether `key` is one of the keys, in a time that does not depend on how much of it is right."""
        self._reload()
        offered = hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
        found = False
        for digest in self._digests:
            found |= hmac.compare_digest(digest, offered)
        return found

    def _reload(self) -> None:
        if self._file is None:
            return
        try:
            stamp = _stamp(self._file)
            if stamp == self._stamp:
                return
            self._digests, self._stamp = self._read(self._file)
            _log.info("API_KEYS_FILE has changed: %d keys", len(self._digests))
        except OSError:
            self._complain("API_KEYS_FILE cannot be read", None)
        except SettingError as error:
            self._complain(str(error), stamp)

    def _complain(self, what: str, stamp: _Stamp | None) -> None:
        if self._stamp != stamp:
            _log.error("%s: the last good keys stay", what)
            self._stamp = stamp

    def _read(self, file: Path) -> tuple[frozenset[bytes], _Stamp]:
        try:
            stamp = _stamp(file)
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingError(f"API_KEYS_FILE={str(file)!r} cannot be read: {type(error).__name__}") from None
        keys = [line for line in lines if not line.lstrip().startswith("#")]
        return self._listed | _digests(keys, "API_KEYS_FILE"), stamp


def read_keys(settings: Settings) -> ApiKeys:
    """Return the keys that the settings name. Raises `SettingError`."""
    return ApiKeys(settings.api_keys, Path(settings.api_keys_file).expanduser() if settings.api_keys_file else None)


def _digests(keys: Iterable[str], variable: str) -> frozenset[bytes]:
    stripped = [key.strip() for key in keys if key.strip()]
    if not stripped or not all(_KEY.fullmatch(key) for key in stripped):
        raise SettingError(f"{variable} is not allowed: use at least one key, of visible ASCII without commas")
    return frozenset(hashlib.sha256(key.encode()).digest() for key in stripped)


def _stamp(file: Path) -> _Stamp:
    status = file.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino
