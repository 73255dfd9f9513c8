-- revoke.lua: adds a revocation to the list of a fleet.
--
-- KEYS: entries (hash), expiry (sorted set), version
-- ARGV: field, issuedBeforeMs, keepUntilMs, nowMs, most entries, step
-- Answer: 1 kept, 0 the list is full
--
-- If a user is revoked twice, the later times hold. All keys expire with their last revocation.
-- The version grows by a random step: if Redis loses additions, the next one must not lead to a
-- version that a reader already knows.
-- An entry is two times. Later versions may append fields, each after a space: they stay.

local entries, expiry, version = KEYS[1], KEYS[2], KEYS[3]
local field = ARGV[1]
local issued, keep, now, max = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])

local over = redis.call('ZRANGEBYSCORE', expiry, '-inf', now, 'LIMIT', 0, 1000)
for _, old in ipairs(over) do
  redis.call('HDEL', entries, old)
  redis.call('ZREM', expiry, old)
end

local known, rest = redis.call('HGET', entries, field), ''
if known then
  local knownIssued, knownKeep, appended = string.match(known, '^(%d+) (%d+)(.*)$')
  rest = appended or ''
  issued = math.max(issued, tonumber(knownIssued) or 0)
  keep = math.max(keep, tonumber(knownKeep) or 0)
elseif redis.call('HLEN', entries) >= max then
  -- Those that were kept past their time (KEPT_MS of backend/revocations.js) make room.
  local top = string.format('%.0f', 4e15 + tonumber(now))
  local past = redis.call('ZRANGEBYSCORE', expiry, '4000000000000000', top, 'LIMIT', 0, 1000)
  if #past == 0 then return 0 end
  for _, old in ipairs(past) do
    redis.call('HDEL', entries, old)
    redis.call('ZREM', expiry, old)
  end
end

redis.call('HSET', entries, field, string.format('%.0f %.0f', issued, keep) .. rest)
redis.call('ZADD', expiry, string.format('%.0f', keep), field)
redis.call('INCRBY', version, ARGV[6])
local last = redis.call('ZRANGE', expiry, -1, -1, 'WITHSCORES')[2]
for _, key in ipairs(KEYS) do
  redis.call('PEXPIREAT', key, string.format('%.0f', tonumber(last)))
end
return 1
