#!lua flags=allow-oom
-- Trim: what the archive contains leaves the stream. allow-oom: a full store must be able to drain.
--
-- Only if nobody else claimed the archive since, and never an entry that is not counted.
--
-- key                                    type    meaning
-- KEYS[1]  dither:{tag}:archived         string  'id number file claim', see claim.lua
-- KEYS[2]  dither:{tag}:checkpoint       string  id of the last stream entry that the cells contain
-- KEYS[3]  dither:{tag}:stream           stream  accepted batches
-- KEYS[4]  dither:{tag}:backlog          string  bytes of the entries in the stream
--
-- ARGV[1]  what KEYS[1] must hold        ARGV[2]  what it is to hold; '' to end the archive
-- ARGV[3]  id of the last entry to trim  ARGV[4]  the id after it
-- ARGV[5]  payload bytes of the entries trimmed
--
-- Returns 1 when done, now or by an earlier try; 0 when nothing was changed.

local current = redis.call('GET', KEYS[1]) or ''
if current == ARGV[2] then
  return 1
end
if current ~= ARGV[1] then
  return 0
end

local function parts(id)
  local milliseconds, sequence = string.match(id, '^(%d+)-(%d+)')
  return tonumber(milliseconds), tonumber(sequence)
end
local trimmed_ms, trimmed_seq = parts(ARGV[3])
local counted_ms, counted_seq = parts(redis.call('GET', KEYS[2]) or '0-0')
if trimmed_ms > counted_ms or (trimmed_ms == counted_ms and trimmed_seq > counted_seq) then
  return 0
end
if ARGV[2] == '' and (trimmed_ms ~= counted_ms or trimmed_seq ~= counted_seq) then
  return 0  -- what was counted meanwhile is still to be trimmed
end

redis.call('XTRIM', KEYS[3], 'MINID', ARGV[4])
if ARGV[2] == '' then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], ARGV[2])
end
redis.pcall('DECRBY', KEYS[4], ARGV[5])
return 1
