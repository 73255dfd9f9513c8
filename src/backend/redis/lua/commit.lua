-- commit.lua: a step of a partition's owner: changes the pending events and trims the partition,
-- or does nothing if the partition has another owner by now, or Redis has gone back. Then it has
-- the lease, too, but what the owner remembers is of the data that Redis has lost (lease.lua).
--
-- KEYS     1 lease   2 pending: field -> JSON   3 partition   4 state of the partition
-- ARGV     1 fence   2 id of the last entry to trim, or ''   3 number of lost events that are
--          announced, or ''   4 number of pending events to set
--          then field and JSON of each, then the fields to remove
-- returns  1 done   0 another owner, or none
local lease, pending, partition, state = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
if redis.call('GET', lease) ~= ARGV[1] then return 0 end
local mark = redis.call('HGET', state, 'mark')
if mark and not isOfThis(mark) then
  redis.call('DEL', lease)
  return 0
end
local bytes = 0
local function sizeOf(field)
  local known = redis.call('HSTRLEN', pending, field)
  return known > 0 and known + #field or 0
end
local at = 5
for _ = 1, tonumber(ARGV[4]) do
  local field, json = ARGV[at], ARGV[at + 1]
  bytes = bytes + #field + #json - sizeOf(field)
  redis.call('HSET', pending, field, json)
  at = at + 2
end
for i = at, #ARGV do
  bytes = bytes - sizeOf(ARGV[i])
  redis.call('HDEL', pending, ARGV[i])
end
if bytes ~= 0 then redis.call('HINCRBY', state, 'bytes', bytes) end
if ARGV[3] ~= '' then
  redis.call('HSET', state, 'announced', ARGV[3])
  redis.call('HDEL', state, 'unknown') -- of lease.lua
end
if ARGV[2] ~= '' then
  -- MINID keeps the entry that it names.
  local ms, seq = string.match(ARGV[2], '^(%d+)-(%d+)$')
  local trimmed = redis.pcall('XTRIM', partition, 'MINID', '=', string.format('%s-%.0f', ms, seq + 1))
  local left = type(trimmed) == 'table'
  while left do -- Redis 6.0 has no MINID
    local entries = redis.call('XRANGE', partition, '-', ARGV[2], 'COUNT', 100)
    for _, entry in ipairs(entries) do redis.call('XDEL', partition, entry[1]) end
    left = #entries == 100
  end
end
return 1
