// Takes frames from the network: each beat goes to the frame buffer, and the first bytes of the frame, with its length,
// to the parser. The length is known with the last beat, so the decision follows the whole frame. A frame of more than
// BEATS_MAX beats is decided without its end: it gets no answers, and needs no room for all of it.
module ingress (
    input  logic                                    clk,
    input  logic                                    rst,
    input  logic [511:0]                            s_tdata,
    input  logic [63:0]                             s_tkeep,
    input  logic                                    s_tvalid,
    output logic                                    s_tready,
    input  logic                                    s_tlast,
    input  logic                                    open,     // There is room for a beat and a decision.
    output logic                                    push,
    output layout::beat_t                           beat,
    output logic                                    window_valid,
    output logic [8*layout::HEADER_BYTES_MAX-1:0]   window,
    output logic [13:0]                             bytes,
    output logic                                    is_giant
);
    localparam integer TAIL_BITS = 8 * (layout::HEADER_BYTES_MAX - 64);
    localparam [7:0] BEAT_LAST = 8'(layout::BEATS_MAX - 1);

    logic [7:0] index;  // Of the next beat, up to BEATS_MAX.
    logic accept;
    logic decides;
    logic [5:0] count;
    logic [63:0] top;

    assign s_tready = open;
    assign accept = s_tvalid && s_tready;
    assign decides = accept && (index == BEAT_LAST || (s_tlast && index < BEAT_LAST));

    // The highest byte of the beat, from the one bit in `top`.
    assign top = s_tkeep & ~{1'b0, s_tkeep[63:1]};
    integer i;
    always_comb begin
        count = 6'd0;
        for (i = 0; i < 64; i = i + 1) if (top[i]) count = count | 6'(i);
    end

    always_ff @(posedge clk) begin
        push <= accept && !rst;
        beat.last <= s_tlast;
        beat.count <= count;
        beat.data <= s_tdata;
        window_valid <= decides && !rst;
        bytes <= {index, 6'd0} + {8'd0, count} + 14'd1;
        is_giant <= !s_tlast;
        if (rst) index <= 8'd0;
        else if (accept && s_tlast) index <= 8'd0;
        else if (accept && index != 8'(layout::BEATS_MAX)) index <= index + 1'b1;
        if (accept && index == 8'd0) window[511:0] <= s_tdata;
        if (accept && index == 8'd1) window[512+:TAIL_BITS] <= s_tdata[TAIL_BITS-1:0];
    end
endmodule
