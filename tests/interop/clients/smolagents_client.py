"""smolagents: an agent that writes code, streamed, and one that calls tools."""

import os
import sys

from smolagents import CodeAgent, OpenAIServerModel, ToolCallingAgent, tool


@tool
def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: one number
        b: the other one
    """
    return a + b


model = OpenAIServerModel("m", "https://api.openai.com/v1", api_key=os.environ["OPENAI_API_KEY"])
coder = CodeAgent(tools=[add], model=model, max_steps=3, verbosity_level=0, stream_outputs=True)
said = coder.run("stub-say <code>final_answer(add(a=40, b=2))</code>")
sys.stdout.write(f"\ncode {said}\n")
caller = ToolCallingAgent(tools=[add], model=model, max_steps=3, verbosity_level=0)
said = caller.run(
    'stub-call add {"a": 19, "b": 23}\nstub-call final_answer {"answer": "the sum is 42"}'
)
sys.stdout.write(f"tools {said}\n")
