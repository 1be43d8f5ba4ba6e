"""Signing in and out: by the address that carries a key, as notebooks do, or by a form."""

import hmac
import re
import secrets
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from flask import Request, Response, make_response, redirect, request
from werkzeug.datastructures import MultiDict

from dither_server.auth import Forbidden, Role, StoredKey, Unauthenticated
from dither_server.dashboard.rendering import Page, Renderer
from dither_server.dashboard.session_secret import SessionSecret
from dither_server.dashboard.sessions import SESSION_S, Session, new_cookie, read_cookie
from dither_server.service import Service

HOME: Final = "/"
LOGIN: Final = "/login"

_PLACE: Final = re.compile(
    r"/(?:metrics/[a-z0-9_]{1,64}|privacy|health)?(?:\?[\w%&=.*~+,-]{0,500})?", re.ASCII
)
_FORM_S: Final = 3_600


class SignedOut(Exception):
    """There is no session: the person has to sign in."""


@dataclass(frozen=True)
class Login:
    """What the routes need to know who is there.

    Args:
        service: has the keyring and the clock.
        renderer: of the form.
        secret: what sessions are signed with.
    """

    service: Service
    renderer: Renderer
    secret: SessionSecret

    def session(self) -> Session:
        """The session of the request.

        Raises:
            SignedOut: it has none that is in force.
            StoreUnavailable, StoreRefused: nobody can tell, see `SessionSecret`.
        """
        cookie = request.cookies.get(_cookie_name("session"))
        if not cookie:
            raise SignedOut
        keys = self.service.keyring.having(Role.VIEWER)
        found = read_cookie(cookie, keys, self.secret(), self._now_s())
        if found is None:
            raise SignedOut
        return found

    def enter(self) -> Response:
        """``GET /login``: the form; with ``?token=`` straight in, at an address without it."""
        token = request.args.get("token")
        if token is None:
            return self.form()
        return self._admit(token)

    def submit(self) -> Response:
        """``POST /login``: the form comes back. It must carry what its cookie says, which no other site can read."""
        sent, known = request.form.get("csrf", ""), request.cookies.get(_cookie_name("form"), "")
        if not known or not hmac.compare_digest(sent.encode(), known.encode()):
            return self.form("This form is too old, or cookies are blocked. Please try again.", 403)
        return self._admit(request.form.get("token", ""))

    def leave(self) -> Response:
        """``POST /logout``: forget the session. Raises SignedOut where there is none."""
        if not hmac.compare_digest(request.form.get("csrf", "").encode(), self.session().csrf.encode()):
            return self.form("This form is too old. You are still signed in.", 403)
        answer = redirect(LOGIN, 303)
        answer.delete_cookie(
            _cookie_name("session"), httponly=True, samesite="Strict", secure=request.is_secure
        )
        return answer  # type: ignore[return-value]  # werkzeug's redirect gives Flask's class here

    def form(self, problem: str = "", status: int = 200) -> Response:
        """The page that asks for a key."""
        csrf = secrets.token_urlsafe(24)
        main = self.renderer.fragment(
            "login.html",
            csrf=csrf,
            problem=problem,
            place=_place(request.values),
            came=bool(request.args.get("next")),
        )
        html = self.renderer.document(Page("Sign in", main), live="", session=None, path=LOGIN)
        answer = make_response(html, status)
        _set_cookie(answer, "form", csrf, _FORM_S)
        return answer

    def _admit(self, token: str) -> Response:
        try:
            key: StoredKey = self.service.keyring.authorize(f"Bearer {token.strip()}", Role.VIEWER)
        except Unauthenticated:
            return self.form("This key is not known. Copy the whole operator token.", 401)
        except Forbidden:
            return self.form("This key is for sending reports. The dashboard takes an operator token.", 403)
        answer: Response = redirect(_place(request.values), 303)  # type: ignore[assignment]
        _set_cookie(answer, "session", new_cookie(key, self.secret.wait(), self._now_s()), SESSION_S)
        return answer

    def _now_s(self) -> float:
        return self.service.clock().timestamp()


def login_link(wanted: Request) -> str:
    """The address of the form that leads back to what was wanted."""
    place = wanted.full_path.rstrip("?")
    return f"{LOGIN}?next={quote(place, safe='')}" if place != HOME and _PLACE.fullmatch(place) else LOGIN


def _place(values: MultiDict[str, str]) -> str:
    """Where to go after signing in: a page of ours, never another site."""
    wanted = values.get("next", HOME)
    return wanted if _PLACE.fullmatch(wanted) else HOME


def _cookie_name(purpose: str) -> str:
    """Cookies are shared by all ports of a host: two services on one machine must not sign each other out."""
    port = request.host.rpartition(":")[2]
    return f"dither_{purpose}_{port}" if port.isdecimal() else f"dither_{purpose}"


def _set_cookie(answer: Response, purpose: str, value: str, max_age_s: int) -> None:
    answer.set_cookie(
        _cookie_name(purpose),
        value,
        max_age=max_age_s,
        httponly=True,
        samesite="Strict",
        secure=request.is_secure,
    )
