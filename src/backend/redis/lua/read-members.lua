-- KEYS   1 members of a room     ARGV   1 size above which a room is large
-- Says   how many, then the members of a room that is not large
local count = redis.call('HLEN', KEYS[1])
if count > tonumber(ARGV[1]) then return { count } end
return { count, redis.call('HVALS', KEYS[1]) }
