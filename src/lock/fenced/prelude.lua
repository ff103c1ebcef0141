-- What the scripts of the fenced lock share. Each script is this text and its own.
--
-- All keys of one lock lie in one slot:
--   KEYS[1]  the lock        "<owner> <fence>@<since, Unix ms>", with the lease as its expiry
--   KEYS[2]  the queue       owners that wait, by ticket (the server's time, in microseconds)
--   KEYS[3]  the last seen   the same owners, by when they last asked, in milliseconds; one who is
--                            not there was last seen when they got their ticket
--   KEYS[4]  the fences      the last number given out
-- An owner is "<process>.<lease>": its process hears on a channel of its own.
--
-- Times are the server's alone. Numbers stay below 2^53, where a double is exact.

local BLOCK = 64           -- fences per grant: local passes use them up one by one
local FENCES_LIVE = 86400000 -- a day past the last grant; Postgres is the floor below it
local QUEUE_LIVES = 60000  -- long past the last one who waits

-- What a call costs here is a waiter's wait: each is made once, and only where it is needed.
local value = redis.call('get', KEYS[1])

local micros
local function now_us()
    if not micros then
        local time = redis.call('time')
        micros = tonumber(time[1]) * 1000000 + tonumber(time[2])
    end
    return micros
end

local function text(number)
    return string.format('%.0f', number)
end

local function now_ms()
    return math.floor(now_us() / 1000)
end

-- The lock's value if it was this owner's when the script began; false if it was somebody else's;
-- nil if nobody's.
local function mine(owner)
    if not value then
        return nil
    end
    return string.sub(value, 1, #owner + 1) == owner .. ' ' and value
end

local function fence_of(held)
    return string.match(held, ' (%d+)@')
end

local function owner_of(held)
    return string.match(held, '^(%S+) ')
end

local function forget(owner)
    redis.call('zrem', KEYS[2], owner)
    redis.call('zrem', KEYS[3], owner)
end

-- Puts an owner in line, or says that it is still there. Whether it is new.
local function stand_in_line(owner)
    local new = redis.call('zadd', KEYS[2], 'nx', text(now_us()), owner)
    redis.call('zadd', KEYS[3], text(now_ms()), owner)
    return new == 1
end

-- Whoever waits asks again within a fraction of this; a line that nobody asks about goes away.
local function keep_line()
    redis.call('pexpire', KEYS[2], QUEUE_LIVES)
    redis.call('pexpire', KEYS[3], QUEUE_LIVES)
end

-- Drops those who have not asked again for so long that they must be dead. (Those who never did
-- are dropped when they come first.)
local function prune(horizon_ms)
    local before = text(now_ms() - horizon_ms)
    for _, owner in ipairs(redis.call('zrangebyscore', KEYS[3], '-inf', '(' .. before)) do
        forget(owner)
    end
end

-- The first in line of those who are alive. Who is dead and comes before them is dropped.
local function head(horizon_ms)
    local since_us = now_us() - horizon_ms * 1000
    while true do
        local place = redis.call('zrange', KEYS[2], 0, 0, 'withscores')
        local first, ticket = place[1], place[2]
        if not first or tonumber(ticket) >= since_us
            or tonumber(redis.call('zscore', KEYS[3], first) or '0') * 1000 >= since_us then
            return first
        end
        forget(first)
    end
end

-- Gives a lock up for which nobody waits. Who was seen last has left the line.
local function free()
    redis.call('del', KEYS[1], KEYS[3])
end

-- Makes an owner who is not in line the holder, with a block of fences of its own. Its first fence.
local function grant(owner, ttl_ms)
    local top = redis.call('incrby', KEYS[4], BLOCK)
    redis.call('pexpire', KEYS[4], FENCES_LIVE)
    local fence = text(top - BLOCK + 1)
    redis.call('set', KEYS[1], owner .. ' ' .. fence .. '@' .. text(now_ms()), 'px', ttl_ms)
    return fence
end

-- Tells a process. A hint only: whoever misses it asks again soon.
local function tell(channels, owner, word)
    local process = string.match(owner, '^([^.]+)%.')
    if process then
        redis.call('publish', channels .. process, word .. ' ' .. KEYS[1])
    end
end

local function waiting()
    return redis.call('zcard', KEYS[2])
end

-- Hands a free lock to whoever is first in line, for long enough to confirm it. Nobody barges.
-- Its first fence.
local function hand_on(first, grant_ms, channels)
    local fence = grant(first, grant_ms)
    forget(first)
    tell(channels, first, 'granted ' .. first .. ' ' .. fence .. ' ' .. waiting())
    return fence
end
