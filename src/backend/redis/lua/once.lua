-- once.lua: publishes to a room without history, unless its idempotency key has been used.
--
-- KEYS     1 idempotency key   2 a key for a publication too large for pub/sub, if it is one
-- ARGV     1 channel   2 message   3 fingerprint of the publication, or ''
--          4 milliseconds to keep the idempotency key
--          5 the publication   6 milliseconds to keep it, if there is a second key
-- returns  1 published, now or earlier   0 the key has another fingerprint
--
-- The value of an idempotency key is a fingerprint. events.lua and later versions may append
-- fields, each after a colon. A value that begins with '@' is of another version: it proves that
-- the key has been used, but it can't be compared.
--
-- SET comes before PUBLISH, because Redis may refuse SET. Then nothing is published. If Redis
-- refuses PUBLISH, the idempotency key is new again after 1 ms. A second SET sees to that, and not
-- DEL, because Redis has just permitted SET.
local was = redis.call('GET', KEYS[1])
if was then
  local first = string.match(was, '^[^:@]*')
  if first ~= '' and ARGV[3] ~= '' and first ~= ARGV[3] then return 0 end
  return 1
end
if KEYS[2] then redis.call('SET', KEYS[2], ARGV[5], 'PX', ARGV[6]) end
redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[4])
local refused = redis.pcall('PUBLISH', ARGV[1], ARGV[2])
if type(refused) == 'table' then
  redis.pcall('SET', KEYS[1], ARGV[3], 'PX', 1)
  return refused
end
return 1
