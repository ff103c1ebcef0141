-- confirm, and renew: sets the holder's lease to its full duration.
--   ARGV: owner, lease ms
-- Returns {'held', fence, number of waiters} or {'lost'}.
local held = mine(ARGV[1])
if held then
    redis.call('pexpire', KEYS[1], ARGV[2])
    return {'held', fence_of(held), waiting()}
end
return {'lost'}
