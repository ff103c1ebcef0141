-- Takes units from the counter of an item, as the strategy `pre-deduct` does.
--
-- Redis executes nothing else during a script: no two orders get the same unit from one counter.
--
-- KEYS[1]  the counter
-- ARGV[1]  the units
-- ARGV[2]  the expiry of the counter in ms, set anew
--
-- Returns what the counter had before, and 1 if it had enough, else 0. Returns nothing if there is no
-- counter: the caller loads it from the item's row, and calls again.
local left = redis.call('GET', KEYS[1])
if not left then
  return {}
end

if tonumber(left) < tonumber(ARGV[1]) then
  return {left, 0}
end

redis.call('DECRBY', KEYS[1], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {left, 1}
