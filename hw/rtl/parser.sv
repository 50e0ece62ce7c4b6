// Parses a packet in three stages: VLAN tags, IP header, transport header. It answers which headers and fields the
// packet has, and whether the card understands it as a whole (docs/reference/card-layout.md, "Which packets get
// answers").
//
// Bytes behind the end of the frame may have any value here: a packet whose lengths reach behind the end is refused.
module parser #(
    parameter integer VLAN_TAGS = 2,
    parameter integer OPTIONS = 1,
    parameter integer IP6 = 1
) (
    input  logic                                  clk,
    input  logic                                  in_valid,
    input  layout::frame_t                        in_frame,
    input  logic                                  in_giant,
    input  logic [8*layout::HEADER_BYTES_MAX-1:0] in_window,
    input  logic [1:0]                            options_alone,  // By bank: MODE bit 0.
    output logic                                  valid,
    output layout::frame_t                        frame,
    output layout::packet_t                       packet
);
    logic vlan_valid;
    layout::frame_t vlan_frame;
    logic vlan_fits;
    logic [15:0] vlan_type;
    logic [1:0] vlan_tags;
    logic [11:0] vlan_id;
    logic [13:0] vlan_rest;
    logic [639:0] vlan_network;

    parser_vlan #(.VLAN_TAGS(VLAN_TAGS)) vlan (
        .clk(clk), .in_valid(in_valid), .in_frame(in_frame), .in_giant(in_giant), .in_window(in_window),
        .valid(vlan_valid), .frame(vlan_frame), .fits(vlan_fits), .ether_type(vlan_type), .tags(vlan_tags),
        .id(vlan_id), .rest(vlan_rest), .network(vlan_network)
    );

    logic ip_valid;
    layout::frame_t ip_frame;
    layout::packet_t ip_packet;
    logic [15:0] ip_length;
    logic [127:0] ip_transport;

    parser_ip #(.OPTIONS(OPTIONS), .IP6(IP6)) ip (
        .clk(clk), .in_valid(vlan_valid), .in_frame(vlan_frame), .in_fits(vlan_fits), .ether_type(vlan_type),
        .tags(vlan_tags), .id(vlan_id), .rest(vlan_rest), .network(vlan_network), .options_alone(options_alone),
        .valid(ip_valid), .frame(ip_frame), .packet(ip_packet), .length(ip_length), .transport(ip_transport)
    );

    parser_transport ports (
        .clk(clk), .in_valid(ip_valid), .in_frame(ip_frame), .in_packet(ip_packet), .length(ip_length),
        .transport(ip_transport), .valid(valid), .frame(frame), .packet(packet)
    );
endmodule
