local BLOCK = 64                      -- fences per grant; each local handoff uses one
local FENCE_COUNTER_TTL_MS = 86400000 -- a day after the last grant or renewal
local QUEUE_TTL_MS = 60000            -- far longer than the interval of polls
local GRANTS_PER_SWEEP = 64           -- a handoff sweeps the queue's dead owners this often
