"""Signing in by a provider of identities: OpenID Connect 1.0, the authorization code flow with PKCE.

What the provider says is a pair of its own name and a subject. Which user that is, `store.py` keeps. An e-mail address or a name
says nothing about that: whoever links an identity with an account signs in to both.
"""

from __future__ import annotations

import os
import threading
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
from authlib.common.errors import AuthlibBaseError  # type: ignore[import-untyped]
from authlib.integrations.httpx_client import OAuth2Client  # type: ignore[import-untyped]
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

# A signature has a key that only the provider has: `none` and those of a shared secret are refused.
ALGORITHMS = [f"{kind}{bits}" for kind in ("RS", "PS", "ES") for bits in (256, 384, 512)] + ["EdDSA"]
KEPT_S = 3600.0
TIMEOUT_S = 10.0
LEEWAY_S = 60
# Who signs in waits for the provider in a thread, and pages need threads, too.
AT_ONCE = 8
SCOPE = "openid profile email"
# Where browsers come back to; the provider has to know the whole address.
CALLBACK = "/oidc/callback"
_NAMES = ("issuer", "client_id", "client_secret", "client_secret_file", "name", "scope")
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class WrongSettings(Exception):
    """What was configured cannot be used; its text is one sentence for the administrator."""


class Away(Exception):
    """The provider does not answer, or not as a provider does; its text is for the log."""


class Refused(Exception):
    """What came back from the provider does not prove who somebody is; its text is for the log."""


@dataclass(frozen=True)
class Settings:
    """A provider, and as what this portal is known there. `name` is how people call it."""

    issuer: str
    client_id: str
    client_secret: str | None = None
    name: str = ""
    scope: str = SCOPE

    @property
    def label(self) -> str:
        return self.name or str(urlsplit(self.issuer).hostname)


@dataclass(frozen=True)
class Identity:
    """Who somebody is for the provider. `label` is for people, and proves nothing."""

    issuer: str
    subject: str
    label: str


