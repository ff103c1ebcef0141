-- probe: does what the locks do, on keys of its own, which it deletes: each command of the scripts,
-- and a message.
--   ARGV: id, lease ms, waiter timeout ms, channels
-- Returns the error of the message, which is only a hint, or ''.
local id, ttl, waiter_timeout_ms, channels = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

enqueue(id)
renew_queue_expiry()
remove_dead_waiters(waiter_timeout_ms)
first_live_waiter(waiter_timeout_ms)
count_waiters()
dequeue(id)
redis.call('zpopmin', KEYS[2])
grant(id, ttl)
redis.call('del', KEYS[1], KEYS[2], KEYS[3], KEYS[4])

local sent = redis.pcall('publish', channels .. 'probe', 'probe')
return type(sent) == 'table' and sent.err or ''
