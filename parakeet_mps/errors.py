"""The one error tree. Each class carries its HTTP status and the public OpenAI-shaped type and code.

ServiceError
├── RequestError            400  the client's fault
│   ├── AudioError          400  the upload cannot be decoded or recognised
│   ├── UnauthorizedError   401  the API key is missing or wrong
│   ├── UnknownModelError   404
│   ├── SlowUploadError     408
│   ├── UploadTooLargeError 413
│   └── OverloadedError     429  too much is in flight; sent with Retry-After
└── UnavailableError        503  try again later; sent with Retry-After
    ├── UnreachableError    503  the recogniser is not there to be asked
    ├── LostError           503  the recogniser went away with the request
    └── DeadlineError       504  the answer did not come in time
"""

from __future__ import annotations


class ServiceError(Exception):
    """Base of everything the service tells a client. `param` names the request field at fault, if one is."""

    status = 500
    type = "server_error"
    code = "internal_error"
    retry_after_s: int | None = None
    """Seconds after which the request may succeed, told in the header `Retry-After`."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param

    def body(self) -> dict[str, dict[str, str | None]]:
        """Return the OpenAI error document: `{"error": {"message", "type", "param", "code"}}`."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}


class RequestError(ServiceError):
    """A parameter is missing, malformed or out of range."""

    status = 400
    type = "invalid_request_error"
    code = "invalid_parameter"


class AudioError(RequestError):
    """The upload is empty, is no audio, is damaged, or has a length the recogniser refuses."""

    code = "invalid_audio"

    def __init__(self, message: str, *, param: str | None = "file") -> None:
        super().__init__(message, param=param)


class UnauthorizedError(RequestError):
    """The request has no API key, or a wrong one."""

    status = 401
    code = "invalid_api_key"


class UnknownModelError(RequestError):
    """The request names a model that is not served."""

    status = 404
    code = "model_not_found"


class SlowUploadError(RequestError):
    """The upload comes in more slowly than `MIN_UPLOAD_KIB_S` for longer than `UPLOAD_GRACE_S`."""

    status = 408
    code = "upload_too_slow"


class UploadTooLargeError(RequestError):
    """The upload exceeds `MAX_UPLOAD_MB`."""

    status = 413
    code = "upload_too_large"


class OverloadedError(RequestError):
    """`MAX_IN_FLIGHT` transcriptions are in flight; the request may be sent again."""

    status = 429
    type = "rate_limit_error"
    code = "rate_limit_exceeded"
    retry_after_s = 1


class UnavailableError(ServiceError):
    """The recogniser cannot answer now; the request may be sent again."""

    status = 503
    code = "service_unavailable"
    retry_after_s = 5


class UnreachableError(UnavailableError):
    """The recogniser is not there to be asked: the request has not been sent."""


class LostError(UnavailableError):
    """The recogniser went away while it had the request: whether it was recognised is unknown."""


class DeadlineError(UnavailableError):
    """The recogniser did not answer within `REQUEST_TIMEOUT_S`."""

    status = 504
    code = "deadline_exceeded"
