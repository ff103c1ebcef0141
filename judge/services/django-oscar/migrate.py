"""`[setup] once`: the schema, and what a shop needs besides products. It may run again."""

import django

django.setup()

from django.core.management import call_command
from oscar.core.loading import get_model

call_command("migrate", verbosity=0)
get_model("address", "Country").objects.update_or_create(
    iso_3166_1_a2="NL",
    defaults={"printable_name": "Netherlands", "is_shipping_country": True},
)
get_model("catalogue", "ProductClass").objects.update_or_create(
    slug="item", defaults={"name": "Item", "track_stock": True}
)
get_model("partner", "Partner").objects.update_or_create(code="shop", defaults={"name": "Shop"})
