"""httptools' parser of requests, for which HTTP goes on behind an offer to change the protocol.

httptools takes what follows such a request's headers for the other protocol, even where nobody accepts it: what Java's
clients upload, which offer HTTP/2, was lost, or read as further requests. A server that ignores the offer is to answer
as if there were none (RFC 9110, section 7.8).
https://github.com/MagicStack/httptools/issues/124 and https://github.com/Kludex/uvicorn/issues/2722
"""

from __future__ import annotations

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class RequestParser(httptools.HttpRequestParser):
    """Parses the headers of a request that offers another protocol once more, without the offer.

    While `should_upgrade()`, `protocol` is to ignore the end of headers and of message: both come again.
    """

    def __init__(self, protocol: HttpToolsProtocol) -> None:
        self._protocol = protocol
        self._begin()

    def feed_data(self, data: bytes | memoryview) -> None:  # type: ignore[override]
        """See `httptools.HttpRequestParser`; refuses CONNECT, and never raises `HttpParserUpgrade`."""
        rest = memoryview(data)
        while rest:
            rest = self._feed_to_offer(rest)

    def _feed_to_offer(self, data: memoryview) -> memoryview:
        """Parse up to the end of headers that offer another protocol, and return what follows."""
        try:
            super().feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            if self.get_method() == b"CONNECT":
                raise httptools.HttpParserError("This is no proxy.") from None
            head = self._head_without_offer()
            self._begin()
            super().feed_data(head)
            return data[offer.args[0] :]
        return data[:0]

    def _begin(self) -> None:
        """Forget what came: after an offer and `Connection: close` httptools skips whatever follows."""
        super().__init__(self._protocol)
        self.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's own

    def _head_without_offer(self) -> bytes:
        line = b"%s %s HTTP/%s" % (self.get_method(), self._protocol.url, self.get_http_version().encode())
        kept = [b"%s: %s" % header for header in self._protocol.headers if header[0] != b"upgrade"]
        return b"\r\n".join([line, *kept, b"", b""])
