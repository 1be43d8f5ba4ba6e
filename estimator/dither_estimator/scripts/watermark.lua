#!lua flags=no-writes
-- Watermark of a partition: the time, Unix milliseconds by the store's clock, before which every entry is counted.
--
-- That is now, if the stream holds no entry after the checkpoint, else the time of the first one. The checkpoint is read
-- together with the stream: what is counted meanwhile can only make the true watermark later.
--
-- KEYS[1]  dither:{tag}:checkpoint   string   id of the last stream entry that the cells contain; a prune adds '.n'
-- KEYS[2]  dither:{tag}:stream       stream   accepted batches, in arrival order

local checkpoint = redis.call('GET', KEYS[1])
local start = checkpoint and '(' .. string.match(checkpoint, '^[^.]+') or '-'
local waiting = redis.call('XRANGE', KEYS[2], start, '+', 'COUNT', 1)[1]
if waiting then
  return tonumber(string.match(waiting[1], '^%d+'))
end
local now = redis.call('TIME')
return now[1] * 1000 + math.floor(now[2] / 1000)
