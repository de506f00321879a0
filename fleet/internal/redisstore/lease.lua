-- One call of a process for one shard: it renews the lease of the process and exchanges the entries. What is asked and
-- answered is explained at store.Call and store.Reply; package modelstore does the same in Go.
--
-- KEYS: P, E, and one H for each entry
--   P  sorted set: process -> when its lease ends
--   E  string "epoch:ends": the name of what the shard remembers, and until when it learns
--   H  hash: process -> "granted:seq:denied:again:written": again is 1 if it was denied before that, not long ago; "!" -> when anybody was last denied,
--      or got something and left little
-- ARGV: id, ttl, window, memory, idle, census; then limit, seq, have, need, slack, floor for each entry
-- Reply: epoch, known, learning, live, rank; then granted, others, flags, keep for each entry
--
-- All times are in milliseconds on the server's clock. IDs are in lower case hex, which all collations order alike.
--
-- The order of writes is such that the script may fail after any of them, and the caller then counts nothing as granted:
--   * E goes before P. Were it the other way round, the next caller would find a living witness, and trust what is lost.
--   * P goes before H. A lease without grants harms nobody, and grants without a lease would not count.
--   * What is written to an H that the caller never hears of is counted against it, until it says otherwise.
-- The first write is one that a server without memory refuses (SET or ZADD, not PEXPIRE). It judges by how much it had
-- when the script began and lets a script go on that has written, so then nothing was written at all.

local P, E = KEYS[1], KEYS[2]
local id, ttl, window = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local memory, idle, census = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6] == "1"

local SHORT, CONTENDED, STALE = 1, 2, 4

local clock = redis.call("TIME")
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)

-- tostring would write large numbers with an exponent.
local function text(n)
  return string.format("%.0f", n)
end

local function recent(time)
  local age = now - time
  return age >= 0 and age < window
end

-- remember returns the epoch and how long the shard goes on to learn. It begins a new epoch if E is lost, or if there were
-- leases but none is valid: then everybody was away for long, or the data are a snapshot of another time, and there is no
-- witness that they are still true. That nobody has a lease is no reason: all have left in order.
local function remember()
  local epoch, ends = string.match(redis.call("GET", E) or "", "^(%d+):(%d+)$")
  local witness = redis.call("ZCARD", P) == 0 or redis.call("ZCOUNT", P, "(" .. text(now), "+inf") > 0
  if epoch and witness then
    return tonumber(epoch), math.max(0, tonumber(ends) - now), false
  end
  local fresh = now
  if epoch then
    fresh = math.max(now, tonumber(epoch) + 1)
  end
  redis.call("SET", E, text(fresh) .. ":" .. text(now + ttl), "PX", text(idle))
  return fresh, ttl, true
end

-- renew returns whether the process had a lease that was valid.
local function renew(fresh)
  local ended = redis.call("ZSCORE", P, id)
  redis.call("ZADD", P, text(now + ttl), id)
  redis.call("ZREMRANGEBYSCORE", P, "-inf", text(now))
  -- P outlives E: E without P means that all have left, P without E that the memory is lost.
  redis.call("PEXPIRE", P, text(2 * idle))
  if not fresh then
    redis.call("PEXPIRE", E, text(idle))
  end
  return ended and tonumber(ended) > now
end

-- processes returns all who have a lease. Expired leases are gone from P when it is first called.
local members
local function processes()
  members = members or redis.call("ZRANGE", P, "0", "-1")
  return members
end

local function rank()
  local smaller = 0
  for _, process in ipairs(processes()) do
    if process < id then
      smaller = smaller + 1
    end
  end
  return smaller
end

-- lives is true for those who have a lease. One command for all of them is much faster than one for each.
local alive
local function lives(process)
  if not alive then
    alive = {}
    for _, member in ipairs(processes()) do
      alive[member] = true
    end
  end
  return alive[process]
end

-- parse returns nil if there is no such field or it is too old to count.
local function parse(value)
  if not value then
    return nil
  end
  local granted, seq, denied, again, written = string.match(value, "^(%d+):(%d+):(%d+):([01]):(%d+)$")
  if now - tonumber(written) >= memory then
    return nil
  end
  return { granted = tonumber(granted), seq = tonumber(seq), denied = tonumber(denied), again = again == "1" }
end

