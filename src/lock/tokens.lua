-- Tokens of a whole batch in one step: gives some back and takes others.
--   KEYS: those to give back, then those to take
--   ARGV: lease ms, how many to give back, then for every key its value
-- Returns for every token to take '' if it was taken, or else the value of whoever has it.
-- A token that is already ours by that very value counts as taken: so it may be repeated.
--
-- What is given back is read in one call and deleted in another: everybody waits for this script.
local ttl, back = ARGV[1], tonumber(ARGV[2])
if back > 0 then
    local ours = {}
    for at, value in ipairs(redis.call('mget', unpack(KEYS, 1, back))) do
        if value == ARGV[at + 2] then
            ours[#ours + 1] = KEYS[at]
        end
    end
    if #ours > 0 then
        redis.call('del', unpack(ours))
    end
end
local answers = {}
for at = back + 1, #KEYS do
    local key, value = KEYS[at], ARGV[at + 2]
    if redis.call('set', key, value, 'nx', 'px', ttl) then
        answers[#answers + 1] = ''
    else
        local current = redis.call('get', key)
        answers[#answers + 1] = current == value and '' or current
    end
end
return answers
