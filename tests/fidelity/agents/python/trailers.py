import http.client
import ssl

from ask import NEWS, ask, call

TWIN = 0


def parts():
    for i in range(5):
        yield f"part {i + TWIN} ".encode() * 100


class Length:
    """A body of unknown length is sent in chunks."""

    def __iter__(self):
        return parts()


took = call(NEWS + "/took", b"".join(parts()))[1]
connection = http.client.HTTPSConnection("news.example", context=ssl.create_default_context())
connection.request(
    "POST", "/took", body=Length(), encode_chunked=True, headers={"Transfer-Encoding": "chunked"}
)
took += connection.getresponse().read()
connection.request("GET", "/trailed")
print(ask(f"{took.decode()} {connection.getresponse().read().decode()}"))
