-- read-members.lua: the number of users of a room, and the members if the room is not large.
-- KEYS   1 members of the room
-- ARGV   1 the size above which a room is large
local count = redis.call('HLEN', KEYS[1])
if count > tonumber(ARGV[1]) then return { count } end
return { count, redis.call('HVALS', KEYS[1]) }
