"""Every failure leaves in the OpenAI error shape: one handler for known errors, and small ones for the framework's."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from parakeet_mps.errors import RequestError, ServiceError, UnavailableError
from parakeet_mps.gateway import account

_log = logging.getLogger(__name__)


def install(app: FastAPI) -> None:
    """Let `app` answer with OpenAI-shaped errors."""
    app.add_exception_handler(ServiceError, _on_service_error)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(HTTPException, _on_http_exception)


def response(error: ServiceError, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Return the response for a known error, which is noted."""
    answer = JSONResponse(noted(error).body(), error.status, headers)
    if error.retry_after_s is not None:
        answer.headers["retry-after"] = str(error.retry_after_s)
    return answer


def noted(error: ServiceError) -> ServiceError:
    """Make the error's code the reason in the request's account."""
    account.current().reason = error.code
    return error


def through_framework(error: ServiceError, headers: Mapping[str, str] | None = None) -> HTTPException:
    """Wrap an error for raising inside `receive`: FastAPI's form parser lets only an `HTTPException` pass as it is.

    `install`'s handler answers with the error itself.
    """
    wrapped = HTTPException(error.status, headers=dict(headers or {}))
    wrapped.__cause__ = error
    return wrapped


def unexpected(request_id: str) -> ServiceError:
    """Log the error being handled and return one that tells the client nothing but the id of the log line."""
    _log.exception("request %s failed", request_id)
    return ServiceError(f"The server failed. Request id: {request_id}")


async def _on_service_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ServiceError)
    return response(error)


async def _on_validation_error(_: Request, error: Exception) -> JSONResponse:
    """Name the first field at fault; never repeat what was sent."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    # ("body", "temperature"), or ("body", "timestamp_granularities[]", 0) for an element of a list
    names = [part for part in first["loc"][1:] if isinstance(part, str)]
    param = names[0] if names else None
    return response(RequestError(f"{param}: {first['msg']}" if param else str(first["msg"]), param=param))


async def _on_http_exception(_: Request, error: Exception) -> JSONResponse:
    """Answer for what the framework refuses by itself: no such route or method, a body that is no form."""
    assert isinstance(error, HTTPException)
    if isinstance(error.__cause__, ServiceError):
        return response(error.__cause__, error.headers)
    if isinstance(error.__cause__, OSError):  # while the upload was stored: a full disk is not the client's fault
        _log.error("an upload could not be stored: %s", error.__cause__.strerror)
        return response(UnavailableError("The upload could not be stored; try again later."))
    if error.status_code == HTTPStatus.BAD_REQUEST:  # what the form's parser found
        return response(RequestError(str(error.detail)), error.headers)
    body = (RequestError if error.status_code < 500 else ServiceError)(str(error.detail)).body()
    body["error"]["code"] = account.current().reason = HTTPStatus(error.status_code).name.lower()
    return JSONResponse(body, error.status_code, error.headers)
