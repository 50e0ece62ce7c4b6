// Packs first, counted and patterns into the flags of the body, without gaps: two cycles.
module flags #(
    parameter integer PATTERNS = 64
) (
    input  logic                clk,
    input  logic [7:0]          first,
    input  logic [63:0]         counted,
    input  logic [PATTERNS-1:0] patterns,
    input  logic [31:0]         shape,     // The SHAPE of the packet's bank.
    output logic [63:0]         word
);
    logic [3:0] w;
    logic [6:0] c;
    logic [6:0] p;
    assign w = shape[3:0];
    assign c = shape[14:8];
    assign p = shape[30:24];

    // The lowest `bits` of a word. Each bit is a comparison of its own: a subtraction would carry through all of them.
    function automatic [63:0] low(input [6:0] bits);
        integer i;
        for (i = 0; i < 64; i = i + 1) low[i] = bits > 7'(i);
    endfunction

    logic [63:0] front;
    logic [63:0] back;
    logic [7:0] shift;
    logic [63:0] wide;
    assign wide = {{(64 - PATTERNS) {1'b0}}, patterns};
    always_ff @(posedge clk) begin
        front <= ({56'd0, first} & low({3'd0, w})) | ((counted & low(c)) << w);
        back <= wide & low(p);
        shift <= {4'd0, w} + {1'b0, c};
        word <= front | (back << shift);
    end

    logic unused;
    assign unused = &{1'b0, shape[31], shape[23:15], shape[7:4]};
endmodule
