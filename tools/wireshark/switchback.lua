-- Takes Switchback's packets apart in Wireshark and tshark: docs/understand/protocol.md, section 1,
-- whose names the fields have.
--
--   wireshark -X lua_script:tools/wireshark/switchback.lua capture.pcap
--   tshark -X lua_script:tools/wireshark/switchback.lua -r capture.pcap \
--     -Y 'switchback.flags.embedded'
--
-- Packets are known by their first three bytes, on any UDP port. Captures come from
-- `switchback switch --pcap`, `switchback lab sim --pcap`, tcpdump.

local MAGIC, VERSION, HEADER_BYTES = 0x5357, 2, 144
local CUT_OFF = ", cut off by the capture"

local OPS = {
    [1] = "READ", [2] = "WRITE", [3] = "DELETE", [4] = "FRAGMENT", [5] = "READ_FRAGMENT",
    [6] = "SCAN",
    [17] = "READ_REPLY", [18] = "WRITE_REPLY", [20] = "FRAGMENT_REPLY",
    [21] = "READ_FRAGMENT_REPLY", [22] = "SCAN_REPLY",
    [24] = "BOUNCE", [25] = "CACHE_UPDATE", [26] = "CACHE_UPDATE_ACK", [29] = "PROBE",
    [64] = "ADMIT", [65] = "SET_VALID", [66] = "EVICT_BEGIN", [67] = "REMOVE",
    [68] = "LOAD_RECORD", [69] = "LOAD_COUNTERS",
    [70] = "AGE_COUNTERS", [71] = "AGE_SKETCH", [72] = "SNAPSHOT_BEGIN", [73] = "SNAPSHOT_END",
    [74] = "SET_DURABLE_GENERATION", [75] = "SET_EPOCH", [76] = "LOAD_LANE", [79] = "CLEAN",
    [80] = "ORIGINAL", [81] = "EVICT_ME",
    [88] = "FREEZE", [89] = "FORGET",
}
local STATUS = {
    [0] = "OK", [1] = "NOT_FOUND", [2] = "CONDITION_FAILED", [3] = "FRAGMENTS_MISSING",
    [4] = "CHANGED", [5] = "NO_SPACE", [6] = "TOO_LARGE",
}
local FLAGS = { "HOT", "CACHED", "FENCED", "EMBEDDED", "CONDITIONAL", "LARGE", "DELETE" }
local RECORD_FLAGS = { "TOMBSTONE", "DIRTY" }

local switchback = Proto("switchback", "Switchback")

-- Fields of the header: name, offset, bytes, and how to show it.
local LAYOUT = {
    { "magic", 0, 2, ProtoField.uint16, base.HEX },
    { "version", 2, 1, ProtoField.uint8, base.DEC },
    { "op", 3, 1, ProtoField.uint8, base.DEC, OPS },
    { "flags", 4, 2, ProtoField.uint16, base.HEX },
    { "tenant", 6, 2, ProtoField.uint16, base.DEC },
    { "epoch", 8, 4, ProtoField.uint32, base.DEC },
    { "partition", 12, 2, ProtoField.uint16, base.DEC },
    { "hop", 14, 1, ProtoField.uint8, base.DEC },
    { "ttl", 15, 1, ProtoField.uint8, base.DEC },
    { "seq", 16, 8, ProtoField.uint64, base.HEX },
    { "guard", 24, 8, ProtoField.uint64, base.HEX },
    { "request", 32, 8, ProtoField.uint64, base.DEC },
    { "lane", 40, 4, ProtoField.uint32, base.DEC },
    { "session", 44, 4, ProtoField.uint32, base.DEC },
    { "key_hash", 48, 16, ProtoField.bytes },
    { "routing", 64, 16, ProtoField.bytes },
    { "expiry_ms", 80, 8, ProtoField.uint64, base.DEC },
    { "tag", 88, 8, ProtoField.uint64, base.HEX },
    { "view", 96, 4, ProtoField.uint32, base.DEC },
    { "generation", 100, 4, ProtoField.uint32, base.DEC },
    { "durable_generation", 104, 4, ProtoField.uint32, base.DEC },
    { "total_bytes", 108, 4, ProtoField.uint32, base.DEC },
    { "value_bytes", 112, 2, ProtoField.uint16, base.DEC },
    { "key_bytes", 114, 2, ProtoField.uint16, base.DEC },
    { "fragment_index", 116, 2, ProtoField.uint16, base.DEC },
    { "fragment_count", 118, 2, ProtoField.uint16, base.DEC },
    { "origin_address", 120, 16, ProtoField.ipv6 },
    { "origin_port", 136, 2, ProtoField.uint16, base.DEC },
    { "status", 138, 1, ProtoField.uint8, base.DEC, STATUS },
    { "record_flags", 139, 1, ProtoField.uint8, base.HEX },
    { "location", 140, 4, ProtoField.uint32, base.HEX },
}

