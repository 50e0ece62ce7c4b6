// First stage of the parser: passes over VLAN tags and moves the network header to the front.
module parser_vlan #(
    parameter integer VLAN_TAGS = 2
) (
    input  logic                                  clk,
    input  logic                                  in_valid,
    input  layout::frame_t                        in_frame,
    input  logic                                  in_giant,
    input  logic [8*layout::HEADER_BYTES_MAX-1:0] in_window,
    output logic                                  valid,
    output layout::frame_t                        frame,
    output logic                                  fits,        // The frame reaches the network header, and is no giant.
    output logic [15:0]                           ether_type,
    output logic [1:0]                            tags,
    output logic [11:0]                           id,          // Of the outermost tag, or 0.
    output logic [13:0]                           rest,        // Bytes from the network header to the frame's end.
    output logic [639:0]                          network      // The first 80 of them.
);
    localparam integer NETWORK_BITS = 640;

    logic [15:0] type_0;
    logic [15:0] type_1;
    logic [15:0] type_2;
    logic tag_1;
    logic tag_2;
    logic [13:0] offset;

    function automatic is_tag(input [15:0] value);
        is_tag = value == 16'h8100 || value == 16'h88a8 || value == 16'h9100;
    endfunction

    assign type_0 = {in_window[8*12+:8], in_window[8*13+:8]};
    assign type_1 = {in_window[8*16+:8], in_window[8*17+:8]};
    assign type_2 = {in_window[8*20+:8], in_window[8*21+:8]};
    assign tag_1 = VLAN_TAGS >= 1 && is_tag(type_0);
    assign tag_2 = VLAN_TAGS >= 2 && tag_1 && is_tag(type_1);
    assign offset = tag_2 ? 14'd22 : tag_1 ? 14'd18 : 14'd14;

    always_ff @(posedge clk) begin
        valid <= in_valid;
        if (in_valid) begin
            frame <= in_frame;
            fits <= !in_giant && !in_frame.marker && in_frame.configured && in_frame.bytes >= offset;
            ether_type <= tag_2 ? type_2 : tag_1 ? type_1 : type_0;
            tags <= {tag_2, tag_1 && !tag_2};
            id <= tag_1 ? {in_window[8*14+:4], in_window[8*15+:8]} : 12'd0;
            rest <= in_frame.bytes - offset;
            network <= tag_2 ? in_window[8*22+:NETWORK_BITS] :
                       tag_1 ? in_window[8*18+:NETWORK_BITS] : in_window[8*14+:NETWORK_BITS];
        end
    end

    // The rest of both addresses.
    logic unused;
    assign unused = &{1'b0, in_window[8*12-1:0]};
endmodule
