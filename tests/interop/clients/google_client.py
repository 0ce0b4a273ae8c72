"""The google-genai SDK, synchronous and streamed, with a tool loop of each kind."""

import os
import sys

from google import genai

client = genai.Client(
    api_key=os.environ["OPENAI_API_KEY"], http_options={"base_url": "https://api.openai.com"}
)
sys.stdout.write(client.models.generate_content(model="m", contents="hi").text + "\n")
parts = client.models.generate_content_stream(model="m", contents="hi")
sys.stdout.write("".join(part.text or "" for part in parts) + "\n")


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


config = {"tools": [add]}  # the SDK calls it by itself and sends what it said
sys.stdout.write(
    client.models.generate_content(model="m", contents="hi", config=config).text + "\n"
)
parts = client.models.generate_content_stream(model="m", contents="hi", config=config)
sys.stdout.write("".join(part.text or "" for part in parts) + "\n")
