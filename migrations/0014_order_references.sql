-- What an order refers to.
--
-- Three foreign keys looked up, for each order: its user; for its line the order, which the same
-- statement has just written; and the item, whose row the same transaction has just changed. Each is a
-- query of its own that also locks what it finds (`for key share`: a write to that row, and to the
-- log). Together they were a tenth of what an order of a batch costs, all of it while the item was
-- locked, and they could not fail: who orders is signed in, and nobody is ever deleted.
--
-- What they promised is kept from both ends. That every order has its user and every line its order
-- and its item is a rule of the audit, as for the ledger since 0008. And what is referred to can't be
-- deleted or get another name, row by row, which costs an order nothing. (`truncate` is for who empties
-- everything, as the bench does.)
alter table orders drop constraint orders_user;
alter table order_lines
    drop constraint order_lines_order,
    drop constraint order_lines_item;

create function refuse_while_referred_to() returns trigger language plpgsql as $$
declare
    referred_to boolean;
begin
    case tg_table_name
        when 'users' then
            referred_to := exists (select from orders where user_id = old.id);
        when 'orders' then
            referred_to := exists (select from order_lines where order_id = old.id);
        when 'items' then
            referred_to := exists (select from order_lines where sku = old.sku);
    end case;
    if referred_to then
        raise exception using
            errcode = 'foreign_key_violation',
            message = format('a row of %I can''t be deleted or renamed: orders refer to it', tg_table_name);
    end if;
    if tg_op = 'DELETE' then
        return old;
    end if;
    return new;
end
$$;

create trigger users_are_referred_to before delete or update of id on users
    for each row execute function refuse_while_referred_to();
create trigger orders_are_referred_to before delete or update of id on orders
    for each row execute function refuse_while_referred_to();
create trigger items_are_referred_to before delete or update of sku on items
    for each row execute function refuse_while_referred_to();
