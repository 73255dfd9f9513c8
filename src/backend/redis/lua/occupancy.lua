-- occupancy.lua: a session of a worker has a first connection in a room, or has lost its last one,
-- or has another number of them. The same for the connections of a user, which are not counted.
--
-- KEYS     1 sessions with a connection   2 sequence   3 partition, or in a cluster outbox
--          4 state of the partition, or in a cluster sequence   5 counts: session -> connections;
--          'told' and 'at': the last sum that the room was told, and when
-- ARGV     1 session   2 'in' or 'out'   3 kind of the first session's event   4 of the last one's;
--          '': no endpoint asks for it   5 fields of both
--          6 connections of the session; '': not known, or the room is not counted
--          7 channel   8 PUBLISH or SPUBLISH   9 head of a count's publication
--          10 kind of a count's event; '': no endpoint asks for it
--          11 the size above which a room is large   12 ms between two counts in a large room
-- returns  the number of events in the room's outbox, and ms until the room may be told its count;
--          0: it is told
--
-- A repeated call changes nothing. So a worker may repeat it, and two workers may clear the same
-- dead session.
local sessions, counts, session, connections = KEYS[1], KEYS[5], ARGV[1], ARGV[6]
local isIn = ARGV[2] == 'in'
local function transition(kind)
  if kind ~= '' then record(KEYS[2], KEYS[3], KEYS[4], kind, ARGV[5]) end
end
if isIn then
  if redis.call('SADD', sessions, session) == 1 and redis.call('SCARD', sessions) == 1 then
    transition(ARGV[3])
  end
elseif redis.call('SREM', sessions, session) == 1 and redis.call('EXISTS', sessions) == 0 then
  transition(ARGV[4])
  redis.call('HDEL', KEYS[2], 'mark') -- of events.lua
end
if connections == '' then return { waiting(KEYS[3]), 0 } end

if isIn then
  redis.call('HSET', counts, session, connections)
else
  redis.call('HDEL', counts, session)
end
local sum, told, at = 0, 0, 0
local all = redis.call('HGETALL', counts)
for i = 1, #all, 2 do
  local name, value = all[i], tonumber(all[i + 1])
  if name == 'told' then told = value
  elseif name == 'at' then at = value
  else sum = sum + value end
end
if redis.call('EXISTS', sessions) == 0 then
  redis.call('DEL', counts)
elseif sum ~= told then
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local early = at + tonumber(ARGV[12]) - now
  -- A worker that leaves is not there to make the change again.
  local isLarge = math.max(sum, told) > tonumber(ARGV[11])
  if isIn and isLarge and early > 0 and now >= at then return { waiting(KEYS[3]), early } end
  redis.call('HSET', counts, 'told', sum, 'at', string.format('%.0f', now))
  local body = ARGV[9] .. string.format('%.0f', sum)
  redis.pcall(ARGV[8], ARGV[7], publicationHead(#body) .. body)
  if ARGV[10] ~= '' then
    record(KEYS[2], KEYS[3], KEYS[4], ARGV[10], ARGV[5] .. string.format(',"count":%.0f', sum))
  end
end
return { waiting(KEYS[3]), 0 }
