-- Claims members of a delay queue that are due.
--
-- KEYS   shards
-- ARGV   1 visibility timeout, in ms
--        2 maximum number of members
-- Returns the time until the next member is due in ms (-1: there is none), and the members.
--
-- A claim postpones a member and does not remove it: unless the worker renews the claim or removes
-- the member, it is due again when the claim ends. So delivery is at least once, and a dead worker
-- loses nothing.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local visibility_timeout, max = tonumber(ARGV[1]), tonumber(ARGV[2])
local claimed, next_due = {}, -1
for _, shard in ipairs(KEYS) do
    if #claimed < max then
        local due = redis.call('ZRANGE', shard, '-inf', now, 'BYSCORE', 'LIMIT', 0, max - #claimed)
        for _, member in ipairs(due) do
            redis.call('ZADD', shard, now + visibility_timeout, member)
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
