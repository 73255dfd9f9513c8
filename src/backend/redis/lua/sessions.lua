-- A worker's heartbeat, and who is dead. Times are Redis' own: the clocks of machines differ.
--
-- KEYS   1 workers: name -> last heartbeat   2 dead: name -> when somebody took it to clear up after it   3 cleared: name -> when
--        4 the store's mark
-- ARGV   1 own name  2 silence that means death, ms  3 time to clear up, ms  4 a mark, for a store that has none
--        5 may it judge the silence of others? 0 or 1  6 how many names follow that are known to be dead; then names that
--        are asked about
-- Says   the mark (another one: the store has lost everything), whether the own name is new, the names to clear up after,
--        and those of the asked that had been declared dead
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('SET', KEYS[4], ARGV[4], 'NX')
local last = redis.call('ZSCORE', KEYS[1], ARGV[1])
local isNew = redis.call('ZADD', KEYS[1], now, ARGV[1])

local taken = {}
local function declare(name)
  if redis.call('ZREM', KEYS[1], name) == 0 then return end
  redis.call('ZADD', KEYS[2], now, name)
  taken[#taken + 1] = name
end
local known = 6 + tonumber(ARGV[6])
for i = 7, known do declare(ARGV[i]) end
-- Who was silent itself knows nothing of the others' silence: Redis was away from all, or they all
-- stood still.
if ARGV[5] == '1' and last and now - last <= tonumber(ARGV[2]) then
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2], 'LIMIT', 0, 16)) do declare(name) end
end
-- Who took these has died over it, or is slow: a second one does no harm.
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now - ARGV[3], 'LIMIT', 0, 16)) do
  redis.call('ZADD', KEYS[2], now, name)
  taken[#taken + 1] = name
end

local declared = {}
for i = known + 1, #ARGV do
  if redis.call('ZSCORE', KEYS[2], ARGV[i]) or redis.call('ZSCORE', KEYS[3], ARGV[i]) then
    declared[#declared + 1] = ARGV[i]
  end
end
return { redis.call('GET', KEYS[4]), isNew, taken, declared }
