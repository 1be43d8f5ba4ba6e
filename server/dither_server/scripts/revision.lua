#!lua
-- Note the revision of a signed registry: it never goes back, and one revision never has two documents.
--
-- No flag allow-oom: a store without free memory refuses the script before its first line.
--
-- KEYS          type  meaning
--  1 dither:meta hash  registry_revision: the highest that was announced; registry_digest: SHA-256 of its document
--
-- ARGV
--  1 revision of the registry that is announced, at most 2^53 - 1
--  2 SHA-256 of its document, hex
--  3 1: note it; 0: only look
--
-- Returns {revision, digest} as they were, and notes nothing, where they go before; else {}.

local known = redis.call('HMGET', KEYS[1], 'registry_revision', 'registry_digest')
if known[1] then
    local before, now = tonumber(known[1]), tonumber(ARGV[1])
    if before > now or (before == now and known[2] ~= ARGV[2]) then
        return known
    end
end
if ARGV[3] == '1' then
    redis.call('HSET', KEYS[1], 'registry_revision', ARGV[1], 'registry_digest', ARGV[2])
end
return {}
