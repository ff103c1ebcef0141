-- Puts members into a delay queue, or puts them off.
--
-- KEYS   the shards that are needed
-- ARGV   1 'NX': only those that are not there · 'XX': only those that are
--        2 how many a shard may have
--        then for each member: which of the KEYS, in how many milliseconds it is due, itself
-- Answers with the members for which there was no room.
--
-- Due times are on this server's clock, and are told as a span from now: nobody's clock need agree
-- with it. Doing it twice is harmless: with NX the first time counts, with XX the last one.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local most = tonumber(ARGV[2])
local room, refused = {}, {}
for at = 3, #ARGV, 3 do
    local shard, due, member = tonumber(ARGV[at]), now + tonumber(ARGV[at + 1]), ARGV[at + 2]
    if ARGV[1] == 'NX' then
        room[shard] = room[shard] or most - redis.call('ZCARD', KEYS[shard])
        if room[shard] > 0 then
            room[shard] = room[shard] - redis.call('ZADD', KEYS[shard], 'NX', due, member)
        elseif not redis.call('ZSCORE', KEYS[shard], member) then
            refused[#refused + 1] = member
        end
    else
        redis.call('ZADD', KEYS[shard], 'XX', due, member)
    end
end
return refused
