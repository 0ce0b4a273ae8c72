"""A langgraph agent with a tool, run to its end and streamed token by token."""

import sys

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


model = ChatOpenAI(model="m").bind_tools([add])
graph = StateGraph(MessagesState)
graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
graph.add_node("tools", ToolNode([add]))
graph.add_edge(START, "model")
graph.add_conditional_edges("model", tools_condition, {"tools": "tools", END: END})
graph.add_edge("tools", "model")
agent = graph.compile()
ASK = {"messages": [("user", "hi")]}
sys.stdout.write(agent.invoke(ASK)["messages"][-1].content + "\n")
parts = [part.content for part, _ in agent.stream(ASK, stream_mode="messages") if part.content]
sys.stdout.write(f"{len(parts)} parts: {parts[0]} {''.join(parts[1:])}\n")
