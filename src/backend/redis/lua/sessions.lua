-- sessions.lua: a session's heartbeat, and the search for dead sessions. Times are those of Redis,
-- because the clocks of machines differ.
--
-- KEYS     1 workers: session -> last heartbeat
--          2 dead: session -> time when a worker began to clear it
--          3 the mark, which names the data set
-- ARGV     1 own session   2 silence after which a session is dead, ms
--          3 time to clear a session, ms
--          4 a mark for a data set without one
--          5 1 if this session may judge others by their silence, else 0
--          then sessions that are known to be dead
-- returns  the mark (a new one: Redis has lost everything), whether the own session is new, and the
--          sessions to clear
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('SET', KEYS[3], ARGV[4], 'NX')
local last = redis.call('ZSCORE', KEYS[1], ARGV[1])
local isNew = redis.call('ZADD', KEYS[1], now, ARGV[1])

local taken = {}
local function declare(name)
  if redis.call('ZREM', KEYS[1], name) == 0 then return end
  redis.call('ZADD', KEYS[2], now, name)
  taken[#taken + 1] = name
end
for i = 6, #ARGV do declare(ARGV[i]) end
-- A session that was silent itself can't judge the silence of others: Redis was unavailable to all
-- of them, or all were stalled.
if ARGV[5] == '1' and last and now - last <= tonumber(ARGV[2]) then
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2], 'LIMIT', 0, 16)) do declare(name) end
end
-- The workers that began to clear these have died or are slow. A second worker does no harm.
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now - ARGV[3], 'LIMIT', 0, 16)) do
  redis.call('ZADD', KEYS[2], now, name)
  taken[#taken + 1] = name
end
return { redis.call('GET', KEYS[3]), isNew, taken }
