-- stream.lua: the incarnation of a room's stream, for the scripts of rooms with history or state.
-- publishing.lua and reading.lua continue it.
--
-- An incarnation is a fence and an epoch. The fence names a server and its replication ID. If meta
-- was written under another fence, Redis has restored an older snapshot, or a replica was promoted.
-- Some announced publications may be lost, so the epoch ends. The epoch also ends if the caller has
-- proved that it must: the address of Redis led to another server meanwhile, and this server lacks
-- publications of that one.
--
-- A history goes with its epoch. A state outlives a change of the fence: members get what is left,
-- and only the epoch is new. Its offsets go on, because its log is ordered by them.
--
-- Meta is a hash of one field. Its name is the incarnation, its value the latest offset + 1. If the
-- value rises, the caller's incarnation is current. If not, the script asks Redis for its identity
-- (INFO) in the same step, so a caller that is out of date does no harm. Each call from Lua costs
-- more than its work; hence there are few, and their arguments are strings, because a number would
-- be printed as a double.
--
--   KEYS  1 meta
--   ARGV  1 the room's incarnation as the caller knows it, or only its fence, or ''
--           'trust': an epoch outlives the server
--           a fence and the one before it: the caller has watched the change, and nothing was lost
--           (identity.js)
--         2 a new epoch, random and used once, in case one must begin; then ended epochs that the
--           caller knows

local call, pcall, meta, incarnation, epochs = redis.call, redis.pcall, KEYS[1], ARGV[1], ARGV[2]

-- Finds the incarnation, or begins one. If an epoch ends, the keys from 2 to `lastKey` are deleted,
-- unless only the fence has changed and the key `kept` exists. With `isGlance` none is begun in
-- Redis. Returns the latest offset.
local function find(isGlance, lastKey, kept)
  local was = call('HGETALL', meta)
  local wasFence, fence = was[1] and string.sub(was[1], 1, 32), string.sub(incarnation, 1, 32)
  if incarnation == 'trust' then
    fence = wasFence or string.rep('0', 32)
  elseif wasFence ~= fence then
    -- Half of each ID is random enough, and a hash with names over 64 bytes takes twice the memory.
    local server, replication = call('INFO', 'server'), call('INFO', 'replication')
    fence = string.match(server, 'run_id:(%x+)'):sub(1, 16) .. string.match(replication, 'master_replid:(%x+)'):sub(1, 16)
    if #incarnation == 64 and fence .. (wasFence or '') == incarnation then
      call('HSET', meta, fence .. string.sub(was[1], 33), was[2])
      call('HDEL', meta, was[1])
      was[1], wasFence = fence .. string.sub(was[1], 33), fence
    end
  end
  if wasFence == fence and not string.find(epochs, string.sub(was[1], 33), 17, true) then
    incarnation = was[1]
    return tonumber(was[2]) - 1
  end
  -- The caller may have seen this epoch end before: Redis lost that change, not the state.
  local isKept = kept and was[1] and wasFence ~= fence and call('EXISTS', kept) == 1
  local top = isKept and tonumber(was[2]) - 1 or 0
  incarnation = fence .. string.sub(epochs, 1, 16)
  if isKept or not isGlance then
    call('HSET', meta, incarnation, isKept and was[2] or 1)
    if was[1] then call('HDEL', meta, was[1]) end
    if not isKept then call('UNLINK', unpack(KEYS, 2, lastKey)) end
  end
  return top
end
