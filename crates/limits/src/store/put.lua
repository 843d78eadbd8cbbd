-- Stores a value, which begins with the 16 bytes of its generation, unless one of another generation is there.
-- KEYS: the name.
-- ARGV: the value; 1 if it begins a generation, which replaces any other; its time to live in milliseconds.
local there = redis.call('GETRANGE', KEYS[1], 0, 15)
if there == '' or ARGV[2] == '1' or there == string.sub(ARGV[1], 1, 16) then
    redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
end
