-- One call of a process for one shard: it renews the lease of the process and exchanges the entries. What is asked and
-- answered is explained at store.Call and store.Reply; package modelstore does the same in Go.
--
-- KEYS: P, E, and one H for each entry
--   P  sorted set: process -> when its lease ends
--   E  string "epoch:ends": the name of what the shard remembers, and until when it learns
--   H  hash: process -> "granted:seq:denied:since:head:written": it was last denied something at denied, and got nothing
--      since before; head is what its first waiter lacks; denied, since and head are 0 if it got all that it needed.
--      "!" -> when anybody was last denied, or got something and left little
-- ARGV: id, ttl, window, memory, idle, census, more, promised; then limit, seq, have, need, head, slack, floor for each
-- entry. more and promised are Call.More and Call.Ends
-- Reply: epoch, known, learning, ends, live, rank; then granted, others, flags, keep for each entry
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
local more, promised = ARGV[7] == "1", tonumber(ARGV[8])

local SHORT, CONTENDED, STALE, FIRST = 1, 2, 4, 8

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

-- holds returns whether the process has a lease that is valid.
local function holds()
  local ends = redis.call("ZSCORE", P, id)
  return ends and tonumber(ends) > now
end

-- forgot says that the process has been promised a lease that is not known here: the data are those of another time.
-- Where the shard learns because of that already, there is no reason to begin again: all that was promised before its
-- epoch began ends before it has learned.
local function forgot(known, epoch, ends)
  return not known and promised > now and (ends <= now or epoch <= promised - ttl)
end

-- remember returns the epoch, how long the shard goes on to learn, and whether it has written E. It begins a new epoch
-- if E is lost, if it forgot the process, or if there were leases but none is valid: then everybody was away for long,
-- or the data are a snapshot of another time, and there is no witness that they are still true. That nobody has a lease
-- is no reason: all have left in order.
local function remember(known)
  local epoch, ends = string.match(redis.call("GET", E) or "", "^(%d+):(%d+)$")
  local witness = known or redis.call("ZCARD", P) == 0 or redis.call("ZCOUNT", P, "(" .. text(now), "+inf") > 0
  local fresh = now
  if epoch then
    epoch, ends = tonumber(epoch), tonumber(ends)
    -- More than a ttl is left if the clock has been set back.
    local learning = math.max(0, ends - now)
    local anew = not witness or forgot(known, epoch, ends)
    -- Who was last answered before this epoch began has not told anything in it.
    local untold = more or promised > 0 and promised - ttl < epoch
    if not anew and (learning == 0 or learning <= ttl and not untold) then
      return epoch, learning, false
    end
    fresh = anew and math.max(now, epoch + 1) or epoch
  end
  redis.call("SET", E, text(fresh) .. ":" .. text(now + ttl), "PX", text(idle))
  return fresh, ttl, true
end

-- renew begins the lease of the process anew.
local function renew(written)
  redis.call("ZADD", P, text(now + ttl), id)
  redis.call("ZREMRANGEBYSCORE", P, "-inf", text(now))
  -- P outlives E: E without P means that all have left, P without E that the memory is lost.
  redis.call("PEXPIRE", P, text(2 * idle))
  if not written then
    redis.call("PEXPIRE", E, text(idle))
  end
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
  local granted, seq, denied, since, head, written = string.match(value, "^(%d+):(%d+):(%d+):(%d+):(%d+):(%d+)$")
  local field = { granted = tonumber(granted), seq = tonumber(seq), written = tonumber(written) }
  field.denied, field.since, field.head = tonumber(denied), tonumber(since), tonumber(head)
  return now - field.written < memory and field or nil
end

-- earlier says who of two who wait comes first.
local function earlier(a, b)
  return a.since < b.since or a.since == b.since and a.process < b.process
end

