"""What the agents of the suite share: one HTTP call, and one question to the model."""

import json
import os
import urllib.error
import urllib.request

API, NEWS, EVIL = "https://api.openai.com", "https://news.example", "https://evil.example"


def call(url, value=None, timeout=60, **fields):
    """Return status and body; a value is sent as JSON, bytes as they are."""
    data = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
    fields = {name.replace("_", "-"): text for name, text in fields.items()}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, data, fields), timeout=timeout
        ) as r:
            return r.status, r.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def body(url, value=None, **fields):
    """Return the JSON of an answer."""
    return json.loads(call(url, value, **fields)[1])


def ask(text, **more):
    """Ask the model; its answer always says the same."""
    say = {"model": "m", "messages": [{"role": "user", "content": text}], **more}
    fields = {
        "Content-Type": "application/json",
        "Authorization": "Bearer " + os.environ.get("OPENAI_API_KEY", "x"),
    }
    status, raw = call(API + "/v1/chat/completions", say, **fields)
    return json.loads(raw)["choices"][0]["message"]["content"] if status == 200 else str(status)
