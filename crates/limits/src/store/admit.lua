#!lua flags=allow-oom
-- Takes a call out of a bucket, and a permit, or neither of them, as `gcra.rs` does, by the server's clock. Works while
-- the server has no memory for values, because it needs next to none.
-- KEYS: the bucket, the permits, each with the time at which it ends. ARGV: the interval of the limit (0 means none),
-- the refill time of what may be taken at most, that of an empty bucket whose credit is used up, and the time at which
-- the caller knows the bucket to be full, in microseconds; 1 to take, 0 to look; the most permits (0: none is needed),
-- the permit's id, how many microseconds it lasts. A permit that is there already is renewed.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local interval, burst, with_credit, known = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local takes, most, lasts = ARGV[5] == '1', tonumber(ARGV[6]), tonumber(ARGV[8])

local has_permit = true
if most > 0 then
    redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
    has_permit = redis.call('ZSCORE', KEYS[2], ARGV[7]) or redis.call('ZCARD', KEYS[2]) < most
end

local allowed, full_at = true, 0
if interval > 0 then
    local kept = math.max(tonumber(redis.call('GET', KEYS[1]) or '0'), known)
    full_at = math.min(math.max(kept, now), now + with_credit)
    allowed = full_at + interval - now <= burst
    local takes_call = allowed and takes and has_permit
    if takes_call then
        full_at = full_at + interval
    end
    -- Also what a clock that was set back has lowered, or the bucket would not refill until the clock has caught up.
    if takes_call or kept > full_at then
        redis.call('SET', KEYS[1], string.format('%.0f', full_at), 'PX', math.ceil((full_at - now) / 1000))
    end
end

if most > 0 and has_permit and allowed and takes then
    redis.call('ZADD', KEYS[2], string.format('%.0f', now + lasts), ARGV[7])
    redis.call('PEXPIRE', KEYS[2], math.ceil(lasts / 1000))
end
-- Numbers of this size become text here, because a number that a script returns loses digits.
return {has_permit and 1 or 0, allowed and 1 or 0, string.format('%.0f', full_at), string.format('%.0f', now)}
