// Third stage of the parser: the transport header.
module parser_transport (
    input  logic            clk,
    input  logic            in_valid,
    input  layout::frame_t  in_frame,
    input  layout::packet_t in_packet,
    input  logic [15:0]     length,
    input  logic [127:0]    transport,
    output logic            valid,
    output layout::frame_t  frame,
    output layout::packet_t packet
);
    logic is_tcp;
    logic is_udp;
    logic is_icmp4;
    logic is_icmp6;
    logic has_ports;
    logic [3:0] words;  // Of a TCP header.
    logic [15:0] udp_length;
    logic is_good;

    assign is_tcp = in_packet.protocol == 8'd6;
    assign is_udp = in_packet.protocol == 8'd17;
    assign is_icmp4 = in_packet.protocol == 8'd1 && in_packet.headers[layout::HEADER_IPV4];
    assign is_icmp6 = in_packet.protocol == 8'd58 && in_packet.headers[layout::HEADER_IPV6];
    assign has_ports = is_tcp || is_udp || in_packet.protocol == 8'd33 || in_packet.protocol == 8'd132 ||
                       in_packet.protocol == 8'd136;
    assign words = transport[8*12+4+:4];
    assign udp_length = {transport[8*4+:8], transport[8*5+:8]};

    always_comb begin
        is_good = 1'b1;
        if (is_tcp) is_good = length >= 16'd20 && words >= 4'd5 && {10'd0, words, 2'd0} <= length;
        else if (is_udp) is_good = length >= 16'd8 && udp_length >= 16'd8 && udp_length <= length;
        else if (has_ports || is_icmp4 || is_icmp6) is_good = length >= 16'd8;
    end

    always_ff @(posedge clk) begin
        valid <= in_valid;
        if (in_valid) begin
            frame <= in_frame;
            packet <= in_packet;
            packet.answers <= in_packet.answers && is_good;
            packet.headers[layout::HEADER_TCP] <= is_tcp;
            packet.headers[layout::HEADER_UDP] <= is_udp;
            packet.headers[layout::HEADER_ICMP] <= is_icmp4;
            packet.headers[layout::HEADER_ICMP6] <= is_icmp6;
            packet.headers[layout::HEADER_PORTS] <= has_ports;
            packet.headers[layout::HEADER_TRANSPORT] <= in_packet.protocol != 8'd50 && in_packet.protocol != 8'd59;
            packet.sport <= has_ports ? {transport[8*0+:8], transport[8*1+:8]} : 16'd0;
            packet.dport <= has_ports ? {transport[8*2+:8], transport[8*3+:8]} : 16'd0;
            packet.tcp_flags <= is_tcp ? transport[8*13+:8] : 8'd0;
            packet.tcp_window <= is_tcp ? {transport[8*14+:8], transport[8*15+:8]} : 16'd0;
            packet.icmp_type <= is_icmp4 || is_icmp6 ? transport[8*0+:8] : 8'd0;
            packet.icmp_code <= is_icmp4 || is_icmp6 ? transport[8*1+:8] : 8'd0;
        end
    end

    logic unused;
    assign unused = &{1'b0, transport[8*6+:52]};
endmodule
