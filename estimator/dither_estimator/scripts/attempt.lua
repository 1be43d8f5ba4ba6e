#!lua flags=allow-oom
-- Attempt: say what is about to be counted, or take that back. allow-oom: a full store must be able to drain.
--
-- KEYS[1]  dither:{tag}:attempt   string   the run of entries that was begun last, how often, and by whom
--
-- ARGV[1]  what to write; '' for nothing to be there
-- ARGV[2]  absent, or what must be there now, so that nobody's note is taken back but one's own
--
-- Returns 1 when written, 0 when something else was there.

if ARGV[2] and redis.call('GET', KEYS[1]) ~= ARGV[2] then
  return 0
end
if ARGV[1] == '' then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], ARGV[1])
end
return 1
