import queue
import threading

from ask import NEWS, ask, body

TWIN = 0
jobs, done = queue.Queue(), {}
for job in range(12 - TWIN):
    jobs.put(job)


def work():
    while True:
        try:
            job = jobs.get_nowait()
        except queue.Empty:
            return
        done[job] = body(f"{NEWS}/late/{job}")["n"]


workers = [threading.Thread(target=work) for _ in range(4)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
print(ask(f"all of it: {sorted(done.items())}"))