-- survey looks at what others have of a limit, and drops what no longer counts. even is the share of each who has or
-- lacks something, the caller included, and fair is the same but not nothing. waiting is how many of those who have
-- less were denied it not long ago and have come back, and first is who of all who have come back has waited longest.
-- owed is what those who were denied not long ago have less than what is fair, and at least what the first of them
-- needs.
local function survey(H, limit)
  local others, claimants, lacking, first = 0, 1, {}, nil
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
          field.process, field.back = process, field.since < field.denied
          lacking[#lacking + 1] = field
          claimants = claimants + 1
          if field.back and (not first or earlier(field, first)) then
            first = field
          end
        elseif field.granted > 0 then
          claimants = claimants + 1
        end
      end
    end
  end
  local even = math.floor(limit / claimants)
  local fair, owed, waiting = math.max(1, even), 0, 0
  for _, field in ipairs(lacking) do
    local lacks = math.max(0, fair - field.granted)
    owed = owed + (field == first and math.max(lacks, field.head) or lacks)
    waiting = waiting + (field.back and lacks > 0 and 1 or 0)
  end
  return {
    others = others, even = even, fair = fair, owed = owed, waiting = waiting, first = first, contended = #lacking > 0,
  }
end

-- ahead returns what is to be left to who has waited longer than the caller and longer than all others, which is
-- nothing only if that is the caller. Who comes anew has not waited.
local function ahead(view, own)
  local caller = { process = id, since = own and recent(own.denied) and own.since or now }
  return view.first and earlier(view.first, caller) and view.first.head or 0
end

-- grow returns how much is granted of what is needed on top of have, with slack if nobody lacks anything, and whether
-- that is short. Nobody gets less than is of use, or the parts would add up to a limit that is full and serves nobody.
-- What the first in line needs is left to it, and it may have that, or one who is heavy would be overtaken for ever. Up
-- to the fair share, what is free beyond that goes to whoever was denied it not long ago, and to others if it leaves
-- one for each who came back and was denied again; above that only as far as it is owed to nobody. So those who come do
-- not overtake those who wait, and those who have do not starve those who have not. Nothing is left to who was denied
-- once: if nobody waits there it may not come back soon.
local function grow(view, limit, have, need, head, slack, denied, left, live)
  local free = limit - view.others - have
  local give, due = math.max(0, math.min(need, free - left)), math.max(0, view.fair - have)
  if not denied then
    due = math.max(0, math.min(due, free - view.waiting))
  elseif left == 0 then
    due = math.max(due, head)
  end
  give = math.max(math.min(due, give), math.min(give, free - view.owed))
  if give < head then
    give = 0
  end
  if give < need then
    return have + give, true
  end
  if not denied and not view.contended then
    give = give + math.min(slack, math.floor((free - give) / (2 * live)))
  end
  return have + give, false
end

-- scarce says that little is left: not even one for each process, nor half of the limit where that is less. Were idle
-- grants kept then, as they are where there is plenty, a limit with room would soon be full of them.
local function scarce(view, limit, granted, live)
  return live > 1 and limit - view.others - granted < math.min(math.floor(limit / 2), live)
end

-- spoken says that what was noted last, a denial or that little was left, is a reason to give back what is idle though
-- it is longer ago than the window: for a process that renews what it has and has not heard of it. And for one that is
-- granted the last: in a limit of 1 that is no sign that little is left, and others may come too seldom to wait for it.
local function spoken(noted, own, need, last)
  local heard = now
  if need > 0 then
    heard = last and now - ttl or now
  elseif own then
    heard = own.written
  end
  return noted > heard and noted <= now
end

-- keep returns Answer.Keep. Everybody may be within the fair share and too little left for the first in line, who is
-- heavy: then each who comes after it makes room.
local function keep(view, need, granted, rest, left)
  local most = -1
  if rest < 0 then
    return 0
  elseif view.owed > rest then
    -- Where there is less than one for each, the few who have some take turns with the others at each renewal.
    most = need == 0 and view.even or view.fair
  end
  if left > rest then
    local room = math.max(0, granted - (left - rest))
    most = most < 0 and room or math.min(most, room)
  end
  return most
end

-- A field stays when it says 0: its seq keeps a late call from bringing back what was given up.
local function write(H, field, noted)
  local value = string.format("%.0f:%.0f:%.0f:%.0f:%.0f:%.0f",
    field.granted, field.seq, field.denied, field.since, field.head, now)
  if noted then
    redis.call("HSET", H, id, value, "!", text(now))
  else
    redis.call("HSET", H, id, value)
  end
  redis.call("PEXPIRE", H, text(memory))
end

-- exchange writes an entry and returns its answer. A call that is repeated is answered by what is written already.
local function exchange(H, learning, live, limit, seq, have, need, head, slack, floor)
  local marks = redis.call("HMGET", H, id, "!")
  local own, noted = parse(marks[1]), tonumber(marks[2] or "0")
  if own and own.seq > seq then
    return 0, -1, STALE, -1
  end
  local view
  -- Who has more than was granted, as far as is remembered, may have what was granted to others.
  local astray = have > (own and own.granted or 0)
  if learning > 0 or need > 0 or astray or recent(noted) or spoken(noted, own, need, false) then
    view = survey(H, limit)
  end

  local left, short = view and ahead(view, own), false
  local field = { granted = have, seq = seq, denied = 0, since = 0, head = 0 }
  if learning > 0 then
    field.granted, short = math.max(have, floor), need > 0
  elseif need > 0 then
    local denied = own and recent(own.denied)
    head = math.max(1, head) -- of 0 anything is of use
    field.granted, short = grow(view, limit, have, need, head, slack, denied, left, live)
    if short then
      -- One whose first waiter was served goes to the end of the line.
      field.denied, field.since, field.head = now, denied and field.granted == have and own.since or now, head
    end
  elseif own then
    field.denied, field.since, field.head = own.denied, own.since, own.head
  end
  local granted = field.granted
  if own and own.seq == seq then
    granted = own.granted
    short = need > 0 and (learning > 0 or granted < have + need)
  else
    write(H, field, learning == 0 and (short or need > 0 and scarce(view, limit, granted, live)))
  end

  local flags, most = short and SHORT or 0, -1
  if not view then
    return granted, -1, flags, most
  end
  if learning == 0 then
    local rest = limit - view.others - granted
    local last = live > 1 and rest <= 0
    if view.contended or not short and (scarce(view, limit, granted, live) or spoken(noted, own, need, last)) then
      flags = flags + CONTENDED
    end
    if short and view.contended and left == 0 and own and own.seq ~= seq and recent(own.denied) then
      flags = flags + FIRST
    end
    most = keep(view, need, granted, rest, left)
  end
  return granted, view.others, flags, most
end

local known = holds()
local epoch, learning, written = remember(known)
renew(written)
local live = redis.call("ZCARD", P)
local reply = { epoch, known and 1 or 0, learning, now + ttl, live, census and rank() or 0 }
if not known and learning == 0 then
  return reply
end
for i = 3, #KEYS do
  local at, entry = 8 + 7 * (i - 3), {}
  for j = 1, 7 do
    entry[j] = tonumber(ARGV[at + j])
  end
  for _, n in ipairs({ exchange(KEYS[i], learning, live, unpack(entry)) }) do
    reply[#reply + 1] = n
  end
end
return reply
