-- state.lua: the keys of a room with state, for its scripts. It follows publishing.lua or
-- reading.lua.
--
--   KEYS  1 meta   2 values: key -> publication   3 log: key -> offset
--         4 removed: key -> offset of its tombstone   5 sums: bytes, gone, floor
--
-- The log has of each key the newest offset, those of removed keys included. A removed key is a
-- tombstone: its publication stays, with the payload null. There are at most as many tombstones as
-- keys; `floor` is the highest offset of one that is forgotten. Bytes are those of live keys and
-- their publications, `gone` those of tombstones (protocol/compacted-log.js).
--
-- All keys expire together. If meta is older than the rest, it counts as nothing: the epoch ends.
-- It also ends if a Redis that evicts keys has taken one of them: what is left is no state. Without
-- tombstones there is no key 4, and `gone` is 0.

local values, log, removed, sums = KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local bytes, gone, floor

-- Reads the sums. Returns the latest offset: 0 if keys are missing, and a new epoch begins.
local function whole(top, isGlance)
  local was = call('HMGET', sums, 'bytes', 'gone', 'floor')
  bytes, gone, floor = tonumber(was[1] or 0), tonumber(was[2] or 0), tonumber(was[3] or 0)
  if top == 0 or (was[1] and call('EXISTS', values, log, gone > 0 and removed or log) == 3) then return top end
  local former = incarnation
  incarnation = string.sub(former, 1, 32) .. string.sub(epochs, 1, 16)
  bytes, gone, floor = 0, 0, 0
  if not isGlance then
    call('HSET', meta, incarnation, 1)
    call('HDEL', meta, former)
    call('UNLINK', values, log, removed, sums)
  end
  return 0
end
