-- confirm, and renew: sets the holder's lease to its full duration.
--   ARGV: id, lease ms
-- Returns {'held', fence, number of waiters} or {'lost'}.
local held = value_if_held_by(ARGV[1])
if held then
    redis.call('pexpire', KEYS[1], ARGV[2])
    -- A lock may be held for longer than the counter lives without a grant.
    redis.call('pexpire', KEYS[4], FENCE_COUNTER_TTL_MS)
    return {'held', fence_of(held), count_waiters()}
end
return {'lost'}
