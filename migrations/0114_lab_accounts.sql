-- Each user's account of the lab: a user of its own, who cannot sign in, with an account of kind
-- 'lab'. It pays the orders of lab items, so that money made there buys nothing in the shop. Created
-- with the user's first payment in the lab.
--
-- The mark goes that a broken strategy left on a user's own account ('lab'): all of these are
-- audited, always. Those of the lab's own users, who paid in earlier runs, become lab accounts.

-- The user whose lab account it is. Unique: two first payments at once create one account.
alter table users add column lab_account_of uuid
    constraint users_lab_account_of references users (id)
    constraint users_lab_account_of_key unique;

update users u set lab_account_of = u.id
  from accounts a where a.user_id = u.id and a.kind = 'lab' and u.name like 'lab-%';
update accounts a set kind = 'shop'
  from users u where u.id = a.user_id and a.kind = 'lab' and u.lab_account_of is null;

-- The opening balance of a lab account.
alter domain balance_reason drop constraint balance_ledger_reason;
alter domain balance_reason add constraint balance_ledger_reason
    check (value in ('top-up', 'payment', 'refund', 'welcome', 'lab')) not valid;
