-- Puts members into a delay queue, or puts them off.
--
-- KEYS   the shards that are needed
-- ARGV   1 'in': those that are not there · 'off': those that are · 'now': those that are not
--          there, and those that are there for later than whoever has claimed them may take
--        2 how many a shard may have
--        3 for how many milliseconds a claim lasts
--        then for each member: which of the KEYS, in how many milliseconds it is due, itself
-- Answers with how many were put in, and the members for which there was no room.
--
-- Due times are on this server's clock, and are told as a span from now: nobody's clock need agree
-- with it. Doing it twice is harmless.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local most, claim = tonumber(ARGV[2]), tonumber(ARGV[3])
local room, added, refused = {}, 0, {}
for at = 4, #ARGV, 3 do
    local shard, due, member = tonumber(ARGV[at]), now + tonumber(ARGV[at + 1]), ARGV[at + 2]
    if ARGV[1] == 'off' then
        redis.call('ZADD', KEYS[shard], 'XX', due, member)
    else
        local score = redis.call('ZSCORE', KEYS[shard], member)
        if score then
            if ARGV[1] == 'now' and tonumber(score) > now + claim then
                redis.call('ZADD', KEYS[shard], due, member)
            end
        else
            room[shard] = room[shard] or most - redis.call('ZCARD', KEYS[shard])
            if room[shard] > 0 then
                redis.call('ZADD', KEYS[shard], due, member)
                room[shard] = room[shard] - 1
                added = added + 1
            else
                refused[#refused + 1] = member
            end
        end
    end
end
return {added, refused}
