#!lua
-- Publish estimates of one window, or one over several windows. Each replaces the published one of its field, unless
-- that one is from more reports: of two publishers the one who read later wins, whoever writes last.
--
-- What is final stays final, and equal content changes nothing. A published text begins with its revision, which rises
-- with every change of content, and the watermark at that change; neither is content.
--
-- No flag allow-oom: a store without free memory refuses the script before its first line. The cells stay marked as
-- unpublished, and counting goes on.
--
-- key                                     type    meaning
-- KEYS[1]  dither:estimate:{m}:<v>:<w>    hash    field -> document; 'n|' .. field -> n, whether final (0 or 1), revision
--          or dither:rollup:{m}:<v>:<k>
-- KEYS[2]  dither:published:{m}           zset    version:window by the window's start
-- KEYS[3]  dither:open:{m}                zset    version:window whose estimates are not final, by closing time
-- KEYS[4]  dither:totals:{m}:<v>          hash    label -> packed counters of a closed window
--
-- ARGV[1]  version:window ('' for a rollup)            ARGV[2], ARGV[3]  its start and closing time, Unix seconds
-- ARGV[4]  watermark, 20 characters                    ARGV[5], ARGV[6]  label and counters for KEYS[4]; '' for none
-- then for each estimate: field, n, whether final (0 or 1), the JSON text without its opening brace ('' for none: what
-- was published is taken back)
--
-- Returns for each estimate 1: written; 0: stands already; -1: one from more reports stands; -2: a final one stands, and
-- this one is open. The counters are written with the first estimate, unless that was refused.

local function more(a, b)  -- as texts: Lua's numbers are exact up to 2^53 only
  if #a ~= #b then return #a > #b end
  return a > b
end

local function head(revision, watermark)
  return '{"revision":' .. revision .. ',"watermark":"' .. watermark .. '",'
end

local function publish(field, n, final, body)
  local companion = 'n|' .. field
  local known = redis.call('HGET', KEYS[1], companion) or ''
  local before, was_final, revision = string.match(known, '^(%d+) ([01]) (%d+)$')
  local standing = redis.call('HGET', KEYS[1], field)
  if before then
    if more(before, n) then return -1 end
    if was_final == '1' and final == '0' then return -2 end
  end
  local same = standing and string.sub(standing, #head(revision or '', ARGV[4]) + 1) or ''
  if same == body then
    if before and (before ~= n or was_final ~= final) then
      redis.call('HSET', KEYS[1], companion, n .. ' ' .. final .. ' ' .. revision)
    end
    return 0
  end
  revision = string.format('%d', (revision or 0) + 1)
  if body == '' then
    redis.call('HDEL', KEYS[1], field)
  else
    redis.call('HSET', KEYS[1], field, head(revision, ARGV[4]) .. body)
  end
  redis.call('HSET', KEYS[1], companion, n .. ' ' .. final .. ' ' .. revision)
  return 1
end

local results = {}
local written, open = false, false
for at = 7, #ARGV, 4 do
  local result = publish(ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3])
  results[#results + 1] = result
  written = written or result == 1
  open = open or (result >= 0 and ARGV[at + 2] == '0' and ARGV[at + 3] ~= '')
end
if ARGV[1] ~= '' then
  if written then redis.call('ZADD', KEYS[2], ARGV[2], ARGV[1]) end
  if open then redis.call('ZADD', KEYS[3], ARGV[3], ARGV[1]) end
end
if ARGV[5] ~= '' and results[1] >= 0 and redis.call('HGET', KEYS[4], ARGV[5]) ~= ARGV[6] then
  redis.call('HSET', KEYS[4], ARGV[5], ARGV[6])
end
return results
