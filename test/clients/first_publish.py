"""A backend in Python publishes a list of 500 rows, as it comes from a database:

    python3 test/clients/first_publish.py URL SECRET ROOM
"""

import json
import sys
import urllib.request

url, secret, room = sys.argv[1:]
rows = [
    {"id": i, "name": f"item {i}", "price": i * 1.5, "qty": i % 7, "constructor": "Ferrari", "tag": None}
    for i in range(500)
]
request = urllib.request.Request(
    f"{url}/api/publish",
    data=json.dumps({"room": room, "payload": rows}).encode(),
    headers={"Authorization": f"Bearer {secret}", "Content-Type": "application/json"},
)
with urllib.request.urlopen(request) as answer:
    print(answer.status, answer.read().decode())
