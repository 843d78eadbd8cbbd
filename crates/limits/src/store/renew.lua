#!lua flags=allow-oom
-- Renews the lease of a permit, also if the server has lost it. KEYS: the permits. ARGV: id, lease in microseconds.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
redis.call('ZADD', KEYS[1], string.format('%.0f', now + tonumber(ARGV[2])), ARGV[1])
return redis.call('PEXPIRE', KEYS[1], math.ceil(tonumber(ARGV[2]) / 1000))
