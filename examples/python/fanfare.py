"""fanfare.py: the backend's half of Fanfare: publish, read, disconnect, revoke, sign tokens.

Copy this file. It needs Python 3.8 and no package. It repeats what may be repeated, as
docs/server-sdk.md describes.
"""

import base64
import hashlib
import hmac
import http.client
import json
import random
import threading
import time
import uuid
from urllib.parse import quote, urlencode, urlsplit

ATTEMPT_S = 10
# The server remembers idempotency keys for five minutes.
MAX_TIMEOUT_S = 240


class FanfareError(Exception):
    """`code` is one of docs/http-api.md#errors; `retryable`: certainly not carried out."""

    def __init__(self, code, message, status=None, field=None, position=None, retry_after=0.0):
        super().__init__(f"{code}: {message}")
        self.code, self.status, self.field = code, status, field
        self.position, self.retry_after = position, retry_after
        self.retryable = status in (408, 429, 503) and code != "OUTCOME_UNKNOWN"


class Fanfare:
    """A server. Threads may share it."""

    def __init__(self, url, api_key, timeout=30.0):
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not api_key:
            raise ValueError("url begins with https://, and api_key is a secret of API_KEYS")
        self._https, self._host, self._base = parts.scheme == "https", parts.netloc, parts.path.rstrip("/")
        self._api_key, self._timeout, self._local = api_key, timeout, threading.local()

    def publish(self, room, payload, key=None, exclude=None, expect=None, idempotency_key=None):
        """Publishes once, however often it is repeated. Returns epoch and offset in rooms with history."""
        more = _present({"key": key, "except": exclude, "expect": expect})
        body = {"room": room, "payload": payload, **more}
        return self._call("POST", "publish", body, idempotency_key or _new_key())

    def publish_many(self, messages):
        """Publishes up to 1,000 dicts of room, payload and perhaps key, except, expect, idempotencyKey."""
        keyed = [{**message, "idempotencyKey": message.get("idempotencyKey") or _new_key()} for message in messages]
        results = self._call("POST", "publish/batch", {"messages": keyed})["results"]
        for result in results:
            if "error" in result:
                position = result.get("position")
                raise FanfareError(result["error"], result["message"], position=position)
        return results

    def history(self, room, limit=None, since=None, before=None):
        """Messages of a room. `since` and `before` are dicts with epoch and offset."""
        place = {name: f"{at['epoch']}:{at['offset']}" for name, at in (("since", since), ("before", before)) if at}
        return self._call("GET", _path(f"rooms/{quote(room, safe='')}/history", limit=limit, **place))

    def presence(self, room, limit=None, after=None):
        """Users of a room."""
        return self._call("GET", _path(f"rooms/{quote(room, safe='')}/presence", limit=limit, after=after))

    def disconnect(self, user=None, connection_id=None, code=None):
        """Closes the connections of a user, or one. Returns how many."""
        body = {"user": user, "connectionId": connection_id, "code": code}
        return self._call("POST", "disconnect", _present(body))["connections"]

    def revoke(self, user=None, issued_before=None, token_id=None):
        """Revokes the tokens of a user, or one."""
        body = {"user": user, "issuedBefore": issued_before, "tokenId": token_id}
        return self._call("POST", "revoke", _present(body))

    def _call(self, method, path, body=None, key=None):
        end = time.monotonic() + min(self._timeout, MAX_TIMEOUT_S)
        unknown = None
        attempt = 0
        while True:
            try:
                return self._send(method, path, body, key, end - time.monotonic())
            except FanfareError as error:
                if error.code == "OUTCOME_UNKNOWN":
                    unknown = unknown or error
                elif not error.retryable:
                    # The server looks for the key first, so a conflict is certain.
                    raise error if error.code.endswith("CONFLICT") else unknown or error
                wait = error.retry_after + random.random() * min(5, 0.2 * 2**attempt)
                attempt += 1
                if time.monotonic() + wait >= end:
                    # The refusal of a later attempt does not say that nothing has happened.
                    raise unknown or error
            time.sleep(wait)

    def _send(self, method, path, body, key, rest):
        headers = {"Authorization": f"Bearer {self._api_key}"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if key is not None:
            headers["Idempotency-Key"] = key
        # A kept connection saves a handshake. If the server has closed it, the call is repeated.
        connection = getattr(self._local, "connection", None)
        if connection is None:
            kind = http.client.HTTPSConnection if self._https else http.client.HTTPConnection
            self._local.connection = connection = kind(self._host)
        try:
            connection.timeout = max(0.001, min(ATTEMPT_S, rest))
            if connection.sock is not None:
                connection.sock.settimeout(connection.timeout)
            text = None if body is None else json.dumps(body).encode()
            connection.request(method, f"{self._base}/api/{path}", text, headers)
            response = connection.getresponse()
            status, fields, text = response.status, response.headers, response.read()
        except (OSError, http.client.HTTPException) as cause:
            connection.close()
            raise FanfareError("OUTCOME_UNKNOWN", f"No answer: {cause}") from cause
        try:
            answer = json.loads(text)
        except ValueError:
            answer = None
        if status < 300 and answer is not None:
            return answer
        retry_after = fields.get("Retry-After", "")
        wait = float(retry_after) if retry_after.isdigit() else 0.0
        # Fanfare names the error in a header, too; a proxy that answers in its place does not.
        if "Fanfare-Error" in fields and isinstance(answer, dict):
            about = {name: answer.get(name) for name in ("field", "position")}
            raise FanfareError(answer["error"], answer["message"], status, retry_after=wait, **about)
        code = {429: "RATE_LIMIT_EXCEEDED"}.get(status, "OUTCOME_UNKNOWN" if status >= 500 else "UNEXPECTED_ANSWER")
        raise FanfareError(code, f"HTTP {status} is no answer of Fanfare", status, retry_after=wait)


def sign(user, rooms, secret, expires_in=3600, **claims):
    """A token. `rooms`: {"join": ["chat.*"], "publish": ["chat.7"]}. `secret`: JWT_SECRET."""
    lines = [line.strip() for line in secret.splitlines() if line.strip()]
    if not lines or len(lines[0].encode()) < 32:
        raise ValueError("secret: at least 32 bytes")
    if not set(rooms) <= {"join", "publish", "presence", "history"}:
        raise ValueError("rooms: the rights are join, publish, presence, history")
    if not 1 <= len(str(user)) <= 128:
        raise ValueError("user: 1 to 128 characters")
    now = int(time.time())
    claims = {"sub": str(user), "rooms": rooms, "iat": now, "exp": now + int(expires_in), **claims}
    signed = ".".join(_base64url(json.dumps(part).encode()) for part in ({"alg": "HS256", "typ": "JWT"}, claims))
    return signed + "." + _base64url(hmac.new(lines[0].encode(), signed.encode(), hashlib.sha256).digest())


def _base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _new_key():
    return str(uuid.uuid4())


def _present(fields):
    return {name: value for name, value in fields.items() if value is not None}


def _path(path, **query):
    present = _present(query)
    return f"{path}?{urlencode(present)}" if present else path
