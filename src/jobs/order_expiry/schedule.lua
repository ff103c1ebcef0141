-- Adds members to a delay queue, or changes their due times.
--
-- KEYS   the shards that are needed
-- ARGV   1 mode: 'add' adds absent members · 'postpone' changes the due times of present members ·
--          'bring-forward' adds absent members, and makes present members due that are due later
--          than the visibility timeout
--        2 upper bound of a shard
--        3 visibility timeout of a claim, in ms
--        then for each member: index in KEYS, time until it is due in ms, the member
-- Returns the number of added members, and the members for which there was no room.
--
-- Due times are durations from now on this server's clock: no client's clock needs to agree with
-- it. Repeating the script is harmless.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local mode, max_per_shard, visibility_timeout = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local added, no_room = 0, {}

-- Due times and members, alternating, by shard.
local entries_of = {}
for shard = 1, #KEYS do
    entries_of[shard] = {}
end
for at = 4, #ARGV, 3 do
    local entries = entries_of[tonumber(ARGV[at])]
    entries[#entries + 1] = now + tonumber(ARGV[at + 1])
    entries[#entries + 1] = ARGV[at + 2]
end

-- Few calls, because lock requests wait for this script. A call takes a bounded number of values.
local function add(shard, condition, entries)
    local new = 0
    for from = 1, #entries, 1000 do
        local to = math.min(from + 999, #entries)
        new = new + redis.call('ZADD', KEYS[shard], condition, unpack(entries, from, to))
    end
    return new
end

-- Adds members singly, as long as there is room.
local function add_each(shard, room, entries)
    for at = 1, #entries, 2 do
        local due, member = entries[at], entries[at + 1]
        local score = redis.call('ZSCORE', KEYS[shard], member)
        if score then
            if mode == 'bring-forward' and tonumber(score) > now + visibility_timeout then
                redis.call('ZADD', KEYS[shard], due, member)
            end
        elseif room > 0 then
            redis.call('ZADD', KEYS[shard], due, member)
            room = room - 1
            added = added + 1
        else
            no_room[#no_room + 1] = member
        end
    end
end

for shard, entries in ipairs(entries_of) do
    if mode == 'postpone' then
        add(shard, 'XX', entries)
    else
        local room = max_per_shard - redis.call('ZCARD', KEYS[shard])
        if mode == 'add' and #entries / 2 <= room then
            added = added + add(shard, 'NX', entries)
        else
            add_each(shard, room, entries)
        end
    end
end
return {added, no_room}
