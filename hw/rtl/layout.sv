// The numbers of docs/reference/card-layout.md, and the types that modules exchange. crates/abi/src/card.rs has the
// same numbers under the same names; tests/house/hardware.rs compares both files.
package layout;
    // Bytes of the seal.
    localparam [6:0] SEAL_BYTES = 7'd8;

    // Sources of the body's bytes.
    localparam integer SOURCE_FLAGS = 0;
    localparam integer SOURCE_HEADERS = 8;
    localparam integer SOURCE_PROTOCOL = 10;
    localparam integer SOURCE_SPORT = 12;
    localparam integer SOURCE_DPORT = 14;
    localparam integer SOURCE_SADDR = 16;
    localparam integer SOURCE_DADDR = 20;
    localparam integer SOURCE_LOOKUPS = 24;

    // Headers that a packet may have: numbers of bits.
    localparam integer HEADER_ANY = 0;
    localparam integer HEADER_VLAN = 1;
    localparam integer HEADER_QINQ = 2;
    localparam integer HEADER_IPV4 = 3;
    localparam integer HEADER_IPV6 = 4;
    localparam integer HEADER_IP = 5;
    localparam integer HEADER_TCP = 6;
    localparam integer HEADER_UDP = 7;
    localparam integer HEADER_ICMP = 8;
    localparam integer HEADER_ICMP6 = 9;
    localparam integer HEADER_PORTS = 10;
    localparam integer HEADER_TRANSPORT = 11;

    // Fields that a pattern compares.
    localparam integer FIELD_PROTOCOL = 0;
    localparam integer FIELD_SPORT = 1;
    localparam integer FIELD_DPORT = 2;
    localparam integer FIELD_TCP_FLAGS = 3;
    localparam integer FIELD_SADDR = 4;
    localparam integer FIELD_DADDR = 5;
    localparam integer FIELD_TTL = 6;
    localparam integer FIELD_LENGTH = 7;
    localparam integer FIELD_ICMP_TYPE = 8;
    localparam integer FIELD_ICMP_CODE = 9;
    localparam integer FIELD_VLAN_ID = 10;
    localparam integer FIELD_TCP_WINDOW = 11;

    // Memories. Lookup n has DIRECT + n and EXTENSION + n.
    localparam [4:0] MEMORY_CONFIG = 5'd0;
    localparam [4:0] MEMORY_PATTERNS = 5'd1;
    localparam [4:0] MEMORY_RULES = 5'd2;
    localparam [4:0] MEMORY_SELECT = 5'd3;
    localparam [4:0] MEMORY_LOOKUPS = 5'd4;
    localparam [4:0] MEMORY_COUNTERS = 5'd5;
    localparam [4:0] MEMORY_COUNTERS_BEFORE = 5'd6;
    localparam [4:0] MEMORY_DIRECT = 5'd16;
    localparam [4:0] MEMORY_EXTENSION = 5'd24;
    // A memory that no card has.
    localparam [4:0] MEMORY_NONE = 5'd31;

    // Words of CONFIG.
    localparam [2:0] REGISTER_SEAL_ANSWERS = 3'd0;
    localparam [2:0] REGISTER_SEAL_ALONE = 3'd2;
    localparam [2:0] REGISTER_SHAPE = 3'd4;
    localparam [2:0] REGISTER_MODE = 3'd5;
    localparam integer REGISTER_COUNT = 6;

    // Bits of MODE.
    localparam integer MODE_OPTIONS_ALONE = 0;
    localparam integer MODE_PLAIN = 1;

    // Acts of rules.
    localparam [1:0] ACT_COUNT = 2'd1;
    localparam [1:0] ACT_DROP = 2'd2;
    localparam [1:0] ACT_END = 2'd3;

    // Control frames.
    localparam [15:0] CONTROL_ETHER_TYPE = 16'h88b5;
    localparam integer CONTROL_HEADER_BYTES = 24;
    localparam integer CONTROL_WORDS_MAX = 256;
    localparam [7:0] CONTROL_WRITE = 8'd1;
    localparam [7:0] CONTROL_COMMIT = 8'd2;
    localparam [7:0] CONTROL_READ = 8'd3;
    localparam [7:0] CONTROL_ANSWER = 8'h80;
    // The bit of a seal that says that its frame answers a control frame.
    localparam integer SEAL_CONTROL = 23;

    // Bytes of a frame that the parser reads: Ethernet, two tags, 60 bytes of IPv4, 20 of TCP.
    localparam integer HEADER_BYTES_MAX = 102;
    // The longest frame that gets answers: what one decision waits for.
    localparam integer BEATS_MAX = 255;

    // The bus from control frames to memories. A write takes one cycle. A read holds memory, bank and address for
    // READ_CYCLES cycles, in which each memory puts its word, or 0, on its output.
    localparam integer READ_CYCLES = 6;

    // Bits of the types below, for those who keep them in memories.
    localparam integer FRAME_BITS = 17;
    localparam integer PACKET_BITS = 191;
    localparam integer DECISION_BITS = 521;
    localparam integer BEAT_BITS = 519;

    typedef struct packed {
        logic        write;
        logic        bank;
        logic [4:0]  memory;
        logic [19:0] address;
        logic [31:0] data;
    } bus_t;

    // What goes through the pipeline with every frame. A marker is no frame: it holds the place of a control answer.
    typedef struct packed {
        logic        marker;
        logic        configured;
        logic        bank;
        logic [13:0] bytes;
    } frame_t;

    // What the parser knows about a packet. Without answers nothing in it is meaningful.
    typedef struct packed {
        logic        answers;
        logic [11:0] headers;
        logic [7:0]  protocol;
        logic [15:0] sport;
        logic [15:0] dport;
        logic [7:0]  tcp_flags;
        logic [31:0] saddr;
        logic [31:0] daddr;
        logic [7:0]  ttl;
        logic [13:0] length;
        logic [7:0]  icmp_type;
        logic [7:0]  icmp_code;
        logic [11:0] vlan_id;
        logic [15:0] tcp_window;
    } packet_t;

    // What happens with a frame. `bytes` of `trailer` are appended, at most 64.
    typedef struct packed {
        logic         marker;
        logic         drop;
        logic [6:0]   bytes;
        logic [511:0] trailer;
    } decision_t;

    // A beat in the frame buffer. `count` is the number of its bytes less one, in the last beat of a frame.
    typedef struct packed {
        logic         last;
        logic [5:0]   count;
        logic [511:0] data;
    } beat_t;
endpackage
