-- outbox.lua: drops events from a room's outbox that are in their partition, in a cluster.
--
-- KEYS     1 outbox
-- ARGV     1 epoch   2 number of the last event that was moved   3 how many were moved at most
-- returns  the number of events that are left
--
-- Another worker may have dropped some of them, or all. So the last one is looked for: what comes
-- before it has been moved, too.
local last = ARGV[1] .. ':' .. ARGV[2] .. ':'
for i, entry in ipairs(redis.call('LRANGE', KEYS[1], 0, ARGV[3] - 1)) do
  if string.sub(entry, 1, #last) == last then
    redis.call('LTRIM', KEYS[1], i, -1)
    break
  end
end
return redis.call('LLEN', KEYS[1])
