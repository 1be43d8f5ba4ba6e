#!lua flags=allow-oom
-- Prune: cells of a partition, and the accounts of their windows, are forgotten. allow-oom: it frees memory.
--
-- Only if the checkpoint is the one that was read. Where a cell goes, the checkpoint is marked: an apply that read the
-- cell before fails its own comparison, and reads again. Nothing is marked where nothing was there.
--
-- key                                              type    meaning
-- KEYS[1]  dither:{tag}:checkpoint                 string  id of the last stream entry that the cells contain
-- KEYS[2]  dither:{tag}:dirty                      hash    cell -> checkpoint of its last change, until published
-- KEYS[3]  dither:{tag}:outcomes                   set     every metric:window that has an outcome hash
-- KEYS[4 .. 3+c]  dither:{tag}:cell:*              string  packed counters
-- KEYS[4+c ..]    dither:{tag}:outcome:*           hash    what became of the reports of a metric and window
--
-- ARGV[1]  checkpoint that was read ('' for none)   ARGV[2]  the same, marked   ARGV[3]  c, number of cells
-- ARGV[4]  1: no entry that waits is about these windows, and their accounts go altogether
--          0: entries may wait; what is accepted and neither counted nor dead stays on the account, so that it still
--             balances when they are counted
--
-- Returns {cells, accounts} that were there; nil when the checkpoint had moved on and nothing was changed.

if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then
  return nil
end
redis.call('HLEN', KEYS[2])
redis.call('SCARD', KEYS[3])

local cells, accounts = 0, 0
local last = 3 + tonumber(ARGV[3])
for key = 4, last do
  cells = cells + redis.call('UNLINK', KEYS[key])
  redis.call('HDEL', KEYS[2], string.match(KEYS[key], ':cell:(.*)$'))
end
if cells > 0 then
  redis.call('SET', KEYS[1], ARGV[2])
end

for key = last + 1, #KEYS do
  local waiting = 0
  if ARGV[4] == '0' then
    local found = redis.pcall('HMGET', KEYS[key], 'accepted', 'counted', 'dead')
    waiting = found.err and 0 or (found[1] or 0) - (found[2] or 0) - (found[3] or 0)
  end
  accounts = accounts + redis.call('UNLINK', KEYS[key])
  if waiting > 0 then
    redis.call('HSET', KEYS[key], 'received', waiting, 'accepted', waiting)
  else
    redis.call('SREM', KEYS[3], string.match(KEYS[key], ':outcome:(.*)$'))
  end
end
return {cells, accounts}
