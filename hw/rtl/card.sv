// The card: frames from the network go through parser, patterns, lookups and rules, and reach the software with a
// trailer. Control frames from the software write its memories. docs/internals/hw.md has the picture,
// docs/reference/card-layout.md every bit.
//
// Both directions are AXI streams of 512 bits. `tkeep` has no gaps, and only the last beat of a frame is not full.
// After a reset the card has no configuration; its memories keep what they have.
module card #(
    parameter integer VLAN_TAGS = 2,     // At most 2.
    parameter integer OPTIONS = 1,       // Whether packets with IPv4 options get answers.
    parameter integer IP6 = 1,
    parameter integer PATTERNS = 64,     // 1 to 64.
    parameter integer RANGES = 8,        // Of a pattern, 1 to 8.
    parameter integer RULES = 128,       // 1 to 255.
    parameter integer COUNTERS = 64,     // At most 64. Without any, no frame is dropped.
    parameter integer LOOKUPS = 6,       // 1 to 6.
    parameter integer BLOCK_BITS = 14,   // A lookup has 2^BLOCK_BITS extension blocks: 1 to 16.
    parameter integer BODY = 56,         // Bytes of the largest body, at most 56.
    parameter integer BUFFER_BITS = 9    // The frame buffer has 2^BUFFER_BITS beats, at least 9.
) (
    input  logic         clk,
    input  logic         rst,
    // From the network.
    input  logic [511:0] s_wire_tdata,
    input  logic [63:0]  s_wire_tkeep,
    input  logic         s_wire_tvalid,
    output logic         s_wire_tready,
    input  logic         s_wire_tlast,
    // To the network.
    output logic [511:0] m_wire_tdata,
    output logic [63:0]  m_wire_tkeep,
    output logic         m_wire_tvalid,
    input  logic         m_wire_tready,
    output logic         m_wire_tlast,
    // From the software.
    input  logic [511:0] s_host_tdata,
    input  logic [63:0]  s_host_tkeep,
    input  logic         s_host_tvalid,
    output logic         s_host_tready,
    input  logic         s_host_tlast,
    // To the software.
    output logic [511:0] m_host_tdata,
    output logic [63:0]  m_host_tkeep,
    output logic         m_host_tvalid,
    input  logic         m_host_tready,
    output logic         m_host_tlast,
    // Frames are on the card.
    output logic         busy
);
    // Decisions that may be under way: more than the cycles from a window to the end of its frame.
    localparam integer DECISION_BITS = 5;

    // The software's side.
    logic control_valid;
    logic control_ready;
    logic control_busy;
    layout::bus_t bus;
    logic [31:0] bus_read;
    logic bank;
    logic configured;
    logic commit;
    logic marker;
    logic marker_taken;
    logic answer_valid;
    layout::beat_t answer;
    logic answer_pop;

    host_port host (
        .clk(clk), .rst(rst), .s_tdata(s_host_tdata), .s_tkeep(s_host_tkeep), .s_tvalid(s_host_tvalid),
        .s_tready(s_host_tready), .s_tlast(s_host_tlast), .control_valid(control_valid),
        .control_ready(control_ready), .m_tdata(m_wire_tdata), .m_tkeep(m_wire_tkeep), .m_tvalid(m_wire_tvalid),
        .m_tready(m_wire_tready), .m_tlast(m_wire_tlast)
    );
    control control (
        .clk(clk), .rst(rst), .s_tdata(s_host_tdata), .s_tkeep(s_host_tkeep), .s_tvalid(control_valid),
        .s_tready(control_ready), .s_tlast(s_host_tlast), .bus(bus), .bus_read(bus_read), .bank(bank),
        .configured(configured), .commit(commit), .marker(marker), .marker_taken(marker_taken),
        .answer_valid(answer_valid), .answer(answer), .answer_pop(answer_pop), .busy(control_busy)
    );

    // Frames from the network. A marker waits until no beat comes, and then takes the place of a window.
    logic room;
    logic open;
    logic push;
    layout::beat_t beat_in;
    logic window_valid;
    logic [8*layout::HEADER_BYTES_MAX-1:0] window;
    logic [13:0] window_bytes;
    logic is_giant;
    logic decision_pop;
    logic [DECISION_BITS:0] under_way;
    logic may_decide;

    assign may_decide = under_way < (DECISION_BITS + 1)'((1 << DECISION_BITS) - 1);
    assign open = room && may_decide && !marker && !rst;
    assign marker_taken = marker && !window_valid && may_decide;
    always_ff @(posedge clk) begin
        if (rst) under_way <= 0;
        else under_way <= under_way + {5'd0, window_valid || marker_taken} - {5'd0, decision_pop};
    end

    ingress ingress (
        .clk(clk), .rst(rst), .s_tdata(s_wire_tdata), .s_tkeep(s_wire_tkeep), .s_tvalid(s_wire_tvalid),
        .s_tready(s_wire_tready), .s_tlast(s_wire_tlast), .open(open), .push(push), .beat(beat_in),
        .window_valid(window_valid), .window(window), .bytes(window_bytes), .is_giant(is_giant)
    );

    logic beat_valid;
    layout::beat_t beat;
    logic beat_pop;
    frame_buffer #(.ADDRESS_BITS(BUFFER_BITS)) buffer (
        .clk(clk), .rst(rst), .push(push), .in(beat_in), .room(room), .valid(beat_valid), .out(beat), .pop(beat_pop)
    );

    // The parser: cycles 1 to 3 behind the window.
    layout::frame_t window_frame;
    logic parsed_valid;
    layout::frame_t parsed_frame;
    layout::packet_t packet;
    logic [127:0] seal_answers;
    logic [127:0] seal_alone;
    logic [63:0] shape;
    logic [1:0] options_alone;
    logic [1:0] plain;
    assign window_frame.marker = marker_taken;
    // A plain configuration handles frames as none does; only its answers to control frames have a seal.
    assign window_frame.configured = configured && !plain[bank];
    assign window_frame.bank = bank;
    assign window_frame.bytes = window_bytes;

    registers registers (
        .clk(clk), .bus(bus), .seal_answers(seal_answers), .seal_alone(seal_alone), .shape(shape),
        .options_alone(options_alone), .plain(plain)
    );
    parser #(.VLAN_TAGS(VLAN_TAGS), .OPTIONS(OPTIONS), .IP6(IP6)) parser (
        .clk(clk), .in_valid((window_valid || marker_taken) && !rst), .in_frame(window_frame), .in_giant(is_giant),
        .in_window(window), .options_alone(options_alone), .valid(parsed_valid), .frame(parsed_frame), .packet(packet)
    );

    // Cycles 4 to 6: patterns.
    logic [PATTERNS-1:0] matching;
    logic matched_valid;
    logic matched_answers;
    layout::frame_t matched_frame;
    patterns #(.PATTERNS(PATTERNS), .RANGES(RANGES)) patterns (
        .clk(clk), .bus(bus), .in_valid(parsed_valid), .bank(parsed_frame.bank), .packet(packet), .matching(matching)
    );
    delay #(.WIDTH(layout::FRAME_BITS + 2), .STAGES(3)) while_patterns (
        .clk(clk), .in({parsed_valid, packet.answers, parsed_frame}),
        .out({matched_valid, matched_answers, matched_frame})
    );

    // Cycles 7 to 9: rules.
    logic [7:0] first;
    logic [63:0] counted;
    logic drop;
    logic [5:0] counter;
    logic [PATTERNS-1:0] ruled_matching;
    layout::frame_t ruled_frame;
    rules #(.PATTERNS(PATTERNS), .RULES(RULES), .COUNTERS(COUNTERS)) rules (
        .clk(clk), .bus(bus), .in_valid(matched_valid), .bank(matched_frame.bank), .answers(matched_answers),
        .matching(matching), .first(first), .counted(counted), .drop(drop), .counter(counter)
    );
    delay #(.WIDTH(layout::FRAME_BITS + PATTERNS), .STAGES(3)) while_rules (
        .clk(clk), .in({matched_frame, matching}), .out({ruled_frame, ruled_matching})
    );

    logic [31:0] counters_read;
    counters #(.COUNTERS(COUNTERS)) counters (
        .clk(clk), .rst(rst), .clear(commit), .active(bank), .count(drop), .count_bank(ruled_frame.bank),
        .number(counter), .bytes(ruled_frame.bytes), .bus(bus), .bus_read(counters_read)
    );

    // Cycles 10 and 11: flags.
    logic [63:0] flags_word;
    flags #(.PATTERNS(PATTERNS)) flags (
        .clk(clk), .first(first), .counted(counted), .patterns(ruled_matching),
        .shape(ruled_frame.bank ? shape[63:32] : shape[31:0]), .word(flags_word)
    );

    // Lookups, beside patterns, rules and flags.
    logic [48*LOOKUPS-1:0] found;
    logic [32*LOOKUPS-1:0] lookups_read;
    genvar n;
    generate
        for (n = 0; n < LOOKUPS; n = n + 1) begin : lookups
            lookup #(.INDEX(n), .BLOCK_BITS(BLOCK_BITS)) one (
                .clk(clk), .bus(bus), .bank(parsed_frame.bank),
                .is_ip4(packet.headers[layout::HEADER_IPV4]), .saddr(packet.saddr), .daddr(packet.daddr),
                .answer(found[48*n+:48]), .bus_read(lookups_read[32*n+:32])
            );
        end
    endgenerate

    // Cycles 12 and 13: the trailer.
    logic flagged_valid;
    layout::frame_t flagged_frame;
    layout::packet_t flagged_packet;
    logic flagged_drop;
    logic [48*LOOKUPS-1:0] flagged_found;
    logic decided;
    layout::decision_t decision_in;
    delay #(.WIDTH(1 + layout::FRAME_BITS + layout::PACKET_BITS), .STAGES(8)) while_deciding (
        .clk(clk), .in({parsed_valid, parsed_frame, packet}), .out({flagged_valid, flagged_frame, flagged_packet})
    );
    delay #(.WIDTH(1), .STAGES(2)) while_flags (.clk(clk), .in(drop), .out(flagged_drop));
    delay #(.WIDTH(48 * LOOKUPS), .STAGES(3)) behind_lookups (.clk(clk), .in(found), .out(flagged_found));
    selector #(.LOOKUPS(LOOKUPS), .BODY(BODY)) selector (
        .clk(clk), .bus(bus), .in_valid(flagged_valid), .frame(flagged_frame), .packet(flagged_packet),
        .drop(flagged_drop), .flags(flags_word), .lookups(flagged_found), .seal_answers(seal_answers),
        .seal_alone(seal_alone), .shape(shape), .valid(decided), .decision(decision_in)
    );

    logic decision_valid;
    layout::decision_t decision;
    decision_queue #(.ADDRESS_BITS(DECISION_BITS)) queue (
        .clk(clk), .rst(rst), .push(decided), .in(decision_in), .valid(decision_valid), .out(decision),
        .pop(decision_pop)
    );

    // To the software.
    logic [63:0] answer_seal;
    // Memories outlive a reset, so without a configuration the words of a seal are those of an earlier one.
    assign answer_seal = (!configured ? 64'd0 : bank ? seal_alone[127:64] : seal_alone[63:0]) |
                         64'd1 << layout::SEAL_CONTROL;
    appender appender (
        .clk(clk), .rst(rst), .decision_valid(decision_valid), .decision(decision), .decision_pop(decision_pop),
        .beat_valid(beat_valid), .beat(beat), .beat_pop(beat_pop), .answer_valid(answer_valid), .answer(answer),
        .answer_seal(answer_seal), .answer_pop(answer_pop), .m_tdata(m_host_tdata), .m_tkeep(m_host_tkeep),
        .m_tvalid(m_host_tvalid), .m_tready(m_host_tready), .m_tlast(m_host_tlast)
    );

    // What the software reads: at most one memory puts a word on the bus.
    logic [31:0] shadow_read;
    shadow #(.PATTERNS(PATTERNS), .RANGES(RANGES), .RULES(RULES), .LOOKUPS(LOOKUPS), .BODY(BODY)) shadow (
        .clk(clk), .bus(bus), .bus_read(shadow_read)
    );
    integer i;
    logic [31:0] all_read;
    always_comb begin
        all_read = shadow_read | counters_read;
        for (i = 0; i < LOOKUPS; i = i + 1) all_read = all_read | lookups_read[32*i+:32];
    end
    always_ff @(posedge clk) bus_read <= all_read;

    logic unused;
    assign unused = &{1'b0, ruled_frame};

    assign busy = under_way != 0 || push || beat_valid || control_busy || m_host_tvalid || m_wire_tvalid;
endmodule
