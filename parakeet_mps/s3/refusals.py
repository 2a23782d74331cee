"""Why an object cannot be had, in one line that says what to do; and whether the reason may pass by itself."""

from __future__ import annotations

import errno
from pathlib import Path

from botocore import exceptions
from botocore.exceptions import ClientError

_OUT_OF_REACH = (
    exceptions.HTTPClientError,
    exceptions.ConnectionError,
    exceptions.NoCredentialsError,
    exceptions.CredentialRetrievalError,
    exceptions.MetadataRetrievalError,
)
_NO_CREDENTIALS = (exceptions.NoCredentialsError, exceptions.PartialCredentialsError)
_ADVICE = {
    # S3 answers HEAD without a body: the status is all there is.
    400: "was refused as a bad request: check that the credentials are valid and AWS_REGION is the bucket's",
    403: "may not be read: the credentials need s3:GetObject on it, and s3:ListBucket to tell a missing one",
    404: "is not there: check the bucket and the key",
}


class ObjectUnavailableError(ValueError):
    """The object cannot be had; the message says why and what to do."""


def may_pass(error: Exception) -> bool:
    """Whether the error says nothing about the object: S3, or who gives the credentials, is out of reach or busy."""
    if isinstance(error, ClientError):
        return _status(error) >= 500 or _status(error) == 429
    return isinstance(error, _OUT_OF_REACH)


def explain(error: Exception) -> str:
    """Return the rest of a sentence about the object."""
    if isinstance(error, _NO_CREDENTIALS):
        return "needs credentials: give the machine a role, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    if isinstance(error, ClientError) and _status(error) in _ADVICE:
        return _ADVICE[_status(error)]
    reason = f"cannot be downloaded ({one_line(error)})"
    if may_pass(error):
        return f"{reason}: check the network and AWS_ENDPOINT_URL, or set MODEL to a .nemo file"
    return f"{reason}: check the AWS settings"


def explain_disk(error: OSError, folder: Path) -> str:
    """Return the rest of a sentence about the object, for which the cache in `folder` failed."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"does not fit into {folder} ({error.strerror}): make room, or set MODEL_CACHE to a larger volume"
    return f"cannot be kept in {folder} ({error.strerror or error}): set MODEL_CACHE to a folder that can be written"


def one_line(error: Exception) -> str:
    """Return what the error says, on one line."""
    return " ".join(str(error).split()) or type(error).__name__


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
