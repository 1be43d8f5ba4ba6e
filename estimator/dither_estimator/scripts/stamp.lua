#!lua flags=allow-oom
-- Stamp: note when the workers pruned. allow-oom: a full store must be able to forget.
--
-- KEYS[1]  dither:pruned   hash   when the workers pruned last, and since when they hold back
--
-- ARGV     pairs (field, Unix milliseconds)

redis.call('HSET', KEYS[1], unpack(ARGV))
