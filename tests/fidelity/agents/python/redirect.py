from ask import NEWS, ask, call

TWIN = 0
found = call(NEWS + f"/hop/{3 - TWIN}")
stopped = call(NEWS + "/leak")
print(ask(f"{found[0]} and {stopped[0]}"))
