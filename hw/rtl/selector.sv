// Makes the trailer: the byte SELECT[i] of the sources becomes byte i of the body, and the seal follows. Two cycles.
module selector #(
    parameter integer LOOKUPS = 6,
    parameter integer BODY = 56
) (
    input  logic                  clk,
    input  layout::bus_t          bus,
    input  logic                  in_valid,
    input  layout::frame_t        frame,
    input  layout::packet_t       packet,
    input  logic                  drop,
    input  logic [63:0]           flags,
    input  logic [48*LOOKUPS-1:0] lookups,
    input  logic [127:0]          seal_answers,
    input  logic [127:0]          seal_alone,
    input  logic [63:0]           shape,
    output logic                  valid,
    output layout::decision_t     decision
);
    logic [8*64-1:0] sources;
    always_comb begin
        sources = '0;
        sources[8*layout::SOURCE_FLAGS+:64] = flags;
        sources[8*layout::SOURCE_HEADERS+:16] = {4'd0, packet.headers};
        sources[8*layout::SOURCE_PROTOCOL+:8] = packet.protocol;
        sources[8*layout::SOURCE_SPORT+:16] = packet.sport;
        sources[8*layout::SOURCE_DPORT+:16] = packet.dport;
        sources[8*layout::SOURCE_SADDR+:32] = packet.saddr;
        sources[8*layout::SOURCE_DADDR+:32] = packet.daddr;
        sources[8*layout::SOURCE_LOOKUPS+:48*LOOKUPS] = lookups;
    end

    // First cycle: the body.
    logic [8*BODY-1:0] body;
    genvar i;
    generate
        for (i = 0; i < BODY; i = i + 1) begin : each
            logic [11:0] select;
            always_ff @(posedge clk) begin
                if (bus.write && bus.memory == layout::MEMORY_SELECT && bus.address == 20'(i)) begin
                    if (bus.bank) select[11:6] <= bus.data[5:0];
                    else select[5:0] <= bus.data[5:0];
                end
            end
            always_ff @(posedge clk) begin
                if (in_valid) body[8*i+:8] <= sources[{frame.bank ? select[11:6] : select[5:0], 3'd0}+:8];
            end
        end
    endgenerate

    logic body_valid;
    logic body_marker;
    logic body_configured;
    logic body_drop;
    logic [5:0] body_bytes;
    logic [63:0] seal;
    logic [5:0] shape_body;
    assign shape_body = frame.bank ? shape[32+16+:6] : shape[16+:6];
    always_ff @(posedge clk) begin
        body_valid <= in_valid;
        body_marker <= frame.marker;
        body_configured <= frame.configured;
        body_drop <= drop;
        body_bytes <= packet.answers ? shape_body : 6'd0;
        seal <= packet.answers ? (frame.bank ? seal_answers[127:64] : seal_answers[63:0]) :
                                 (frame.bank ? seal_alone[127:64] : seal_alone[63:0]);
    end

    logic unused;
    assign unused = &{1'b0, frame.bytes, packet, shape};

    // Second cycle: the seal behind the body.
    logic [511:0] trailer;
    integer j;
    always_comb begin
        trailer = 512'd0;
        for (j = 0; j < 64; j = j + 1) begin
            if (7'(j) < {1'b0, body_bytes}) begin
                if (j < BODY) trailer[8*j+:8] = body[8*(j%BODY)+:8];
            end else if (7'(j) - {1'b0, body_bytes} < layout::SEAL_BYTES) begin
                trailer[8*j+:8] = seal[{3'(7'(j) - {1'b0, body_bytes}), 3'd0}+:8];
            end
        end
    end
    always_ff @(posedge clk) begin
        valid <= body_valid;
        if (body_valid) begin
            decision.marker <= body_marker;
            decision.drop <= body_drop;
            decision.bytes <= body_configured ? {1'b0, body_bytes} + layout::SEAL_BYTES : 7'd0;
            decision.trailer <= trailer;
        end
    end
endmodule
