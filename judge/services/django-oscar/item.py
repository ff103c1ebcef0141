"""`[setup] command`: a new product, of which `item.py STOCK` has so many units.

By SQL: Django starts in a second or two.
"""

import json
import os
import sys

import psycopg

# What the dashboard's form writes: a standalone product, public, of the class that tracks stock.
PRODUCT = """
    insert into catalogue_product (structure, is_public, title, slug, description, meta_title,
        meta_description, priority, is_discountable, date_created, date_updated, product_class_id)
    select 'standalone', true, 'Item', 'item', '', '', '', 0, true, now(), now(), id
    from catalogue_productclass where slug = 'item'
    returning id"""
STOCK = """
    insert into partner_stockrecord (product_id, partner_id, partner_sku, price_currency, price,
        num_in_stock, date_created, date_updated)
    select %s, id, %s, 'GBP', 10, %s, now(), now()
    from partner_partner where code = 'shop'"""
# Somebody has seen it before: of two requests that view a product first, at once, one fails with
# 500 (the counters of oscar's analytics), and no stock is involved.
VIEWED = """
    insert into analytics_productrecord (product_id, num_views, num_basket_additions, num_purchases,
        score)
    values (%s, 1, 0, 0, 0)"""

with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
    (item,) = connection.execute(PRODUCT).fetchone()
    connection.execute(STOCK, (item, f"item-{item}", int(sys.argv[1])))
    connection.execute(VIEWED, (item,))
print(json.dumps({"item": str(item)}))
