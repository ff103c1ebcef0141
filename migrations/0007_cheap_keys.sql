-- What a key costs per order.
--
-- Its row is claimed first and gets its answer a moment later, in the same transaction. With room
-- left on the page the second version lies beside the first and no index hears of it (a HOT update).
alter table idempotency set (fillfactor = 40);

-- Keys are found by age once a day, to be forgotten, and rows lie in the order of their age: which
-- is what a block range index is for. A btree would cost each order an insert.
drop index idempotency_created_at;
create index idempotency_created_at on idempotency using brin (created_at);
