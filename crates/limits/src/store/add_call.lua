#!lua flags=allow-oom
-- Adds a call to those of the last minute of all instances, unless some were added that the caller does not know. Then
-- it gets all of them, and decides again. The rule is in `call_window.rs`.
-- KEYS: the calls, each with the time at which it no longer counts; the id of the newest one. ARGV: the newest one that
-- the caller knows; what to add (empty: nothing), its id, and for how many microseconds it counts.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local minute = 60000
local newest = redis.call('GET', KEYS[2]) or ''
if newest ~= ARGV[1] then
    redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
    -- The time becomes text, because a number that a script returns loses digits.
    return { 0, newest, string.format('%.0f', now), redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES') }
end
if ARGV[2] ~= '' then
    redis.call('ZADD', KEYS[1], string.format('%.0f', now + ARGV[4]), ARGV[2] .. ' ' .. ARGV[3])
    redis.call('PEXPIRE', KEYS[1], minute)
    newest = ARGV[3]
    redis.call('SET', KEYS[2], newest, 'PX', minute)
end
return { 1, newest, '0', {} }
