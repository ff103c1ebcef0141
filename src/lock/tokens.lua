-- Tokens of a whole batch in one step: gives some back and takes others.
--   KEYS: those to give back, then those to take
--   ARGV: lease ms, how many to give back, then for every key its value
-- Returns for every token to take '' if it was taken, or else the value of whoever has it.
-- A token that is already ours by that very value counts as taken: so it may be repeated.
local ttl, back = ARGV[1], tonumber(ARGV[2])
local answers = {}
for at, key in ipairs(KEYS) do
    local value = ARGV[at + 2]
    if at <= back then
        if redis.call('get', key) == value then
            redis.call('del', key)
        end
    elseif redis.call('set', key, value, 'nx', 'px', ttl) then
        answers[#answers + 1] = ''
    else
        local current = redis.call('get', key)
        answers[#answers + 1] = current == value and '' or current
    end
end
return answers
