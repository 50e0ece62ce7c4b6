// All patterns. `matching` belongs to the packet of three cycles before.
module patterns #(
    parameter integer PATTERNS = 64,
    parameter integer RANGES = 8
) (
    input  logic                clk,
    input  layout::bus_t        bus,
    input  logic                in_valid,
    input  logic                bank,
    input  layout::packet_t     packet,
    output logic [PATTERNS-1:0] matching
);
    logic take;
    logic [16*32-1:0] fields;
    assign take = in_valid && packet.answers;
    always_comb begin
        fields = '0;
        fields[32*layout::FIELD_PROTOCOL+:32] = {24'd0, packet.protocol};
        fields[32*layout::FIELD_SPORT+:32] = {16'd0, packet.sport};
        fields[32*layout::FIELD_DPORT+:32] = {16'd0, packet.dport};
        fields[32*layout::FIELD_TCP_FLAGS+:32] = {24'd0, packet.tcp_flags};
        fields[32*layout::FIELD_SADDR+:32] = packet.saddr;
        fields[32*layout::FIELD_DADDR+:32] = packet.daddr;
        fields[32*layout::FIELD_TTL+:32] = {24'd0, packet.ttl};
        fields[32*layout::FIELD_LENGTH+:32] = {18'd0, packet.length};
        fields[32*layout::FIELD_ICMP_TYPE+:32] = {24'd0, packet.icmp_type};
        fields[32*layout::FIELD_ICMP_CODE+:32] = {24'd0, packet.icmp_code};
        fields[32*layout::FIELD_VLAN_ID+:32] = {20'd0, packet.vlan_id};
        fields[32*layout::FIELD_TCP_WINDOW+:32] = {16'd0, packet.tcp_window};
    end

    logic compare;
    logic compare_bank;
    logic answer;
    logic answer_bank;
    always_ff @(posedge clk) begin
        compare <= take;
        compare_bank <= bank;
        answer <= compare;
        answer_bank <= compare_bank;
    end

    genvar n;
    generate
        for (n = 0; n < PATTERNS; n = n + 1) begin : each
            pattern #(.INDEX(n), .RANGES(RANGES)) one (
                .clk(clk), .bus(bus), .take(take), .bank(bank), .headers(packet.headers), .fields(fields),
                .compare(compare), .compare_bank(compare_bank), .answer(answer), .answer_bank(answer_bank),
                .match(matching[n])
            );
        end
    endgenerate
endmodule
