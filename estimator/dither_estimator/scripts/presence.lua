#!lua flags=allow-oom
-- Presence: a worker says that it lives, and learns who else does. allow-oom: a full store must be able to drain.
--
-- Times are this store's own, so no worker's clock matters.
--
-- KEYS[1]  dither:workers   sorted set   worker -> when it was seen last, Unix milliseconds
--
-- ARGV[1]  the worker              ARGV[2]  milliseconds after which a worker that was not seen is gone
-- ARGV[3]  '' or how the workers begin that this one takes the place of
--
-- Returns the living workers, this one included, each followed by when it was seen last.

local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))

redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(' .. string.format('%.0f', now - ARGV[2]))
-- The clock was set back: what lies ahead of it would be alive until it has caught up.
for _, worker in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. now, '+inf')) do
  redis.call('ZADD', KEYS[1], now, worker)
end
if ARGV[3] ~= '' then
  for _, worker in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
    if string.sub(worker, 1, #ARGV[3]) == ARGV[3] then
      redis.call('ZREM', KEYS[1], worker)
    end
  end
end
redis.call('ZADD', KEYS[1], now, ARGV[1])
return redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
