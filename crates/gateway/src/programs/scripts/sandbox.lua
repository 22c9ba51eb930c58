-- What scripts see: the globals that Redis 7.0 gives them, none of which can be changed. It is run
-- once, with the gateway's functions; each of those of libraries returns true and its results, or
-- false and what is wrong.
local host = ...
local getinfo = debug.getinfo
local concat, sort, insert = table.concat, table.sort, table.insert
local log, min = math.log, math.min
local find, format, gsub, rep, sub = string.find, string.format, string.gsub, string.rep, string.sub

-- A function as one of C: a script's tail call of it leaves the script's line to be found.
local native = host.native

-- Source, line and short source of the script's function that runs.
local function place()
    for level = 3, 50 do
        local info = getinfo(level, 'Sl')
        if not info then return nil end
        if info.currentline > 0 and info.short_src ~= 'sandbox' then
            return info.source, info.currentline, info.short_src
        end
    end
end

local function fail(message)
    local _, line, source = place()
    if line then message = source .. ':' .. line .. ': ' .. message end
    error(message, 0)
end

local function results(ok, ...)
    if ok then return ... end
    fail((...))
end

local function raising(functions)
    local raised = {}
    for name, called in pairs(functions) do
        raised[name] = native(function(...) return results(called(...)) end)
    end
    return raised
end

-- A table that stands for another one, which can't be changed by it.
local stands_for = setmetatable({}, {__mode = 'k'})
local READONLY = 'Attempt to modify a readonly table'
local function protect(table)
    local proxy = setmetatable({}, {
        __index = table,
        __newindex = function() fail(READONLY) end,
        __metatable = false,
    })
    stands_for[proxy] = table
    return proxy
end

-- Tells of work that nothing interrupts: about its nanoseconds. If the script's time is over, it
-- ends. What is short isn't worth the call.
local function spend(work)
    if work > 1000 then host.spend(work) end
end
-- A number is given as its text.
local function bytes(text)
    local kind = type(text)
    return kind == 'string' and #text or kind == 'number' and #tostring(text) or 0
end

-- Patterns. What may take too long is refused.
local function check_pattern(text, pattern, knows_anchor)
    if type(pattern) ~= 'string' then return end
    if #pattern > host.pattern_bytes_max then fail('pattern too long') end
    local work = host.pattern_work(pattern, bytes(text), knows_anchor)
    if work > host.pattern_work_max then
        fail('pattern that may take too long for a text of ' .. bytes(text) .. ' bytes')
    end
    spend(8 * work)
end
for name, knows_anchor in pairs {match = true, gmatch = false, gfind = false} do
    local called = string[name]
    string[name] = native(function(text, pattern, ...)
        check_pattern(text, pattern, knows_anchor)
        return called(text, pattern, ...)
    end)
