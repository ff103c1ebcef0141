-- Gives tokens their full time again, as far as they are still ours.
--   KEYS: the tokens
--   ARGV: lease ms, then for every key its value
for at, key in ipairs(KEYS) do
    if redis.call('get', key) == ARGV[at + 1] then
        redis.call('pexpire', key, ARGV[1])
    end
end
return redis.status_reply('OK')
