// The card with four pins, for placement and routing: no part has a pin for each bit of its streams. The bits come from
// a shift register, and the card's outputs are folded into one bit.
module pins #(
    parameter integer VLAN_TAGS = 2,
    parameter integer OPTIONS = 1,
    parameter integer IP6 = 1,
    parameter integer PATTERNS = 64,
    parameter integer RANGES = 8,
    parameter integer RULES = 128,
    parameter integer COUNTERS = 64,
    parameter integer LOOKUPS = 6,
    parameter integer BLOCK_BITS = 14,
    parameter integer BODY = 56,
    parameter integer BUFFER_BITS = 9
) (
    input  logic clk,
    input  logic rst,
    input  logic in,
    output logic out
);
    // A stream is data, keep, last and valid; a stream that leaves is answered by ready.
    localparam integer STREAM = 512 + 64 + 2;
    localparam integer INPUTS = 2 * STREAM + 2;
    localparam integer OUTPUTS = 2 * STREAM + 3;
    localparam integer FOLDED = (OUTPUTS + 15) / 16;

    logic [INPUTS-1:0] inputs;
    logic [16*FOLDED-1:0] outputs;
    logic [16*FOLDED-1:0] held;
    logic [FOLDED-1:0] folded;
    logic resetting;
    integer i;
    assign outputs[16*FOLDED-1:OUTPUTS] = '0;
    always_ff @(posedge clk) begin
        resetting <= rst;
        inputs <= {inputs[INPUTS-2:0], in};
        held <= outputs;
        for (i = 0; i < FOLDED; i = i + 1) folded[i] <= ^held[16*i+:16] ^ (i == 0 ? 1'b0 : folded[i > 0 ? i - 1 : 0]);
        out <= folded[FOLDED-1];
    end

    card #(
        .VLAN_TAGS(VLAN_TAGS), .OPTIONS(OPTIONS), .IP6(IP6), .PATTERNS(PATTERNS), .RANGES(RANGES), .RULES(RULES),
        .COUNTERS(COUNTERS), .LOOKUPS(LOOKUPS), .BLOCK_BITS(BLOCK_BITS), .BODY(BODY), .BUFFER_BITS(BUFFER_BITS)
    ) card (
        .clk(clk), .rst(resetting),
        .s_wire_tdata(inputs[0+:512]), .s_wire_tkeep(inputs[512+:64]), .s_wire_tlast(inputs[576]),
        .s_wire_tvalid(inputs[577]), .s_wire_tready(outputs[2*STREAM]),
        .s_host_tdata(inputs[STREAM+:512]), .s_host_tkeep(inputs[STREAM+512+:64]), .s_host_tlast(inputs[STREAM+576]),
        .s_host_tvalid(inputs[STREAM+577]), .s_host_tready(outputs[2*STREAM+1]),
        .m_wire_tdata(outputs[0+:512]), .m_wire_tkeep(outputs[512+:64]), .m_wire_tlast(outputs[576]),
        .m_wire_tvalid(outputs[577]), .m_wire_tready(inputs[2*STREAM]),
        .m_host_tdata(outputs[STREAM+:512]), .m_host_tkeep(outputs[STREAM+512+:64]),
        .m_host_tlast(outputs[STREAM+576]), .m_host_tvalid(outputs[STREAM+577]),
        .m_host_tready(inputs[2*STREAM+1]), .busy(outputs[2*STREAM+2])
    );
endmodule