local fields, bits, all = {}, {}, {}
local function add(name, field)
    fields[name] = field
    all[#all + 1] = field
end
for _, field in ipairs(LAYOUT) do
    local name, make = field[1], field[4]
    local abbreviation = "switchback." .. name
    if field[5] then
        add(name, make(abbreviation, name, field[5], field[6]))
    else
        add(name, make(abbreviation, name))
    end
end
local widths = { flags = 16, record_flags = 8 }
for name, names in pairs({ flags = FLAGS, record_flags = RECORD_FLAGS }) do
    bits[name] = {}
    for at, flag in ipairs(names) do
        local abbreviation = "switchback." .. name .. "." .. flag:lower()
        bits[name][at] = ProtoField.bool(abbreviation, flag, widths[name], nil, 2 ^ (at - 1))
        all[#all + 1] = bits[name][at]
    end
end
-- A sequence number is an epoch and a counter.
add("seq.epoch", ProtoField.uint24("switchback.seq.epoch", "epoch", base.DEC))
add("seq.counter", ProtoField.uint64("switchback.seq.counter", "counter", base.DEC))
add("guard.epoch", ProtoField.uint24("switchback.guard.epoch", "epoch", base.DEC))
add("guard.counter", ProtoField.uint64("switchback.guard.counter", "counter", base.DEC))
add("value", ProtoField.bytes("switchback.value", "value"))
add("key", ProtoField.string("switchback.key", "key"))
switchback.fields = all

local malformed = ProtoExpert.new("switchback.malformed", "Malformed packet",
    expert.group.MALFORMED, expert.severity.ERROR)
switchback.experts = { malformed }

local function add_header(buffer, tree)
    for _, field in ipairs(LAYOUT) do
        local name, range = field[1], buffer(field[2], field[3])
        local item = tree:add(fields[name], range)
        for _, bit in ipairs(bits[name] or {}) do item:add(bit, range) end
        if name == "seq" or name == "guard" then
            item:add(fields[name .. ".epoch"], range(0, 3))
            item:add(fields[name .. ".counter"], range(3, 5), range(3, 5):uint64())
        end
    end
end

-- One line: what is asked or answered, and the lane and request that identify it.
local function describe(buffer, op)
    local words = { OPS[op] or ("op " .. op) }
    local status, flags = buffer(138, 1):uint(), buffer(4, 2):uint()
    if op >= 17 and op < 64 then words[#words + 1] = STATUS[status] or ("status " .. status) end
    words[#words + 1] = string.format("lane %u r %s",
        buffer(40, 4):uint(), tostring(buffer(32, 8):uint64()))
    words[#words + 1] = string.format("seq %u|%s",
        buffer(16, 3):uint(), tostring(buffer(19, 5):uint64()))
    for at, name in ipairs(FLAGS) do
        if math.floor(flags / 2 ^ (at - 1)) % 2 == 1 then words[#words + 1] = name end
    end
    return table.concat(words, " ")
end

function switchback.dissector(buffer, packet, tree)
    packet.cols.protocol = "Switchback"
    local subtree = tree:add(switchback, buffer())
    -- A capture may have less of a packet than was sent (tcpdump -s): that is no fault of the
    -- packet's.
    local sent, captured = buffer:reported_len(), buffer:len()
    if sent < HEADER_BYTES then
        subtree:add_proto_expert_info(malformed, "shorter than a header")
        return captured
    end
    if captured < HEADER_BYTES then
        subtree:append_text(CUT_OFF)
        return captured
    end
    add_header(buffer, subtree)
    local op = buffer(3, 1):uint()
    local value_bytes, key_bytes = buffer(112, 2):uint(), buffer(114, 2):uint()
    local line = describe(buffer, op)
    packet.cols.info = line
    subtree:append_text(", " .. line)
    if HEADER_BYTES + value_bytes + key_bytes ~= sent then
        subtree:add_proto_expert_info(malformed,
            "header, value and key aren't as long as the packet")
        return captured
    end
    local value_seen = math.min(value_bytes, captured - HEADER_BYTES)
    local key_seen = math.min(key_bytes, captured - HEADER_BYTES - value_seen)
    if value_seen > 0 then subtree:add(fields.value, buffer(HEADER_BYTES, value_seen)) end
    if key_seen > 0 then subtree:add(fields.key, buffer(HEADER_BYTES + value_seen, key_seen)) end
    if captured < sent then subtree:append_text(CUT_OFF) end
    return captured
end

local function is_ours(buffer, packet, tree)
    if buffer:len() < 3 or buffer(0, 2):uint() ~= MAGIC then return false end
    if buffer(2, 1):uint() ~= VERSION then return false end
    switchback.dissector(buffer, packet, tree)
    return true
end

switchback:register_heuristic("udp", is_ours)
