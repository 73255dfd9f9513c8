-- outbox.lua: drops events from a room's outbox that are in their lane, in a cluster.
--
-- KEYS     1 outbox
-- ARGV     1 epoch   2 number of the last event that was moved
-- returns  the number of events that are left
--
-- Another worker may have dropped some of them, so the numbers decide, not the places.
local epoch, number = tonumber(ARGV[1]), tonumber(ARGV[2])
while true do
  local first = redis.call('LINDEX', KEYS[1], 0)
  if not first then return 0 end
  local life, seq = string.match(first, '^(%d+):(%d+):')
  life, seq = tonumber(life), tonumber(seq)
  if life > epoch or (life == epoch and seq > number) then return redis.call('LLEN', KEYS[1]) end
  redis.call('LPOP', KEYS[1])
end
