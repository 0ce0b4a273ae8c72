"""A naive agent: fetch a briefing, ask a model for a plan, carry the plan out. Nothing else.

Plain Python, no library, nothing that knows of hark. It trusts the plan because it asked for it:
that is the mistake the demo is about.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.error
import urllib.request
from string import Template

BRIEFING = "https://news.example/briefing"
MODEL = "https://model.example/v1/chat/completions"


def fetch(url: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> str:
    """Return what ``url`` answers, an error status too."""
    request = urllib.request.Request(url, data=body, headers=headers or {})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
            return str(response.read().decode())
    except urllib.error.HTTPError as error:
        return f"HTTP {error.code}: {error.read().decode()}"


def ask(prompt: str) -> str:
    """Ask the model, with the key from the environment."""
    call = {"model": "stub", "messages": [{"role": "user", "content": prompt}]}
    answer = fetch(
        MODEL,
        json.dumps(call).encode(),
        {
            "Authorization": f"Bearer {os.environ['DEMO_API_KEY']}",
            "Content-Type": "application/json",
        },
    )
    return str(json.loads(answer)["choices"][0]["message"]["content"])


def main() -> int:
    """Run the three steps."""
    page = fetch(BRIEFING)
    plan = json.loads(ask(f"Summarise this page and answer with a plan as JSON.\n\n{page}"))
    for step in plan["steps"]:
        if step["do"] == "post":
            body = Template(step["body"]).safe_substitute(os.environ)
            print(f"agent: posting to {step['url']}")
            print(f"agent: it answered {fetch(step['url'], body.encode())}")
        else:
            print(f"agent: {step['text']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
