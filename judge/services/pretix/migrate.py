"""`[setup] once`: the schema, an event, and a token for the REST API. It may run again."""

import django

django.setup()

from datetime import timedelta

from django.core.management import call_command
from django.utils.timezone import now
from django_scopes import scopes_disabled
from pretix.base.models import Event, Organizer

call_command("migrate", verbosity=0)
with scopes_disabled():
    shop, _ = Organizer.objects.get_or_create(slug="shop", defaults={"name": "Shop"})
    event, is_new = Event.objects.get_or_create(
        organizer=shop,
        slug="fair",
        defaults={
            "name": "Fair",
            "currency": "EUR",
            "date_from": now() + timedelta(days=300),
            "live": True,
        },
    )
    if is_new:
        event.set_defaults()
        # Payment on some other way, which is with the shop: no server of a bank is asked.
        event.settings.payment_manual__enabled = True
    team, _ = shop.teams.get_or_create(
        name="Judge",
        defaults={
            "all_events": True,
            "all_event_permissions": True,
            "all_organizer_permissions": True,
        },
    )
    team.tokens.get_or_create(name="Judge", token="of-the-judge")
