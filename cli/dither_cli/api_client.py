"""Asks a Dither server over HTTP, as an operator. Every failure becomes one sentence and an exit code."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import requests

from dither_cli.exit_codes import ExitCode
from dither_client.transport import check_endpoint
from dither_protocol.errors import DitherError

JSON: Final = "application/json"
CSV: Final = "text/csv"
_TIMEOUTS_S: Final = (5.0, 60.0)  # to connect; without a byte of the answer
_CODES: Final = {
    400: ExitCode.USAGE,
    401: ExitCode.USAGE,
    403: ExitCode.USAGE,
    404: ExitCode.FAILED,
    409: ExitCode.FAILED,
    422: ExitCode.USAGE,
}


class ApiError(DitherError):
    """The server cannot be asked, or does not give an answer.

    Attributes:
        exit_code: what the shell gets.
    """

    def __init__(self, message: str, exit_code: ExitCode) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True)
class Page:
    """One answer.

    Attributes:
        text: as it came.
        next: the cursor of the next page; None on the last one.
    """

    text: str
    next: str | None

    def document(self) -> Any:
        """The JSON in it.

        Raises:
            ApiError: it is none.
        """
        try:
            return json.loads(self.text)
        except ValueError:
            raise ApiError(
                "the server's answer is not JSON: is this a Dither server?", ExitCode.SERVICE
            ) from None


class Api:
    """The operator side of one server.

    Args:
        url: where it is; plain http to loopback addresses only, since the key goes with each request.
        key: of a viewer or an admin.

    Raises:
        ApiError: the URL is none, or the key would travel in the clear.
    """

    def __init__(self, url: str, key: str) -> None:
        try:
            self.url = check_endpoint(url)
        except ValueError as error:
            raise ApiError(f"{error}; see --url", ExitCode.USAGE) from None
        self._key = key

    def __repr__(self) -> str:
        return f"Api({self.url!r}, ***)"

    def get(self, path: str, parameters: Mapping[str, str] | None = None, accept: str = JSON) -> Page:
        """The answer to one GET.

        Raises:
            ApiError: there is none, or it is an error.
        """
        with requests.Session() as session:
            # A proxy of the user's environment has no business between a machine and itself.
            session.trust_env = urlsplit(self.url).scheme == "https"
            try:
                answer = session.get(
                    self.url + path,
                    params=parameters or {},
                    headers={"Accept": accept, "User-Agent": "dither"},
                    auth=self._authorize,
                    timeout=_TIMEOUTS_S,
                    allow_redirects=False,
                )
            except requests.RequestException as error:
                raise ApiError(f"{self.url} {_trouble(error)}", ExitCode.SERVICE) from None
            answer.encoding = "utf-8"
        if answer.status_code != requests.codes.ok:
            raise _refused(self.url, answer)
        if not answer.headers.get("Content-Type", "").startswith(accept):
            raise ApiError(f"{self.url} is no Dither server, or none that gives {accept}", ExitCode.SERVICE)
        return Page(answer.text, _next(answer))

    def _authorize(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        # As a callable: a plain header would be replaced by whatever ~/.netrc says about the host.
        request.headers["Authorization"] = f"Bearer {self._key}"
        return request


def _next(answer: requests.Response) -> str | None:
    """The cursor in the header Link (RFC 8288)."""
    link = answer.links.get("next", {}).get("url", "")
    return next(iter(parse_qs(urlsplit(link).query).get("cursor", [])), None)


def _trouble(error: requests.RequestException) -> str:
    match error:
        case requests.exceptions.SSLError():
            return "cannot prove who it is: its certificate is not valid here"
        case requests.Timeout():
            return "does not answer in time"
        case requests.ConnectionError():
            return "does not answer"
    return f"cannot be asked ({type(error).__name__})"


def _refused(url: str, answer: requests.Response) -> ApiError:
    """What an RFC 9457 problem says; the status alone where it is something else."""
    status = answer.status_code
    if status == requests.codes.unauthorized:
        return ApiError(f"{url} does not know this key", ExitCode.USAGE)
    if status == requests.codes.forbidden:
        return ApiError(
            f"{url} does not let this key read: it wants one of a viewer or an admin", ExitCode.USAGE
        )
    try:
        problem = answer.json()
        said = str(problem.get("detail") or problem["title"])
        said = f"{problem['field']} {said}" if "field" in problem else said
    except (ValueError, KeyError, TypeError, AttributeError):
        return ApiError(f"{url} answers {status}: is it a Dither server?", ExitCode.SERVICE)
    code = _CODES.get(status, ExitCode.SERVICE)
    return ApiError(said if code is not ExitCode.SERVICE else f"{url} answers {status}: {said}", code)
