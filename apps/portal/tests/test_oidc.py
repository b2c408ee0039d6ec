"""Signing in by a provider of identities: a real one, and one that lies."""

from __future__ import annotations

import base64
import hmac
import json
import re
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import unescape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import eyas
import httpx
import pytest
from harness import lacking, need_program, wait_until
from joserfc import jwt
from joserfc.jwk import RSAKey
from playwright.sync_api import Browser, expect
from portal import oidc
from portals import PHONE, Server, check_page, go_by_keyboard, started

TESTS = Path(__file__).resolve().parent
PASSWORD = "correct horse battery"
SECRET = "a secret of the portal and the provider alone"


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def library() -> Path:
    """The folder of `oidc-provider`, which npm has installed."""
    npm = need_program("npm")
    root = subprocess.run([npm, "root", "-g"], capture_output=True, text=True, check=True, timeout=60)
    found = Path(root.stdout.strip()) / "oidc-provider"
    if not found.is_dir():
        lacking("oidc-provider is not installed: npm install --global oidc-provider@9.13.3")
    return found


@contextmanager
def provider_up(folder: Path, port: int, redirect: str, key: int) -> Iterator[None]:
    words: list[str | Path] = [
        need_program("node"),
        TESTS / "provider.mjs",
        library(),
        str(port),
        redirect,
        str(key),
    ]
    with open(folder / f"provider-{key}.log", "wb") as log:
        process = subprocess.Popen(words, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
    try:
        url = f"http://127.0.0.1:{port}/.well-known/openid-configuration"

        def answers() -> bool:
            assert process.poll() is None, (folder / f"provider-{key}.log").read_text()
            try:
                return httpx.get(url, timeout=5).status_code == 200
            except httpx.HTTPError:
                return False

        wait_until(answers, "the provider to answer")
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def portal_up(folder: Path, survey: Path, issuer: str, port: int, *words: str) -> Iterator[Server]:
    """A portal that knows a provider, at a port that the provider knows. Its cluster needs no node."""
    settings = folder / "oidc.toml"
    settings.write_text(
        f'issuer = "{issuer}"\nclient_id = "portal"\nclient_secret_file = "secret"\nname = "Observatory"\n'
    )
    (folder / "secret").write_text(SECRET + "\n")
    dispatcher = subprocess.Popen(
        [eyas.find_binary(), "dispatcher", "--dir", folder / "dispatcher"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    join = folder / "dispatcher" / "join.json"
    try:
        wait_until(join.exists, "the dispatcher to be there")
        more = ("--join", str(join), "--oidc", str(settings), "--port", str(port))
        with started(folder / "data", survey, *more, "--accounts-per-hour", "1000", *words) as up:
            yield up
    finally:
        dispatcher.kill()
        dispatcher.wait()


def form_of(page: httpx.Response) -> tuple[str, dict[str, str]]:
    """Where the first form of a page goes, and what it carries."""
    action = re.search(r'<form[^>]*action="([^"]+)"', page.text)
    assert action, page.text
    hidden = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page.text)
    return unescape(action[1]), dict(hidden)


def sign_in_there(browser: httpx.Client, answer: httpx.Response, who: str) -> httpx.Response:
    """From the portal to the provider, through its pages for signing in and consent, and back: the portal's answer."""
    while True:
        if answer.is_redirect:
            if "/oidc/callback?" in answer.headers["location"]:
                return browser.get(answer.headers["location"], follow_redirects=False)
            answer = browser.get(str(answer.url.join(answer.headers["location"])), follow_redirects=False)
            continue
        assert answer.status_code == 200, answer.text
        action, hidden = form_of(answer)
        answer = browser.post(
            str(answer.url.join(action)),
            data={**hidden, "login": who, "password": "any"},
            follow_redirects=False,
        )


def key_of(client: httpx.Client, url: str) -> str:
    found = re.search(r'name="form_key" value="([^"]+)"', client.get(f"{url}/account").text)
    assert found
    return found[1]


def test_with_a_real_provider(tmp_path: Path, survey: Path) -> None:
    """A new account, the same again, a change of keys, a link by password, and a provider that is away."""
    at, own = free_port(), free_port()
    issuer, redirect = f"http://127.0.0.1:{at}", f"http://127.0.0.1:{own}/oidc/callback"
    with portal_up(tmp_path, survey, issuer, own) as up:
        with provider_up(tmp_path, at, redirect, 1):
            ada = httpx.Client(timeout=60)
            assert "Sign in with Observatory" in ada.get(f"{up.url}/sign-in").text
            # Nobody becomes a user by having their name at the provider.
            made = httpx.post(f"{up.url}/sign-up", data={"name": "ada", "password": PASSWORD}, timeout=60)
            assert made.status_code == 303
            named = sign_in_there(ada, ada.get(f"{up.url}/oidc/sign-in?to=/account"), "ada")
            assert named.headers["location"] == "/oidc/name"
            page = ada.get(f"{up.url}/oidc/name")
            assert 'name="name" value=""' in page.text, "the name that it proposes is nobody's"
            taken = ada.post(f"{up.url}/oidc/name", data={"name": "ada"})
            assert taken.status_code == 422 and "the name ada is taken" in taken.text
            chosen = ada.post(f"{up.url}/oidc/name", data={"name": "ada.sky"})
            assert chosen.headers["location"] == "/account", chosen.text
            account = ada.get(f"{up.url}/account").text
            assert "Account of ada.sky" in account and f"ada at {issuer}" in account
            assert ada.post(f"{up.url}/oidc/name", data={"name": "ada.two"}).status_code == 403, "once"
            # They have no password here, so they cannot lose the identity; and nobody signs in by a password.
            gone = ada.post(f"{up.url}/account/identities/1/remove", data={"form_key": key_of(ada, up.url)})
            assert gone.status_code == 404
            for word in ("", "nobody has this password"):
                tried = httpx.post(
                    f"{up.url}/sign-in", data={"name": "ada.sky", "password": word}, timeout=60
                )
                assert tried.status_code == 403
        with provider_up(tmp_path, at, redirect, 2):
            again = httpx.Client(timeout=60)
            back = sign_in_there(again, again.get(f"{up.url}/oidc/sign-in?to=/requests"), "ada")
            assert back.headers["location"] == "/requests", (
                "the provider has other keys now, and it is the same user"
            )
            # Who has an account links it by their password, and then signs in by either.
            bo = httpx.Client(timeout=60)
            bo.post(f"{up.url}/sign-up", data={"name": "bo", "password": PASSWORD})
            form = {"form_key": key_of(bo, up.url)}
            refused = bo.post(f"{up.url}/account/identities", data={**form, "password": "wrong"})
            assert refused.status_code == 403
            leaving = bo.post(f"{up.url}/account/identities", data={**form, "password": PASSWORD})
            address = re.search(r'<p><a href="([^"]+)">Sign in at Observatory', leaving.text)
            assert address, leaving.text
            linked = sign_in_there(bo, bo.get(unescape(address[1])), "bo-of-the-observatory")
            assert linked.headers["location"] == "/account", linked.text
            elsewhere = httpx.Client(timeout=60)
            sign_in_there(elsewhere, elsewhere.get(f"{up.url}/oidc/sign-in"), "bo-of-the-observatory")
            assert "Account of bo<" in elsewhere.get(f"{up.url}/account").text
            # An identity has one account.
            leaving = bo.post(f"{up.url}/account/identities", data={**form, "password": PASSWORD})
            address = re.search(r'<p><a href="([^"]+)">Sign in at Observatory', leaving.text)
            assert address
            other = httpx.Client(timeout=60, cookies=bo.cookies)
            twice = sign_in_there(other, other.get(unescape(address[1])), "ada")
            assert twice.status_code == 409 and "belongs to an account already" in twice.text
            # What one browser brought back is of no use to another one, and of no use twice.
            mine, theirs = httpx.Client(timeout=60), httpx.Client(timeout=60)
            theirs.get(f"{up.url}/oidc/sign-in")
            answer = mine.get(f"{up.url}/oidc/sign-in")
            with_code: list[str] = []

            def stop(request: httpx.Request) -> None:
                if "/oidc/callback" in str(request.url):
                    with_code.append(str(request.url))
                    raise InterruptedError

            mine.event_hooks["request"].append(stop)
            with pytest.raises(InterruptedError):
                sign_in_there(mine, answer, "ada")
            mine.event_hooks["request"].clear()
            assert theirs.get(with_code[0]).status_code == 403
            assert mine.get(with_code[0]).headers["location"] == "/requests/new"
            assert mine.get(with_code[0]).status_code == 403
        # The provider is away: metadata is known for a while, so it shows when the code is asked for.
        assert "Secure" not in ada.get(f"{up.url}/oidc/sign-in").headers["set-cookie"]
        assert SECRET not in up.printed
        kept = (tmp_path / "data" / "portal.db").read_bytes()
        assert SECRET.encode() not in kept


def test_its_pages_on_a_phone_in_the_dark_by_keyboard(tmp_path: Path, survey: Path, browser: Browser) -> None:
    at, own = free_port(), free_port()
    issuer, redirect = f"http://127.0.0.1:{at}", f"http://127.0.0.1:{own}/oidc/callback"
    with portal_up(tmp_path, survey, issuer, own) as up, provider_up(tmp_path, at, redirect, 1):
        made = httpx.post(f"{up.url}/sign-up", data={"name": "bo", "password": PASSWORD}, timeout=60)
        assert made.status_code == 303
        page = browser.new_page(**PHONE)
        page.goto(f"{up.url}/sign-in?to=/account")
        check_page(page)
        go_by_keyboard(page, "link", "Sign in with Observatory")
        page.keyboard.press("Enter")
        # Two pages of the provider: who one is, and what the portal may know.
        page.locator("input[name=login]").fill("ada")
        page.locator("input[name=password]").fill("any")
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Continue").click()
        expect(page.get_by_role("heading", name="Your name here")).to_be_visible()
        check_page(page)
        go_by_keyboard(page, "textbox", "Name")
        page.keyboard.type("bo")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("the name bo is taken")
        check_page(page)
        page.get_by_label("Name").fill("ada")
        go_by_keyboard(page, "button", "Make an account")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Account of ada")).to_be_visible()
        check_page(page)
        page.close()

        # Who has an account links it. The provider does not take the browser away from the page that leads there.
        page = browser.new_page(**PHONE)
        page.route(f"{issuer}/**", lambda route: route.fulfill(status=204))
        page.goto(f"{up.url}/sign-in?to=/account")
        page.get_by_label("Name").fill("bo")
        page.get_by_label("Password").fill(PASSWORD)
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Account of bo")).to_be_visible()
        check_page(page)
        go_by_keyboard(page, "textbox", "Your password here")
        page.keyboard.type(PASSWORD)
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="To Observatory")).to_be_visible()
        check_page(page)
        # An answer that nobody has asked for.
        page.goto(f"{redirect}?state=none&code=none")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        check_page(page)
        page.close()


