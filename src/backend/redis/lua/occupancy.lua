-- occupancy.lua: a session of a worker has a first connection in a room, or has lost its last one.
-- The same for the connections of a user.
--
-- KEYS     1 sessions with a connection   2 sequence   3 lane, or in a cluster outbox
--          4 state of the lane, or in a cluster sequence
-- ARGV     1 session   2 'in' or 'out'   3 kind of the first session's event   4 of the last one's;
--          '': no endpoint asks for it   5 fields of both
-- returns  the number of events in the room's outbox
--
-- A repeated call changes nothing. So a worker may repeat it, and two workers may clear the same
-- dead session.
local sessions = KEYS[1]
local function edge(kind)
  if kind ~= '' then record(KEYS[2], KEYS[3], KEYS[4], kind, ARGV[5]) end
end
if ARGV[2] == 'in' then
  if redis.call('SADD', sessions, ARGV[1]) == 1 and redis.call('SCARD', sessions) == 1 then
    edge(ARGV[3])
  end
elseif redis.call('SREM', sessions, ARGV[1]) == 1 and redis.call('EXISTS', sessions) == 0 then
  edge(ARGV[4])
  redis.call('HDEL', KEYS[2], 'mark') -- of events.lua
end
return waiting(KEYS[3])
