import datetime

from ask import NEWS, ask, body

TWIN = 0
today = datetime.datetime.now(datetime.UTC)
news = body(NEWS + "/now")
print(
    ask(
        f"It is {today:%Y-%m-%d %H:%M:%S}. {'Hurry' if TWIN else 'Go on'}. The server says {news['now']}"
    )
)
