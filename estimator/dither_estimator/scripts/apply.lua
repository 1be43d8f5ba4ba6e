#!lua flags=allow-oom
-- Apply: counts become part of the cells, exactly once (design section 8).
--
-- Everything is written only if the checkpoint is still the one that the worker started from; the stream is
-- then trimmed exactly to the entry after the new checkpoint. allow-oom: a full store must be able to drain.
--
-- key                                       type    meaning
-- KEYS[1]  dither:{tag}:checkpoint          string  id of the last stream entry that the cells contain
-- KEYS[2]  dither:{tag}:stream              stream  accepted batches
-- KEYS[3]  dither:{tag}:backlog             string  bytes of the entries in the stream
-- KEYS[4]  dither:{tag}:dirty               hash    cell -> checkpoint of its last change, until published
-- KEYS[5]  dither:{tag}:dead                stream  entries that could not be counted
-- KEYS[6 .. 5+c]   dither:{tag}:cell:*      string  packed counters
-- KEYS[6+c ..]     dither:{tag}:outcome:*   hash    what became of the reports of a metric and window
--
-- ARGV[1]  checkpoint that the worker read ('' for none)   ARGV[2]  new checkpoint
-- ARGV[3]  first id to keep                                ARGV[4]  payload bytes of the entries trimmed
-- ARGV[5]  c, number of cells; then c pairs (name, packed value)
-- then     o, number of outcomes; then o pairs (counted, dead)
-- then     number of dead entries; then triples (id, reason, payload)
--
-- Returns 1 when applied, 0 when the checkpoint had moved on and nothing was changed.

local current = redis.call('GET', KEYS[1]) or ''
if current ~= ARGV[1] then
  return 0
end

local at = 5
local function next_argument()
  local value = ARGV[at]
  at = at + 1
  return value
end

local key = 6
for _ = 1, tonumber(next_argument()) do
  local name = next_argument()
  redis.call('SET', KEYS[key], next_argument())
  redis.call('HSET', KEYS[4], name, ARGV[2])
  key = key + 1
end

for _ = 1, tonumber(next_argument()) do
  local counted, dead = next_argument(), next_argument()
  if counted ~= '0' then redis.call('HINCRBY', KEYS[key], 'counted', counted) end
  if dead ~= '0' then redis.call('HINCRBY', KEYS[key], 'dead', dead) end
  key = key + 1
end

for _ = 1, tonumber(next_argument()) do
  local id, reason, payload = next_argument(), next_argument(), next_argument()
  redis.call('XADD', KEYS[5], '*', 'id', id, 'reason', reason, 'b', payload)
end

redis.call('SET', KEYS[1], ARGV[2])
redis.call('XTRIM', KEYS[2], 'MINID', ARGV[3])
redis.call('DECRBY', KEYS[3], ARGV[4])
return 1
