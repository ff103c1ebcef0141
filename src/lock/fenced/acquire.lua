-- acquire, and poll: asks for the lock, keeps the place in line, and keeps the line moving.
-- Repeating it with the same owner changes nothing but when the owner was last seen.
--   ARGV: owner, lease ms, grant ms, horizon ms, channels, '1' to wait or '0' to only try
-- Returns {'held', fence, others waiting} or {'taken', holder's value, its ms left}.
local owner, ttl, grant_ms, horizon = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local channels, waits = ARGV[5], ARGV[6] == '1'

local held = mine(owner)
if held then
    -- Granted since, or asked twice: the answer of the first time was lost.
    redis.call('pexpire', KEYS[1], ttl)
    return {'held', fence_of(held), waiting()}
end
-- Free, and nobody alive stands in line.
if held == nil and (redis.call('exists', KEYS[2]) == 0 or not head(horizon)) then
    return {'held', grant(owner, ttl), 0}
end
if not waits then
    return {'taken', redis.call('get', KEYS[1]) or '', redis.call('pttl', KEYS[1])}
end
local new = stand_in_line(owner)
if held == nil then
    if head(horizon) == owner then
        return {'held', grant(owner, ttl), waiting()}
    end
    hand_on(grant_ms, horizon, channels)
elseif new then
    -- The holder passes the lock on inside its process only while nobody else waits.
    local holder = owner_of(redis.call('get', KEYS[1]))
    if holder then
        tell(channels, holder, 'waiting')
    end
end
return {'taken', redis.call('get', KEYS[1]) or '', redis.call('pttl', KEYS[1])}
