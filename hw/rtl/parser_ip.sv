// Second stage of the parser: the IP header, and the first 16 bytes of what follows it.
module parser_ip #(
    parameter integer OPTIONS = 1,
    parameter integer IP6 = 1
) (
    input  logic            clk,
    input  logic            in_valid,
    input  layout::frame_t  in_frame,
    input  logic            in_fits,
    input  logic [15:0]     ether_type,
    input  logic [1:0]      tags,
    input  logic [11:0]     id,
    input  logic [13:0]     rest,
    input  logic [639:0]    network,
    input  logic [1:0]      options_alone,
    output logic            valid,
    output layout::frame_t  frame,
    output layout::packet_t packet,     // Without its transport header.
    output logic [15:0]     length,     // Bytes of the transport header and its payload.
    output logic [127:0]    transport
);
    logic is_ip4;
    logic is_ip6;
    logic [3:0] version;
    logic [3:0] words;  // Of an IPv4 header.
    logic [15:0] header_bytes;
    logic [15:0] total;
    logic [15:0] payload;
    logic is_fragment;
    logic takes_options;
    logic is_good4;
    logic is_good6;
    logic is_extension;
    logic [7:0] next;

    assign is_ip4 = ether_type == 16'h0800;
    assign is_ip6 = IP6 != 0 && ether_type == 16'h86dd;
    assign version = network[7:4];
    assign words = network[3:0];
    assign header_bytes = {10'd0, words, 2'd0};
    assign total = {network[8*2+:8], network[8*3+:8]};
    assign is_fragment = network[8*6+:6] != 6'd0 || network[8*7+:8] != 8'd0;
    assign takes_options = OPTIONS != 0 && !options_alone[in_frame.bank];
    assign is_good4 = is_ip4 && version == 4'd4 && words >= 4'd5 && total >= header_bytes && total <= {2'd0, rest} &&
                      !is_fragment && (words == 4'd5 || takes_options);

    assign payload = {network[8*4+:8], network[8*5+:8]};
    assign next = network[8*6+:8];
    assign is_extension = next == 8'd0 || next == 8'd43 || next == 8'd44 || next == 8'd51 || next == 8'd60 ||
                          next == 8'd135;
    assign is_good6 = is_ip6 && version == 4'd6 && {1'b0, payload} + 17'd40 <= {3'd0, rest} && !is_extension;

    // An IPv6 header is as long as an IPv4 header of ten words.
    logic [3:0] start;
    logic [127:0] at_start;
    assign start = is_ip6 ? 4'd10 : words;
    integer i;
    always_comb begin
        at_start = 128'd0;
        for (i = 5; i < 16; i = i + 1) if (start == 4'(i)) at_start = at_start | network[32*i+:128];
    end

    function automatic [31:0] big_endian(input [31:0] word);
        big_endian = {word[7:0], word[15:8], word[23:16], word[31:24]};
    endfunction

    always_ff @(posedge clk) begin
        valid <= in_valid;
        if (in_valid) begin
            frame <= in_frame;
            packet <= '0;
            packet.answers <= in_fits && (is_good4 || is_good6);
            packet.headers[layout::HEADER_ANY] <= 1'b1;
            packet.headers[layout::HEADER_VLAN] <= tags != 2'd0;
            packet.headers[layout::HEADER_QINQ] <= tags == 2'd2;
            packet.headers[layout::HEADER_IPV4] <= is_ip4;
            packet.headers[layout::HEADER_IPV6] <= is_ip6;
            packet.headers[layout::HEADER_IP] <= 1'b1;
            packet.protocol <= is_ip6 ? next : network[8*9+:8];
            packet.saddr <= is_ip6 ? 32'd0 : big_endian(network[8*12+:32]);
            packet.daddr <= is_ip6 ? 32'd0 : big_endian(network[8*16+:32]);
            packet.ttl <= is_ip6 ? network[8*7+:8] : network[8*8+:8];
            packet.length <= rest;
            packet.vlan_id <= id;
            length <= is_ip6 ? payload : total - header_bytes;
            transport <= at_start;
        end
    end

    // Bytes of the network header that no policy asks for, and reserved bits.
    logic unused;
    assign unused = &{1'b0, network[8*1+:8], network[8*6+6+:2], network[639:608]};
endmodule
