"""The one error tree. Each class carries its HTTP status and the public OpenAI-shaped type and code.

ServiceError
├── RequestError            400  the client's fault
│   ├── AudioError          400  the upload cannot be decoded or recognised
│   ├── UnknownModelError   404
│   └── UploadTooLargeError 413
└── UnavailableError        503  try again later; sent with Retry-After
    └── DeadlineError       504  the answer did not come in time
"""

from __future__ import annotations


class ServiceError(Exception):
    """Base of everything the service tells a client. `param` names the request field at fault, if one is."""

    status = 500
    type = "server_error"
    code = "internal_error"

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


class UnknownModelError(RequestError):
    """The request names a model that is not served."""

    status = 404
    code = "model_not_found"


class UploadTooLargeError(RequestError):
    """The upload exceeds `MAX_UPLOAD_MB`."""

    status = 413
    code = "upload_too_large"


class UnavailableError(ServiceError):
    """The recogniser cannot answer now; the request may be sent again."""

    status = 503
    code = "service_unavailable"
    retry_after_s = 5


class DeadlineError(UnavailableError):
    """The recogniser did not answer within `REQUEST_TIMEOUT_S`."""

    status = 504
    code = "deadline_exceeded"
