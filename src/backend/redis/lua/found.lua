-- found.lua: rooms have users of these sessions. Those that have ended are cleared again.
--
-- KEYS     1 workers: session -> last heartbeat   2 dead: session -> ms when a worker began to clear it
-- ARGV     sessions
-- returns  the number of sessions that have ended
local ended = 0
for _, name in ipairs(ARGV) do
  if not redis.call('ZSCORE', KEYS[1], name) then
    redis.call('ZADD', KEYS[2], 'NX', 0, name)
    ended = ended + 1
  end
end
return ended
