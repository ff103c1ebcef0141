-- At most so many per customer.
--
-- What a customer has of an item is what stands in their orders that are pending or paid. It is
-- counted from the lines of those orders, each time. A counter per user and item would be one more
-- row to lock, and to write with every order, limit or none.

alter table items
    -- None: no limit. The largest is the largest quantity of a line.
    add column limit_per_user bigint null
        constraint items_limit_range check (limit_per_user between 1 and 1000);

alter table order_lines
    -- Whose units these are: the buyer, for as long as the order is pending or paid; empty once it
    -- is cancelled, expired or refunded, and its units are anybody's again. The order says both, but
    -- neither the lines of a hot item nor the orders of a good customer are few, and whoever orders
    -- and cancels all day makes lines that no index on the two could leave out: a hundred thousand
    -- of them cost 300 ms of joining, under the item's lock. Those with a name here are never more
    -- than the limit.
    add column counts_for uuid null,
    -- The limit under which it was sold. The admin may change the item's afterwards; the audit
    -- proves each line by its own.
    add column limit_per_user bigint null
        constraint order_lines_limit_range check (limit_per_user between 1 and 1000);

update order_lines l set counts_for = o.user_id
  from orders o where o.id = l.order_id and o.status in ('pending', 'paid');

-- In place of the one on sku alone, which it serves as well: one entry per line, as before. (For
-- limited items only it would be smaller, and would have to be filled in, under the item's lock, on
-- the day an item that has been sold for a year gets its first limit.)
drop index order_lines_sku;
create index order_lines_sku_counts_for on order_lines (sku, counts_for);

-- No path that undoes an order can forget it, and the audit holds it against the order's status.
create function free_units() returns trigger language plpgsql as $$
begin
    update order_lines set counts_for = null where order_id = new.id;
    return null;
end
$$;

create trigger orders_free_units after update of status on orders
    for each row when (old.status in ('pending', 'paid') and new.status in ('cancelled', 'refunded'))
    execute function free_units();
