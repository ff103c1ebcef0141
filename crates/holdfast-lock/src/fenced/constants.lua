local FENCES_PER_GRANT = 64           -- each local handoff uses one
local FENCE_COUNTER_TTL_MS = 86400000 -- a day after the last grant or renewal
local QUEUE_TTL_MS = 60000            -- far longer than the interval of polls
local GRANTS_PER_SWEEP = 64           -- a handoff removes the queue's dead waiters this often
