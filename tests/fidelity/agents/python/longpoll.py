from ask import NEWS, ask, call

TWIN = 0
empty = 0
while True:
    status, data = call(NEWS + "/poll/2")
    if status == 200:
        break
    empty += 1
print(ask(f"news after {empty + TWIN} empty answers: {data.decode()}"))
