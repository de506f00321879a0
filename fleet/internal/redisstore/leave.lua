-- A process ends its lease, and with it all that it was granted. KEYS: P; ARGV: id. See lease.lua for what P is.
--
-- A lease that has ended by itself stays: it may be the only sign that the data are a snapshot of another time. If it was
-- valid, the process is a witness that they are not, and the ended ones may go, so that P is empty when all have left.

local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)

local ends = redis.call("ZSCORE", KEYS[1], ARGV[1])
if ends and tonumber(ends) > now then
  redis.call("ZREMRANGEBYSCORE", KEYS[1], "-inf", string.format("%.0f", now))
  redis.call("ZREM", KEYS[1], ARGV[1])
end
return 0
