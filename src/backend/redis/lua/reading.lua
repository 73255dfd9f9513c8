-- reading.lua: the latest offset, for the scripts that read rooms with history or state. It follows
-- stream.lua.

-- Was Redis promoted since it reported that incarnation? A replica has another primary's data.
-- (Without a second ID, Redis has only got its first replica.)
local function isPromoted()
  local replication = call('INFO', 'replication')
  local isSame = string.match(replication, 'master_replid:(%x+)'):sub(1, 16) == string.sub(incarnation, 17, 32)
  return not isSame and not string.find(replication, 'master_replid2:0+[\r\n]')
end

-- Returns the latest offset. With `mustCheck` the caller promises clients that they have missed no
-- other publication.
local function latest(isGlance, mustCheck, lastKey, kept)
  if #incarnation == 48 then
    local top = tonumber(call('HGET', meta, incarnation) or 0) - 1
    if top >= 0 then
      if not (mustCheck and isPromoted()) then return top end
      incarnation = ''
    end
  end
  return find(isGlance, lastKey, kept)
end
