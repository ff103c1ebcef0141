-- Removes the ledger with its entries. It waits for the transactions that use the table.
begin;
set local lock_timeout = '5s';
drop function {ledger_keep}() cascade;  -- and the triggers, also of a table that was renamed
drop table {ledger};
drop function {ledger_close}, {ledger_write}, {ledger_text_guard}, {ledger_key}, {ledger_value};
commit;
