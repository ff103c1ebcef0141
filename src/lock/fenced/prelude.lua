-- What the scripts of the fenced lock share. Each script is this text and its own.
--
-- All keys of one lock lie in one slot:
--   KEYS[1]  the lock        "<owner> <fence>@<since, Unix ms>", with the lease as its expiry
--   KEYS[2]  the queue       owners that wait, by ticket (the server's time, in microseconds)
--   KEYS[3]  the last seen   the same owners, by when they last asked, in milliseconds
--   KEYS[4]  the fences      the last number given out
-- An owner is "<process>.<lease>": its process hears on a channel of its own.
--
-- Times are the server's alone. Numbers stay below 2^53, where a double is exact.

local BLOCK = 64           -- fences per grant: local passes use them up one by one
local FENCES_LIVE = 86400000 -- a day past the last grant; Postgres is the floor below it
local QUEUE_LIVES = 60000  -- long past the last one who waits

local function now()
    local time = redis.call('time')
    return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local function ticket()
    local time = redis.call('time')
    return string.format('%.0f', tonumber(time[1]) * 1000000 + tonumber(time[2]))
end

local function text(number)
    return string.format('%.0f', number)
end

-- The lock's value if it is this owner's; false if it is somebody else's; nil if nobody's.
local function mine(owner)
    local value = redis.call('get', KEYS[1])
    if not value then
        return nil
    end
    return string.sub(value, 1, #owner + 1) == owner .. ' ' and value
end

local function fence_of(value)
    return string.match(value, ' (%d+)@')
end

local function owner_of(value)
    return string.match(value, '^(%S+) ')
end

local function forget(owner)
    redis.call('zrem', KEYS[2], owner)
    redis.call('zrem', KEYS[3], owner)
end

-- Puts an owner in line, or says that it is still there. Whether it is new.
local function stand_in_line(owner)
    local new = redis.call('zadd', KEYS[2], 'nx', ticket(), owner)
    redis.call('zadd', KEYS[3], text(now()), owner)
    redis.call('pexpire', KEYS[2], QUEUE_LIVES)
    redis.call('pexpire', KEYS[3], QUEUE_LIVES)
    return new == 1
end

-- Drops those who have not asked for so long that they must be dead; the first of the rest.
local function head(horizon_ms)
    local before = text(now() - horizon_ms)
    for _, owner in ipairs(redis.call('zrangebyscore', KEYS[3], '-inf', '(' .. before)) do
        forget(owner)
    end
    return redis.call('zrange', KEYS[2], 0, 0)[1]
end

-- Makes an owner the holder, with a block of fences of its own. Its first fence.
local function grant(owner, ttl_ms)
    local top = redis.call('incrby', KEYS[4], BLOCK)
    redis.call('pexpire', KEYS[4], FENCES_LIVE)
    local fence = text(top - BLOCK + 1)
    redis.call('set', KEYS[1], owner .. ' ' .. fence .. '@' .. text(now()), 'px', ttl_ms)
    forget(owner)
    return fence
end

-- Tells a process. A hint only: whoever misses it asks again soon.
local function tell(channels, owner, word)
    local process = string.match(owner, '^([^.]+)%.')
    if process then
        redis.call('publish', channels .. process, word .. ' ' .. KEYS[1])
    end
end

-- Hands a free lock to the head of the line, for long enough to confirm it. Nobody barges.
local function hand_on(grant_ms, horizon_ms, channels)
    local next = head(horizon_ms)
    if next then
        grant(next, grant_ms)
        tell(channels, next, 'granted')
    end
end

local function waiting()
    return redis.call('zcard', KEYS[2])
end