-- survey looks at what others have of a limit, and drops what no longer counts. even is the share of each who has or lacks
-- something, the caller included, and fair is the same but not nothing; owed is what those who were denied not long ago
-- have less than what is fair, and waiting is how many of them have come back and were denied again.
local function survey(H, limit)
  local others, claimants, lacking = 0, 1, {}
  local fields = redis.call("HGETALL", H)
  for i = 1, #fields, 2 do
    local process = fields[i]
    if process ~= id and process ~= "!" then
      local field = parse(fields[i + 1])
      if not field or not lives(process) then
        redis.call("HDEL", H, process)
      else
        others = others + field.granted
        if recent(field.denied) then
          lacking[#lacking + 1] = field
          claimants = claimants + 1
        elseif field.granted > 0 then
          claimants = claimants + 1
        end
      end
    end
  end
  local even = math.floor(limit / claimants)
  local fair, owed, waiting = math.max(1, even), 0, 0
  for _, field in ipairs(lacking) do
    if field.granted < fair then
      owed, waiting = owed + fair - field.granted, waiting + (field.again and 1 or 0)
    end
  end
  return { others = others, even = even, fair = fair, owed = owed, waiting = waiting, contended = #lacking > 0 }
end

-- grow returns how much is granted of what is needed on top of have, with slack if nobody lacks anything, and whether that
-- is short. Up to the fair share, what is free goes to whoever was denied it not long ago, and to others if it leaves one for
-- each who came back and was denied again; above that only as far as it is owed to nobody. So those who come do not overtake
-- those who wait, and those who have do not starve those who have not. Nothing is left to who was denied once: if nobody
-- waits there it may not come back soon.
local function grow(view, limit, have, need, slack, denied, live)
  local free = limit - view.others - have
  local give, due = math.max(0, math.min(need, free)), math.max(0, view.fair - have)
  if not denied then
    due = math.max(0, math.min(due, free - view.waiting))
  end
  give = math.max(math.min(due, give), math.min(give, free - view.owed))
  if give < need then
    return have + give, true
  end
  if not denied and not view.contended then
    give = give + math.min(slack, math.floor((free - give) / (2 * live)))
  end
  return have + give, false
end

-- scarce says that little is left: not even one for each process, nor half of the limit where that is less. Were idle grants
-- kept then, as they are where there is plenty, a limit with room would soon be full of them.
local function scarce(view, limit, granted, live)
  return live > 1 and limit - view.others - granted < math.min(math.floor(limit / 2), live)
end

-- A field stays when it says 0: its seq keeps a late call from bringing back what was given up.
local function write(H, granted, seq, denied, again, noted)
  local value = text(granted) .. ":" .. text(seq) .. ":" .. text(denied) .. (again and ":1:" or ":0:") .. text(now)
  if noted then
    redis.call("HSET", H, id, value, "!", text(now))
  else
    redis.call("HSET", H, id, value)
  end
  redis.call("PEXPIRE", H, text(memory))
end

-- exchange writes an entry and returns its answer. A call that is repeated is answered by what is written already.
local function exchange(H, learning, live, limit, seq, have, need, slack, floor)
  local marks = redis.call("HMGET", H, id, "!")
  local own = parse(marks[1])
  if own and own.seq > seq then
    return 0, -1, STALE, -1
  end
  local view
  -- Who has more than was granted, as far as is remembered, may have what was granted to others.
  local astray = have > (own and own.granted or 0)
  if learning > 0 or need > 0 or astray or recent(tonumber(marks[2] or "0")) then
    view = survey(H, limit)
  end

  local granted, short, denied, again = have, false, own and own.denied or 0, own and own.again
  if learning > 0 then
    granted, short, denied, again = math.max(have, floor), need > 0, 0, false
  elseif need > 0 then
    granted, short = grow(view, limit, have, need, slack, recent(denied), live)
    again = short and recent(denied)
    denied = short and now or 0
  end
  if own and own.seq == seq then
    granted = own.granted
    short = need > 0 and (learning > 0 or granted < have + need)
  else
    write(H, granted, seq, denied, again, learning == 0 and (short or need > 0 and scarce(view, limit, granted, live)))
  end

  local flags, keep = short and SHORT or 0, -1
  if not view then
    return granted, -1, flags, keep
  end
  if learning == 0 then
    if view.contended or not short and scarce(view, limit, granted, live) then
      flags = flags + CONTENDED
    end
    if view.others + granted > limit then
      keep = 0
    elseif view.owed > limit - view.others - granted then
      -- Where there is less than one for each, the few who have some take turns with the others at each renewal.
      keep = need == 0 and view.even or view.fair
    end
  end
  return granted, view.others, flags, keep
end

local epoch, learning, fresh = remember()
local known = renew(fresh)
local live = redis.call("ZCARD", P)
local reply = { epoch, known and 1 or 0, learning, live, census and rank() or 0 }
if not known and learning == 0 then
  return reply
end
for i = 3, #KEYS do
  local at, entry = 6 * (i - 2), {}
  for j = 1, 6 do
    entry[j] = tonumber(ARGV[at + j])
  end
  for _, n in ipairs({ exchange(KEYS[i], learning, live, unpack(entry)) }) do
    reply[#reply + 1] = n
  end
end
return reply
