#!lua flags=allow-oom
-- Release: give back a lease, unless it is another worker's by now.
--
-- KEYS[1]  dither:{tag}:lease or dither:publisher   string   the worker that holds it; expires
--
-- ARGV[1]  the worker
--
-- Returns 1 when it was given back, 0 when it was not this worker's.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
return redis.call('DEL', KEYS[1])