def test_a_portal_that_makes_no_accounts_makes_none_of_identities(tmp_path: Path, survey: Path) -> None:
    at, own = free_port(), free_port()
    issuer, redirect = f"http://127.0.0.1:{at}", f"http://127.0.0.1:{own}/oidc/callback"
    with portal_up(tmp_path, survey, issuer, own, "--no-sign-up") as up:
        away = httpx.get(f"{up.url}/oidc/sign-in", timeout=60)
        assert away.status_code == 503 and "Observatory does not answer as it should" in unescape(away.text)
        assert httpx.get(f"{up.url}/sign-in", timeout=60).status_code == 200, "and the rest goes on"
        with provider_up(tmp_path, at, redirect, 1):
            browser = httpx.Client(timeout=60)
            back = sign_in_there(browser, browser.get(f"{up.url}/oidc/sign-in"), "ada")
            assert back.status_code == 403 and "makes none by itself" in back.text


# ---------------------------------------------------------------------------------------- a provider that lies


@dataclass
class Liar:
    """A provider whose answers a test chooses; all that it says is true until a test changes it."""

    key: RSAKey = field(
        default_factory=lambda: RSAKey.generate_key(2048, {"kid": "1", "use": "sig"}, private=True)
    )
    port: int = 0
    claims: dict[str, Any] = field(default_factory=dict)
    header: dict[str, Any] = field(default_factory=dict)
    signed_with: Any = None
    metadata: dict[str, Any] = field(default_factory=dict)
    token: str | None = None
    n_keys_read: int = 0
    last_form: dict[str, list[str]] = field(default_factory=dict)

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(self, path: str) -> dict[str, Any]:
        if path == "/.well-known/openid-configuration":
            known = {"issuer": self.issuer, "authorization_endpoint": f"{self.issuer}/go"}
            return {
                **known,
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/keys",
                **self.metadata,
            }
        if path == "/keys":
            self.n_keys_read += 1
            return {"keys": [self.key.as_dict(private=False), {"kty": "oct", "k": "c2VjcmV0"}, "no key"]}
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": "portal",
            "sub": "s",
            "iat": now,
            "exp": now + 60,
            "nonce": "n",
            **self.claims,
        }
        claims = {name: value for name, value in claims.items() if value is not None}
        header = {"alg": "RS256", "kid": "1", **self.header}
        made = self.token or jwt.encode(
            header, claims, self.signed_with or self.key, algorithms=[header["alg"]]
        )
        return {"access_token": "a", "token_type": "Bearer", "id_token": made}


