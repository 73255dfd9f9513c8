-- occupied-rooms.lua: a page of the sessions with connections in rooms, in the order of the rooms.
--
-- KEYS     1 entries: `<room> <session>`   2 connections of each
-- ARGV     1, 2 range of the entries   3 how many
-- returns  entries, connections of each
local entries = redis.call('ZRANGEBYLEX', KEYS[1], ARGV[1], ARGV[2], 'LIMIT', 0, ARGV[3])
if #entries == 0 then return { entries, {} } end
return { entries, redis.call('HMGET', KEYS[2], unpack(entries)) }
