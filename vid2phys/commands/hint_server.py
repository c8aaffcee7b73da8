"""A small HTTP server for one page on the loopback address, with a random token in its URL.

Requests without the token get 403, unknown paths 404, malformed ones 400, large bodies 413. Other machines cannot
connect. Pages of other sites cannot know the token, and get no answer that a browser lets them use.

Limits: no encryption, since nothing leaves the machine.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Protocol

from vid2phys.errors import InputError, UsageError

LOOPBACK = "127.0.0.1"
_MOST_BYTES = 10_000  # of a request's body
_TIMEOUT_S = 30.0  # of a connection that sends nothing
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; img-src 'self' data:; connect-src 'self'; "
    "style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True)
class Reply:
    """The body of an answer and its type."""

    body: bytes
    kind: str


class RequestError(Exception):
    """A request that is answered with an HTTP status and a text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


class Page(Protocol):
    """What is served. Paths come without the token; both methods raise RequestError."""

    def get(self, path: str) -> Reply:
        """Return what a path shows."""

    def post(self, path: str, body: bytes) -> Reply:
        """Return the answer to what a browser sends."""


class HintServer:
    """Serve a page on the loopback address until `run` is interrupted.

    Attributes:
        url: of the page, with its token.
    """

    def __init__(self, page: Page, port: int = 0) -> None:
        """Listen on a port, 0 for any free one. Raises UsageError or InputError for a port that cannot be had."""
        if not 0 <= port <= 65535:
            raise UsageError(f"--port {port}", "a number from 1 to 65535", "leave it out for any free port")
        token = secrets.token_urlsafe(24)
        handler = type("Handler", (_Handler,), {"page": page, "token": token})
        try:
            self._server = _Server((LOOPBACK, port), handler)
        except OSError as error:
            got = f"--port {port}: {error.strerror}"
            raise InputError(got, "a port that is free", "leave --port out for any free one") from None
        self.url = f"http://{LOOPBACK}:{self._server.server_port}/{token}/"

    def run(self, *, open_page: bool = False) -> None:
        """Answer requests until the user interrupts or `close` is called. open_page: open the page in a browser."""
        if open_page:
            import webbrowser

            webbrowser.open(self.url)
        with suppress(KeyboardInterrupt):  # which is how this command ends
            self._server.serve_forever(poll_interval=0.2)

    def close(self) -> None:
        """Stop answering, and give the port back."""
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> HintServer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True  # a search that runs does not keep the command from ending
    allow_reuse_address = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of connections that a browser drops."""


class _Handler(BaseHTTPRequestHandler):
    page: Page
    token: str
    timeout = _TIMEOUT_S
    server_version, sys_version = "vid2phys", ""

    def do_GET(self) -> None:
        self._answer(lambda path: self.page.get(path))

    def do_POST(self) -> None:
        self._answer(lambda path: self.page.post(path, self._body()))

    def _answer(self, ask: Any) -> None:
        try:
            reply, status = ask(self._path()), 200
        except RequestError as rejected:
            reply, status = Reply(rejected.text.encode(), "text/plain; charset=utf-8"), rejected.status
        except Exception as error:
            reply, status = Reply(f"bug: {type(error).__name__}: {error}".encode(), "text/plain; charset=utf-8"), 500
        self.send_response(status)
        if status != 200:
            self.close_connection = True  # the rest of a body is not waited for
        for name, value in {**_HEADERS, "Content-Type": reply.kind, "Content-Length": str(len(reply.body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(reply.body)

    def _path(self) -> str:
        """Return the path after the token. Raises RequestError for another token."""
        given, _, path = self.path.partition("?")[0].removeprefix("/").partition("/")
        if not secrets.compare_digest(given.encode(), self.token.encode()):
            raise RequestError(403, "the page has a token in its URL: open the URL that the command printed")
        return path

    def _body(self) -> bytes:
        """Return the body of a request. Raises RequestError for one of unknown or large size."""
        size = self.headers.get("Content-Length", "")
        if not (size.isascii() and size.isdecimal() and len(size) < 20):
            raise RequestError(400, "a request without its size")
        if int(size) > _MOST_BYTES:
            raise RequestError(413, f"a request of more than {_MOST_BYTES} bytes")
        return self.rfile.read(int(size))

    def log_message(self, format: str, *args: Any) -> None:
        """Keep the terminal for the URL."""
