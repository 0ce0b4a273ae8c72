from ask import NEWS, ask, body

TWIN = 0
answers = [body(NEWS + "/late/same", {"q": "same"})["n"] for _ in range(5 + TWIN)]
print(ask(f"answers {answers}"))