@pytest.fixture(scope="module")
def server_of_liar() -> Iterator[Liar]:
    liar = Liar()

    class Handler(BaseHTTPRequestHandler):
        def _say(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            if length:
                liar.last_form = parse_qs(self.rfile.read(length).decode())
            body = json.dumps(liar.answer(urlsplit(self.path).path)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = _say

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    liar.port = server.server_port
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield liar
    server.shutdown()


@pytest.fixture
def liar(server_of_liar: Liar) -> Liar:
    liar = server_of_liar
    liar.claims, liar.header, liar.metadata = {}, {}, {}
    liar.token = liar.signed_with = None
    return liar


def provider_of(liar: Liar) -> oidc.Provider:
    return oidc.Provider(oidc.Settings(liar.issuer, "portal", SECRET), "http://127.0.0.1:1/oidc/callback")


def identity(liar: Liar, issuer: str | None = None) -> oidc.Identity:
    return provider_of(liar).identity("code", issuer, "n", "v" * 43)


def test_what_is_true_is_taken(liar: Liar) -> None:
    liar.claims = {"preferred_username": "a\0da", "aud": ["portal", "other"], "azp": "portal"}
    assert identity(liar, liar.issuer) == oidc.Identity(liar.issuer, "s", "ada")
    assert liar.last_form["code_verifier"] == ["v" * 43] and liar.last_form["code"] == ["code"]
    address = provider_of(liar).address("the-state", "the-nonce", "v" * 43)
    words = parse_qs(urlsplit(address).query)
    assert words["state"] == ["the-state"] and words["nonce"] == ["the-nonce"]
    assert words["code_challenge_method"] == ["S256"] and words["code_challenge"] != ["v" * 43]
    assert words["redirect_uri"] == ["http://127.0.0.1:1/oidc/callback"] and "openid" in words["scope"][0]


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://elsewhere.example"},
        {"iss": None},
        {"aud": "another-client"},
        {"aud": ["another-client"]},
        {"aud": None},
        {"aud": ["portal", "other"]},
        {"aud": ["portal", "other"], "azp": "other"},
        {"azp": "other"},
        {"nonce": "of another sign-in"},
        {"nonce": None},
        {"exp": 1},
        {"exp": None},
        {"exp": "soon"},
        {"iat": None},
        {"sub": None},
        {"sub": ""},
        {"sub": "s" * 256},
        {"sub": "a\0b"},
        {"sub": 7},
    ],
)
def test_a_token_with_a_wrong_claim_is_refused(liar: Liar, claims: dict[str, Any]) -> None:
    liar.claims = claims
    with pytest.raises(oidc.Refused):
        identity(liar)


