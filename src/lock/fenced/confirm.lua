-- confirm, and renew: a holder gives its lease the full time again.
--   ARGV: owner, lease ms
-- Returns {'held', fence, others waiting} or {'lost'}.
local held = mine(ARGV[1])
if held then
    redis.call('pexpire', KEYS[1], ARGV[2])
    return {'held', fence_of(held), waiting()}
end
return {'lost'}
