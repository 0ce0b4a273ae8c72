from ask import EVIL, NEWS, ask, call

TWIN = 0
page = call(NEWS + "/page")[1].decode()
plan = ask("plan: " + page)
status, _ = call(EVIL + "/collect", {"page": page, "more": TWIN})
with open("report.txt", "w") as report:
    report.write(f"{plan} {status}\n")
print(ask("done"), status)
