-- stream.lua: the incarnation of a room's stream, for the scripts of rooms with history or state.
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

local call, pcall, meta, incarnation = redis.call, redis.pcall, KEYS[1], ARGV[1]

-- An idempotency key is kept before its publication is stored, so that a key that Redis refuses to
-- keep refuses the publication. Returns the refusal.
local function keep(key, last, fingerprint, keepMs)
  local value = string.format('%s:%.0f:%s', string.sub(incarnation, 33), last, fingerprint)
  local refused = pcall('SET', key, value, 'PX', keepMs)
  return refused.err and refused
end

-- Redis has refused the publication. An ACL user without DEL has just been permitted to SET; until
-- that key expires, a repeated publish answers OUTCOME_UNKNOWN.
local function forget(key)
  local refused = pcall('DEL', key)
  if type(refused) == 'table' then pcall('SET', key, '@', 'PX', 1) end
end

-- Finds the incarnation, or begins one. `count` publications are about to be numbered; `added` is
-- the same as a string. If an epoch ends, the keys from 2 to `lastKey` are deleted, unless only the
-- fence has changed and the key `kept` exists. Returns the offset of the latest publication before
-- these, and whether the caller knew the incarnation.
local function locate(isRead, added, count, isGlance, mustCheck, lastKey, kept)
  local top
  if #incarnation == 48 then
    if isRead then
      top = tonumber(call('HGET', meta, incarnation) or 0) - 1
      -- The caller promises clients that they have missed no other publication. So the script
      -- checks whether Redis was promoted since it reported that incarnation: a replica has another
      -- primary's data. (Without a second ID, Redis has only got its first replica.)
      if mustCheck and top >= 0 then
        local replication = call('INFO', 'replication')
        local isOther = string.match(replication, 'master_replid:(%x+)'):sub(1, 16) ~= string.sub(incarnation, 17, 32)
        if isOther and not string.find(replication, 'master_replid2:0+[\r\n]') then incarnation, top = '', nil end
      end
    else
      -- If this fails, nothing has changed, because all other writes follow it.
      top = call('HINCRBY', meta, incarnation, added) - 1 - count
      if top < 0 then call('HDEL', meta, incarnation) end
    end
  end
  if top and top >= 0 then return top, true end
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
  if wasFence == fence and not string.find(ARGV[2], string.sub(was[1], 33), 17, true) then
    incarnation, top = was[1], tonumber(was[2]) - 1
  else
    -- The caller may have seen this epoch end before: Redis lost that change, not the state.
    local isKept = kept and was[1] and wasFence ~= fence and call('EXISTS', kept) == 1
    incarnation, top = fence .. string.sub(ARGV[2], 1, 16), isKept and tonumber(was[2]) - 1 or 0
    if isKept or not (isRead and isGlance) then
      call('HSET', meta, incarnation, isKept and was[2] or 1)
      if was[1] then call('HDEL', meta, was[1]) end
      if not isKept then call('UNLINK', unpack(KEYS, 2, lastKey)) end
    end
  end
  if not isRead then call('HINCRBY', meta, incarnation, added) end
  return top, false
end
