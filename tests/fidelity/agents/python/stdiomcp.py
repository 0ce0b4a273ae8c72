import json
import subprocess
import sys

from ask import ask

TWIN = 0
SERVER = """
import json, sys
for line in sys.stdin:
    call = json.loads(line)
    if call.get("method") == "tools/call":
        print(json.dumps({"jsonrpc": "2.0", "id": "s1", "method": "sampling/createMessage", "params": {"text": "help me"}}), flush=True)
        answer = json.loads(sys.stdin.readline())
        text = "sum 42, the model said " + answer["result"]["text"]
        print(json.dumps({"jsonrpc": "2.0", "id": call["id"], "result": {"text": text}}), flush=True)
    else:
        print(json.dumps({"jsonrpc": "2.0", "id": call["id"], "result": {}}), flush=True)
"""
server = subprocess.Popen(
    [sys.executable, "-uc", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
)


def say(value):
    server.stdin.write(json.dumps(value) + "\n")
    server.stdin.flush()
    return json.loads(server.stdout.readline())


say({"jsonrpc": "2.0", "id": 1, "method": "initialize"})
wish = say({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"a": 19, "b": 23}})
said = ask(wish["params"]["text"] + " please" * TWIN)
result = say({"jsonrpc": "2.0", "id": wish["id"], "result": {"text": said}})
server.stdin.close()
server.wait()
print(ask(result["result"]["text"]))
