#!lua flags=allow-oom
-- Apply: counts become part of the cells, exactly once (design section 8).
--
-- Everything is written only if the checkpoint is still the one that the worker started from; the stream is
-- then trimmed exactly to the entry after the new checkpoint, unless an archive has still to read it: then the
-- archive trims, and only the dead leave the stream here. allow-oom: a full store must be able to drain.
--
-- What can fail stands before the first change: cells that were written without their checkpoint would be counted
-- twice. The accounts are under pcall: a damaged one shows as an imbalance, and never holds up counting.
--
-- key                                       type    meaning
-- KEYS[1]  dither:{tag}:checkpoint          string  id of the last stream entry that the cells contain
-- KEYS[2]  dither:{tag}:stream              stream  accepted batches
-- KEYS[3]  dither:{tag}:backlog             string  bytes of the entries in the stream
-- KEYS[4]  dither:{tag}:dirty               hash    cell -> checkpoint of its last change, until published
-- KEYS[5]  dither:{tag}:dead                stream  entries that could not be counted
-- KEYS[6]  dither:{tag}:archived            string  up to where the archive contains the stream; exists while there is one
-- KEYS[7]  dither:{tag}:outcomes            set     every metric:window that has an outcome hash
-- KEYS[8 .. 7+c]   dither:{tag}:cell:*      string  packed counters
-- KEYS[8+c, 10+c ..]  dither:{tag}:outcome:*  hash  what became of the reports of a metric and window
-- KEYS[9+c, 11+c ..]  dither:{tag}:ever:*     hash  the same of that metric over all windows; nothing is forgotten
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
redis.call('XLEN', KEYS[2])
redis.call('HLEN', KEYS[4])
local archiving = redis.call('EXISTS', KEYS[6]) == 1

local cells = tonumber(ARGV[5])
local outcomes = tonumber(ARGV[6 + 2 * cells])
local dead_at = 7 + 2 * cells + 2 * outcomes
for entry = 1, tonumber(ARGV[dead_at]) do
  local at = dead_at + 3 * (entry - 1)
  redis.call('XADD', KEYS[5], '*', 'id', ARGV[at + 1], 'reason', ARGV[at + 2], 'b', ARGV[at + 3])
end

redis.call('SET', KEYS[1], ARGV[2])
for cell = 1, cells do
  local at = 4 + 2 * cell
  redis.call('SET', KEYS[7 + cell], ARGV[at + 1])
  redis.call('HSET', KEYS[4], ARGV[at], ARGV[2])
end
if archiving then
  for entry = 1, tonumber(ARGV[dead_at]) do
    local at = dead_at + 3 * (entry - 1)
    if redis.call('XDEL', KEYS[2], ARGV[at + 1]) == 1 then
      redis.pcall('DECRBY', KEYS[3], #ARGV[at + 3])
    end
  end
else
  redis.call('XTRIM', KEYS[2], 'MINID', ARGV[3])
  redis.pcall('DECRBY', KEYS[3], ARGV[4])
end

for outcome = 1, outcomes do
  local key, ever = KEYS[6 + cells + 2 * outcome], KEYS[7 + cells + 2 * outcome]
  local at = 5 + 2 * cells + 2 * outcome
  if redis.call('EXISTS', key) == 0 then
    redis.pcall('SADD', KEYS[7], string.match(key, ':outcome:(.*)$'))
  end
  for offset, word in ipairs({'counted', 'dead'}) do
    local reports = ARGV[at + offset - 1]
    if reports ~= '0' then
      redis.pcall('HINCRBY', key, word, reports)
      redis.pcall('HINCRBY', ever, word, reports)
    end
  end
end
return 1
