"""pydantic-ai with two providers: an agent with a tool, run to its end and streamed."""

import asyncio
import os
import sys

from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.anthropic import AnthropicProvider

provider = AnthropicProvider(
    api_key=os.environ["OPENAI_API_KEY"], base_url="https://api.openai.com"
)


async def main() -> None:
    """Run both agents, one after the other."""
    for model in (OpenAIChatModel("m"), AnthropicModel("m", provider=provider)):
        agent = Agent(model, system_prompt="be brief")

        @agent.tool_plain
        def add(a: int, b: int) -> int:
            return a + b

        sys.stdout.write((await agent.run("hi")).output + "\n")
        async with agent.run_stream("hi") as result:
            parts = [part async for part in result.stream_text(delta=True, debounce_by=None)]
        sys.stdout.write(f"{len(parts)} parts: {''.join(parts)}\n")


asyncio.run(main())
