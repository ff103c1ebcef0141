-- release: hands the lock to the next in line, or leaves it free. A process with waiters of its own
-- gets in line again in the same breath, behind those who are there.
--   ARGV: owner, lease ms, grant ms, horizon ms, channels, the owner to put in line or ''
-- Returns {'held' | 'expired' | 'lost', fence or '0'}: how the lock stood, and the fence if the owner
-- that was put in line has it already. Repeated, it finds the lock gone or another's, and says so.
local owner, ttl, grant_ms, horizon = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local channels, again = ARGV[5], ARGV[6]

local held = mine(owner)
if again ~= '' then
    stand_in_line(again)
end
if held == false then
    return {'lost', '0'}
end
redis.call('del', KEYS[1])
local fence = '0'
if again ~= '' and head(horizon) == again then
    fence = grant(again, ttl)
else
    hand_on(grant_ms, horizon, channels)
end
return {held and 'held' or 'expired', fence}
