-- read-members.lua: the number of users of a room, and the members if there are not too many.
-- KEYS   1 members of the room
-- ARGV   1 the size above which a room is large   2 most bytes of the members
local count = redis.call('HLEN', KEYS[1])
if count > tonumber(ARGV[1]) then return { count } end
local members, bytes, cursor = {}, 0, '0'
-- In parts, because the whole list may have hundreds of megabytes.
repeat
  local part = redis.call('HSCAN', KEYS[1], cursor, 'COUNT', 100)
  cursor = part[1]
  for i = 2, #part[2], 2 do
    bytes = bytes + #part[2][i]
    members[#members + 1] = part[2][i]
  end
  if bytes > tonumber(ARGV[2]) then return { count } end
until cursor == '0'
return { count, members }
