-- release: hands the lock to the next in line, or leaves it free. A process with waiters of its own
-- gets in line again in the same breath, behind those who are there.
--   ARGV: owner, lease ms, grant ms, horizon ms, channels, the owner to put in line or ''
-- Returns {'held' | 'expired' | 'lost', fence or '0'}: how the lock stood, and the fence if the owner
-- that was put in line has it already. Repeated, it changes nothing more.
local owner, ttl, grant_ms, horizon = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local channels, again = ARGV[5], ARGV[6]

local already = again ~= '' and mine(again)
if already then
    -- Asked twice: the answer of the first time was lost.
    return {'held', fence_of(already)}
end
forget(owner)
local held = mine(owner)
if again ~= '' then
    stand_in_line(again)
end
if held == false then
    local holder = owner_of(redis.call('get', KEYS[1]))
    if again ~= '' and holder then
        tell(channels, holder, 'waiting')
    end
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
