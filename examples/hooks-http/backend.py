"""Answers the hooks of Fanfare, with nothing but Python."""
import base64, hashlib, hmac, json, os, re, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = base64.b64decode(os.environ["FANFARE_HOOKS_SECRET"].removeprefix("whsec_"))

# Stands for your database.
SESSIONS = {
    "s1": {"user": "ann", "name": "Ann", "teams": ["team.1"]},
    "s2": {"user": "bob", "name": "Bob", "teams": []},
}


def on_connect(request, **_):
    found = re.search(r"(?:^|; )session=(\w+)", request["headers"].get("cookie", ""))
    session = SESSIONS.get(found[1]) if found else None
    if session is None:
        return {"deny": "Please log in."}
    return {
        "user": session["user"],
        "info": {"name": session["name"]},
        "data": {"teams": session["teams"]},
    }


def on_join(connection, room, **_):
    return not room.startswith("team.") or room in connection["data"]["teams"]


def on_publish(connection, room, payload, **_):
    if room == "*" or not on_join(connection, room):
        return False
    if not isinstance(payload, dict) or not isinstance(payload.get("text"), str):
        return {"deny": "A message has a text."}
    return {"payload": {"text": payload["text"][:500], "by": connection["info"]["name"]}}


HOOKS = {
    "onConnect": on_connect,
    "onJoin": on_join,
    "onPublish": on_publish,
    "onDisconnect": lambda **_: True,
}


def is_signed(headers, body):
    """Standard Webhooks: HMAC-SHA256 of the id, the time and the raw body."""
    sent = headers.get("webhook-timestamp", "")
    if not sent.isdigit() or abs(time.time() - int(sent)) > 300:
        return False
    signed = f"{headers['webhook-id']}.{sent}.".encode() + body
    expected = b"v1," + base64.b64encode(hmac.digest(KEY, signed, hashlib.sha256))
    given = headers.get("webhook-signature", "").encode().split(b" ")
    return any([hmac.compare_digest(one, expected) for one in given])


class Backend(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keeps connections
    disable_nagle_algorithm = True

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if not is_signed(self.headers, body):
            return self.send_error(401)
        question = json.loads(body)
        hook = question.pop("hook")
        answer = json.dumps(HOOKS[hook](**question)).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        if hook == "onJoin":
            self.send_header("fanfare-cache-seconds", "10")
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


port = int(os.environ.get("PORT", "8000"))
server = ThreadingHTTPServer(("127.0.0.1", port), Backend)
print(f"listening on {port}", flush=True)
server.serve_forever()
