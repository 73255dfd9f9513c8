-- cleared.lua: a dead session has been cleared. Redis remembers it for an hour: a worker of v0.2.0
-- asks for its former session.
-- KEYS   1 dead   2 cleared
-- ARGV   1 the session
local now = redis.call('TIME')[1] * 1000
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('ZADD', KEYS[2], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now - 3600000)
return 1
