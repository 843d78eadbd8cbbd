#!lua flags=allow-oom
-- Counts a call to a provider among those of the last minute of all instances, unless it must wait, as
-- `call_window.rs` does, by the server's clock.
-- KEYS: the calls, each with the time at which it no longer counts, named "COUNT KIND USER ID", where a kind is s(ync),
-- r(equest) or j(ob).
-- ARGV: the calls that the provider allows in a minute; tenths for jobs, tenths for requests; the kind (job, refresh of a
-- sync, sync, begins, continues, unshared); the user; an id for the call; the provider's own count (0: not known) and
-- for how many microseconds it counts.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local minute = 60000000
local most, kind, user, id = tonumber(ARGV[1]), ARGV[4], ARGV[5], ARGV[6]
local for_jobs, for_requests = math.floor(most * ARGV[2] / 10), math.floor(most * ARGV[3] / 10)

local function add(count, call, lasts)
    redis.call('ZADD', KEYS[1], string.format('%.0f', now + lasts), count .. ' ' .. call .. ' ' .. id)
    redis.call('PEXPIRE', KEYS[1], minute / 1000)
end

redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
local calls = {}
local all, of_syncs, of_requests, of_user = 0, 0, 0, 0
local function change(call, sign)
    all = all + sign * call.count
    if call.kind == 's' then of_syncs = of_syncs + sign * call.count end
    if call.kind == 'r' then of_requests = of_requests + sign * call.count end
    if call.is_of_user then of_user = of_user + sign * call.count end
end
local found = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
for at = 1, #found, 2 do
    local count, by, of = string.match(found[at], '^(%d+) (%a+) (%x*) ')
    local call = { count = tonumber(count), kind = by, is_of_user = user ~= '' and of == user }
    call.ends = tonumber(found[at + 1])
    change(call, 1)
    calls[#calls + 1] = call
end

local beyond = tonumber(ARGV[7]) - all
if beyond > 0 then
    local call = { count = beyond, kind = 'r', ends = now + tonumber(ARGV[8]) }
    add(string.format('%.0f', beyond), 'r ', tonumber(ARGV[8]))
    change(call, 1)
    calls[#calls + 1] = call
    table.sort(calls, function(one, other) return one.ends < other.ends end)
end

local function is_allowed(by)
    if by == 'job' or by == 'refresh' then return true end
    if by == 'sync' then
        return (of_syncs < math.max(for_jobs, 1) and all < most) or all < most - for_requests
    end
    local left = math.min(most - for_jobs - of_requests, most - all)
    if left <= 0 then return false end
    if by == 'begins' then return of_user * 4 < left * 3 end
    return by == 'unshared' or of_user < left
end

if is_allowed(kind) then
    local letter = kind == 'job' and 'j ' or (kind == 'sync' or kind == 'refresh') and 's ' or 'r '
    add('1', letter .. user, minute)
    return { 1, 0, 0 }
end
local by_all = kind == 'sync' or not is_allowed('unshared')
local wait = minute
for _, call in ipairs(calls) do
    change(call, -1)
    if is_allowed(kind) then
        wait = call.ends - now
        break
    end
end
return { 0, by_all and 1 or 0, wait }
