-- Adds members to a delay queue, or changes their due times.
--
-- KEYS   the shards that are needed
-- ARGV   1 'in': adds absent members · 'off': changes present members · 'now': adds absent members,
--          and brings forward present members that are due later than a claim ends
--        2 upper bound of a shard
--        3 duration of a claim, in ms
--        then for each member: index in KEYS, time until it is due in ms, the member
-- Returns the number of added members, and the members for which there was no room.
--
-- Due times are durations from now on this server's clock: no client's clock needs to agree with
-- it. Repeating the script is harmless.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local how, most, claim = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local added, refused = 0, {}

-- Due times and members, alternating, by shard.
local members = {}
for shard = 1, #KEYS do
    members[shard] = {}
end
for at = 4, #ARGV, 3 do
    local these = members[tonumber(ARGV[at])]
    these[#these + 1] = now + tonumber(ARGV[at + 1])
    these[#these + 1] = ARGV[at + 2]
end

-- Few calls, because lock requests wait for this script. A call takes a bounded number of values.
local function add(shard, condition, these)
    local new = 0
    for from = 1, #these, 1000 do
        local to = math.min(from + 999, #these)
        new = new + redis.call('ZADD', KEYS[shard], condition, unpack(these, from, to))
    end
    return new
end

-- Adds members singly, as long as there is room.
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