end
-- Each replacement is made by a function of Lua: the clock is looked at after some of its
-- instructions, whatever that calls.
string.gsub = native(function(text, pattern, replacement, ...)
    check_pattern(text, pattern, true)
    local replaced = replacement
    if type(replacement) == 'function' then
        replaced = function(...) return replacement(...) end
    elseif type(replacement) == 'table' then
        replaced = function(key) return replacement[key] end
    end
    -- More than a script may have isn't made.
    spend(2 * min((bytes(text) + 1) * bytes(replacement), host.script_bytes_max))
    return gsub(text, pattern, replaced, ...)
end)
-- Lua compares what is looked for with the text at each place; the host goes through both once.
string.find = native(function(text, pattern, from, plain)
    if type(text) ~= 'string' or type(pattern) ~= 'string' then
        return find(text, pattern, from, plain)
    end
    if not (plain or host.is_plain(pattern)) then
        check_pattern(text, pattern, true)
        return find(text, pattern, from)
    end
    spend(#text + #pattern)
    if #text * #pattern < 10000 then return find(text, pattern, from, true) end
    local rest = from and sub(text, from) or text
    local first = host.find(rest, pattern)
    if not first then return nil end
    first = first + #text - #rest
    return first, first + #pattern - 1
end)
for _, name in ipairs {'upper', 'lower', 'reverse'} do
    local called = string[name]
    string[name] = native(function(text, ...)
        spend(2 * bytes(text))
        return called(text, ...)
    end)
end
string.format = native(function(...)
    local count = select('#', ...)
    local given = 500 * count
    for at = 1, count do given = given + 4 * bytes((select(at, ...))) end
    spend(given)
    return format(...)
end)
string.rep = native(function(text, times)
    local count = tonumber(times) or 0
    if bytes(text) * count > host.string_bytes_max then fail('resulting string too large') end
    if text == '' and count > 1 then times = 1 end
    spend((bytes(text) + 4) * count)
    return rep(text, times)
end)

-- Strings are compared by their bytes, each about as often as the logarithm of their number.
table.sort = native(function(list, comes_before)
    if type(list) == 'table' then
        local count = #list
        if count > host.sorted_max then fail('table too large to be sorted') end
        local compared = count
        if not comes_before and type(list[1]) == 'string' then
            for at = 1, count do compared = compared + bytes(list[at]) end
        end
        local rounds = 2 * log(count + 1)
        if compared * rounds > host.sorted_work_max then fail('table too large to be sorted') end
        spend((compared + 10 * count) * rounds)
    end
    return sort(list, comes_before)
end)
table.concat = native(function(list, ...)
    if type(list) == 'table' then spend(20 * #list) end
    local joined = concat(list, ...)
    spend(#joined)
    return joined
end)
table.insert = native(function(list, ...)
    if stands_for[list] then error(READONLY, 0) end
    return insert(list, ...)
end)

local draw = host.random
local floor = math.floor
math.random = native(function(low, high)
    if not low then return draw() end
    local at = high and 2 or 1
    if not high then low, high = 1, low end
    if low > high then fail('bad argument #' .. at .. " to 'random' (interval is empty)") end
    return floor(draw() * (high - low + 1)) + low
end)
math.randomseed = host.seed

local redis = {
    sha1hex = function(...)
        if select('#', ...) ~= 1 then error({err = 'ERR wrong number of arguments'}, 0) end
        spend(2 * bytes((...)))
        return host.sha1hex((...))
    end,
    status_reply = function(...)
        local text = ...
        if select('#', ...) ~= 1 or type(text) ~= 'string' then
            return {err = 'ERR wrong number or type of arguments'}
        end
        return {ok = text}
    end,
    error_reply = function(...)
        local text = ...
        if select('#', ...) ~= 1 or type(text) ~= 'string' then
            return {err = 'ERR wrong number or type of arguments'}
        end
        if sub(text, 1, 1) == '-' then text = sub(text, 2) end
        if not find(text, ' ', 1, true) then text = 'ERR ' .. text end
        return {err = text}
    end,
    log = function(level, ...)
        if select('#', ...) == 0 then
            error({err = 'ERR redis.log() requires two arguments or more.'}, 0)
        end
        if type(level) ~= 'number' then
            error({err = 'ERR First argument must be a number (log level).'}, 0)
        end
        if level < 0 or level > 3 then error({err = 'ERR Invalid debug level.'}, 0) end
        local parts = {...}
        for at = 1, #parts do parts[at] = tostring(parts[at]) end
        host.log(concat(parts, ' '))
    end,
    setresp = function(...)
        local version = ...
        if select('#', ...) ~= 1 then
            error({err = 'ERR redis.setresp() requires one argument.'}, 0)
        end
        if version ~= 2 and version ~= 3 then
            error({err = 'ERR RESP version must be 2 or 3.'}, 0)
        end
        host.setresp(version)
    end,
    breakpoint = function() return false end,
    debug = function() end,
    replicate_commands = function() return true end,
    set_repl = function() end,
    LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
    REPL_NONE = 0, REPL_SLAVE = 1, REPL_REPLICA = 1, REPL_AOF = 2, REPL_ALL = 3,
    REDIS_VERSION = host.version, REDIS_VERSION_NUM = host.version_number,
}

for name, called in pairs(redis) do
    if type(called) == 'function' then redis[name] = native(called) end
end
redis.call, redis.pcall = host.call, host.pcall

local globals = {redis = protect(redis), _VERSION = _VERSION, gcinfo = gcinfo}
for _, name in ipairs {
    'assert', 'error', 'getmetatable', 'ipairs', 'next', 'pairs', 'rawequal', 'select', 'tonumber',
    'tostring', 'type', 'unpack',
} do
    globals[name] = _G[name]
end
for name, library in pairs {string = string, table = table, math = math, coroutine = coroutine} do
    globals[name] = protect(library)
end
local cjson = raising(host.cjson)
cjson._NAME, cjson._VERSION, cjson.null = 'cjson', '2.1.0', host.null
globals.cjson = protect(cjson)
local cmsgpack = raising(host.cmsgpack)
cmsgpack._NAME, cmsgpack._VERSION = 'cmsgpack', 'lua-cmsgpack 0.4.0'
globals.cmsgpack = protect(cmsgpack)
globals.struct = protect(raising(host.struct))
globals.bit = protect(raising(host.bit))

-- What is caught is a text, even where Redis throws a table.
local pcall = pcall
local function caught(ok, err, ...)
    if not ok and type(err) == 'table' and type(rawget(err, 'err')) == 'string' then
        return false, rawget(err, 'err')
    end
    return ok, err, ...
end
globals.pcall = native(function(...) return caught(pcall(...)) end)
-- The handler is called once the error has been caught: in a function that has run out of time
-- nothing could interrupt it.
local function handled(handler, ok, ...)
    if ok then return true, ... end
    return false, handler(...)
end
globals.xpcall = native(function(called, handler) return handled(handler, pcall(called)) end)

globals.rawget = native(function(table, key) return rawget(stands_for[table] or table, key) end)
globals.rawset = native(function(table, key, value)
    if stands_for[table] then error(READONLY, 0) end
    return rawset(table, key, value)
end)
globals.setmetatable = native(function(table, metatable)
    if stands_for[table] then error(READONLY, 0) end
    return setmetatable(table, metatable)
end)
function globals.collectgarbage(what)
    return what == 'count' and collectgarbage('count') or 0
end
-- Bytecode can break what runs it.
local loadstring = loadstring
function globals.loadstring(text, name)
    if type(text) == 'string' and sub(text, 1, 1) == '\27' then
        return nil, 'attempt to load bytecode'
    end
    if bytes(text) > host.text_bytes_max then return nil, 'text too long' end
    spend(100 * bytes(text))
    return loadstring(text, name)
end
function globals.load(pieces, name)
    local text = {}
    for piece in pieces do
        if piece == '' then break end
        text[#text + 1] = piece
    end
    return globals.loadstring(concat(text), name or '=(load)')
end

setmetatable(globals, {
    __index = function(_, name)
        fail("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'")
    end,
})
local proxy = protect(globals)
globals._G = proxy
getmetatable('').__metatable = protect({__index = globals.string})

-- What Redis makes of an error that ends a script. Nothing of the script runs here.
local function handle(err)
    local source, line, short = place()
    if type(err) == 'table' then return {err = rawget(err, 'err'), source = source, line = line} end
    local text = tostring(err)
    if line then text = gsub(text, '^sandbox:%d+: ', short .. ':' .. line .. ': ') end
    return {err = 'ERR ' .. text, source = source, line = line}
end

return {
    globals = globals,
    proxy = proxy,
    compile = function(text) return globals.loadstring(text, '@user_script') end,
    handle = handle,
}
