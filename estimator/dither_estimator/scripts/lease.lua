#!lua flags=allow-oom
-- Lease: take what is free, renew what is one's own. allow-oom: a full store must be able to drain.
--
-- KEYS[1]  dither:{tag}:lease or dither:publisher   string   the worker that holds it; expires
--
-- ARGV[1]  the worker              ARGV[2]  milliseconds until the lease expires
-- ARGV[3]  '' or how the workers begin that this one takes the place of
--
-- Returns 1 when the worker holds it now, 0 when another one does.

local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] and (ARGV[3] == '' or string.sub(holder, 1, #ARGV[3]) ~= ARGV[3]) then
  local left = redis.call('PTTL', KEYS[1])
  if left < 0 or left > tonumber(ARGV[2]) then -- the clock was set back: nobody has a lease for so long
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
  end
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
