"""`[setup] command`: a new product with a quota, of which `item.py BASE STOCK` has so many units.

By the REST API: Django starts in several seconds.
"""

import json
import sys
import urllib.request

BASE, STOCK = sys.argv[1], int(sys.argv[2])


def post(path, **fields):
    request = urllib.request.Request(
        f"{BASE}/api/v1/organizers/shop/events/fair/{path}/",
        json.dumps(fields).encode(),
        {"Authorization": "Token of-the-judge", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as response:
        return json.load(response)["id"]


item = post("items", name={"en": "Item"}, default_price="10.00")
post("quotas", name="Item", size=STOCK, items=[item], variations=[])
print(json.dumps({"item": str(item)}))