def _is_safe(url: str) -> bool:
    """Whether nobody between here and there can read or change what is said."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)


def read_settings(path: Path | None, environment: Mapping[str, str] = os.environ) -> Settings | None:
    """The provider of a file in TOML, or of variables `PORTAL_OIDC_…`, which come before the file; None: there is none.

    Raises
    ------
    WrongSettings : a value is missing or wrong.
    """
    given: dict[str, str] = {}
    if path is not None:
        try:
            read = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise WrongSettings(f"{path} cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise WrongSettings(f"{path} is not written in TOML: {error}") from None
        for name, value in read.items():
            if name not in _NAMES or not isinstance(value, str):
                raise WrongSettings(f"{path} has {name!r}: there are the texts {', '.join(_NAMES)}")
            given[name] = value
    given |= {
        name: environment[variable]
        for name in _NAMES
        if environment.get(variable := f"PORTAL_OIDC_{name.upper()}")
    }
    if not given:
        return None
    file = given.pop("client_secret_file", None)
    if file is not None and "client_secret" not in given:
        beside = Path(file) if path is None else path.parent / file
        try:
            given["client_secret"] = beside.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise WrongSettings(f"{beside}, the client's secret, cannot be read: {error.strerror}") from None
    for name in ("issuer", "client_id"):
        if not given.get(name):
            raise WrongSettings(
                f"{name} is missing: write it into the file of --oidc, or into PORTAL_OIDC_{name.upper()}"
            )
    if not _is_safe(given["issuer"]):
        raise WrongSettings(f"the issuer is {given['issuer']!r}, and needs an address with https://")
    if "openid" not in given.get("scope", SCOPE).split():
        raise WrongSettings("the scope needs the word openid")
    return Settings(**given)


@dataclass
class Provider:
    """A provider, with what is known of it for a while."""

    settings: Settings
    redirect_uri: str
    waiting: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(AT_ONCE))
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _metadata: dict[str, Any] = field(default_factory=dict)
    _keys: KeySet | None = None
    _read_at: float = -KEPT_S

    def _get(self, url: str) -> dict[str, Any]:
        try:
            answer = httpx2.get(url, timeout=TIMEOUT_S)
            answer.raise_for_status()
            found = answer.json()
        except (httpx2.HTTPError, ValueError) as error:
            raise Away(f"{url}: {error}") from None
        if not isinstance(found, dict):
            raise Away(f"{url} gives no JSON object")
        return found

    def _known(self) -> dict[str, Any]:
        """What the provider says of itself."""
        with self._lock:
            if time.monotonic() - self._read_at < KEPT_S:
                return self._metadata
        found = self._get(self.settings.issuer.rstrip("/") + "/.well-known/openid-configuration")
        if found.get("issuer") != self.settings.issuer:
            raise Away(f"{self.settings.issuer} says that it is {found.get('issuer')!r}")
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            if not isinstance(found.get(name), str) or not _is_safe(found[name]):
                raise Away(f"{self.settings.issuer} has the {name} {found.get(name)!r}")
        with self._lock:
            self._metadata, self._keys, self._read_at = found, None, time.monotonic()
        return found

    def _client(self, metadata: Mapping[str, Any]) -> OAuth2Client:
        methods = metadata.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        is_basic = "client_secret_basic" in methods
        return OAuth2Client(
            client_id=self.settings.client_id,
            client_secret=self.settings.client_secret,
            token_endpoint_auth_method=(
                "none"
                if self.settings.client_secret is None
                else "client_secret_basic"
                if is_basic
                else "client_secret_post"
            ),
            scope=self.settings.scope,
            redirect_uri=self.redirect_uri,
            code_challenge_method="S256",
            timeout=TIMEOUT_S,
        )

    def address(self, state: str, nonce: str, verifier: str) -> str:
        """Where somebody goes to sign in.

        Raises
        ------
        Away
        """
        metadata = self._known()
        with self._client(metadata) as client:
            made = client.create_authorization_url(
                metadata["authorization_endpoint"], state=state, nonce=nonce, code_verifier=verifier
            )
        return str(made[0])

    def identity(self, code: str, issuer: str | None, nonce: str, verifier: str) -> Identity:
        """Who came back with this code. `issuer` is what the answer says of itself (RFC 9207).

        Raises
        ------
        Away, Refused
        """
        metadata = self._known()
        needs_issuer = metadata.get("authorization_response_iss_parameter_supported") is True
        if issuer != self.settings.issuer and (issuer is not None or needs_issuer):
            raise Refused(f"the answer is of {issuer!r}")
        try:
            with self._client(metadata) as client:
                token = client.fetch_token(metadata["token_endpoint"], code=code, code_verifier=verifier)
        except httpx2.HTTPStatusError as error:
            raise (Away if error.response.status_code >= 500 else Refused)(f"the code: {error}") from None
        except httpx2.HTTPError as error:
            raise Away(f"{metadata['token_endpoint']}: {error}") from None
        except (AuthlibBaseError, ValueError) as error:
            raise Refused(f"the code: {error}") from None
        value = token.get("id_token")
        if not isinstance(value, str):
            raise Refused("there is no ID token")
        claims = self._claims(metadata, value, nonce)
        label = next(
            (claims[name] for name in ("preferred_username", "email", "name") if claims.get(name)), ""
        )
        shown = "".join(sign for sign in str(label) if sign.isprintable())[:100]
        return Identity(self.settings.issuer, str(claims["sub"]), shown)

    def _claims(self, metadata: Mapping[str, Any], value: str, nonce: str) -> dict[str, Any]:
        """The claims of an ID token (OpenID Connect Core, section 3.1.3.7)."""
        expected = jwt.JWTClaimsRegistry(
            leeway=LEEWAY_S,
            iss={"essential": True, "value": self.settings.issuer},
            aud={"essential": True, "value": self.settings.client_id},
            nonce={"essential": True, "value": nonce},
            sub={"essential": True},
            exp={"essential": True},
            iat={"essential": True},
        )
        try:
            claims = self._decoded(metadata, value).claims
            expected.validate(claims)
        except (JoseError, ValueError) as error:
            raise Refused(f"the ID token: {error}") from None
        subject, audience = claims["sub"], claims["aud"]
        if not isinstance(subject, str) or not 0 < len(subject) <= 255 or not subject.isascii():
            raise Refused("the ID token has no subject of at most 255 characters of ASCII")
        if "\0" in subject:
            raise Refused("the subject has a zero byte")
        # Of several audiences one is the party that the token was made for.
        party = claims.get("azp")
        is_for_several = isinstance(audience, list) and len(audience) > 1
        if party != self.settings.client_id and (party is not None or is_for_several):
            raise Refused(f"the ID token was made for {party!r}")
        return dict(claims)

    def _decoded(self, metadata: Mapping[str, Any], value: str) -> jwt.Token:
        with self._lock:
            keys = self._keys
        if keys is not None:
            try:
                return jwt.decode(value, keys, algorithms=ALGORITHMS)
            except (JoseError, ValueError):
                # A provider changes its keys from time to time: what it has now decides.
                pass
        found = self._get(metadata["jwks_uri"]).get("keys")
        usable = [
            key
            for key in (found if isinstance(found, list) else [])
            if isinstance(key, dict) and key.get("kty") in ("RSA", "EC", "OKP") and key.get("use") != "enc"
        ]
        keys = KeySet.import_key_set({"keys": usable})
        with self._lock:
            self._keys = keys
        return jwt.decode(value, keys, algorithms=ALGORITHMS)
