-- visits.lua: which primaries of a cluster are to be visited (shard-visits.js), and by whom.
--
-- KEYS     1 visits: `<mark of the {*} primary>/<mark>` -> 'done', or ms and the visitor; 'since' ->
--          ms of the first call
-- ARGV     1 'claim', or 'done': the visitor has finished   2 visitor   3 ms of a claim
--          4 mark of the primary of this slot   then the marks of primaries
-- returns  claim: 1 if other workers are visiting, then for each mark that this one should visit:
--          the mark, and 1 if the primary may have lost writes
--
-- If this slot may have lost writes, all primaries are visited again. The first start ever is no
-- loss, although no primary has been visited: all marks are a moment older than `since`. If they
-- are much older, this slot has lost `since`.
local SKEW_MS, START_MS = 2000, 60000 -- of clocks; longest time between a first mark and the first call
local visits, visitor, prefix = KEYS[1], ARGV[2], ARGV[4] .. '/'
if ARGV[1] == 'done' then
  for i = 5, #ARGV do redis.call('HSET', visits, prefix .. ARGV[i], 'done') end
  for _, field in ipairs(redis.call('HKEYS', visits)) do
    if field ~= 'since' and string.sub(field, 1, #prefix) ~= prefix then redis.call('HDEL', visits, field) end
  end
  return {}
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('HSETNX', visits, 'since', string.format('%.0f', now))
local since = tonumber(redis.call('HGET', visits, 'since'))
local result = { 0 }
for i = 5, #ARGV do
  local mark = ARGV[i]
  local state = redis.call('HGET', visits, prefix .. mark)
  if state ~= 'done' then
    local ms, who = string.match(state or '', '^(%d+) (.*)$')
    if ms and who ~= visitor and now - ms < tonumber(ARGV[3]) then
      result[1] = 1
    else
      redis.call('HSET', visits, prefix .. mark, string.format('%.0f %s', now, visitor))
      local began = tonumber(string.match(mark, '%d+$'))
      result[#result + 1] = mark
      result[#result + 1] = (began > since + SKEW_MS or since - began > START_MS) and 1 or 0
    end
  end
end
return result
