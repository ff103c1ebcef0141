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
local how, most, claim = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local added, refused = 0, {}

-- Due times and members, in turns, by shard.
local members = {}
for shard = 1, #KEYS do
    members[shard] = {}
end
for at = 4, #ARGV, 3 do
    local these = members[tonumber(ARGV[at])]
    these[#these + 1] = now + tonumber(ARGV[at + 1])
    these[#these + 1] = ARGV[at + 2]
end

-- In few calls: whoever wants a lock waits for this script. A call takes so many values and no more.
local function add(shard, condition, these)
    local new = 0
    for from = 1, #these, 1000 do
        local to = math.min(from + 999, #these)
        new = new + redis.call('ZADD', KEYS[shard], condition, unpack(these, from, to))
    end
    return new
end

-- One after the other, as far as there is room.
local function add_each(shard, room, these)
    for at = 1, #these, 2 do
        local due, member = these[at], these[at + 1]
        local score = redis.call('ZSCORE', KEYS[shard], member)
        if score then
            if how == 'now' and tonumber(score) > now + claim then
                redis.call('ZADD', KEYS[shard], due, member)
            end
        elseif room > 0 then
            redis.call('ZADD', KEYS[shard], due, member)
            room = room - 1
            added = added + 1
        else
            refused[#refused + 1] = member
        end
    end
end

for shard, these in ipairs(members) do
    if how == 'off' then
        add(shard, 'XX', these)
    else
        local room = most - redis.call('ZCARD', KEYS[shard])
        if how == 'in' and #these / 2 <= room then
            added = added + add(shard, 'NX', these)
        else
            add_each(shard, room, these)
        end
    end
end
return {added, refused}
