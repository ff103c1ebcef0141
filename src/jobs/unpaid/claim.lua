-- Claims members of a delay queue that are due.
--
-- KEYS   shards
-- ARGV   1 for how many milliseconds they are then nobody else's
--        2 how many at most
-- Answers with them, and in how many milliseconds the next one is due (-1: there is none).
--
-- A member is not taken out but put off: if whoever claimed it says nothing more, it is due again
-- when that time is over. So it is delivered at least once, and nothing is lost with a worker.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local most = tonumber(ARGV[2])
local claimed, next_due = {}, -1
for _, shard in ipairs(KEYS) do
    if #claimed < most then
        local due = redis.call('ZRANGE', shard, '-inf', now, 'BYSCORE', 'LIMIT', 0, most - #claimed)
        for _, member in ipairs(due) do
            redis.call('ZADD', shard, now + tonumber(ARGV[1]), member)
            claimed[#claimed + 1] = member
        end
    end
    local head = redis.call('ZRANGE', shard, 0, 0, 'WITHSCORES')
    if head[2] then
        local wait = math.max(0, tonumber(head[2]) - now)
        if next_due < 0 or wait < next_due then
            next_due = wait
        end
    end
end
return {next_due, claimed}
