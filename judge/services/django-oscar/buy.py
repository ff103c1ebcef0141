"""`[order] command`: buyers of one unit, by the shop's pages or, with `rest`, by oscar-api.

A key is a shopper's session, since oscar has no idempotency key: its mail address names the order
in the books. Who orders again goes on with the session, at another instance too, as a browser that
tries again. No request is sent again here.
"""

import asyncio
import json
import sys

import httpx

ADDRESS = {
    "first_name": "Ada",
    "last_name": "Buyer",
    "line1": "Roemerlaan 44",
    "line4": "Kroekingen",
    "postcode": "7777KK",
}
# One for all sessions: each would load the system's certificates. A connection that is refused is
# tried again, as nothing was sent: an instance that was killed is back within seconds.
TRANSPORT = httpx.AsyncHTTPTransport(
    verify=False, retries=5, limits=httpx.Limits(max_connections=None)
)


class Unexpected(Exception):
    """An answer of the shop that is none of those known here."""

    def __init__(self, response):
        request, where = response.request, response.headers.get("location", "")
        super().__init__(f"{request.method} {request.url.path}: {response.status_code} {where}")


class Session:
    """What both ways to buy have in common."""

    def __init__(self, key):
        self.mail = f"{key}@example.com"
        # The judge ends what takes longer.
        self.client = httpx.AsyncClient(transport=TRANSPORT, timeout=120, trust_env=False)
        self.is_sold_out = False  # when the basket was filled
        self.was_ordered = False

    async def order(self, base):
        if self.is_sold_out:
            return "sold-out"
        again, self.was_ordered = self.was_ordered, True
        return await self.place(base, again)


class Pages(Session):
    async def get(self, base, path, status=200):
        response = await self.client.get(base + path)
        if response.status_code != status:
            raise Unexpected(response)
        return response

    async def post(self, base, path, **fields):
        """Sends a form, and returns the answer: most lead to another page."""
        fields["csrfmiddlewaretoken"] = self.client.cookies.get("csrftoken")
        return await self.client.post(base + path, data=fields, headers={"Referer": base + path})

    async def submit(self, base, path, then, **fields):
        """Sends a form that leads to the page `then`."""
        response = await self.post(base, path, **fields)
        if response.headers.get("location") != then:
            raise Unexpected(response)

    async def prepare(self, base, item):
        await self.get(base, f"/catalogue/item_{item}/")
        added = await self.post(base, f"/basket/add/{item}/", quantity=1, next="/checkout/")
        if added.headers.get("location") != "/checkout/":
            # The form was refused; for one unit of an existing product there is one reason.
            if added.status_code != 302:
                raise Unexpected(added)
            self.is_sold_out = True
            return
        shipping = "/checkout/shipping-address/"
        await self.submit(base, "/checkout/", shipping, username=self.mail, options="anonymous")
        method = "/checkout/shipping-method/"
        await self.submit(base, shipping, method, country="NL", **ADDRESS)
        # One method of shipping, no choice of payment: both pages choose, and lead on.
        await self.get(base, method, 302)
        await self.get(base, "/checkout/payment-method/", 302)
        await self.get(base, "/checkout/payment-details/")

    async def place(self, base, again):
        answer = await self.post(base, "/checkout/preview/", action="place_order")
        where = answer.headers.get("location")
        if where == "/checkout/thank-you/":
            return "sold"
        # Who tried before may find the basket empty: that order's page tells whether it was sold.
        if again and (await self.client.get(base + "/checkout/thank-you/")).status_code == 200:
            return "sold"
        if where != "/basket/":
            raise Unexpected(answer)
        if again and "no longer available to buy" not in (await self.get(base, where)).text:
            raise Unexpected(answer)
        return "sold-out"


class Rest(Session):
    async def prepare(self, base, item):
        product = {"url": f"{base}/api/products/{item}/", "quantity": 1}
        response = await self.client.post(base + "/api/basket/add-product/", json=product)
        self.is_sold_out = response.status_code == 406
        if response.status_code == 200:
            self.basket = response.json()["id"]
        elif not self.is_sold_out:
            raise Unexpected(response)

    async def place(self, base, again):
        order = {
            "basket": f"{base}/api/baskets/{self.basket}/",
            "guest_email": self.mail,
            "shipping_address": {"country": f"{base}/api/countries/NL/", **ADDRESS},
        }
        response = await self.client.post(base + "/api/checkout/", json=order)
        if response.status_code != 200:  # it has no answer for "sold out"
            raise Unexpected(response)
        return "sold"


KIND = Rest if sys.argv[1:] == ["rest"] else Pages
sessions = {}  # by the number of the buyer


async def serve(request):
    buyer, base = request["buyer"], request["base"]
    try:
        if request["op"] == "prepare":
            session = KIND(request["key"])
            await session.prepare(base, request["item"])
            sessions[buyer] = session
            answer = {"ok": True}
        else:
            answer = {"answer": await sessions[buyer].order(base)}
    except Exception as error:
        # That of a broken connection says nothing.
        said = f"{type(error).__name__}: {str(error) or 'no answer'}"
        answer = {"error": said.splitlines()[0][:300]}
    print(json.dumps({"id": request["id"], **answer}), flush=True)


async def main():
    tasks = set()
    while line := await asyncio.to_thread(sys.stdin.readline):
        task = asyncio.create_task(serve(json.loads(line)))
        tasks.add(task)  # the loop itself keeps no task alive
        task.add_done_callback(tasks.discard)


asyncio.run(main())
