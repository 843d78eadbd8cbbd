#!lua flags=allow-oom
-- Takes a call out of a bucket, and a permit, or neither of them, as `gcra.rs` does, by the server's clock. Works while
-- the server has no memory for values, because it needs next to none.
-- KEYS: the bucket, the permits. ARGV: interval and burst of the limit and the time at which the caller knows the
-- bucket to be full, in microseconds (an interval of 0 means no limit); 1 to take, 0 to look; the most permits (0: none
-- is needed), the permit's id, its lease in microseconds.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local interval, burst, known = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local takes, most, lease = ARGV[4] == '1', tonumber(ARGV[5]), tonumber(ARGV[7])

local has_permit = true
if most > 0 then
    redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
    has_permit = redis.call('ZCARD', KEYS[2]) < most
end

local allowed, full_at = true, 0
if interval > 0 then
    full_at = math.max(tonumber(redis.call('GET', KEYS[1]) or '0'), known)
    full_at = math.min(math.max(full_at, now), now + burst)
    allowed = full_at + interval - now <= burst
    if allowed and takes and has_permit then
        full_at = full_at + interval
        redis.call('SET', KEYS[1], string.format('%.0f', full_at), 'PX', math.ceil((full_at - now) / 1000))
    end
end

if most > 0 and has_permit and allowed and takes then
    redis.call('ZADD', KEYS[2], string.format('%.0f', now + lease), ARGV[6])
    redis.call('PEXPIRE', KEYS[2], math.ceil(lease / 1000))
end
-- Numbers of this size become text here, because a number that a script returns loses digits.
return {has_permit and 1 or 0, allowed and 1 or 0, string.format('%.0f', full_at), string.format('%.0f', now)}
