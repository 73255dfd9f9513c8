-- count-connections.lua: a session's numbers of connections in rooms.
--
-- KEYS     1 entries: `<room> <session>`   2 connections of each
-- ARGV     1 'add', 'remove', or 'set': only of rooms that were added
--          then entry and connections of each room
-- returns  1
for i = 2, #ARGV, 2 do
  local entry = ARGV[i]
  if ARGV[1] == 'remove' then
    redis.call('ZREM', KEYS[1], entry)
    redis.call('HDEL', KEYS[2], entry)
  else
    if ARGV[1] == 'add' then redis.call('ZADD', KEYS[1], 0, entry) end
    if redis.call('ZSCORE', KEYS[1], entry) then redis.call('HSET', KEYS[2], entry, ARGV[i + 1]) end
  end
end
return 1