def base64_of(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def test_a_token_that_the_provider_did_not_sign_is_refused(liar: Liar) -> None:
    liar.signed_with = RSAKey.generate_key(2048, {"kid": "1"}, private=True)
    with pytest.raises(oidc.Refused):
        identity(liar)
    # With the public key, or the portal's own secret, as a shared secret.
    now = int(time.time())
    claims = {"iss": liar.issuer, "aud": "portal", "sub": "s", "iat": now, "exp": now + 60, "nonce": "n"}
    for secret in (liar.key.as_pem(private=False), SECRET.encode(), b"secret"):
        parts = [base64_of(json.dumps(one).encode()) for one in ({"alg": "HS256", "kid": "1"}, claims)]
        signature = hmac.digest(secret, ".".join(parts).encode(), "sha256")
        liar.token = ".".join([*parts, base64_of(signature)])
        with pytest.raises(oidc.Refused):
            identity(liar)
    liar.token = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJzIn0."
    with pytest.raises(oidc.Refused):
        identity(liar)
    liar.token = "no token"
    with pytest.raises(oidc.Refused):
        identity(liar)


def test_keys_are_read_again_when_they_change(liar: Liar) -> None:
    provider, kept = provider_of(liar), liar.key
    assert provider.identity("c", None, "n", "v" * 43).subject == "s"
    n = liar.n_keys_read
    assert provider.identity("c", None, "n", "v" * 43).subject == "s" and liar.n_keys_read == n
    try:
        liar.key = RSAKey.generate_key(2048, {"kid": "2", "use": "sig"}, private=True)
        liar.header = {"kid": "2"}
        assert provider.identity("c", None, "n", "v" * 43).subject == "s" and liar.n_keys_read == n + 1
    finally:
        liar.key = kept


def test_an_answer_of_another_provider_is_refused(liar: Liar) -> None:
    """RFC 9207: of two providers one could send the codes of the other."""
    with pytest.raises(oidc.Refused, match="elsewhere"):
        identity(liar, "https://elsewhere.example")
    liar.metadata = {"authorization_response_iss_parameter_supported": True}
    with pytest.raises(oidc.Refused):
        identity(liar, None)
    liar.metadata = {"issuer": "https://elsewhere.example"}
    with pytest.raises(oidc.Away):
        identity(liar)
    liar.metadata = {"token_endpoint": "http://elsewhere.example/token"}
    with pytest.raises(oidc.Away, match="token_endpoint"):
        identity(liar)


def test_settings_come_from_a_file_and_from_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "oidc.toml"
    path.write_text('issuer = "https://a.example"\nclient_id = "portal"\nclient_secret_file = "s"\n')
    (tmp_path / "s").write_text("secret\n")
    found = oidc.read_settings(path, {})
    assert found == oidc.Settings("https://a.example", "portal", "secret") and found.label == "a.example"
    changed = oidc.read_settings(path, {"PORTAL_OIDC_CLIENT_SECRET": "other", "PORTAL_OIDC_NAME": "A"})
    assert changed == oidc.Settings("https://a.example", "portal", "other", "A")
    assert oidc.read_settings(None, {}) is None
    for text, said in (
        ("issuer = ", "is not written in TOML"),
        ("issuers = 'x'", "'issuers': there are the texts issuer"),
        ("issuer = 'https://a.example'", "client_id is missing"),
        ("issuer = 'http://a.example'\nclient_id = 'p'", "needs an address with https"),
        ("issuer = 'https://a.example'\nclient_id = 'p'\nscope = 'email'", "needs the word openid"),
        ("issuer = 'https://a.example'\nclient_id = 'p'\nclient_secret_file = 'gone'", "cannot be read"),
    ):
        path.write_text(text)
        with pytest.raises(oidc.WrongSettings, match=said):
            oidc.read_settings(path, {})
